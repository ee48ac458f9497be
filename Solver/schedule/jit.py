"""How the inner loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Machine code on first call, kept on disk; runs without the interpreter lock so that threads share the work.

    What is kept is renewed when the file of ``function`` changes, not when a compiled function or constant that it takes from
    another file does: compiled functions use only those of their own file.
    """
    return cast(Function, njit(cache=True, nogil=True)(function))
