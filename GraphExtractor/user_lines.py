"""The lines of code that made the nodes of a trace."""

import re
from pathlib import Path

import torch
from torch.fx import Node

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = Path(torch.__file__).parent
_OURS = Path(__file__).parent


def line_of(node: Node, model: str | None = None) -> str:
    """The innermost line, as file:number, of the files beside ``model`` that made a node, else of a library other than torch.

    Empty where nothing is known: only traces of models that nobody described keep lines.
    """
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    candidates = [(file, line) for file, line in reversed(frames) if not {_TORCH, _OURS} & set(Path(file).parents)]
    own = [(file, line) for file, line in candidates if model is not None and Path(model).parent in Path(file).parents]
    return ":".join(next(iter(own or candidates), ()))
