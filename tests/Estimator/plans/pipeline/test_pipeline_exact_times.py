"""Times that cost as much for any number of micro-batches, against the schedule pass by pass and
longest paths over a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from closed_forms import closed_form_s
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_reference import like_chunks, starts_s

from Estimator.plans.pipeline import one_f_one_b
from Estimator.plans.pipeline.schedule import FloatArray, PipelineCosts, PipelineSchedule
from Estimator.plans.pipeline.simulation import simulate, timeline

GPIPE, ONE_F_ONE_B, INTERLEAVED = PipelineSchedule


@dataclass(frozen=True)
class Case:
    """A pipeline and how it is run."""

    costs: PipelineCosts
    schedule: PipelineSchedule
    micro_batches: int


@st.composite
def seconds(draw: st.DrawFn, count: int) -> FloatArray:
    """Ties and zeros, equal ones, one that dominates, some that nearly tie, or anything."""
    kind = draw(st.sampled_from(["integers", "equal", "dominated", "near", "any"]))
    if kind == "integers":
        drawn = draw(
            st.lists(
                st.integers(0, draw(st.sampled_from([1, 3, 20]))), min_size=count, max_size=count
            )
        )
        return np.array(drawn, dtype=np.float64)
    if kind == "any":
        return np.array(
            draw(st.lists(st.floats(0.0, 3.0), min_size=count, max_size=count)), dtype=np.float64
        )
    values = np.full(count, draw(st.floats(0.1, 3.0)))
    if kind == "dominated" and count:
        values[draw(st.integers(0, count - 1))] += draw(st.floats(0.001, 100.0))
    if kind == "near":
        shares = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        values *= 1.0 + draw(st.sampled_from([1e-2, 1e-5, 1e-9])) * np.array(shares)
    return values


@st.composite
def cases(draw: st.DrawFn, schedule: PipelineSchedule) -> Case:
    rounds = draw(st.integers(2, 4)) if schedule is INTERLEAVED else 1
    pp = draw(st.integers(2, 6) if schedule is INTERLEAVED else st.integers(1, 12))
    if schedule is INTERLEAVED:
        micro_batches = pp * draw(
            st.one_of(st.integers(1, 12), st.integers(13, 60), st.integers(150, 200))
        )
    else:
        micro_batches = draw(st.one_of(st.integers(1, 60), st.integers(990, 1010)))
    chunks = pp * rounds
    scale = draw(st.sampled_from([0.0, 0.01, 1.0]))
    costs = PipelineCosts(
        pp,
        draw(seconds(chunks)),
        draw(seconds(chunks)),
        scale * draw(seconds(chunks - 1)),
        scale * draw(seconds(chunks - 1)),
        overlap_transfers=draw(st.booleans()),
        whole_warm_up=draw(st.booleans()),
    )
    return Case(costs, schedule, micro_batches)


def last_ends_s(case: Case) -> FloatArray:
    """End of each chunk's last backward pass, pass by pass."""
    passes = timeline(case.costs, case.schedule, case.micro_batches)
    last = ~passes.forward & (passes.micro_batch == case.micro_batches - 1)
    ends_s = np.empty(len(case.costs.forward_s))
    ends_s[passes.chunk[last]] = passes.end_s[last]
    return ends_s


def assert_exact(case: Case) -> None:
    ends_s = last_ends_s(case)
    allowed_s = 1e-12 * ends_s.max()
    assert simulate(case.costs, case.schedule, case.micro_batches) == pytest.approx(
        ends_s, rel=0, abs=allowed_s
    )


@settings(max_examples=250, deadline=None)
@given(case=cases(ONE_F_ONE_B))
def test_1f1b_is_what_its_passes_take(case: Case) -> None:
    assert_exact(case)


@settings(max_examples=100, deadline=None)
@given(case=cases(GPIPE))
def test_gpipe_is_what_its_passes_take(case: Case) -> None:
    assert_exact(case)


@settings(max_examples=200, deadline=None)
@given(case=cases(INTERLEAVED))
def test_interleaved_is_what_its_passes_take(case: Case) -> None:
    assert_exact(case)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), pp=st.integers(1, 12), micro_batches=st.integers(1, 30))
def test_the_closed_form_is_the_longest_path(
    data: st.DataObject, pp: int, micro_batches: int
) -> None:
    forward_s, backward_s = data.draw(seconds(pp)), data.draw(seconds(pp))
    none_s = np.zeros(pp - 1)
    starts = starts_s(
        PipelineCosts(pp, forward_s, backward_s, none_s, none_s, False), ONE_F_ONE_B, micro_batches
    )
    ends_s = np.zeros(pp)
    for each, start_s in starts.items():
        if not each.forward and each.micro_batch == micro_batches - 1:
            ends_s[each.chunk] = start_s + backward_s[each.chunk]
    found_s = one_f_one_b.last_backward_end_s(forward_s, backward_s, micro_batches)
    assert found_s == pytest.approx(ends_s, rel=1e-12, abs=1e-12 * ends_s.max())
    if (forward_s % 1 == 0).all() and (backward_s % 1 == 0).all():
        assert found_s.tolist() == ends_s.tolist()


@settings(max_examples=100, deadline=None)
@given(data=st.data(), pp=st.integers(1, 12), micro_batches=st.integers(1, 60))
def test_finishing_waits_for_what_follows_each_stage(
    data: st.DataObject, pp: int, micro_batches: int
) -> None:
    forward_s, backward_s, after_s = (data.draw(seconds(pp)) for _ in range(3))
    after_s = data.draw(st.sampled_from([-1.0, 1.0, 10.0])) * after_s
    ends_s = one_f_one_b.last_backward_end_s(forward_s, backward_s, micro_batches)
    dirty = np.full((one_f_one_b.SCRATCH_ROWS + 1, pp), np.nan)
    assert (
        one_f_one_b.finish_in_s(forward_s, backward_s, after_s, micro_batches, dirty)
        == (ends_s + after_s).max()
    )


def stage_bounds_s(
    forward_s: FloatArray, backward_s: FloatArray, micro_batches: int
) -> list[float]:
    """``stage_bound_s`` of every stage."""
    loads_s = forward_s + backward_s
    behind_s = loads_s.sum() - loads_s.cumsum()
    return [
        one_f_one_b.stage_bound_s(
            *each, loads_s.sum(), behind_s[stage], len(loads_s) - 1 - stage, micro_batches
        )
        for stage, each in enumerate(zip(forward_s, backward_s, strict=True))
    ]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), pp=st.integers(1, 12), micro_batches=st.integers(1, 60))
def test_no_bound_of_a_stage_is_above_the_makespan(
    data: st.DataObject, pp: int, micro_batches: int
) -> None:
    forward_s, backward_s = data.draw(seconds(pp)), data.draw(seconds(pp))
    total_s = one_f_one_b.last_backward_end_s(forward_s, backward_s, micro_batches)[0]
    bounds_s = stage_bounds_s(forward_s, backward_s, micro_batches)
    assert max(bounds_s) <= total_s * (1 + 1e-12)
    # The four paths, one by one.
    loads_s, behind = forward_s + backward_s, pp - 1 - np.arange(pp)
    behind_s = loads_s.sum() - loads_s.cumsum()
    more = micro_batches - 1
    once = loads_s.sum() + more * loads_s
    paths = [
        once - behind_s,
        once - np.minimum(behind, more) * forward_s,
        once - np.minimum(behind, more) * backward_s,
    ]
    paths.append(np.where(more >= behind, once - behind * loads_s + behind_s, 0.0))
    assert bounds_s == pytest.approx(np.max(paths, axis=0), rel=1e-12, abs=1e-12 * total_s)


@settings(max_examples=50, deadline=None)
@given(
    pp=st.integers(1, 12),
    micro_batches=st.integers(12, 60),
    forward_s=st.floats(0.1, 3.0),
    backward_s=st.floats(0.1, 3.0),
)
def test_a_stage_bound_of_equal_stages_is_the_makespan(
    pp: int, micro_batches: int, forward_s: float, backward_s: float
) -> None:
    bounds_s = stage_bounds_s(np.full(pp, forward_s), np.full(pp, backward_s), micro_batches)
    assert bounds_s == pytest.approx(
        np.full(pp, (micro_batches + pp - 1) * (forward_s + backward_s)), rel=1e-12
    )


MANY = 10**9  # micro-batches per stage; pass by pass they would take hours


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_any_number_of_micro_batches_of_equal_stages(schedule: PipelineSchedule) -> None:
    rounds, overlap = (3, True) if schedule is INTERLEAVED else (1, False)
    given_s = (1.0, 2.0, 0.01, 0.02, overlap)
    costs = like_chunks(8, rounds, *given_s)
    expected_s = closed_form_s(schedule, 8, rounds, 8 * MANY, *given_s)
    assert simulate(costs, schedule, 8 * MANY)[0] == pytest.approx(expected_s, rel=1e-12)


def test_stages_that_run_ahead_for_long_are_held_up_when_they_should_be() -> None:
    """End stages without one of the transfers gain that per group, until the warm-up holds no more
    for them."""
    costs = like_chunks(4, 2, 1.0, 2.0, 2.0**-13, 2.0**-13, overlap_transfers=False)
    for groups in (2000, 20001):
        case = Case(costs, INTERLEAVED, 4 * groups)
        assert (
            simulate(costs, INTERLEAVED, case.micro_batches).tolist() == last_ends_s(case).tolist()
        )
    stage_s = MANY * 4 * 2 * (3.0 + 2 * 2.0**-13)  # of an inner stage
    assert simulate(costs, INTERLEAVED, 4 * MANY)[0] == pytest.approx(stage_s, rel=1e-8)


def test_stages_behind_may_catch_up_while_the_first_keeps_its_pace() -> None:
    """What the first stage does alone does not tell that the others repeat themselves."""
    forward_s = np.array([27.0, 31.0, 22.0, 22.0, 28.0, 23.0, 24.0, 31.0, 25.0, 21.0])
    backward_s = np.array([26.0, 29.0, 30.0, 23.0, 28.0, 29.0, 21.0, 21.0, 22.0, 26.0])
    case = Case(
        PipelineCosts(5, forward_s, backward_s, np.zeros(9), np.zeros(9), False), INTERLEAVED, 65
    )
    assert simulate(case.costs, INTERLEAVED, 65).tolist() == last_ends_s(case).tolist()
