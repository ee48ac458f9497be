"""The lines of code that made the nodes of a trace."""

import re
import sys
from pathlib import Path
from types import CodeType

import torch
from torch.fx import Node

from GraphExtractor.torch_internals import traceback

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = Path(torch.__file__).parent
_OURS = Path(__file__).parent
_LIBRARY = str(_TORCH)


def remember_lines(within: CodeType) -> None:
    """Have the nodes that are made next know the lines that are running within a function.

    Text with the lines themselves, as tracers of torch have it, would take a fifth of a trace.
    """
    lines = []
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not within:
        file = frame.f_code.co_filename
        if not file.startswith(_LIBRARY):
            lines.append(f'File "{file}", line {frame.f_lineno}\n')
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None:
        traceback.set_stack_trace(lines[::-1])


def line_of(node: Node, model: str | None = None) -> str:
    """The innermost line, as file:number, beside ``model`` that made a node, else of a library.

    Empty where nothing is known: only traces of models that nobody described keep lines.
    """
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    folder = Path(model).parent if model is not None else None
    candidates = [
        each for each in reversed(frames) if not {_TORCH, _OURS} & {*Path(each[0]).parents}
    ]
    own = [each for each in candidates if folder in Path(each[0]).parents]
    return ":".join(next(iter(own or candidates), ()))
