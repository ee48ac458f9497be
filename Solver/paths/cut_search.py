"""Compiled search for the best cut of a plan into stages: depth first under the bounds of
``Solver.paths.cut_bounds``."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_inner, inlined, outer
from Estimator.plans.pipeline.one_f_one_b import SCRATCH_ROWS, finish_in_s
from phaze_common.array_types import FloatArray, IntArray
from Solver.paths.cut_bounds import (
    DEEP,
    DEPTH,
    FIRST,
    KIND,
    LAG,
    LOAD,
    OWN,
    PART,
    PIPELINE,
    REST,
    ROUNDING,
    STEP,
    TO_END,
    Problem,
    fits_at,
    most_load_s,
    stage_at,
)

REMEMBERED = 4  # first stages that are remembered for each node they leave
KEPT = 12  # columns of each, see ``is_dominated``
SHORT = 1000  # steps within which a search ends without remembering any

# Columns of ``first_stages`` (pp + 1, 14), seconds of the stages before a place: first the largest
# as in the tables of ``bound_cut``; then the largest optimizer step, the sums of their passes, the
# slowest of each, and the slowest backward pass since the stage with the largest lag; then the
# longest part of a path among them (``Estimator.plans.pipeline.one_f_one_b``): its rounds, these
# with the warm-up, with the cool-down, and all of it.
LARGEST_STEP, FORWARD_SUM, BACKWARD_SUM, SLOWEST_FORWARD, SLOWEST_BACKWARD, SINCE_LAG = range(4, 10)
ROUNDS, WARM_UP, COOL_DOWN, PATH = range(10, 14)


class Found(NamedTuple):
    """What a search of cuts found: seconds (inf: nothing better than what was known), and whether
    it saw all there are."""

    seconds: float
    complete: bool
    leaves: int


@borrowing_inner
def follow_paths(
    stages: FloatArray, before: FloatArray, now: FloatArray, place: int, micro_batches: int
) -> None:
    """Fill the last columns of ``now``, of first stages with the one at ``place``.

    ``stages`` (3, pp) are the forward and backward passes of each and its lag: what follows its
    last backward pass, less the backward passes of those before it."""
    pp, load_s = stages.shape[1], now[FORWARD_SUM] + now[BACKWARD_SUM]
    for column in range(ROUNDS, PATH + 1):
        now[column] = before[column]
    if place < pp - micro_batches:  # no rounds of a forward and a backward pass
        return
    rounds, passes = micro_batches - pp + place, pp - 1 - place
    warm_up_s = load_s + passes * now[SLOWEST_FORWARD]
    cool_down_s, slowest_s = -np.inf, 0.0
    for stage in range(place, -1, -1):
        slowest_s = max(slowest_s, stages[1, stage])
        cool_down_s = max(cool_down_s, stages[2, stage] + passes * slowest_s)
    cool_down_s += load_s
    rounds_s = rounds * (stages[0, place] + stages[1, place]) - load_s
    now[ROUNDS] = max(now[ROUNDS], rounds_s)
    now[WARM_UP] = max(now[WARM_UP], now[ROUNDS] + warm_up_s)
    now[COOL_DOWN] = max(now[COOL_DOWN], now[ROUNDS] + cool_down_s)
    now[PATH] = max(now[PATH], now[COOL_DOWN] + warm_up_s, now[WARM_UP] + cool_down_s)


@inlined
def path_bound_s(first_stages: FloatArray, rest_s: float) -> float:
    """Seconds that no cut with these first stages is below, whose other ones take ``rest_s`` or
    more: of paths that turn in the last stage where they do not turn before."""
    whole_s = first_stages[FORWARD_SUM] + first_stages[BACKWARD_SUM] + rest_s
    lag_s = first_stages[LAG]
    return max(
        max(first_stages[PATH], first_stages[COOL_DOWN] + whole_s),
        max(first_stages[WARM_UP] + whole_s, first_stages[ROUNDS] + 2.0 * whole_s) + lag_s,
    )


@borrowing_inner
def is_dominated(first_stages: FloatArray, known: FloatArray, scratch: FloatArray) -> bool:
    """Whether other first stages up to the same node, of those ``known`` (REMEMBERED, KEPT), let
    any rest end as soon; else these join. ``scratch`` has shape (KEPT,).

    First stages bear on the end (``fill_last_backward_end_s``) by the sums of their passes (a later
    stage ends its last pass when the backward ones here are still to come), the parts of paths
    among them, each with the loads that a path goes through once more behind it, the slowest passes
    and what follows them: no later than the largest lag behind the slowest pass, no earlier than
    that behind the slowest since."""
    forward_s, backward_s = first_stages[FORWARD_SUM], first_stages[BACKWARD_SUM]
    load_s = forward_s + backward_s
    rounds_s, warm_up_s = first_stages[ROUNDS] + 2.0 * load_s, first_stages[WARM_UP] + load_s
    scratch[0], scratch[1] = load_s, forward_s
    scratch[2], scratch[3] = rounds_s, rounds_s - backward_s
    scratch[4], scratch[5] = warm_up_s, warm_up_s - backward_s
    scratch[6], scratch[7] = first_stages[COOL_DOWN] + load_s, first_stages[PATH]
    scratch[8], scratch[9] = first_stages[SLOWEST_FORWARD], first_stages[LARGEST_STEP]
    scratch[10], scratch[11] = first_stages[LAG], first_stages[SINCE_LAG]
    for row in range(REMEMBERED):
        column = 0
        while column < KEPT and known[row, column] <= scratch[column] + ROUNDING * load_s:
            column += 1
        if column == KEPT:
            return True
    # value by value: the compiler takes seconds for a row at once, which it checks
    scratch[11] = first_stages[SLOWEST_BACKWARD]
    for row in range(REMEMBERED - 1, 0, -1):
        for column in range(KEPT):
            known[row, column] = known[row - 1, column]
    for column in range(KEPT):
        known[0, column] = scratch[column]
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
    any_cut: bool,
    short: int = SHORT,
) -> Found:
    """The best cut that beats ``incumbent_s``, depth first from the first stage under the tables of
    ``bound_cut``.

    Fills ``nodes`` (pp + 1,) with its path, from all layers to none. Gives up after ``most_steps``
    stages were tried. Of first stages up to the same node, those that others dominate
    (``is_dominated``) are not gone on with once there were ``short`` steps. Where ``any_cut`` will
    do it ends with the first that beats the incumbent.
    """
    pp, spans, everything = problem.pp, problem.spans, len(problem.nodes) - 1
    best_s, complete, leaves, steps = incumbent_s, True, 0, 0
    node, edge = np.zeros(pp + 1, np.int64), np.zeros(pp, np.int64)
    stages, after_s = np.empty((3, pp)), np.empty(pp)
    forward_s, backward_s, lags_s = stages[0], stages[1], stages[2]
    first_stages = np.zeros((pp + 1, 14))
    first_stages[0, LAG], first_stages[0, LARGEST_STEP] = -np.inf, problem.least_step_s
    first_stages[0, ROUNDS:] = -np.inf
    scratch, kept = np.empty((SCRATCH_ROWS + 1, pp)), np.empty(KEPT)
    known = np.empty((0, 0, REMEMBERED, KEPT))
    load_s = most_load_s(problem, incumbent_s * (1.0 - ROUNDING) - problem.least_step_s)
    place = 0
    node[0], edge[0] = everything, edges_from(spans, everything, pp - 1)[1]
    while place >= 0:
        downstream = pp - 1 - place
        edge[place] -= 1
        if edge[place] < edges_from(spans, node[place], downstream)[0]:
            place -= 1
            continue
        part, kind = problem.ends[edge[place], PART], problem.ends[edge[place], KIND]
        if spans[part, DEPTH] < downstream or (
            downstream > 0 and tables[PIPELINE, downstream - 1, part] == np.inf
        ):
            continue
        steps += 1
        if steps > most_steps:
            complete = False
            break
        if steps == short:
            known = np.full((pp, everything + 1, REMEMBERED, KEPT), np.inf)
        if problem.kinds[kind, LOAD] > load_s:
            if problem.chain:
                place -= 1
            continue
        if not fits_at(problem, kind, downstream):
            continue
        stage = stage_at(problem, edge[place], downstream)
        forward_s[place], backward_s[place] = stage.forward_s, stage.backward_s
        after_s[place] = stage.after_s
        pipeline_s = max(first_stages[place, PIPELINE], stage.pipeline_s)
        own_s = max(first_stages[place, OWN], stage.own_s)
        deep_s = max(first_stages[place, DEEP], stage.deep_s)
        lags_s[place] = stage.after_s - first_stages[place, BACKWARD_SUM]
        lag_s = max(first_stages[place, LAG], lags_s[place])
        step_s = max(first_stages[place, LARGEST_STEP], problem.kinds[kind, STEP])
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
                most_steps *= not any_cut  # after which there are none
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
        follow_paths(stages, before, now, place, problem.micro_batches)
        bound_s = path_bound_s(now, tables[REST, downstream - 1, part])
        if bound_s + step_s >= best_s * (1.0 - ROUNDING):
            continue
        if len(known) > 0 and is_dominated(now, known[place + 1, part], kept):
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
        kind = problem.ends[edge, KIND]
        if not fits_at(problem, kind, pp - 1 - place):
            return np.inf
        stage = stage_at(problem, edge, pp - 1 - place)
        forward_s[place], backward_s[place] = stage.forward_s, stage.backward_s
        after_s[place] = stage.after_s
        step_s = max(step_s, problem.kinds[kind, STEP])
    scratch = np.empty((SCRATCH_ROWS + 1, pp))
    return finish_in_s(forward_s, backward_s, after_s, problem.micro_batches, scratch) + step_s
