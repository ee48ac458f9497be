"""How much of a schedule's time each of its operators is to blame for."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Placed(Protocol):
    """Something that runs from one moment to another."""

    @property
    def start_s(self) -> float:
        """When it starts."""

    @property
    def end_s(self) -> float:
        """When it ends."""


def blame_s(operators: Sequence[Placed]) -> NDArray[np.float64]:
    """Seconds of each operator, shape (operators,): moments when several run are shared out equally
    among them.

    They add up to the time in which anything runs.
    """
    start, end = (
        np.array([getattr(each, name) for each in operators], dtype=np.float64)
        for name in ("start_s", "end_s")
    )
    moments = np.unique(np.concatenate([start, end]))
    running = (start[:, None] <= moments[None, :-1]) & (end[:, None] >= moments[None, 1:])
    seconds: NDArray[np.float64] = (running / np.maximum(running.sum(axis=0), 1)) @ np.diff(moments)
    return seconds
