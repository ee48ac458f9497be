"""Functions that are compiled when they are first called, and kept on disk by ``kept_files``: what
runs without calling one does not wait for the compiler, whose import takes as long as pricing some
hundred plans."""

from __future__ import annotations

from collections.abc import Callable
from dis import get_instructions
from functools import cached_property, update_wrapper
from types import FunctionType
from typing import Any

from phaze_common.compiled_code import find_place

# turns of inner loops, some microseconds each, that end before the compiler is loaded
FEW_STEPS = 10_000


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with these options at the first call, its result kept on disk."""
    return lambda function: Compiled(function, options)


class Compiled:
    """A function that is compiled or read from disk when it is called; to compiled code that calls
    it, what ``numba.njit`` returns."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func, self._options, self._steps = function, options, 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the function returns, compiled."""
        return self.dispatcher(*given, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which copying and pickling look for
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    @cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function."""
        find_place()
        from phaze_common.kept_files import dispatcher

        return dispatcher(self.py_func, self._options)

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """The function as Python runs it, and all that it calls."""
        function = self.py_func
        assert isinstance(function, FunctionType)
        code, around = function.__code__, function.__globals__
        loaded = {each.argval for each in get_instructions(code) if each.opname == "LOAD_GLOBAL"}
        called = {
            name: each.interpreted
            for name in loaded
            if isinstance(each := around.get(name), Compiled)
        }
        return FunctionType(code, {**around, **called}, argdefs=function.__defaults__)

    def of_steps(self, steps: int) -> Callable[..., Any]:
        """The function for a call of so many turns of its inner loops: ``interpreted`` while those
        of this process are few and nothing has compiled it."""
        if "dispatcher" not in vars(self):
            self._steps += steps
            if self._steps <= FEW_STEPS:
                return self.interpreted
        return self.__call__
