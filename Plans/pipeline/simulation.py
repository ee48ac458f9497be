"""How long a pipeline takes and what its stages hold: closed forms where they are exact, else the schedule pass by pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Common.errors import InputError
from Plans.pipeline import gpipe, interleaved, kernels, one_f_one_b
from Plans.pipeline.schedule import FloatArray, IntArray, PipelineCosts, PipelineSchedule, warm_up


@dataclass(frozen=True, eq=False)
class PipelineTimes:
    """A pipeline's forward and backward passes over all micro-batches, from the first one's start (0) to the last one's end.

    Of shape (pp,): seconds that a stage computes, is occupied by transfers that do not overlap, and idles, which add up to
    ``total_s``; and the most activations (of one micro-batch on one chunk) that it holds at once. Of shape (chunks,): start
    and end of each chunk's last backward pass, after which its gradients are complete.
    """

    total_s: float
    busy_s: FloatArray
    transfer_s: FloatArray
    idle_s: FloatArray
    in_flight: IntArray
    last_backward_start_s: FloatArray
    last_backward_end_s: FloatArray


@dataclass(frozen=True, eq=False)
class PipelinePasses:
    """Every forward and backward pass of a pipeline, arrays of shape (pp, 2 * micro_batches * chunks_per_stage).

    Entry [s, k] is the k-th pass that stage s runs: whether it is a forward one, its chunk, its micro-batch (from 0), its start
    and its end.
    """

    forward: NDArray[np.bool_]
    chunk: IntArray
    micro_batch: IntArray
    start_s: FloatArray
    end_s: FloatArray


def simulate(costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int) -> PipelineTimes:
    """Exact times of one pipeline, equal stages or not: the longest path through the order that the schedule fixes.

    Raises:
        InputError: arrays of other shapes, a time that is negative or not finite, or numbers the schedule does not exist for.
    """
    pipeline = _pipeline(costs, schedule, micro_batches, dimensions=1)
    chunks = _merged(pipeline)
    sent_s, end_s = np.zeros(len(costs.forward_s)), np.empty(len(costs.forward_s))
    if schedule is PipelineSchedule.GPIPE:
        end_s = gpipe.last_backward_end_s(chunks, micro_batches)
    elif schedule is PipelineSchedule.INTERLEAVED:
        interleaved.fill_last_backward_end_s(chunks, costs.pp, micro_batches, end_s)
    elif not _delayed(chunks):
        end_s = one_f_one_b.last_backward_end_s(chunks.forward_s, chunks.backward_s, micro_batches)
    else:
        kernels.run(pipeline, end_s, np.empty((0, 0)))
    if not costs.overlap_transfers:
        sent_s[:-1] += costs.transfer_s
        sent_s[1:] += costs.backward_transfer_s
        end_s[1:] -= costs.backward_transfer_s
    total_s = float(end_s[0])
    busy_s = micro_batches * (costs.forward_s + costs.backward_s).reshape(-1, costs.pp).sum(axis=0)
    transfer_s = micro_batches * sent_s.reshape(-1, costs.pp).sum(axis=0)
    return PipelineTimes(
        total_s=total_s,
        busy_s=busy_s,
        transfer_s=transfer_s,
        idle_s=np.maximum(total_s - busy_s - transfer_s, 0.0),
        in_flight=np.minimum(pipeline.warm_up + 1, micro_batches * costs.chunks_per_stage),
        last_backward_start_s=end_s - costs.backward_s,
        last_backward_end_s=end_s,
    )


def timeline(costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int) -> PipelinePasses:
    """When each stage runs what, pass by pass; the same times as ``simulate``'s.

    Raises:
        InputError: as ``simulate``.
    """
    pipeline = _pipeline(costs, schedule, micro_batches, dimensions=1)
    pp, chunks = costs.pp, len(costs.forward_s)
    passes = micro_batches * costs.chunks_per_stage
    start_s = np.empty((pp, 2 * passes))
    kernels.run(pipeline, np.empty(chunks), start_s)
    forward, number = np.empty((pp, 2 * passes), np.bool_), np.empty((pp, 2 * passes), np.int64)
    for stage in range(pp):
        for position in range(2 * passes):
            forward[stage, position], number[stage, position] = kernels.pass_at.py_func(
                position, int(pipeline.warm_up[stage]), passes
            )
    turn = number % chunks // pp  # counted from the first chunk of a stage for forward passes, from its last for backward ones
    chunk = np.where(forward, turn, costs.chunks_per_stage - 1 - turn) * pp + np.arange(pp)[:, None]
    micro_batch = number // chunks * pp + number % pp if costs.chunks_per_stage > 1 else number
    end_s = start_s + np.where(forward, costs.forward_s[chunk], costs.backward_s[chunk])
    return PipelinePasses(forward, chunk, micro_batch, start_s, end_s)


def makespans_s(costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int) -> FloatArray:
    """``simulate``'s total seconds of many pipelines, shape (pipelines,); ``costs`` holds arrays of two dimensions.

    Raises:
        InputError: as ``simulate``.
    """
    pipelines = _pipeline(costs, schedule, micro_batches, dimensions=2)
    chunks = _merged(pipelines)
    seconds: FloatArray
    if schedule is PipelineSchedule.GPIPE:
        seconds = gpipe.last_backward_end_s(chunks, micro_batches)[:, 0]
        return seconds
    if schedule is PipelineSchedule.ONE_F_ONE_B and _delayed(chunks):
        seconds = kernels.run_all(pipelines, False)
        return seconds
    each = np.full(len(chunks.forward_s), micro_batches, np.int64)
    after_s = np.full((len(each), costs.pp), -np.inf)
    after_s[:, 0] = 0.0  # the first stage's end counts, which is the last one
    if schedule is PipelineSchedule.INTERLEAVED:
        seconds = interleaved.finish_many_s(chunks, after_s, costs.pp, each)
    else:
        seconds = one_f_one_b.finish_many_s(chunks.forward_s, chunks.backward_s, after_s, each)
    return seconds


def bounds_s(costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int) -> FloatArray:
    """Lower bounds of ``makespans_s``, shape (pipelines,), for about the price of one micro-batch.

    Exact for GPipe, and for equal stages where nothing is transferred. Else the longest of four paths through each stage: its
    work cannot begin before the first micro-batch arrives, nor what follows its first backward pass before that micro-batch has
    been to the last chunk and back; and the end likewise comes after its last backward pass, or after its last forward pass and
    the way of that micro-batch to the last chunk and back to the first.

    Raises:
        InputError: as ``simulate``.
    """
    seconds: FloatArray = kernels.run_all(_pipeline(costs, schedule, micro_batches, dimensions=2), True)
    return seconds


def held_bytes(saved_bytes: FloatArray, pp: int, schedule: PipelineSchedule, micro_batches: int) -> FloatArray:
    """Most bytes of activations that each stage holds at once, shape (pp,).

    ``saved_bytes[c]`` is what one micro-batch leaves on chunk c from its forward to its backward pass, shape (chunks,). Where a
    stage's chunks differ, this is less than ``in_flight`` times the largest.

    Raises:
        InputError: an array of another shape, or numbers the schedule does not exist for.
    """
    if saved_bytes.ndim != 1 or pp < 1 or len(saved_bytes) % pp:
        raise InputError(f"saved_bytes has shape {saved_bytes.shape}; give one entry per chunk, a multiple of pp {pp}")
    warm = warm_up(schedule, pp, len(saved_bytes) // pp, micro_batches)
    most = np.empty(pp)
    kernels.most_held(np.require(saved_bytes, np.float64, ["C", "W"]), warm, micro_batches, most)
    return most


def _merged(pipeline: kernels.Pipeline) -> kernels.Chunks:
    """Transfers that occupy the sender as parts of its passes, those that overlap as delays of what they take."""
    forward_s, backward_s = np.zeros_like(pipeline.forward_s), np.zeros_like(pipeline.backward_s)
    forward_s[..., :-1], backward_s[..., 1:] = pipeline.transfer_s, pipeline.backward_transfer_s
    if pipeline.overlap_transfers:
        return kernels.Chunks(pipeline.forward_s, pipeline.backward_s, forward_s, backward_s)
    none_s = np.zeros_like(forward_s)
    return kernels.Chunks(pipeline.forward_s + forward_s, pipeline.backward_s + backward_s, none_s, none_s)


def _delayed(chunks: kernels.Chunks) -> bool:
    """Whether any output arrives after the end of its pass."""
    return bool(chunks.forward_delay_s.any() or chunks.backward_delay_s.any())


def _pipeline(costs: PipelineCosts, schedule: PipelineSchedule, micro_batches: int, dimensions: int) -> kernels.Pipeline:
    """``costs`` checked and laid out as the loops are compiled for."""
    *pipelines, chunks = costs.forward_s.shape
    shapes = (costs.backward_s.shape, costs.transfer_s.shape, costs.backward_transfer_s.shape)
    wanted = ((*pipelines, chunks), (*pipelines, chunks - 1), (*pipelines, chunks - 1))
    if len(pipelines) != dimensions - 1 or shapes != wanted or costs.pp < 1 or chunks % costs.pp:
        shape = "(chunks,)" if dimensions == 1 else "(pipelines, chunks)"
        raise InputError(
            f"pipeline costs have shapes {costs.forward_s.shape}, {', '.join(map(str, shapes))}; give {shape} for both passes, "
            f"a multiple of pp {costs.pp} chunks, and one transfer less each way"
        )
    given = (costs.forward_s, costs.backward_s, costs.transfer_s, costs.backward_transfer_s)
    for seconds in given:
        if not (np.isfinite(seconds) & (seconds >= 0.0)).all():
            raise InputError("a pass or transfer of a pipeline takes a negative or infinite time; give seconds of at least 0")
    # Another layout, or arrays that may not be written to, would be compiled for anew.
    forward_s, backward_s, transfer_s, backward_transfer_s = (np.require(seconds, np.float64, ["C", "W"]) for seconds in given)
    warm = warm_up(schedule, costs.pp, costs.chunks_per_stage, micro_batches)
    return kernels.Pipeline(forward_s, backward_s, transfer_s, backward_transfer_s, costs.overlap_transfers, warm, micro_batches)
