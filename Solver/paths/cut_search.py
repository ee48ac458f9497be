"""Compiled search for the best cut of a plan into stages: depth first under the bounds of
``Solver.paths.cut_bounds``."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.plans.compiled import inlined, inner, outer
from Estimator.plans.pipeline.one_f_one_b import SCRATCH_ROWS, finish_in_s
from phaze_common.array_types import FloatArray, IntArray
from Solver.paths.cut_bounds import (
    DEEP,
    DEPTH,
    FIRST,
    LAG,
    LOAD,
    OWN,
    PART,
    PIPELINE,
    ROUNDING,
    STEP,
    TO_END,
    Problem,
    fits_at,
    most_load_s,
    stage_at,
)

REMEMBERED = 4  # first stages that are remembered for each node they leave
SHORT = 1000  # steps within which a search ends without remembering any

# Columns of ``first_stages`` (pp + 1, 10), seconds of the stages before a place: first the largest
# as in the tables of ``bound_cut``; then the largest optimizer step, the sums of their passes, the
# slowest of each, and the slowest backward pass since the stage with the largest lag.
LARGEST_STEP, FORWARD_SUM, BACKWARD_SUM, SLOWEST_FORWARD, SLOWEST_BACKWARD, SINCE_LAG = range(4, 10)


class Found(NamedTuple):
    """What a search of cuts found: seconds (inf: nothing better than what was known), and whether
    it saw all there are."""

    seconds: float
    complete: bool
    leaves: int


@inner
def is_dominated(first_stages: FloatArray, known: FloatArray) -> bool:
    """Whether other first stages up to the same node, of those ``known`` (REMEMBERED, 6), let any
    rest end as soon; else these join.

    With fewer micro-batches than stages, first stages bear on the end
    (``fill_last_backward_end_s``) by their sums of passes (a later stage ends its last pass when
    the backward ones here are still to come), the slowest of these and what follows them: no later
    than the largest lag behind the slowest pass, no earlier than that behind the slowest since.
    """
    forward_s, lag_s = first_stages[FORWARD_SUM], first_stages[LAG]
    load_s = forward_s + first_stages[BACKWARD_SUM]
    step_s, slowest_forward_s = first_stages[LARGEST_STEP], first_stages[SLOWEST_FORWARD]
    for each in known:
        if (
            each[0] <= load_s * (1.0 + ROUNDING)
            and each[1] <= forward_s * (1.0 + ROUNDING)
            and each[2] <= slowest_forward_s * (1.0 + ROUNDING)
            and each[3] <= first_stages[SINCE_LAG] * (1.0 + ROUNDING)
            and each[4] <= step_s * (1.0 + ROUNDING)
            and each[5] <= lag_s + ROUNDING * load_s
        ):
            return True
    # value by value: the compiler takes seconds for a row at once, which it checks
    for row in range(REMEMBERED - 1, 0, -1):
        for column in range(known.shape[1]):
            known[row, column] = known[row - 1, column]
    known[0, 0], known[0, 1], known[0, 2] = load_s, forward_s, slowest_forward_s
    known[0, 3], known[0, 4], known[0, 5] = first_stages[SLOWEST_BACKWARD], step_s, lag_s
    return False


@inlined
def edges_from(spans: IntArray, node: int, downstream: int) -> tuple[int, int]:
    """First edge of a stage from ``node`` on, and the one behind the last."""
    if downstream > 0:
        return spans[node, FIRST], spans[node + 1, FIRST]
    return spans[node, TO_END], spans[node, TO_END] + 1


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
    (``is_dominated``), only the best to the same node are gone on with once there were ``short``
    steps.
    """
    pp, spans, everything = problem.pp, problem.spans, len(problem.nodes) - 1
    best_s, complete, leaves, steps = incumbent_s, True, 0, 0
    node, edge = np.zeros(pp + 1, np.int64), np.zeros(pp, np.int64)
    forward_s, backward_s, after_s = np.empty(pp), np.empty(pp), np.empty(pp)
    first_stages = np.zeros((pp + 1, 10))
    first_stages[0, LAG], first_stages[0, LARGEST_STEP] = -np.inf, problem.least_step_s
    scratch = np.empty((SCRATCH_ROWS + 1, pp))
    warming = max(0, pp - problem.micro_batches)  # stages
    known = np.empty((0, 0, REMEMBERED, 6))
    load_s = most_load_s(problem, incumbent_s * (1.0 - ROUNDING) - problem.least_step_s)
    place = 0
    node[0], edge[0] = everything, edges_from(spans, everything, pp - 1)[1]
    while place >= 0:
        downstream = pp - 1 - place
        edge[place] -= 1
        if edge[place] < edges_from(spans, node[place], downstream)[0]:
            place -= 1
            continue
        part = problem.ends[edge[place], PART]
        if spans[part, DEPTH] < downstream or (
            downstream > 0 and tables[PIPELINE, downstream - 1, part] == np.inf
        ):
            continue
        steps += 1
        if steps > most_steps:
            complete = False
            break
        if steps == short and warming > 0:
            known = np.full((warming + 1, everything + 1, REMEMBERED, 6), np.inf)
        if problem.edges[edge[place], LOAD] > load_s:
            if problem.chain:
                place -= 1
            continue
        if not fits_at(problem, edge[place], downstream):
            continue
        stage = stage_at(problem, edge[place], downstream)
        forward_s[place], backward_s[place] = stage.forward_s, stage.backward_s
        after_s[place] = stage.after_s
        pipeline_s = max(first_stages[place, PIPELINE], stage.pipeline_s)
        own_s = max(first_stages[place, OWN], stage.own_s)
        deep_s = max(first_stages[place, DEEP], stage.deep_s)
        lag_s = max(first_stages[place, LAG], stage.after_s - first_stages[place, BACKWARD_SUM])
        step_s = max(first_stages[place, LARGEST_STEP], problem.edges[edge[place], STEP])
        bound_s = max(pipeline_s + after_s[0], own_s, deep_s + lag_s)
        if downstream > 0:
            bound_s = max(
                max(pipeline_s, tables[PIPELINE, downstream - 1, part]) + after_s[0],
                max(own_s, tables[OWN, downstream - 1, part]),
                max(deep_s, tables[DEEP, downstream - 1, part])
                + max(lag_s, tables[LAG, downstream - 1, part]),
            )
        if bound_s + step_s >= best_s * (1.0 - ROUNDING):
            continue
        node[place + 1] = part
        if downstream == 0:
            leaves += 1
            pipeline = finish_in_s(forward_s, backward_s, after_s, problem.micro_batches, scratch)
            if pipeline + step_s < best_s:
                best_s = pipeline + step_s
                load_s = most_load_s(problem, best_s * (1.0 - ROUNDING) - problem.least_step_s)
                for each in range(pp + 1):
                    nodes[each] = node[each]
            continue
        now, before = first_stages[place + 1], first_stages[place]
        now[PIPELINE], now[OWN], now[DEEP], now[LAG] = pipeline_s, own_s, deep_s, lag_s
        now[LARGEST_STEP] = step_s
        now[FORWARD_SUM] = before[FORWARD_SUM] + stage.forward_s
        now[BACKWARD_SUM] = before[BACKWARD_SUM] + stage.backward_s
        now[SLOWEST_FORWARD] = max(before[SLOWEST_FORWARD], stage.forward_s)
        now[SLOWEST_BACKWARD] = max(before[SLOWEST_BACKWARD], stage.backward_s)
        since_lag_s = 0.0 if lag_s > before[LAG] else before[SINCE_LAG]
        now[SINCE_LAG] = max(since_lag_s, stage.backward_s)
        if place < warming and len(known) > 0 and is_dominated(now, known[place + 1, part]):
            continue
        place += 1
        edge[place] = edges_from(spans, part, downstream - 1)[1]
    return Found(best_s if best_s < incumbent_s else np.inf, complete, leaves)


@outer
def cut_s(problem: Problem, nodes: IntArray) -> float:
    """Seconds of the cut along ``nodes`` (pp + 1,); infinite where it does not fit in memory."""
    pp = problem.pp
    forward_s, backward_s, after_s = np.empty(pp), np.empty(pp), np.empty(pp)
    step_s = problem.least_step_s
    for place in range(pp):
        edge = problem.spans[nodes[place], FIRST]
        while problem.ends[edge, PART] != nodes[place + 1]:
            edge += 1
        if not fits_at(problem, edge, pp - 1 - place):
            return np.inf
        stage = stage_at(problem, edge, pp - 1 - place)
        forward_s[place], backward_s[place] = stage.forward_s, stage.backward_s
        after_s[place] = stage.after_s
        step_s = max(step_s, problem.edges[edge, STEP])
    scratch = np.empty((SCRATCH_ROWS + 1, pp))
    return finish_in_s(forward_s, backward_s, after_s, problem.micro_batches, scratch) + step_s
