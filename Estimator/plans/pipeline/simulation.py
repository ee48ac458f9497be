"""How long a pipeline takes and what its stages hold: closed forms where they are exact, else the
schedule pass by pass."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.pipeline import gpipe, interleaved, kernels, one_f_one_b
from Estimator.plans.pipeline.schedule import (
    FloatArray,
    IntArray,
    PipelineCosts,
    PipelineSchedule,
    warm_up,
)
from phaze_common.errors import InputError


@dataclass(frozen=True, eq=False)
class PipelinePasses:
    """Every forward and backward pass of a pipeline, arrays of shape (pp, 2 * micro_batches *
    chunks_per_stage).

    Entry [s, k] is the k-th pass that stage s runs: whether it is a forward one, its chunk, its
    micro-batch (from 0), its start and its end.
    """

    forward: NDArray[np.bool_]
    chunk: IntArray
    micro_batch: IntArray
    start_s: FloatArray
    end_s: FloatArray


def simulate(costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int) -> FloatArray:
    """When each chunk has ended its last backward pass, exactly: the longest path through the order
    that the schedule fixes.

    Seconds from the start of the first pass, shape (chunks,); the first chunk's is the last end of
    all, the makespan.

    Raises: InputError: arrays of other shapes, a time that is negative or not finite, or numbers
        the schedule does not exist for.
    """
    pipeline = _pipeline(costs, schedule, micro_batches)
    chunks = _merged(pipeline)
    delayed = chunks.forward_delay_s.any() or chunks.backward_delay_s.any()
    if schedule is PipelineSchedule.GPIPE:
        end_s = gpipe.last_backward_end_s(chunks, micro_batches)
    elif schedule is PipelineSchedule.ONE_F_ONE_B and not delayed:
        last_end_s = one_f_one_b.last_backward_end_s.of_steps(costs.pp**2)
        end_s = last_end_s(chunks.forward_s, chunks.backward_s, micro_batches)
    else:
        end_s = np.empty(len(costs.forward_s))
        if schedule is PipelineSchedule.INTERLEAVED:
            interleaved.fill_last_backward_end_s(
                chunks, costs.pp, micro_batches, costs.whole_warm_up, end_s
            )
        else:
            kernels.run(pipeline, end_s, np.empty((0, 0)))
    if not costs.overlap_transfers:
        end_s[1:] -= costs.backward_transfer_s
    return end_s


def timeline(
    costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int
) -> PipelinePasses:
    """When each stage runs what, pass by pass; the same times as ``simulate``'s.

    Raises:
        InputError: as ``simulate``.
    """
    pipeline = _pipeline(costs, schedule, micro_batches)
    pp, chunks = costs.pp, len(costs.forward_s)
    passes = micro_batches * costs.chunks_per_stage
    start_s = np.empty((pp, 2 * passes))
    kernels.run.of_steps(start_s.size)(pipeline, np.empty(chunks), start_s)
    forward, number = np.empty((pp, 2 * passes), np.bool_), np.empty((pp, 2 * passes), np.int64)
    for stage in range(pp):
        for position in range(2 * passes):
            forward[stage, position], number[stage, position] = kernels.pass_at.py_func(
                position, int(pipeline.warm_up[stage]), passes
            )
    # counted from the first chunk of a stage for forward passes, from its last for backward ones
    turn = number % chunks // pp
    chunk = np.where(forward, turn, costs.chunks_per_stage - 1 - turn) * pp + np.arange(pp)[:, None]
    micro_batch = number // chunks * pp + number % pp if costs.chunks_per_stage > 1 else number
    end_s = start_s + np.where(forward, costs.forward_s[chunk], costs.backward_s[chunk])
    return PipelinePasses(forward, chunk, micro_batch, start_s, end_s)


@dataclass(frozen=True, eq=False)
class HeldActivations:
    """``held_bytes[k]`` on a stage's device from ``time_s[k]`` on; shape (2 * passes,)."""

    time_s: FloatArray
    held_bytes: FloatArray


def held_over_time(passes: PipelinePasses, saved_bytes: FloatArray, stage: int) -> HeldActivations:
    """What the activations of ``stage`` hold as its ``passes`` go by; the most is that of
    ``held_bytes``.

    A micro-batch's are there from the start of its forward pass on a chunk, which leaves
    ``saved_bytes`` of shape (chunks,), to the end of its backward pass.
    """
    forward, saved = passes.forward[stage], saved_bytes[passes.chunk[stage]]
    time_s = np.where(forward, passes.start_s[stage], passes.end_s[stage])
    return HeldActivations(time_s, np.cumsum(np.where(forward, saved, -saved)))


def held_bytes(
    saved_bytes: FloatArray,
    pp: int,
    schedule: PipelineSchedule,
    micro_batches: int,
    *,
    whole_warm_up: bool = False,
) -> FloatArray:
    """Most bytes of activations that each stage holds at once, shape (pp,).

    ``saved_bytes[c]`` is what one micro-batch leaves on chunk c from its forward to its backward
    pass, shape (chunks,). Where a stage's chunks differ, this is less than their number times the
    largest. ``whole_warm_up`` as of ``PipelineCosts``.

    Raises:
        InputError: an array of another shape, or numbers the schedule does not exist for.
    """
    if saved_bytes.ndim != 1 or pp < 1 or len(saved_bytes) % pp:
        raise InputError(
            f"saved_bytes has shape {saved_bytes.shape}; give one entry per chunk, a multiple of "
            f"pp {pp}"
        )
    warm = warm_up(schedule, pp, len(saved_bytes) // pp, micro_batches, whole_warm_up=whole_warm_up)
    most = np.empty(pp)
    fill = kernels.most_held.of_steps(pp * (pp + 2 * len(saved_bytes)))
    fill(np.require(saved_bytes, np.float64, ["C", "W"]), warm, micro_batches, most)
    return most


def _merged(pipeline: kernels.Pipeline) -> kernels.Chunks:
    """Transfers that occupy the sender as parts of its passes, others as delays."""
    forward_s, backward_s = np.zeros_like(pipeline.forward_s), np.zeros_like(pipeline.backward_s)
    forward_s[:-1], backward_s[1:] = pipeline.transfer_s, pipeline.backward_transfer_s
    if pipeline.overlap_transfers:
        return kernels.Chunks(pipeline.forward_s, pipeline.backward_s, forward_s, backward_s)
    none_s = np.zeros_like(forward_s)
    return kernels.Chunks(
        pipeline.forward_s + forward_s, pipeline.backward_s + backward_s, none_s, none_s
    )


def _pipeline(
    costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int
) -> kernels.Pipeline:
    """``costs`` checked and laid out as the loops are compiled for."""
    chunks = costs.forward_s.size
    given = (costs.forward_s, costs.backward_s, costs.transfer_s, costs.backward_transfer_s)
    shapes = tuple(each.shape for each in given)
    if (
        shapes != ((chunks,), (chunks,), (chunks - 1,), (chunks - 1,))
        or costs.pp < 1
        or chunks % costs.pp
    ):
        raise InputError(
            f"pipeline costs have shapes {', '.join(map(str, shapes))}; give (chunks,) for both "
            f"passes, a multiple of pp {costs.pp} chunks, and one transfer less each way"
        )
    for seconds in given:
        if not (np.isfinite(seconds) & (seconds >= 0.0)).all():
            raise InputError(
                "a pass or transfer of a pipeline takes a negative or infinite time; give seconds "
                "of at least 0"
            )
    # Another layout, or arrays that may not be written to, would be compiled for anew.
    forward_s, backward_s, sent_s, sent_back_s = (
        np.require(seconds, np.float64, ["C", "W"]) for seconds in given
    )
    warm = warm_up(
        schedule, costs.pp, costs.chunks_per_stage, micro_batches, whole_warm_up=costs.whole_warm_up
    )
    overlap = costs.overlap_transfers
    return kernels.Pipeline(
        forward_s, backward_s, sent_s, sent_back_s, overlap, warm, micro_batches
    )
