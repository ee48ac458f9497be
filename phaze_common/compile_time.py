"""How long compiled loops took to be compiled: once per machine, and no part of what a time limit
of a search is meant for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from numba.core import event


@dataclass
class CompileTime:
    """Seconds of compilation while ``counted``."""

    _listener: event.TimingListener = field(default_factory=event.TimingListener)

    @property
    def seconds(self) -> float:
        """So far, without one at work."""
        return float(self._listener.duration) if self._listener.done else 0.0

    @staticmethod
    @contextmanager
    def counted() -> Iterator[CompileTime]:
        """Count from here to the end of the block."""
        time = CompileTime()
        with event.install_listener("numba:compile", time._listener):
            yield time
