"""What was computed before in this process, up to so many bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BoundedMemo(Generic[Value]):
    """Values by what they follow from; whoever gets one must not change it. The oldest make room
    for new ones beyond ``most_bytes``. Several threads may ask."""

    def __init__(self, most_bytes: int, bytes_of: Callable[[Value], int]) -> None:
        self._most_bytes, self._bytes_of = most_bytes, bytes_of
        self._held_bytes, self._lock = 0, Lock()
        self._values: dict[Hashable, Value] = {}

    def value(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """The value of ``key``, computed where it is not held."""
        with self._lock:
            if key in self._values:
                return self._values[key]
        value = compute()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._held_bytes += self._bytes_of(value)
            while self._held_bytes > self._most_bytes and len(self._values) > 1:
                self._held_bytes -= self._bytes_of(self._values.pop(next(iter(self._values))))
        return value
