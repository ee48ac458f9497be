"""Exact times of 1F1B on unequal stages at a price that does not depend on the number of micro-batches.

Transfers are merged into the passes: without overlap a sender is occupied until its transfer has ended, which is a pipeline
without transfers whose forward pass on stage s takes ``forward_s[s] + transfer_s[s]`` and whose backward pass takes
``backward_s[s] + backward_transfer_s[s - 1]``. An end of a stage then includes its last backward transfer; who asks for the end
of its last backward pass subtracts that one, or counts it into ``after_s``, which may be negative.

**The closed form.** With pp = p stages (from 0), f and b of a stage, its load L = f + b, P(s) the loads of stages 0..s and m
micro-batches, stage s runs the forward passes 0 .. p-1-s to warm up, then a backward and a forward pass in turn. Its k-th forward
pass waits for the one before it in that order and for stage s-1's k-th; its backward passes likewise for stage s+1's. The
iteration is the longest path through these passes, which has three parts:

- *Warm-up*, a staircase of p forward passes, down the stages and along them. It ends on some stage e, has been on stages 0..e
  once, and spends the other p-1-e passes on the one of them with the longest: (p-1-e) max f(0..e) + f(0) + ... + f(e).
- *Rounds*, each a forward and a backward pass of one stage. A step to a neighbour and back costs a round; passes on the way are
  those of the prefix sums. All rounds that are left may as well be on one stage s, since each adds the load of where it is.
- *Cool-down*, the warm-up mirrored: it starts on some stage x and spends p-1-x passes on the stage with the longest backward
  pass of those on its way to stage 0, or to stage t if the end of stage t's last backward pass is asked for.

So the path that spends its rounds on stage s, reached from the best e, is

    R(s) = P(s) + (m-p-s) L(s) + max( max over e <= s: (p-1-e) max f(0..e) + e L(s),
                                      max over e >= s: (p-1-e) max f(0..e) + P(e) - P(s) + s L(s) ),

the longest path to the start x of the cool-down is V(x) = max( max over s >= x: R(s) + x L(s), max over s < x: R(s) + s L(s) +
P(x) - P(s) ), and stage t ends at max over x >= t: V(x) + (p-1-x) max b(t..x) - (b(0) + ... + b(t-1)). No number of rounds
is negative from m = 2p-1 on. With fewer micro-batches the passes are run one by one, at most 3 p^2 of each kind.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import numpy as np

from Plans.pipeline.kernels import inner, outer
from Plans.pipeline.schedule import FloatArray, IntArray

SCRATCH_ROWS = 4  # of pp entries each, for ``finish_in_s`` and ``fill_last_backward_end_s``


@inner
def _run(forward_s: FloatArray, backward_s: FloatArray, micro_batches: int, scratch: FloatArray, end_s: FloatArray) -> None:
    """Every pass in turn: in turn i, stage s runs forward pass i + p-1-s, if there is one, then backward pass i.

    Stages go last to first, so that a forward pass finds its input from the turn before and a backward pass from this turn.
    """
    pp = len(forward_s)
    arrives_s = scratch[0]  # end of each stage's latest forward pass
    end_s[:] = 0.0  # when each stage is free, which is the end of its latest pass
    for turn in range(1 - pp, micro_batches):
        returns_s = 0.0  # end of the next stage's backward pass
        for stage in range(pp - 1, -1, -1):
            free_s = end_s[stage]
            if 0 <= turn + pp - 1 - stage < micro_batches:
                if stage > 0:
                    free_s = max(free_s, arrives_s[stage - 1])
                free_s += forward_s[stage]
                arrives_s[stage] = free_s
            if turn >= 0:
                free_s = max(free_s, returns_s) + backward_s[stage]
                returns_s = free_s
            end_s[stage] = free_s


@inner
def _close(forward_s: FloatArray, backward_s: FloatArray, micro_batches: int, scratch: FloatArray, end_s: FloatArray) -> None:
    """The closed form; the inner loops go over independent entries, so that they become vector instructions."""
    pp = len(forward_s)
    prefix_s, load_s, rounds_s, cool_s = scratch[0], scratch[1], scratch[2], scratch[3]
    total_s = 0.0
    for stage in range(pp):
        load_s[stage] = forward_s[stage] + backward_s[stage]
        total_s += load_s[stage]
        prefix_s[stage] = total_s
    longest_s = 0.0
    for end in range(pp):  # of the warm-up, at or before the stage of the rounds
        longest_s = max(longest_s, forward_s[end])
        stairs_s = (pp - 1 - end) * longest_s
        cool_s[end] = stairs_s + prefix_s[end]
        rounds_s[end] = stairs_s + end * load_s[end]
        for stage in range(end + 1, pp):
            rounds_s[stage] = max(rounds_s[stage] if end > 0 else 0.0, stairs_s + end * load_s[stage])
    behind_s = 0.0
    for stage in range(pp - 1, -1, -1):  # or at or behind it
        behind_s = max(behind_s, cool_s[stage])
        warm_s = max(rounds_s[stage], behind_s - prefix_s[stage] + stage * load_s[stage])
        rounds_s[stage] = warm_s + prefix_s[stage] + (micro_batches - pp - stage) * load_s[stage]
    before_s = 0.0
    for stage in range(pp):  # of the rounds, before the start of the cool-down, or at or behind it
        cool_s[stage] = max(before_s + prefix_s[stage], rounds_s[stage] + stage * load_s[stage])
        before_s = max(before_s, rounds_s[stage] + stage * load_s[stage] - prefix_s[stage])
        for start in range(stage):
            cool_s[start] = max(cool_s[start], rounds_s[stage] + start * load_s[stage])
    # From here on ``load_s`` holds the longest backward pass of stages t .. x.
    for start in range(pp):
        load_s[start], end_s[start] = backward_s[start], 0.0
        stairs, reached_s, last_s = float(pp - 1 - start), cool_s[start], backward_s[start]
        for stage in range(start + 1):
            load_s[stage] = max(load_s[stage], last_s)
            end_s[stage] = max(end_s[stage], reached_s + stairs * load_s[stage])
    ahead_s = 0.0
    for stage in range(pp):
        end_s[stage] -= ahead_s
        ahead_s += backward_s[stage]


@outer
def fill_last_backward_end_s(
    forward_s: FloatArray, backward_s: FloatArray, micro_batches: int, scratch: FloatArray, end_s: FloatArray
) -> None:
    """``last_backward_end_s`` into ``end_s`` (pp,), allocating nothing; ``scratch`` has shape (SCRATCH_ROWS, pp)."""
    if micro_batches < 2 * len(forward_s) - 1:
        _run(forward_s, backward_s, micro_batches, scratch, end_s)
    else:
        _close(forward_s, backward_s, micro_batches, scratch, end_s)


@outer
def last_backward_end_s(forward_s: FloatArray, backward_s: FloatArray, micro_batches: int) -> FloatArray:
    """When each stage has ended its last backward pass, seconds from the start of the first forward pass, shape (pp,).

    ``forward_s`` and ``backward_s`` are finite seconds of at least 0 per micro-batch, transfers merged, shape (pp,). The first
    stage ends last: entry 0 is the makespan.
    """
    end_s = np.empty(len(forward_s))
    fill_last_backward_end_s(forward_s, backward_s, micro_batches, np.empty((SCRATCH_ROWS, len(forward_s))), end_s)
    return end_s


@outer
def finish_in_s(
    forward_s: FloatArray, backward_s: FloatArray, after_s: FloatArray, micro_batches: int, scratch: FloatArray
) -> float:
    """``finish_s`` without allocations; ``scratch`` has shape (SCRATCH_ROWS + 1, pp)."""
    end_s = scratch[SCRATCH_ROWS]
    fill_last_backward_end_s(forward_s, backward_s, micro_batches, scratch, end_s)
    latest_s = end_s[0] + after_s[0]
    for stage in range(1, len(after_s)):
        latest_s = max(latest_s, end_s[stage] + after_s[stage])
    return latest_s


@outer
def finish_s(forward_s: FloatArray, backward_s: FloatArray, after_s: FloatArray, micro_batches: int) -> float:
    """Seconds until every stage has run its last backward pass and what follows it there, ``after_s`` of shape (pp,).

    ``forward_s`` and ``backward_s`` as in ``last_backward_end_s``.
    """
    return finish_in_s(forward_s, backward_s, after_s, micro_batches, np.empty((SCRATCH_ROWS + 1, len(forward_s))))


@outer
def finish_many_s(forward_s: FloatArray, backward_s: FloatArray, after_s: FloatArray, micro_batches: IntArray) -> FloatArray:
    """``finish_s`` of many pipelines, shape (N,), from arrays of shape (N, pp) and ``micro_batches`` (N,)."""
    count, pp = forward_s.shape
    seconds, scratch = np.empty(count), np.empty((SCRATCH_ROWS + 1, pp))
    for each in range(count):
        seconds[each] = finish_in_s(forward_s[each], backward_s[each], after_s[each], micro_batches[each], scratch)
    return seconds


@outer
def stage_bound_s(
    forward_s: float, backward_s: float, whole_s: float, behind_s: float, stages_behind: int, micro_batches: int
) -> float:
    """Seconds that a 1F1B pipeline takes at least, by one of its stages, however the other loads are divided.

    ``whole_s`` is the load (forward and backward pass, transfers merged) of all stages, ``behind_s`` that of the stages behind
    this one. The longest of four paths: all passes of this stage and a micro-batch's way to it and from it; the first micro-batch
    goes to the last stage and back before what follows its backward pass here; the last one likewise; or both.
    """
    more = micro_batches - 1
    load_s = forward_s + backward_s
    warm_up = min(stages_behind, more)
    bound_s = whole_s + more * load_s - min(behind_s, warm_up * min(forward_s, backward_s))
    if more >= stages_behind:
        bound_s = max(bound_s, whole_s + (more - stages_behind) * load_s + behind_s)
    return bound_s


@outer
def stage_bounds_s(forward_s: FloatArray, backward_s: FloatArray, micro_batches: int) -> FloatArray:
    """``stage_bound_s`` of every stage, shape (pp,): none is above the makespan."""
    pp = len(forward_s)
    bounds_s = np.empty(pp)
    whole_s = 0.0
    for stage in range(pp):
        whole_s += forward_s[stage] + backward_s[stage]
    behind_s = 0.0
    for stage in range(pp - 1, -1, -1):
        bounds_s[stage] = stage_bound_s(forward_s[stage], backward_s[stage], whole_s, behind_s, pp - 1 - stage, micro_batches)
        behind_s += forward_s[stage] + backward_s[stage]
    return bounds_s
