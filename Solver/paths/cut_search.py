"""Compiled search for the best cut of a plan into stages: depth first under the bounds of
``Solver.paths.cut_bounds``."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.compiled import inner, outer
from Estimator.plans.pipeline.one_f_one_b import SCRATCH_ROWS, finish_in_s
from Solver.paths.cut_bounds import (
    DEPTH,
    FIRST,
    LOAD,
    PART,
    ROUNDING,
    STEP,
    TO_END,
    Problem,
    fits_at,
    most_load_s,
    stage_at,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SEEN = 4  # ways to first stages that are remembered for each node they leave
SHORT = 1000  # steps within which a search ends without remembering any


class Found(NamedTuple):
    """What a search of cuts found: seconds (inf: nothing better than what was known), and whether
    it saw all there are."""

    seconds: float
    complete: bool
    leaves: int


class Begun(NamedTuple):
    """What the rest of a cut sees of its first stages where these only warm up and cool down,
    seconds."""

    load_s: float  # of all of them
    # of all their forward passes: a later stage ends its last pass when the backward ones here are
    # still to come
    way_s: float
    forward_s: float  # of the slowest pass
    backward_s: float  # of the slowest pass
    step_s: float
    lag_s: (
        float  # what follows a last backward pass, less those of the stages before it: the largest
    )
    since_lag_s: float  # slowest backward pass from that stage on


@inner
def is_repeated(begun: Begun, seen: FloatArray) -> bool:
    """Whether other first stages up to the same node, of those in ``seen`` (SEEN, 6), let any rest
    end as soon; else they join.

    With fewer micro-batches than stages, first stages bear on the end
    (``fill_last_backward_end_s``) by their sums of passes, the slowest of these and what follows
    them: no later than the largest lag behind the slowest pass, no earlier than that behind the
    slowest since.
    """
    for each in seen:
        if (
            each[0] <= begun.load_s * (1.0 + ROUNDING)
            and each[1] <= begun.way_s * (1.0 + ROUNDING)
            and each[2] <= begun.forward_s * (1.0 + ROUNDING)
            and each[3] <= begun.since_lag_s * (1.0 + ROUNDING)
            and each[4] <= begun.step_s * (1.0 + ROUNDING)
            and each[5] <= begun.lag_s + ROUNDING * begun.load_s
        ):
            return True
    for place in range(
        SEEN - 1, 0, -1
    ):  # value by value: the compiler takes seconds for a row at once, which it checks
        for column in range(seen.shape[1]):
            seen[place, column] = seen[place - 1, column]
    seen[0, 0], seen[0, 1], seen[0, 2], seen[0, 3], seen[0, 4], seen[0, 5] = begun[:6]
    return False


@outer
def search_cuts(
    problem: Problem,
    incumbent_s: float,
    tables: FloatArray,
    most_steps: int,
    nodes: IntArray,
    short: int = SHORT,
) -> Found:
    """The best cut that beats ``incumbent_s``, depth first from the first stage under the tables of
    ``bound_cut``.

    Fills ``nodes`` (pp + 1,) with its path, from all layers to none. Gives up after ``most_steps``
    stages were tried. Of first stages that run no round of forward and backward passes
    (``is_repeated``), only the best to the same node are gone on with once there were ``short``
    steps.
    """
    pp, everything = problem.pp, len(problem.nodes) - 1
    best_s, complete, leaves, steps = incumbent_s, True, 0, 0
    node = np.zeros(pp + 1, np.int64)
    edge = np.zeros(pp, np.int64)
    forward_s, backward_s, after_s = np.empty(pp), np.empty(pp), np.empty(pp)
    pipeline_s, own_s, step_s, deep_s = (
        np.zeros(pp + 1),
        np.zeros(pp + 1),
        np.zeros(pp + 1),
        np.zeros(pp + 1),
    )
    lag_s, ahead_s = np.full(pp + 1, -np.inf), np.zeros(pp + 1)
    pipeline, own, deep, lag = tables[0], tables[1], tables[2], tables[3]
    step_s[0] = problem.least_step_s
    scratch = np.empty((SCRATCH_ROWS + 1, pp))
    warming = max(0, pp - problem.micro_batches)  # stages
    seen = np.empty((0, 0, SEEN, 6))
    way_s, slowest_forward_s, slowest_backward_s, since_lag_s = np.zeros((4, pp + 1))
    node[0] = everything
    load_s = most_load_s(problem, incumbent_s * (1.0 - ROUNDING) - problem.least_step_s)
    place = 0
    edge[0] = (
        problem.spans[everything + 1, FIRST] if pp > 1 else problem.spans[everything, TO_END] + 1
    )
    while place >= 0:
        behind = pp - 1 - place
        edge[place] -= 1
        low = (
            problem.spans[node[place], FIRST] if behind > 0 else problem.spans[node[place], TO_END]
        )
        if edge[place] < low:
            place -= 1
            continue
        part = problem.ends[edge[place], PART]
        if problem.spans[part, DEPTH] < behind or (
            behind > 0 and pipeline[behind - 1, part] == np.inf
        ):
            continue
        steps += 1
        if steps > most_steps:
            complete = False
            break
        if steps == short and warming > 0:
            seen = np.full((warming + 1, everything + 1, SEEN, 6), np.inf)
        if problem.edges[edge[place], LOAD] > load_s:
            if problem.chain:
                place -= 1
            continue
        if not fits_at(problem, edge[place], behind):
            continue
        stage = stage_at(problem, edge[place], behind)
        here_s, mine_s = max(pipeline_s[place], stage.pipeline_s), max(own_s[place], stage.own_s)
        largest_s = max(step_s[place], problem.edges[edge[place], STEP])
        forward_s[place], backward_s[place], after_s[place] = (
            stage.forward_s,
            stage.backward_s,
            stage.after_s,
        )
        deepest_s, lagging_s = (
            max(deep_s[place], stage.deep_s),
            max(lag_s[place], stage.after_s - ahead_s[place]),
        )
        least_s, least_own_s, least_both_s = here_s, mine_s, deepest_s + lagging_s
        if behind > 0:
            least_s, least_own_s = (
                max(here_s, pipeline[behind - 1, part]),
                max(mine_s, own[behind - 1, part]),
            )
            least_both_s = max(deepest_s, deep[behind - 1, part]) + max(
                lagging_s, lag[behind - 1, part]
            )
        if max(least_s + after_s[0], least_own_s, least_both_s) + largest_s >= best_s * (
            1.0 - ROUNDING
        ):
            continue
        node[place + 1] = part
        if behind == 0:
            leaves += 1
            seconds = (
                finish_in_s(forward_s, backward_s, after_s, problem.micro_batches, scratch)
                + largest_s
            )
            if seconds < best_s:
                best_s = seconds
                load_s = most_load_s(problem, best_s * (1.0 - ROUNDING) - problem.least_step_s)
                for each in range(pp + 1):
                    nodes[each] = node[each]
            continue
        way_s[place + 1] = way_s[place] + stage.forward_s
        slowest_forward_s[place + 1] = max(slowest_forward_s[place], stage.forward_s)
        slowest_backward_s[place + 1] = max(slowest_backward_s[place], stage.backward_s)
        since_lag_s[place + 1] = (
            stage.backward_s
            if lagging_s > lag_s[place]
            else max(since_lag_s[place], stage.backward_s)
        )
        if place < warming and len(seen) > 0:
            begun_s = way_s[place + 1] + ahead_s[place] + stage.backward_s, way_s[place + 1]
            slowest_s = slowest_forward_s[place + 1], slowest_backward_s[place + 1]
            begun = Begun(*begun_s, *slowest_s, largest_s, lagging_s, since_lag_s[place + 1])
            if is_repeated(begun, seen[place + 1, part]):
                continue
        pipeline_s[place + 1], own_s[place + 1], step_s[place + 1] = here_s, mine_s, largest_s
        deep_s[place + 1], lag_s[place + 1], ahead_s[place + 1] = (
            deepest_s,
            lagging_s,
            ahead_s[place] + stage.backward_s,
        )
        place += 1
        edge[place] = (
            problem.spans[part + 1, FIRST] if behind > 1 else problem.spans[part, TO_END] + 1
        )
    return Found(best_s if best_s < incumbent_s else np.inf, complete, leaves)


@outer
def cut_s(problem: Problem, nodes: IntArray) -> float:
    """Seconds of the cut along ``nodes`` (pp + 1,); infinite where it does not fit in memory."""
    pp = problem.pp
    forward_s, backward_s, after_s = np.empty(pp), np.empty(pp), np.empty(pp)
    largest_s = problem.least_step_s
    for place in range(pp):
        edge = problem.spans[nodes[place], FIRST]
        while problem.ends[edge, PART] != nodes[place + 1]:
            edge += 1
        if not fits_at(problem, edge, pp - 1 - place):
            return np.inf
        stage = stage_at(problem, edge, pp - 1 - place)
        forward_s[place], backward_s[place], after_s[place] = (
            stage.forward_s,
            stage.backward_s,
            stage.after_s,
        )
        largest_s = max(largest_s, problem.edges[edge, STEP])
    return (
        finish_in_s(
            forward_s, backward_s, after_s, problem.micro_batches, np.empty((SCRATCH_ROWS + 1, pp))
        )
        + largest_s
    )
