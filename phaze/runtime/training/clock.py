"""What a process did when: spans of wall time, with the processor time of its thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class Activity(StrEnum):
    """What a process spends time on; ``SHARE`` (adding up parts of a product) runs within a
    pass."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WAIT = "wait"  # for tensors of other stages
    SHARE = "share"
    SYNCHRONISE = "synchronise"  # gradients, norms, weights
    UPDATE = "update"


@dataclass(frozen=True)
class Span:
    """One activity of a step: nanoseconds of the wall clock, and of the processor in this
    thread."""

    activity: Activity  # what the process did
    step: int  # its number
    micro_batch: int  # its number within the step
    start_ns: int  # begin of the span
    end_ns: int  # end of the span
    processor_ns: int  # processor time of the span


class Clock:
    """Collects spans. The wall clock is the machine's since it was started, so that processes of
    one machine share it."""

    def __init__(self) -> None:
        self.step = 0
        self.spans: list[Span] = []

    @contextmanager
    def span(self, activity: Activity, micro_batch: int = -1) -> Iterator[None]:
        """Note what runs inside."""
        start, processor = time.monotonic_ns(), time.thread_time_ns()
        try:
            yield
        finally:
            used = time.thread_time_ns() - processor
            self.spans.append(
                Span(activity, self.step, micro_batch, start, time.monotonic_ns(), used)
            )
