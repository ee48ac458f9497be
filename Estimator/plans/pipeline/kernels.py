"""Compiled inner loops of the pipeline simulation.

Conventions: a stage's forward passes are numbered in the order in which it runs them, its backward
passes likewise; both orders go through the chunks by groups of pp micro-batches and are the same on
all stages. So pass k of a stage feeds pass k of the next one, and where the model goes on from the
last stage to the first, pass k + pp. ``round_of[k]`` tells which of a stage's chunks pass k is on,
counted from the model's first for forward and from its last for backward passes.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_inner, borrowing_outer, inner, outer
from Estimator.plans.pipeline.schedule import FloatArray, IntArray


class Pipeline(NamedTuple):
    """The arrays of ``PipelineCosts``, and the schedule."""

    forward_s: FloatArray
    backward_s: FloatArray
    transfer_s: FloatArray
    backward_transfer_s: FloatArray
    overlap_transfers: bool
    warm_up: IntArray  # (pp,)
    micro_batches: int


class Chunks(NamedTuple):
    """What each chunk costs per micro-batch where transfers that occupy the sender are merged into
    its passes.

    Seconds, finite and at least 0, of shape (chunks,). Passes occupy their stage for ``forward_s``
    and ``backward_s``; their output arrives ``forward_delay_s`` and ``backward_delay_s`` after they
    end, by transfers that overlap.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    forward_delay_s: FloatArray
    backward_delay_s: FloatArray


@borrowing_inner
def pass_at(position: int, warm_up: int, passes: int) -> tuple[bool, int]:
    """Whether the pass at ``position`` is a forward one, and its number among its kind."""
    if position < warm_up:
        return True, position
    if position >= 2 * passes - warm_up:
        return False, position - passes
    turn = position - warm_up
    return (True, warm_up + turn // 2) if turn % 2 == 0 else (False, turn // 2)


@inner
def sends(pipeline: Pipeline) -> tuple[FloatArray, FloatArray]:
    """Seconds for which passes occupy their stage beyond computing, by chunk (chunks,)."""
    after_forward = np.zeros_like(pipeline.forward_s)
    after_backward = np.zeros_like(pipeline.forward_s)
    if not pipeline.overlap_transfers:
        for chunk in range(len(after_forward) - 1):
            after_forward[chunk] = pipeline.transfer_s[chunk]
            after_backward[chunk + 1] = pipeline.backward_transfer_s[chunk]
    return after_forward, after_backward


@outer
def run(pipeline: Pipeline, end_s: FloatArray, starts_s: FloatArray) -> float:
    """Run every stage's passes in its order, each as early as it can; returns when the last one
    ends.

    Fills the end of each chunk's last backward pass (chunks,) and, unless it is empty, the start of
    every pass in its stage's order (pp, 2 * passes).
    """
    forward_s, backward_s = pipeline.forward_s, pipeline.backward_s
    after_forward, after_backward = sends(pipeline)
    pp, chunks = len(pipeline.warm_up), len(forward_s)
    rounds = chunks // pp
    passes = pipeline.micro_batches * rounds
    round_of = np.arange(passes) % chunks // pp
    # When the input of each pass is there; negative: not yet.
    forward_input, backward_input = np.full((pp, passes), -1.0), np.full((pp, passes), -1.0)
    for k in range(passes):
        if round_of[k] == 0:
            forward_input[0, k] = 0.0
    position, free_s = np.zeros(pp, np.int64), np.zeros(pp)
    while position[0] < 2 * passes:  # the last pass of all is the first stage's
        for visit in range(2 * pp):  # down the stages and back up, each as far as its inputs let it
            stage = visit if visit < pp else 2 * pp - 1 - visit
            while position[stage] < 2 * passes:
                is_forward, k = pass_at(position[stage], pipeline.warm_up[stage], passes)
                arrived = forward_input[stage, k] if is_forward else backward_input[stage, k]
                if arrived < 0.0:
                    break
                start = max(arrived, free_s[stage])
                if len(starts_s) > 0:
                    starts_s[stage, position[stage]] = start
                position[stage] += 1
                if is_forward:
                    chunk = round_of[k] * pp + stage
                    end = start + forward_s[chunk]
                    free_s[stage] = end + after_forward[chunk]
                    if chunk == chunks - 1:
                        backward_input[stage, k - (rounds - 1) * pp] = end
                    elif stage == pp - 1:
                        forward_input[0, k + pp] = end + pipeline.transfer_s[chunk]
                    else:
                        forward_input[stage + 1, k] = end + pipeline.transfer_s[chunk]
                else:
                    chunk = (rounds - 1 - round_of[k]) * pp + stage
                    end = start + backward_s[chunk]
                    free_s[stage] = end + after_backward[chunk]
                    end_s[chunk] = end  # the last micro-batch's is written last
                    if chunk == 0:
                        continue
                    if stage == 0:
                        backward_input[pp - 1, k + pp] = (
                            end + pipeline.backward_transfer_s[chunk - 1]
                        )
                    else:
                        backward_input[stage - 1, k] = end + pipeline.backward_transfer_s[chunk - 1]
    return end_s[0]


@borrowing_outer
def most_held(
    held_by_chunk: FloatArray, warm_up: IntArray, micro_batches: int, most: FloatArray
) -> None:
    """Fill the most that each stage holds at once (pp,), where a micro-batch on chunk c holds
    ``held_by_chunk[c]``.

    Behind its warm-up a stage takes its chunks in turn, so what it holds repeats after one pass of
    each kind on all of them for pp micro-batches; at the end it only lets go.
    """
    pp, chunks = len(warm_up), len(held_by_chunk)
    rounds = chunks // pp
    passes = micro_batches * rounds
    for stage in range(pp):
        held = 0.0
        most[stage] = 0.0
        for position in range(min(2 * passes, warm_up[stage] + 2 * chunks)):
            is_forward, k = pass_at(position, warm_up[stage], passes)
            turn = k % chunks // pp
            if is_forward:
                held += held_by_chunk[turn * pp + stage]
                most[stage] = max(most[stage], held)
            else:
                held -= held_by_chunk[(rounds - 1 - turn) * pp + stage]
