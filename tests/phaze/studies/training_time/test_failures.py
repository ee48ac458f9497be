"""Checkpoints and failures: expected times against simulated trainings, and the interval that costs
least."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.studies.training_time.failures import (
    Interrupted,
    Interruptions,
    daly_interval_s,
    interrupted,
    young_daly_interval_s,
)
from phaze_common.errors import InputError

HOUR = 3600.0


def expected_s(work_s: float, interval_s: float, by: Interruptions) -> float:
    return work_s + interrupted(work_s, interval_s, by).total_s


def test_the_young_daly_interval_in_numbers() -> None:
    assert young_daly_interval_s(50.0, 10_000.0) == 1000.0
    assert daly_interval_s(50.0, 10_000.0) == pytest.approx(
        1000.0 * (1 + 0.05 / 3 + 0.05**2 / 9) - 50.0
    )
    assert daly_interval_s(50.0, 20.0) == 20.0


def test_without_failures_checkpoints_alone_take_time() -> None:
    assert interrupted(10_000.0, 1000.0, Interruptions(None, 60.0, 500.0)) == Interrupted(
        0.0, 600.0, 0.0, 0.0
    )


@given(st.floats(0.1, 1000), st.floats(1e3, 1e6), st.floats(0, 1e3))
def test_rarer_failures_cost_less_until_only_checkpoints_are_left(
    checkpoint_s: float, work_s: float, restart_s: float
) -> None:
    interval_s = 1000.0
    costs = [
        interrupted(work_s, interval_s, Interruptions(mtbf_s, checkpoint_s, restart_s))
        for mtbf_s in (1e4, 1e6, 1e13)
    ]
    assert costs[0].total_s > costs[1].total_s > costs[2].total_s
    assert costs[2].failures < 1e-6
    assert costs[2].total_s == pytest.approx(work_s / interval_s * checkpoint_s, rel=1e-3)


@given(st.floats(1.0, 600.0), st.floats(2e4, 1e6), st.floats(0.0, 1800.0))
def test_no_other_interval_costs_noticeably_less(
    checkpoint_s: float, mtbf_s: float, restart_s: float
) -> None:
    by, work_s = Interruptions(mtbf_s, checkpoint_s, restart_s), 1e6
    young_s = young_daly_interval_s(checkpoint_s, mtbf_s)
    least_s = min(expected_s(work_s, young_s * 1.02**step, by) for step in range(-80, 81))
    finer_s = daly_interval_s(checkpoint_s, mtbf_s)
    assert expected_s(work_s, young_s, by) <= least_s * (1 + checkpoint_s / mtbf_s)
    assert expected_s(work_s, finer_s, by) <= least_s * (1 + 1e-3 * checkpoint_s / mtbf_s + 1e-6)
    if checkpoint_s < mtbf_s / 1000:
        assert expected_s(work_s, 2 * young_s, by) > least_s < expected_s(work_s, young_s / 2, by)


def simulated(
    segments: int, interval_s: float, by: Interruptions, random_: random.Random
) -> tuple[float, int, float]:
    """Seconds of a training of so many intervals, failures, and seconds in restarts, event after
    event."""
    assert by.mtbf_s is not None
    now, failures, restarting_s, left = 0.0, 0, 0.0, segments
    failure = random_.expovariate(1 / by.mtbf_s)
    while left:
        needed = interval_s + by.checkpoint_s
        if failure >= needed:
            now, failure, left = now + needed, failure - needed, left - 1
            continue
        now += failure
        failures += 1
        failure = random_.expovariate(1 / by.mtbf_s)
        while failure < by.restart_s:
            now, restarting_s, failures = now + failure, restarting_s + failure, failures + 1
            failure = random_.expovariate(1 / by.mtbf_s)
        now, restarting_s, failure = (
            now + by.restart_s,
            restarting_s + by.restart_s,
            failure - by.restart_s,
        )
    return now, failures, restarting_s


def test_expected_parts_are_the_means_of_simulated_trainings() -> None:
    by, interval_s, segments = Interruptions(1000.0, 50.0, 120.0), 300.0, 20
    random_ = random.Random(7)
    runs = [simulated(segments, interval_s, by, random_) for _ in range(4000)]
    found = interrupted(segments * interval_s, interval_s, by)
    for place, value in enumerate(
        (segments * interval_s + found.total_s, found.failures, found.restarts_s)
    ):
        values = [run[place] for run in runs]
        mean = sum(values) / len(values)
        spread = math.sqrt(sum((each - mean) ** 2 for each in values) / len(values) / len(values))
        assert abs(mean - value) < 4 * spread < 0.04 * value
    assert found.checkpoints_s == segments * 50.0


def test_a_training_that_would_never_end_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"fails every 10 s on average, but 3,600 s of work, .* would hardly end; use fewer "
        r"devices",
    ):
        interrupted(HOUR, HOUR, Interruptions(10.0, 5.0, 0.0))
