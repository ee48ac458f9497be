"""What a pipeline schedule is: the fixed order of the passes on every stage, and what it costs to
run them.

The model's layers are cut into ``pp * chunks_per_stage`` chunks in model order; chunk c runs on
stage c % pp. Every stage runs ``micro_batches * chunks_per_stage`` forward passes and as many
backward passes. All schedules share one shape: some forward passes to warm up, then one forward and
one backward pass in turn, then the backward passes that are left. They differ in the length of the
warm-up (``warm_up``) alone:

- GPipe (Huang et al. 2019): all forward passes.
- 1F1B (Narayanan et al. 2021, SC'21, section 2.2.1): one for each stage downstream.
- Interleaved 1F1B (the same, section 2.2.2, and Megatron-LM): two for each stage downstream, after
  pp micro-batches on all chunks but the last. Megatron-LM before core_r0.9.0 ran all forward passes
  where there were only pp micro-batches (``Software.whole_warm_up``), which takes equal chunks with
  short transfers as long and makes the last stages hold more.

With chunks, a stage takes pp micro-batches through its first chunk, the same ones through its
second and so on before the next pp micro-batches; backward in the reverse order of the chunks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.results import PipelineReport
from phaze_common.choices import PipelineSchedule as PipelineSchedule
from phaze_common.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PipelineCosts:
    """Seconds per micro-batch of a pipeline's ``pp * chunks_per_stage`` chunks in model order.

    ``forward_s`` and ``backward_s`` have shape (chunks,); ``transfer_s[c]`` takes the activations
    of chunk c to chunk c + 1 and ``backward_transfer_s[c]`` the gradients back, shape (chunks -
    1,).

    A pass starts when its stage is free and its input has arrived, ``transfer_s`` after the pass
    that sent it has ended. With ``overlap_transfers`` the sender goes on computing meanwhile;
    without, it is occupied until the transfer has ended. The receiver is never occupied. With 1F1B
    on equal stages and transfers shorter than passes, that takes exactly as long as Megatron-LM's
    blocking exchanges, in which both sides meet and send at once; on unequal stages it takes
    slightly less. ``whole_warm_up``: an interleaved schedule of only pp micro-batches runs all
    forward passes first.
    """

    pp: int
    forward_s: FloatArray
    backward_s: FloatArray
    transfer_s: FloatArray
    backward_transfer_s: FloatArray
    overlap_transfers: bool
    whole_warm_up: bool = False

    @property
    def chunks_per_stage(self) -> int:
        """Chunks that each stage runs."""
        return len(self.forward_s) // self.pp


def costs_of(report: PipelineReport) -> PipelineCosts:
    """The costs of a pipeline that a search reported."""
    return PipelineCosts(
        report.pp,
        np.array(report.forward_s),
        np.array(report.backward_s),
        np.array(report.transfer_s),
        np.array(report.backward_transfer_s),
        report.overlap_transfers,
        report.whole_warm_up,
    )


def warm_up(
    schedule: PipelineSchedule,
    pp: int,
    chunks_per_stage: int,
    micro_batches: int,
    *,
    whole_warm_up: bool = False,
) -> IntArray:
    """Forward passes that each stage runs before its forward and backward passes alternate; shape
    (pp,).

    With ``whole_warm_up`` these are all where an interleaved schedule has only pp micro-batches.

    Raises:
        InputError: the schedule does not exist for these numbers.
    """
    check(schedule, pp, chunks_per_stage, micro_batches)
    downstream = np.arange(pp - 1, -1, -1, dtype=np.int64)
    passes = micro_batches * chunks_per_stage
    if schedule is PipelineSchedule.GPIPE or (
        schedule is PipelineSchedule.INTERLEAVED and whole_warm_up and micro_batches == pp
    ):
        return np.full_like(downstream, passes)
    wanted = downstream
    if schedule is PipelineSchedule.INTERLEAVED:
        wanted = 2 * downstream + (chunks_per_stage - 1) * pp
    warm: IntArray = np.minimum(wanted, passes)
    return warm


def check(schedule: PipelineSchedule, pp: int, chunks_per_stage: int, micro_batches: int) -> None:
    """Refuse numbers that the schedule does not exist for.

    Raises:
        InputError: says which are allowed.
    """
    if pp < 1 or micro_batches < 1:
        raise InputError(
            f"a pipeline of {pp} stages and {micro_batches} micro-batches is empty; give at least "
            "1 of each"
        )
    if schedule is not PipelineSchedule.INTERLEAVED:
        if chunks_per_stage != 1:
            raise InputError(
                f"{schedule} runs 1 chunk per stage, given interleave {chunks_per_stage}; give "
                "--interleave 1"
            )
        return
    if pp < 2 or chunks_per_stage < 2:
        given = f"pp {pp} and interleave {chunks_per_stage}; give larger ones, or --interleave 1"
        raise InputError(
            f"an interleaved schedule needs pp and interleave of at least 2, given {given}"
        )
    if micro_batches % pp:
        below, above = micro_batches // pp * pp, (micro_batches // pp + 1) * pp
        allowed = f"{below} or {above}" if below else f"{above}"
        raise InputError(
            f"an interleaved schedule needs micro-batches in multiples of pp {pp}, given "
            f"{micro_batches} per pipeline; give a "
            f"--global-batch-size that makes {allowed} of them, or --interleave 1"
        )
