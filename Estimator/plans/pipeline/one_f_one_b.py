"""Exact times of 1F1B on unequal stages at a price that does not depend on the number of
micro-batches.

Transfers are merged into the passes: without overlap a sender is occupied until its transfer has
ended, which is a pipeline without transfers whose forward pass on stage s takes ``forward_s[s] +
transfer_s[s]`` and whose backward pass takes ``backward_s[s] + backward_transfer_s[s - 1]``. The
end of a stage then includes its last backward transfer; who asks for the end of its last backward
pass subtracts that one, or counts it off ``after_s``, which may be negative.

**The closed form.** Let f(s) and b(s) be the passes of stage s of p (from 0), L(s) = f(s) + b(s)
its load, P(s) the loads of stages 0..s, and m the number of micro-batches. Stage s runs p-1-s
forward passes to warm up, then a forward and a backward pass in turn; a forward pass waits for the
same micro-batch's on stage s-1, a backward pass for that on stage s+1. The end of stage t's last
backward pass is the longest path through the passes up to it, which has three parts:

- *Warm-up*: forward passes only, to the first backward pass of some stage e. It goes through stages
  0..e and spends the p-1-e other passes on the slowest of them: f(0) + ... + f(e) + (p-1-e) max
  f(0..e).
- *Rounds*, a forward and a backward pass of one stage each. From e it goes up to some stage s with
  the backward passes of the stages on its way, and later down to some stage x with the forward
  ones. The rounds that are left could be spent on any stage; all of them are on s, the one with the
  largest load that it gets to.
- *Cool-down*: the warm-up mirrored, backward passes only, from x up to t: b(t) + ... + b(x) +
  (p-1-x) max b(t..x).

Neither e nor x lies before s: a pass spent on a stage before is no longer than a round on s, or
else that stage has the larger load. And e, x and s are at least p-m, since the stages before run
all forward passes first. Counting the rounds that are left,

    end(t) = max over s >= max(0, p-m), e >= s, x >= max(s, t) of   P(e) + (p-1-e) max f(0..e) +
                                                                  (m-p+s) L(s) - P(s) + P(x) +
                                                                  (p-1-x) max b(t..x) - b(0) - ... -
                                                                  b(t-1)

for every m >= 1; with equal stages, end(0) = (m+p-1) L. The maxima over s and e are running ones,
so all ends take p^2 steps.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

import numpy as np

from Estimator.compiled import borrowing_inner, borrowing_outer, outer
from Estimator.plans.pipeline.schedule import FloatArray

SCRATCH_ROWS = 3  # of pp entries each, for ``fill_last_backward_end_s``


@borrowing_inner
def fill_last_backward_end_s(
    forward_s: FloatArray,
    backward_s: FloatArray,
    micro_batches: int,
    scratch: FloatArray,
    end_s: FloatArray,
) -> None:
    """``last_backward_end_s`` into ``end_s`` (pp,); ``scratch`` is (SCRATCH_ROWS, pp)."""
    pp = len(forward_s)
    first = max(0, pp - micro_batches)
    prefix_s, path_s, slowest_s = scratch[0], scratch[1], scratch[2]
    whole_s, slowest_forward_s = 0.0, 0.0
    for stage in range(pp):  # warm-up to this stage, with the way back
        whole_s += forward_s[stage] + backward_s[stage]
        slowest_forward_s = max(slowest_forward_s, forward_s[stage])
        prefix_s[stage] = whole_s
        path_s[stage] = whole_s + (pp - 1 - stage) * slowest_forward_s
    for stage in range(pp - 2, -1, -1):  # to this stage or one behind it
        path_s[stage] = max(path_s[stage], path_s[stage + 1])
    best_s = -np.inf
    for stage in range(first, pp):  # and the rounds on this stage or one before it
        load_s = forward_s[stage] + backward_s[stage]
        best_s = max(
            best_s, path_s[stage] + (micro_batches - pp + stage) * load_s - prefix_s[stage]
        )
        path_s[stage] = best_s + prefix_s[stage]
    # and the cool-down from this stage; the loops within become vector instructions
    for start in range(pp):
        slowest_s[start] = end_s[start] = 0.0
        last_s = backward_s[start]
        for stage in range(start + 1):
            slowest_s[stage] = max(slowest_s[stage], last_s)
        if start >= first:
            reached_s, passes = path_s[start], float(pp - 1 - start)
            for stage in range(start + 1):
                end_s[stage] = max(end_s[stage], reached_s + passes * slowest_s[stage])
    ahead_s = 0.0
    for stage in range(pp):
        end_s[stage] -= ahead_s
        ahead_s += backward_s[stage]


@outer
def last_backward_end_s(
    forward_s: FloatArray, backward_s: FloatArray, micro_batches: int
) -> FloatArray:
    """When each stage has ended its last backward pass, seconds from the start of the first forward
    pass, shape (pp,).

    ``forward_s`` and ``backward_s`` are finite seconds of at least 0 per micro-batch, transfers
    merged, shape (pp,). The first stage ends last: entry 0 is the makespan.
    """
    end_s = np.empty(len(forward_s))
    fill_last_backward_end_s(
        forward_s, backward_s, micro_batches, np.empty((SCRATCH_ROWS, len(forward_s))), end_s
    )
    return end_s


@borrowing_outer
def finish_in_s(
    forward_s: FloatArray,
    backward_s: FloatArray,
    after_s: FloatArray,
    micro_batches: int,
    scratch: FloatArray,
) -> float:
    """Seconds until every stage has run its last backward pass and what follows it there,
    ``after_s`` of shape (pp,).

    ``forward_s`` and ``backward_s`` as in ``last_backward_end_s``; ``scratch`` has shape
    (SCRATCH_ROWS + 1, pp).
    """
    end_s = scratch[SCRATCH_ROWS]
    fill_last_backward_end_s(forward_s, backward_s, micro_batches, scratch, end_s)
    latest_s = end_s[0] + after_s[0]
    for stage in range(1, len(after_s)):
        latest_s = max(latest_s, end_s[stage] + after_s[stage])
    return latest_s


@borrowing_outer
def stage_bound_s(
    forward_s: float,
    backward_s: float,
    whole_s: float,
    behind_s: float,
    stages_behind: int,
    micro_batches: int,
) -> float:
    """Seconds that a 1F1B pipeline takes at least, by one of its stages, however the other loads
    are divided.

    ``whole_s`` is the load (forward and backward pass, transfers merged) of all stages,
    ``behind_s`` that of the stages behind this one. The longest of four paths: all passes of this
    stage and a micro-batch's way to it and from it; the first micro-batch goes to the last stage
    and back before what follows its backward pass here; the last one likewise; or both.
    """
    more = micro_batches - 1
    load_s = forward_s + backward_s
    warm_up = min(stages_behind, more)
    bound_s = whole_s + more * load_s - min(behind_s, warm_up * min(forward_s, backward_s))
    if more >= stages_behind:
        bound_s = max(bound_s, whole_s + (more - stages_behind) * load_s + behind_s)
    return bound_s
