"""Which rows go between processes of neighbouring stages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phaze.runtime.training.places import Link, StagePlace, backward_links, forward_links, seat_of
from phaze.runtime.training.stage_worker import passes
from phaze_common.choices import PipelineSchedule

DEGREES = st.sampled_from([1, 2, 3, 4, 6, 12])


@st.composite
def two_stages(draw: st.DrawFn) -> tuple[StagePlace, StagePlace]:
    dp, other_dp = draw(DEGREES), draw(DEGREES)
    tp, other_tp = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return StagePlace(0, 0, dp, tp, 12 // dp), StagePlace(
        1, dp * tp, other_dp, other_tp, 12 // other_dp
    )


def rows_of(link: Link, places: tuple[StagePlace, ...]) -> tuple[range, range]:
    """Rows of the micro-batch that a link takes from its source, and puts into its target."""
    assert link.source_rows is not None and link.target_rows is not None
    first, second = seat_of(places, link.source).rows.start, seat_of(places, link.target).rows.start
    return (
        range(first + link.source_rows.start, first + link.source_rows.stop),
        range(second + link.target_rows.start, second + link.target_rows.stop),
    )


@given(two_stages())
def test_every_process_gets_each_of_its_rows_once(places: tuple[StagePlace, StagePlace]) -> None:
    for links, receivers in (
        (forward_links(*places, in_rows=True), places[1]),
        (backward_links(*places, in_rows=True), places[0]),
    ):
        for rank in receivers.ranks:
            mine = [rows_of(link, places) for link in links if link.target == rank]
            assert all(taken == put for taken, put in mine)
            assert sorted(row for _, put in mine for row in put) == list(seat_of(places, rank).rows)


@given(two_stages())
def test_a_tensor_without_rows_reaches_all_and_its_gradient_is_counted_once(
    places: tuple[StagePlace, StagePlace],
) -> None:
    forward = forward_links(*places, in_rows=False)
    assert sorted(link.target for link in forward) == list(places[1].ranks)
    backward = backward_links(*places, in_rows=False)
    for part in range(places[0].tp):
        replicas = [
            seat_of(places, link.source).replica
            for link in backward
            if seat_of(places, link.target).part == part
        ]
        assert sorted(replicas) == list(range(places[1].dp))


@given(
    st.sampled_from([PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.GPIPE]),
    st.integers(1, 6),
    st.integers(1, 9),
)
def test_every_stage_runs_each_pass_once_and_backward_behind_forward(
    schedule: PipelineSchedule, stages: int, micro_batches: int
) -> None:
    for stage in range(stages):
        order = list(passes(schedule, stage, stages, micro_batches))
        for forward in (True, False):
            assert [each.micro_batch for each in order if each.forward is forward] == list(
                range(micro_batches)
            )
        for number in range(micro_batches):
            places = [place for place, each in enumerate(order) if each.micro_batch == number]
            assert order[places[0]].forward and not order[places[1]].forward
        ahead = 0
        held = [ahead := ahead + (1 if each.forward else -1) for each in order]
        assert max(held) == (
            micro_batches
            if schedule is PipelineSchedule.GPIPE and stages > 1
            else min(micro_batches, stages - stage)
        )
