"""Expected times that failures of devices, and checkpoints against them, add to a training.

Failures are independent and come at a constant rate, so that of N devices together they come N
times as often. After ``interval_s`` of work a checkpoint is written, for which the training waits;
after a failure it starts again from the last one. Young 1974, A first order approximation to the
optimum checkpoint interval; Daly 2006, A higher order estimate of the optimum checkpoint interval
for restart dumps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from phaze_common.errors import InputError
from phaze_common.numbers import time_text

MOST_FAILURES = 30.0  # expected between two checkpoints: beyond, nothing is ever finished


@dataclass(frozen=True)
class Interruptions:
    """Failures every ``mtbf_s`` on average, if any, and seconds of checkpoint and restart."""

    mtbf_s: float | None
    checkpoint_s: float
    restart_s: float


@dataclass(frozen=True)
class Interrupted:
    """Expected seconds of a training that are no work, and the number of failures."""

    failures: float
    checkpoints_s: float
    lost_work_s: (
        float  # done again since the last checkpoint, with checkpoints that were not completed
    )
    restarts_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.checkpoints_s + self.lost_work_s + self.restarts_s


def young_daly_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Work between checkpoints that costs least, to first order: sqrt(2 C M) (Young 1974)."""
    return math.sqrt(2.0 * checkpoint_s * mtbf_s)


def daly_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """The same to higher order (Daly 2006, equation 37): sqrt(2 C M) (1 + x / 3 + x^2 / 9) - C with
    x = sqrt(C / 2M).

    From C = 2M on it is M.
    """
    if checkpoint_s >= 2.0 * mtbf_s:
        return mtbf_s
    x = math.sqrt(checkpoint_s / (2.0 * mtbf_s))
    return (
        young_daly_interval_s(checkpoint_s, mtbf_s) * (1.0 + x / 3.0 + x * x / 9.0) - checkpoint_s
    )


def interrupted(work_s: float, interval_s: float, by: Interruptions) -> Interrupted:
    """What ``work_s`` seconds of work with a checkpoint after every ``interval_s`` take longer.

    Expected is M exp(R / M) (exp((t + C) / M) - 1) W / t in all (Daly 2006, equation 20: failures
    may come while a checkpoint is written and during a restart). The number of failures is that
    time over M; a restart ends after R or with the next failure, so that the part 1 - exp(-R / M)
    of the time is spent in restarts.

    Raises:
        InputError: failures come so often that nothing is ever finished.
    """
    checkpoints_s = work_s / interval_s * by.checkpoint_s
    mtbf_s = by.mtbf_s
    if mtbf_s is None:
        return Interrupted(0.0, checkpoints_s, 0.0, 0.0)
    if interval_s + by.checkpoint_s + by.restart_s > MOST_FAILURES * mtbf_s:
        raise InputError(
            f"one of the devices fails every {time_text(mtbf_s)} on average, but "
            f"{time_text(interval_s)} of work, a checkpoint of {time_text(by.checkpoint_s)} and a "
            f"restart of {time_text(by.restart_s)} lie between two states that last: the training "
            "would hardly end; use fewer devices, or checkpoints that are faster or more frequent"
        )
    segment_s = (
        mtbf_s
        * math.exp(by.restart_s / mtbf_s)
        * math.expm1((interval_s + by.checkpoint_s) / mtbf_s)
    )
    whole_s = work_s / interval_s * segment_s
    restarts_s = -whole_s * math.expm1(-by.restart_s / mtbf_s)
    lost_s = max(whole_s - work_s - checkpoints_s - restarts_s, 0.0)
    return Interrupted(whole_s / mtbf_s, checkpoints_s, lost_s, restarts_s)
