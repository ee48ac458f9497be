"""Seconds of something that can be repeated, until their spread is known or a cap is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from Estimator.profiled.machine import Clock
from Estimator.profiled.rows import Timing

SHORTEST_SAMPLE_S = 2e-4  # a sample repeats what is shorter than this, whose clock would count too
MOST_IN_A_SAMPLE = 1000
FEWEST = 3  # samples, however long they take


@dataclass(frozen=True)
class Repeats:
    """When something is repeated often enough: its spread is at most ``spread`` of its median,
    after ``least`` samples.

    At most ``most`` samples are taken, and no more once they took ``cap_s`` seconds.
    """

    spread: float = 0.05
    least: int = 7
    most: int = 40
    cap_s: float = 1.0
    warm_up: int = 2

    def enough(self, columns: Iterable[Sequence[float]], started_s: float) -> bool:
        """Whether samples of each of ``columns``, which are as long, spread little enough, or took
        too long since ``started_s`` (``time.monotonic``)."""
        every = list(columns)
        taken = len(every[0])
        if taken >= FEWEST and time.monotonic() - started_s > self.cap_s:
            return True
        return taken >= self.least and all(
            spread_of(each) <= self.spread * float(np.median(each)) for each in every
        )


@dataclass(frozen=True)
class Timed:
    """A timing, and the seconds that the host needed to issue it where that runs ahead."""

    timing: Timing
    host_s: float


def timed(run: Callable[[], object], clock: Clock, repeats: Repeats) -> Timed:
    """Measure ``run``; samples are of as many runs as make them long enough."""
    for _ in range(repeats.warm_up):
        run()
    sample = _events if clock is Clock.EVENTS else _thread if clock is Clock.THREAD else _wall
    first_s = max(sample(run, 1)[0], 1e-9)
    inside = min(max(round(SHORTEST_SAMPLE_S / first_s), 1), MOST_IN_A_SAMPLE)
    samples, hosts, started = list[float](), list[float](), time.monotonic()
    while len(samples) < repeats.most:
        seconds, host_s = sample(run, inside)
        samples.append(seconds / inside)
        hosts.append(host_s / inside)
        if repeats.enough([samples], started):
            break
    return Timed(timing_of(samples, inside), float(np.median(hosts)))


def timing_of(samples: Sequence[float], inside: int = 1) -> Timing:
    """Median and spread of ``samples``, each of so many runs."""
    return Timing(max(float(np.median(samples)), 1e-12), spread_of(samples), len(samples) * inside)


def spread_of(samples: Sequence[float]) -> float:
    """Distance between the quartiles."""
    low, high = np.percentile(samples, (25, 75))
    return float(high - low)


def now(clock: Clock) -> float:
    """Seconds of ``clock``, for differences."""
    if clock is Clock.THREAD:
        return time.thread_time()
    if clock is Clock.EVENTS:
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def _thread(run: Callable[[], object], count: int) -> tuple[float, float]:
    started = time.thread_time()
    for _ in range(count):
        run()
    return time.thread_time() - started, 0.0


def _wall(run: Callable[[], object], count: int) -> tuple[float, float]:
    started = time.perf_counter()
    for _ in range(count):
        run()
    return time.perf_counter() - started, 0.0


def _events(run: Callable[[], object], count: int) -> tuple[float, float]:
    """Between CUDA events, and of the host until all runs were issued."""
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    started = time.perf_counter()
    first.record()
    for _ in range(count):
        run()
    last.record()
    host_s = time.perf_counter() - started
    torch.cuda.synchronize()
    elapsed: Any = first.elapsed_time(last)
    return float(elapsed) / 1e3, host_s
