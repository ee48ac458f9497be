"""Iterations of a training by global batch size, which may grow as Megatron-LM's does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phaze_common.errors import InputError

MOST_LEVELS = 2_000  # each of which is priced


@dataclass(frozen=True)
class BatchSizeWarmUp:
    """Global batches that grow from ``start`` by ``step`` over the first ``samples`` samples.

    This is ``--rampup-batch-size`` of Megatron-LM: the batch is ``start + step * int(consumed /
    (samples / steps))``.
    """

    start: int
    step: int
    samples: int


@dataclass(frozen=True)
class BatchLevel:
    """``iterations`` with the same global batch."""

    global_batch_size: int
    iterations: int

    @property
    def samples(self) -> int:
        """Samples of all of them."""
        return self.global_batch_size * self.iterations


def check_warm_up(warm_up: BatchSizeWarmUp, global_batch_size: int) -> None:
    """Refuse a warm-up that does not end at the global batch size.

    Raises:
        InputError: says what would.
    """
    given = f"batch_size_warmup is {warm_up.start} {warm_up.step} {warm_up.samples}"
    more = global_batch_size - warm_up.start
    if more <= 0:
        raise InputError(
            f"{given}, but the global batch size is {global_batch_size}; start below it, or raise "
            "--global-batch-size"
        )
    if more % warm_up.step:
        below = global_batch_size - more // warm_up.step * warm_up.step
        raise InputError(
            f"{given}, which does not reach the global batch size {global_batch_size}: steps of "
            f"{warm_up.step} lead there from "
            f"{below}; start there, or give a step that divides {more}"
        )
    if more // warm_up.step > MOST_LEVELS:
        raise InputError(
            f"{given}, which takes {more // warm_up.step:,} steps to {global_batch_size}, at most "
            f"{MOST_LEVELS:,} are possible; give a larger step"
        )


def batch_levels(
    samples: int, global_batch_size: int, warm_up: BatchSizeWarmUp | None = None
) -> tuple[BatchLevel, ...]:
    """Iterations until at least ``samples`` samples were trained on, by batch size in order."""
    levels = []
    consumed = 0
    for batch, until in _until(samples, global_batch_size, warm_up):
        iterations = -(-(min(until, samples) - consumed) // batch)
        if iterations > 0:
            levels.append(BatchLevel(batch, iterations))
            consumed += batch * iterations
    return tuple(levels)


def _until(
    samples: int, global_batch_size: int, warm_up: BatchSizeWarmUp | None
) -> Iterator[tuple[int, int]]:
    """Batch sizes, each with the number of consumed samples from which on it is no longer used."""
    if warm_up is not None:
        steps = (global_batch_size - warm_up.start) // warm_up.step
        for done in range(steps):
            yield warm_up.start + done * warm_up.step, -(-warm_up.samples * (done + 1) // steps)
    yield global_batch_size, samples
