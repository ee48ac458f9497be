"""Exact times of interleaved 1F1B at a price that hardly depends on the number of micro-batches.

**Steps.** Stage s of p runs forward pass 2(p-1-s) + (v-1)p + i and then backward pass i (v chunks
per stage, passes numbered as in ``kernels``), without the backward one while it warms up and
without the forward one at the end. Let it do so in step i + p-1-s. Then a pass waits only for its
stage and for a pass of the step before: a forward pass for that of the stage ahead, on the first
stage that of the last; a backward pass for that of the stage behind, on the last stage that of the
first. So all there is between two steps is when each stage is free and when the input of its next
pass of each kind arrives. Where all forward passes come first (``whole_warm_up``, of as many
micro-batches as stages) the same holds with their steps moved ahead.

**Jumps.** While all stages have both passes, each group of p micro-batches takes the same sums and
maxima of that state x, a map A that is monotone, moves no two states apart, and is convex along a
line (Baccelli et al. 1992, Synchronization and Linearity). If a group moves all of the state by the
same seconds, all further groups do. If two groups moved each entry by seconds d of its own (fast
stages run ahead as far as the warm-up lets them, before the slowest one holds them up), and so
would a group from x + n d, then so do all groups between by convexity: A(x + k d) is nowhere above
the line through k = 0 and n, and on it at k = 1. Where the last one fails, an entry exceeds the
line by some seconds; its slope is at most that of the fastest, so the line ends at least these
seconds over the difference of both slopes before, and the jump is tried that far.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

import numpy as np

from Estimator.compiled import borrowing_inner, outer
from Estimator.plans.pipeline.kernels import Chunks
from Estimator.plans.pipeline.schedule import FloatArray

SAME = 1e-13  # share of a group's seconds within which moves are the same
FEWEST_GROUPS = 4  # that a jump which has to be tried must skip
MOST_TRIES = 3  # of one jump

# rows of a state: stages, inputs of forward passes, inputs of backward passes
FREE, ARRIVES, RETURNS = range(3)


@borrowing_inner
def _run(
    chunks: Chunks,
    passes: int,
    lead: int,
    first: int,
    stop: int,
    now_s: FloatArray,
    state_s: FloatArray,
    end_s: FloatArray,
) -> None:
    """Steps ``first`` to ``stop``; the first stage runs forward pass ``step + lead``, each next
    stage the one before.

    ``state_s`` (3, pp + 1): stage s takes the input of its forward pass from entry s and leaves its
    output in entry s + 1, those of its backward pass are in entries s + 1 and s. ``now_s`` (4, pp):
    ``chunks`` of each stage's present turn, where a turn is pp passes on one chunk; a single stage
    begins one in each step, for each kind. ``end_s`` (chunks,): the end of each chunk's latest turn
    of backward passes, written when the stage begins its next one, hence one step after the last.
    """
    pp = now_s.shape[1]
    rounds = len(end_s) // pp
    free_s, arrives_s, returns_s = state_s[FREE], state_s[ARRIVES], state_s[RETURNS]
    forward_s = now_s[0]
    backward_s = now_s[1]
    forward_delay_s = now_s[2]
    backward_delay_s = now_s[3]
    forward_turn, forward_stage = (first + lead) // pp % rounds, (first + lead) % pp
    backward_turn, backward_stage = max(first, 0) // pp % rounds, pp - 1 - max(first, 0) % pp
    for step in range(first, stop):
        number = step + lead
        chunk = forward_turn * pp + forward_stage
        forward_s[forward_stage] = chunks.forward_s[chunk]
        forward_delay_s[forward_stage] = chunks.forward_delay_s[chunk]
        arrives_s[0] = arrives_s[pp] if forward_turn > 0 else -np.inf
        forward_stage += 1
        if forward_stage == pp:
            forward_turn, forward_stage = (forward_turn + 1 if forward_turn < rounds - 1 else 0), 0
        if step >= 0:
            chunk = (rounds - 1 - backward_turn) * pp + backward_stage
            ended = chunk + pp if backward_turn > 0 else backward_stage
            end_s[ended] = free_s[backward_stage]
            backward_s[backward_stage] = chunks.backward_s[chunk]
            backward_delay_s[backward_stage] = chunks.backward_delay_s[chunk]
            returns_s[pp] = returns_s[0] if backward_turn > 0 else -np.inf
            backward_stage -= 1
            if backward_stage < 0:
                backward_turn = backward_turn + 1 if backward_turn < rounds - 1 else 0
                backward_stage = pp - 1
        if step >= pp - 1 and number < passes:  # all stages run both
            input_s = arrives_s[0]
            for stage in range(pp):
                stage_s = max(free_s[stage], input_s) + forward_s[stage]
                input_s = arrives_s[stage + 1]
                arrives_s[stage + 1] = stage_s + forward_delay_s[stage]
                stage_s = max(stage_s, returns_s[stage + 1]) + backward_s[stage]
                returns_s[stage] = stage_s + backward_delay_s[stage]
                free_s[stage] = stage_s
        else:
            for stage in range(min(pp - 1, number), max(-1, number - passes), -1):
                free_s[stage] = max(free_s[stage], arrives_s[stage]) + forward_s[stage]
                arrives_s[stage + 1] = free_s[stage] + forward_delay_s[stage]
            for stage in range(max(0, pp - 1 - step), min(pp, pp - 1 - step + passes)):
                free_s[stage] = max(free_s[stage], returns_s[stage + 1]) + backward_s[stage]
                returns_s[stage] = free_s[stage] + backward_delay_s[stage]


@borrowing_inner
def _rebase(state_s: FloatArray) -> float:
    """Count ``state_s`` from when the first stage is free, for its digits; returns when."""
    pp = state_s.shape[1] - 1
    origin_s = state_s[FREE, 0]
    state_s[ARRIVES, 0] = state_s[RETURNS, pp] = 0.0  # the next step begins with filling them
    for stage in range(pp):
        state_s[FREE, stage] -= origin_s
        state_s[ARRIVES, stage + 1] -= origin_s
        state_s[RETURNS, stage] -= origin_s
    return origin_s


@borrowing_inner
def _combine(ours: FloatArray, factor: float, others: FloatArray, to: FloatArray) -> None:
    """``ours + factor * others`` into ``to``, which may be one of them."""
    for row in range(3):
        for entry in range(to.shape[1]):
            to[row, entry] = ours[row, entry] + factor * others[row, entry]


@borrowing_inner
def _distance(ours: FloatArray, others: FloatArray) -> float:
    most = 0.0
    for row in range(3):
        for entry in range(ours.shape[1]):
            most = max(most, abs(ours[row, entry] - others[row, entry]))
    return most


@borrowing_inner
def _reach(
    groups: int, move_s: FloatArray, found_s: FloatArray, later_s: float, tolerance_s: float
) -> int:
    """Groups that can at most have moved by ``move_s``, if the one after ``groups`` of them moves
    by ``found_s + later_s``.

    Moves are relative to the first stage's; ``later_s`` is by how much that one's own has grown.
    """
    fastest_s = 0.0
    for row in range(3):
        for entry in range(move_s.shape[1]):
            fastest_s = max(fastest_s, move_s[row, entry])
    reach = groups - 1.0
    for row in range(3):
        for entry in range(move_s.shape[1]):
            beyond_s = later_s + found_s[row, entry] - move_s[row, entry]
            slower_s = fastest_s - move_s[row, entry]
            if beyond_s > tolerance_s:
                reach = min(reach, groups - beyond_s / slower_s if slower_s > 0.0 else 0.0)
    return int(max(reach, 0.0))


@outer
def fill_last_backward_end_s(
    chunks: Chunks, pp: int, micro_batches: int, whole_warm_up: bool, end_s: FloatArray
) -> None:
    """When each chunk has ended its last backward pass, into ``end_s`` (chunks,), seconds from the
    start of the iteration.

    ``micro_batches`` is a multiple of ``pp``, which is at least 2, as is the number of chunks per
    stage.
    """
    # passes of each kind that a stage runs for pp micro-batches, and steps that this takes
    group = len(end_s)
    passes = micro_batches // pp * group
    # all forward passes come before step 0
    lead = passes + pp - 1 if whole_warm_up and micro_batches == pp else group - 1
    now_s, states = np.zeros((4, pp)), np.zeros((5, 3, pp + 1))
    state_s = states[0]
    before_s = states[1]
    after_s = states[2]
    move_s = states[3]
    moved_s = states[4]
    step = pp
    _run(chunks, passes, lead, -lead, step, now_s, state_s, end_s)
    groups = (passes - lead - step) // group  # left in which all stages run both kinds of passes
    origin_s, moved_origin_s = _rebase(state_s), -1.0  # the latter unlike any group's
    skipped, tries = 0, 0
    while groups > 0:
        # Run one group, behind those that move as the last one did if this one does so too.
        _combine(state_s, float(skipped), moved_s, before_s)
        _combine(before_s, 0.0, before_s, after_s)
        first = step + skipped * group
        _run(chunks, passes, lead, first, first + group, now_s, after_s, end_s)
        group_s = _rebase(after_s)
        tolerance_s = SAME * group_s
        _combine(after_s, -1.0, before_s, move_s)
        repeated = (
            abs(group_s - moved_origin_s) <= tolerance_s
            and _distance(move_s, moved_s) <= tolerance_s
        )
        if skipped > 0 and not repeated:
            tries += 1
            if tries < MOST_TRIES:
                skipped = _reach(skipped, moved_s, move_s, group_s - moved_origin_s, tolerance_s)
            else:
                skipped = 0
            skipped = skipped if skipped >= FEWEST_GROUPS else 0
            continue
        origin_s += (skipped + 1) * group_s
        groups -= skipped + 1
        step = first + group
        if _distance(after_s, before_s) <= tolerance_s:
            origin_s += groups * group_s
            step, groups = step + groups * group, 0
        state_s, after_s, moved_s, move_s, moved_origin_s = (
            after_s,
            state_s,
            move_s,
            moved_s,
            group_s,
        )
        skipped, tries = groups - 1 if repeated and groups > FEWEST_GROUPS else 0, 0
    _run(chunks, passes, lead, step, passes + pp, now_s, state_s, end_s)
    for chunk in range(group):
        end_s[chunk] += origin_s
