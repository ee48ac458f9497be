"""The pipeline term of the objective against an event-by-event 1F1B schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def pipeline_s(loads: list[float], micro_batches: int) -> float:
    """The objective's form."""
    return sum(loads) + (micro_batches - 1) * max(loads)


def one_forward_one_backward_s(forward: list[float], backward: list[float], micro_batches: int) -> float:
    """Makespan of 1F1B (Narayanan et al. 2021, figure 4): every stage runs its own fixed order as early as its inputs allow."""
    stages = len(forward)
    todo = []
    for stage in range(stages):
        warm_up = min(stages - stage - 1, micro_batches)
        steps = [("forward", k) for k in range(warm_up)]
        for k in range(micro_batches - warm_up):
            steps += [("forward", warm_up + k), ("backward", k)]
        todo.append(steps + [("backward", k) for k in range(micro_batches - warm_up, micro_batches)])
    done: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    while any(todo):
        before = len(done)
        for stage in range(stages):
            while todo[stage]:
                kind, k = todo[stage][0]
                if kind == "forward":
                    needed = [("forward", k, stage - 1)] if stage else []
                else:
                    needed = [("backward", k, stage + 1)] if stage < stages - 1 else [("forward", k, stage)]
                if any(each not in done for each in needed):
                    break
                start = max([free[stage], *(done[each] for each in needed)])
                free[stage] = done[kind, k, stage] = start + (forward if kind == "forward" else backward)[stage]
                todo[stage].pop(0)
        assert len(done) > before, "the schedule is stuck"
    return max(free)


@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("micro_batches", [1, 3, 16])
def test_equal_stages_take_exactly_as_long(stages: int, micro_batches: int) -> None:
    simulated = one_forward_one_backward_s([1.0] * stages, [2.0] * stages, micro_batches)
    assert simulated == pytest.approx(pipeline_s([3.0] * stages, micro_batches))
    assert simulated == pytest.approx((micro_batches + stages - 1) * 3.0)


@settings(max_examples=100, deadline=None)
@given(
    loads=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6),
    forward_share=st.floats(0.1, 0.9),
    micro_batches=st.integers(1, 12),
)
def test_proportional_stages_never_take_longer(loads: list[float], forward_share: float, micro_batches: int) -> None:
    forward = [load * forward_share for load in loads]
    backward = [load - part for load, part in zip(loads, forward, strict=True)]
    assert one_forward_one_backward_s(forward, backward, micro_batches) <= pipeline_s(loads, micro_batches) * (1 + 1e-12)


def test_the_bound_is_close_for_many_micro_batches() -> None:
    loads = np.random.default_rng(0).uniform(0.8, 1.0, 6).tolist()
    simulated = one_forward_one_backward_s([load / 3 for load in loads], [2 * load / 3 for load in loads], 64)
    assert pipeline_s(loads, 64) < 1.05 * simulated
