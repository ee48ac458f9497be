"""Loops over tokens in other people's code: found before a trace holds every step by itself."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from GraphExtractor import delta_rule
from phaze_common.errors import InputError

MOST_STEPS = 96  # of a loop that is traced step by step; beyond, tracing takes minutes
_TORCH = str(Path(torch.__file__).parent)
_OVERRIDES = torch.overrides.__file__
_OURS = str(Path(__file__).parents[1])


OWN_CODE = (
    "use torch.nn.LSTM, GRU or RNN, a form that works on all steps or on chunks of them, "
    f"or at most {MOST_STEPS} steps"
)
OF_CHUNKS = (
    "give the model as a model.py of your own that works on chunks of tokens, and on all "
    "experts at once"
)
SHORTER = (
    f"give a sequence length of at most {MOST_STEPS} where the loop is over tokens, or "
    f"{OF_CHUNKS.removeprefix('give ')}"
)


class TokenLoops(TorchFunctionMode):  # type: ignore[misc]
    """While active, refuses what one module runs more than ``MOST_STEPS`` times at one place.

    Loops over layers or experts run other modules each time.

    Raises: InputError: (while active) names the line, the module and what to do.
    """

    def __init__(self, model: torch.nn.Module, remedy: str) -> None:
        super().__init__()
        self._remedy = remedy
        named = model.named_modules()
        self._names = {id(module): name or type(module).__name__ for name, module in named}
        self._runs: Counter[tuple[str, int, str, int, int]] = Counter()

    def __torch_function__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        # what only reads a tensor's shape or type is no operator
        if getattr(function, "__name__", "") != "__get__":
            self._count(_left(sys._getframe(1), (_OVERRIDES,)))
        return function(*arguments, **(named or {}))

    def _count(self, caller: FrameType | None) -> None:
        """Count an operator by its caller, the line of the model's code behind, and the module."""
        frame = _left(caller, (_TORCH, _OURS))
        if caller is None or frame is None or _runs(caller, frame, delta_rule.__file__):
            return
        module = self._module(caller)
        places = (caller.f_code.co_filename, caller.f_lasti, frame.f_code.co_filename)
        key = (*places, frame.f_lasti, module)
        self._runs[key] += 1
        if self._runs[key] > MOST_STEPS:
            name = self._names.get(module)
            where = f" in module {name}" if name else ""
            raise InputError(
                f"{frame.f_code.co_filename}:{frame.f_lineno}{where} runs more than {MOST_STEPS} "
                "times in one forward pass, as loops over tokens or over many experts do, and a "
                f"trace would hold every step of it; {self._remedy}"
            )

    def _module(self, frame: FrameType | None) -> int:
        """The innermost module of the model that runs a frame."""
        while frame is not None:
            owner = frame.f_locals.get("self")
            if id(owner) in self._names:
                return id(owner)
            frame = frame.f_back
        return 0


def _runs(frame: FrameType | None, until: FrameType, file: str) -> bool:
    """Whether code of a file of ours, which loops over chunks, runs within a frame."""
    while frame is not None and frame is not until:
        if frame.f_code.co_filename == file:
            return True
        frame = frame.f_back
    return False


def _left(frame: FrameType | None, files: tuple[str, ...]) -> FrameType | None:
    """The innermost frame outside of ``files``, or of folders."""
    while frame is not None and frame.f_code.co_filename.startswith(files):
        frame = frame.f_back
    return frame
