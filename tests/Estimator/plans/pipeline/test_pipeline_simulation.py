"""The simulation against schedules drawn by hand, a longest path over a graph, and Megatron-LM's
exchanges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_reference import like_chunks, rendezvous_s, stage_order, starts_s

from Estimator.plans.pipeline.schedule import FloatArray, PipelineCosts, PipelineSchedule
from Estimator.plans.pipeline.simulation import held_bytes, simulate, timeline
from phaze_common.errors import InputError

GPIPE, ONE_F_ONE_B, INTERLEAVED = PipelineSchedule


@dataclass(frozen=True)
class Case:
    """A pipeline and how it is run."""

    costs: PipelineCosts
    schedule: PipelineSchedule
    micro_batches: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Unequal stages; some passes and transfers take no time."""
    schedule = draw(st.sampled_from(PipelineSchedule))
    interleaved = schedule is INTERLEAVED
    pp = draw(st.integers(2, 4) if interleaved else st.integers(1, 6))
    chunks = pp * (draw(st.integers(2, 3)) if interleaved else 1)
    micro_batches = pp * draw(st.integers(1, 4)) if interleaved else draw(st.integers(1, 14))

    def seconds(count: int, most: float) -> FloatArray:
        return np.array(
            draw(st.lists(st.floats(0.0, most), min_size=count, max_size=count)), dtype=np.float64
        )

    most = draw(st.sampled_from([0.0, 0.1, 3.0]))
    costs = PipelineCosts(
        pp=pp,
        forward_s=seconds(chunks, 3.0),
        backward_s=seconds(chunks, 3.0),
        transfer_s=seconds(chunks - 1, most),
        backward_transfer_s=seconds(chunks - 1, most),
        overlap_transfers=draw(st.booleans()),
        whole_warm_up=draw(st.booleans()),
    )
    return Case(costs, schedule, micro_batches)


def test_figure_of_1f1b() -> None:
    """Narayanan et al. 2021, figure 4 above: 4 stages, 8 micro-batches, backward twice as long as
    forward."""
    times = simulate(like_chunks(4, 1, 1.0, 2.0), ONE_F_ONE_B, 8)
    assert times[0] == 33.0
    assert times.tolist() == [33.0, 31.0, 29.0, 27.0]
    assert held_bytes(np.ones(4), 4, ONE_F_ONE_B, 8).tolist() == [4, 3, 2, 1]


def test_figure_of_interleaved() -> None:
    """The same figure below, two chunks per stage; one unit is a chunk's forward pass."""
    times = simulate(like_chunks(4, 2, 1.0, 2.0), INTERLEAVED, 8)
    assert times[0] == 57.0
    assert times.tolist() == [57.0, 55.0, 53.0, 51.0, 49.0, 47.0, 45.0, 43.0]
    assert held_bytes(np.ones(8), 4, INTERLEAVED, 8).tolist() == [11, 9, 7, 5]


@pytest.mark.parametrize(
    ("schedule", "transfer_s", "overlap", "total_s", "held"),
    [
        # Stage 1: F0 1-4, B0 4-8, F1 8-11, B1 11-15; stage 0: B1 15-17.
        (ONE_F_ONE_B, 0.0, True, 17.0, [2, 1]),
        # Stage 1: F0 1.5-4.5, B0 4.5-8.5, F1 8.5-11.5, B1 11.5-15.5; stage 0: B1 16-18.
        (ONE_F_ONE_B, 0.5, True, 18.0, [2, 1]),
        # Stage 1: F0 1.5-4.5, B0 4.5-8.5, sends to 9, F1 9-12, B1 12-16; stage 0: B1 16.5-18.5.
        (ONE_F_ONE_B, 0.5, False, 18.5, [2, 1]),
        # Stage 1: F0 1-4, F1 4-7, B0 7-11, B1 11-15; stage 0: B1 15-17.
        (GPIPE, 0.0, True, 17.0, [2, 2]),
        # Stage 1: F0 1.5-4.5, F1 4.5-7.5, B0 7.5-11.5, sends to 12, B1 12-16; stage 0: B1
        # 16.5-18.5.
        (GPIPE, 0.5, False, 18.5, [2, 2]),
    ],
)
def test_two_unequal_stages_by_hand(
    schedule: PipelineSchedule, transfer_s: float, overlap: bool, total_s: float, held: list[int]
) -> None:
    link = np.array([transfer_s])
    times = simulate(
        PipelineCosts(2, np.array([1.0, 3.0]), np.array([2.0, 4.0]), link, link, overlap),
        schedule,
        2,
    )
    assert times[0] == total_s
    assert held_bytes(np.ones(2), 2, schedule, 2).tolist() == held


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_every_pass_is_where_the_longest_path_puts_it(case: Case) -> None:
    costs, micro_batches = case.costs, case.micro_batches
    times = simulate(costs, case.schedule, micro_batches)
    starts = starts_s(costs, case.schedule, micro_batches)
    backward = {
        each: start
        for each, start in starts.items()
        if not each.forward and each.micro_batch == micro_batches - 1
    }
    for each, start in backward.items():
        assert times[each.chunk] == pytest.approx(start + costs.backward_s[each.chunk])
    ends = [
        start + (costs.forward_s if each.forward else costs.backward_s)[each.chunk]
        for each, start in starts.items()
    ]
    assert times[0] == pytest.approx(max(ends))


@settings(deadline=None)
@given(case=cases())
def test_the_timeline_is_every_pass_where_the_longest_path_puts_it(case: Case) -> None:
    costs, micro_batches = case.costs, case.micro_batches
    expected = starts_s(costs, case.schedule, micro_batches)
    passes = timeline(costs, case.schedule, micro_batches)
    for stage in range(costs.pp):
        order = stage_order(
            case.schedule,
            costs.pp,
            costs.chunks_per_stage,
            micro_batches,
            stage,
            whole_warm_up=costs.whole_warm_up,
        )
        for position, each in enumerate(order):
            found = (
                passes.forward[stage, position],
                passes.chunk[stage, position],
                passes.micro_batch[stage, position],
            )
            assert found == (each.forward, each.chunk, each.micro_batch)
            assert passes.start_s[stage, position] == pytest.approx(
                expected[each], rel=1e-12, abs=1e-12
            )
    assert passes.end_s.max() == pytest.approx(
        simulate(costs, case.schedule, micro_batches)[0], rel=1e-12
    )


@settings(max_examples=300, deadline=None)
@given(case=cases(), saved=st.lists(st.integers(0, 9), min_size=12, max_size=12))
def test_what_stages_hold_is_counted_along_their_orders(case: Case, saved: list[int]) -> None:
    pp, rounds, micro_batches = case.costs.pp, case.costs.chunks_per_stage, case.micro_batches
    saved_bytes = np.array(saved[: pp * rounds], dtype=np.float64)
    held = held_bytes(
        saved_bytes, pp, case.schedule, micro_batches, whole_warm_up=case.costs.whole_warm_up
    )
    for stage in range(pp):
        order = stage_order(
            case.schedule, pp, rounds, micro_batches, stage, whole_warm_up=case.costs.whole_warm_up
        )
        signs = np.array([1 if each.forward else -1 for each in order])
        sizes = saved_bytes[[each.chunk for each in order]]
        assert held[stage] == (signs * sizes).cumsum().max()


@settings(max_examples=200, deadline=None)
@given(case=cases(), saved=st.lists(st.integers(0, 9), min_size=12, max_size=12))
def test_more_micro_batches_never_hold_less(case: Case, saved: list[int]) -> None:
    """Under today's software; that of before held most of all with pp of them."""
    pp, rounds = case.costs.pp, case.costs.chunks_per_stage
    step = pp if case.schedule is INTERLEAVED else 1
    saved_bytes, held = np.array(saved[: pp * rounds], dtype=np.float64), np.zeros(pp)
    for micro_batches in range(step, case.micro_batches + step + 1, step):
        more = held_bytes(saved_bytes, pp, case.schedule, micro_batches)
        assert (more >= held).all()
        held = more


@settings(max_examples=200, deadline=None)
@given(case=cases(), data=st.data())
def test_more_of_anything_never_takes_less(case: Case, data: st.DataObject) -> None:
    costs = case.costs
    name = data.draw(
        st.sampled_from(["forward_s", "backward_s", "transfer_s", "backward_transfer_s"])
    )
    longer = getattr(costs, name).copy()
    if len(longer):
        longer[data.draw(st.integers(0, len(longer) - 1))] += data.draw(st.floats(0.01, 5.0))
    slower = replace(costs, **{name: longer})
    blocking = replace(costs, overlap_transfers=False)
    before, after, blocked = (
        simulate(each, case.schedule, case.micro_batches)[0] for each in (costs, slower, blocking)
    )
    assert before <= after * (1 + 1e-12)
    assert before <= blocked * (1 + 1e-12)
    step = costs.pp if case.schedule is INTERLEAVED else 1
    assert before <= simulate(costs, case.schedule, case.micro_batches + step)[0] * (1 + 1e-12)


def test_no_schedule_waits_for_itself() -> None:
    for pp in range(1, 9):
        for micro_batches in range(1, 26):
            for rounds in range(1, 5):
                for schedule in [GPIPE, ONE_F_ONE_B] if rounds == 1 else [INTERLEAVED]:
                    if schedule is INTERLEAVED and (pp == 1 or micro_batches % pp):
                        continue
                    times = simulate(like_chunks(pp, rounds, 1.0, 1.0), schedule, micro_batches)
                    assert times[0] == 2.0 * (micro_batches * rounds + pp - 1)


@settings(max_examples=100, deadline=None)
@given(
    pp=st.integers(1, 6),
    micro_batches=st.integers(1, 16),
    forward_s=st.floats(0.1, 3.0),
    backward_s=st.floats(0.1, 3.0),
    share=st.floats(0.0, 1.0),
)
def test_blocking_1f1b_is_what_exchanges_of_equal_stages_take(
    pp: int, micro_batches: int, forward_s: float, backward_s: float, share: float
) -> None:
    transfer_s = share * min(forward_s, backward_s)
    costs = like_chunks(
        pp, 1, forward_s, backward_s, transfer_s, transfer_s, overlap_transfers=False
    )
    assert simulate(costs, ONE_F_ONE_B, micro_batches)[0] == pytest.approx(
        rendezvous_s(costs, micro_batches)
    )


def test_blocking_1f1b_is_close_to_exchanges_of_unequal_stages() -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(50):
        pp, micro_batches = int(rng.integers(2, 9)), int(rng.integers(1, 40))
        forward_s, links = rng.uniform(0.7, 1.3, pp), np.full(pp - 1, 0.1)
        costs = PipelineCosts(pp, forward_s, 2.0 * forward_s, links, links, False)
        ratios.append(
            simulate(costs, ONE_F_ONE_B, micro_batches)[0] / rendezvous_s(costs, micro_batches)
        )
    assert 0.98 < min(ratios) < max(ratios) <= 1.0 + 1e-12


def costs_of(forward_s: list[float], links: int) -> PipelineCosts:
    seconds = np.array(forward_s)
    return PipelineCosts(2, seconds, seconds, np.zeros(links), np.zeros(links), True)


@pytest.mark.parametrize(
    ("costs", "schedule", "micro_batches", "message"),
    [
        (like_chunks(4, 2, 1.0, 1.0), INTERLEAVED, 10, "makes 8 or 12 of them, or --interleave 1"),
        (like_chunks(4, 2, 1.0, 1.0), INTERLEAVED, 3, "makes 4 of them, or --interleave 1"),
        (
            like_chunks(4, 1, 1.0, 1.0),
            INTERLEAVED,
            8,
            "needs pp and interleave of at least 2, given pp 4 and interleave 1",
        ),
        (
            like_chunks(1, 2, 1.0, 1.0),
            INTERLEAVED,
            8,
            "pp and interleave of at least 2, given pp 1",
        ),
        (
            like_chunks(4, 2, 1.0, 1.0),
            ONE_F_ONE_B,
            8,
            "1f1b runs 1 chunk per stage, given interleave 2",
        ),
        (like_chunks(4, 1, 1.0, 1.0), GPIPE, 0, "give at least 1 of each"),
        (costs_of([1.0, 1.0, 1.0], 2), GPIPE, 1, "a multiple of pp 2 chunks"),
        (costs_of([1.0, 1.0], 2), GPIPE, 1, "one transfer less each way"),
        (costs_of([1.0, -1.0], 1), GPIPE, 1, "negative or infinite"),
        (costs_of([1.0, float("nan")], 1), GPIPE, 1, "negative or infinite"),
        (replace(costs_of([1.0, 1.0], 1), pp=0), GPIPE, 1, "a multiple of pp 0"),
    ],
)
def test_what_is_refused(
    costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        simulate(costs, schedule, micro_batches)


def test_arrays_of_other_shapes_are_refused() -> None:
    many = PipelineCosts(
        2, *(np.ones((3, length)) for length in (2, 2, 1, 1)), overlap_transfers=True
    )
    with pytest.raises(InputError, match=r"give \(chunks,\)"):
        simulate(many, GPIPE, 1)
    with pytest.raises(InputError, match="one entry per chunk"):
        held_bytes(np.ones(3), 2, GPIPE, 1)
