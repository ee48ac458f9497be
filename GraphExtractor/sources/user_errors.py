"""What goes wrong in other people's code: one sentence with the line, the error, what would work.

Loops over tokens are found while the forward pass runs, before a trace holds every step by itself.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from traceback import extract_tb
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from GraphExtractor import delta_rule
from GraphExtractor.torch_internals import (
    FAKE_TENSOR_LOG,
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedOperatorException,
)
from phaze_common.echo import in_words_of_files
from phaze_common.errors import InputError, PhazeError

_LONGEST_MESSAGE = 240
_CHATTY = (FAKE_TENSOR_LOG, "transformers")
_LIBRARIES = "site-packages"
_CORRECT = "correct it there"
_NOT_THE_CONFIGURATION = (
    "no configuration changes this code of transformers: give the model as a model.py of your own"
)
_TORCH = Path(torch.__file__).parent
_FIELDS = (  # of huggingface_hub
    re.compile(
        r"Field '(?P<name>[^']*)' with value (?P<value>.*?) doesn't match any type in "
        r"\((?P<what>.*?)\)"
    ),
    re.compile(r"Field '(?P<name>[^']*)' expected (?P<what>.*), got .* \(value: (?P<value>.*)\)"),
    re.compile(r"Field '(?P<name>[^']*)' expected (?P<what>.*), got (?P<value>.*)"),
)


@contextmanager
def users_code(path: str, doing: str, remedy: str = _CORRECT) -> Iterator[None]:
    """Run code of the file ``path``, whose prints go to standard error; libraries are quiet.

    Raises: InputError: the code fails; names the line, the error and a remedy.
    """
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings(), _quiet():
            # they are about execution, where only shapes are wanted
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except PhazeError as error:
        raise InputError(f"{path}: {error}") from error
    except SystemExit as error:
        raise InputError(
            f"{doing} ends the process at {_place(error, path)}; keep what runs a script under if "
            "__name__ == '__main__'"
        ) from error
    except Exception as error:  # the code is the user's: anything can come out of it
        raise InputError(_sentence(error, path, doing, remedy)) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep libraries from logging what comes up as an error, or does not matter to a trace."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)


def _sentence(error: Exception, path: str, doing: str, remedy: str) -> str:
    place = _place(error, path)
    own = remedy == _CORRECT
    if isinstance(error, DataDependentOutputException | GuardOnDataDependentSymNode):
        theirs = f"{_NOT_THE_CONFIGURATION} that asks for shapes only"
        return (
            f"the model asks for the value of a tensor at {place}, which a traced training step "
            f"does not have; {'make the code depend on shapes only' if own else theirs}"
        )
    if isinstance(error, DynamicOutputShapeException):
        ours = "keep the shape fixed, with torch.where, a mask or topk"
        return (
            f"{error.func} at {place} makes a tensor whose shape depends on values, which a "
            "training graph cannot have; "
            f"{ours if own else f'{_NOT_THE_CONFIGURATION} of fixed shapes'}"
        )
    if isinstance(error, UnsupportedOperatorException | NotImplementedError):
        return (
            f"{doing} needs an operator at {place} that cannot be traced ({_message(error)}); "
            "write it with other torch "
            "operators, or register its shapes with torch.library.register_fake"
        )
    message = _message(error)
    field = next(filter(None, (each.search(str(error)) for each in _FIELDS)), None)
    if field is not None:
        kinds = re.sub(r"<class '([^']*)'>", r"\1", field["what"])
        kinds = kinds.replace("NoneType", "null").replace(", ", " or ")
        value = in_words_of_files(field["value"])
        return f"{path}: {field['name']} is {value}, but must be {kinds}; change the configuration"
    if "dtype" in message or "BFloat16" in message:
        remedy = (
            "models are traced in bfloat16: cast to the dtype of the weights, as in "
            "x.to(self.weight.dtype)"
        )
    return f"{doing} fails at {place} with {type(error).__name__}: {message}; {remedy}"


def _place(error: BaseException, path: str) -> str:
    """The innermost line of the user's own files, else of a library but torch, else the file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    root, others = Path(path).parent, ""
    for frame in reversed(extract_tb(error.__traceback__)):
        file, line = Path(frame.filename), f"{frame.filename}:{frame.lineno}"
        if root in file.parents and _LIBRARIES not in file.relative_to(root).parts:
            return line
        if not others and _LIBRARIES in file.parts and _TORCH not in file.parents:
            others = line
    return others or path


def _message(error: Exception) -> str:
    """The error's own words on one line, without what comes after its first paragraph."""
    words = " ".join((str(error).strip() or "no message").split("\n\n")[0].split()).rstrip(".;")
    return words if len(words) <= _LONGEST_MESSAGE else words[:_LONGEST_MESSAGE] + "..."


MOST_STEPS = 96  # of a loop that is traced step by step; beyond, tracing takes minutes
_TORCH_FILES = str(Path(torch.__file__).parent)
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
        frame = _left(caller, (_TORCH_FILES, _OURS))
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
