"""Pipelines to draw: made up, of any schedule, costs unequal."""

from __future__ import annotations

from hypothesis import strategies as st

from Estimator.plans.pipeline.schedule import PipelineSchedule
from Estimator.plans.results import PipelineReport

SECONDS = st.one_of(
    st.just(0.0), st.floats(1e-9, 1e-2), st.integers(1, 5).map(lambda count: count * 1e-6)
)


@st.composite
def pipeline_reports(draw: st.DrawFn) -> PipelineReport:
    schedule = draw(st.sampled_from(list(PipelineSchedule)))
    interleaved = schedule is PipelineSchedule.INTERLEAVED
    pp = draw(st.integers(2 if interleaved else 1, 5))
    chunks = pp * (draw(st.integers(2, 3)) if interleaved else 1)
    micro_batches = draw(st.integers(1, 3)) * pp if interleaved else draw(st.integers(1, 9))

    def seconds(count: int) -> tuple[float, ...]:
        return tuple(draw(st.lists(SECONDS, min_size=count, max_size=count)))

    return PipelineReport(
        schedule=schedule.value,
        pp=pp,
        micro_batches=micro_batches,
        forward_s=seconds(chunks),
        backward_s=seconds(chunks),
        transfer_s=seconds(chunks - 1),
        backward_transfer_s=seconds(chunks - 1),
        overlap_transfers=draw(st.booleans()),
        sync_s=seconds(pp),
        optimizer_s=draw(SECONDS),
        whole_warm_up=draw(st.booleans()),
    )


def equal_stages(
    schedule: PipelineSchedule, pp: int, chunks_per_stage: int, micro_batches: int, overlap: bool
) -> PipelineReport:
    """A pipeline whose chunks all take 2 ms forward and 4 ms back, with transfers of 3 ms and 1
    ms."""
    chunks = pp * chunks_per_stage
    return PipelineReport(
        schedule=schedule.value,
        pp=pp,
        micro_batches=micro_batches,
        forward_s=(2e-3,) * chunks,
        backward_s=(4e-3,) * chunks,
        transfer_s=(3e-3,) * (chunks - 1),
        backward_transfer_s=(1e-3,) * (chunks - 1),
        overlap_transfers=overlap,
        sync_s=(5e-3,) * pp,
        optimizer_s=1e-3,
    )
