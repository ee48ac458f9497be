"""Compiled bounds of all cuts of a plan, by dynamic programming.

A cut is a path of edges from the node that holds all layers to the empty one. Position j counts the
stages behind a stage. The iteration of a cut is exact only once the whole cut is known
(``Estimator.plans.pipeline.one_f_one_b``); a stage alone bounds it by ``stage_bound_s``, which
needs the load of what lies behind it and of everything, known up to messages whose least is taken.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_inner, borrowing_outer, inlined
from Estimator.plans.pipeline.one_f_one_b import stage_bound_s
from phaze_common.array_types import FloatArray, IntArray

ROUNDING = 1e-12  # relative: bounds this close to a value cannot beat it


# Columns of ``Problem.kinds``: seconds of a stage's passes without and with what its degrees cost,
# and bytes.
LOAD, FORWARD, BACKWARD, AFTER, STEP, FIXED_BYTES, SAVED_BYTES = range(7)
# Columns of ``Problem.nodes``, as in ``Loads``
DOWNSTREAM, UPSTREAM_FORWARD, UPSTREAM_BACKWARD = range(3)
# Columns of ``Problem.ends`` and ``Problem.spans``, as in ``Stages``
WHOLE, PART, KIND = range(3)
FIRST, TO_END, DEPTH = range(3)
PIPELINE, OWN, DEEP, LAG, REST = range(5)  # tables of ``bound_cut``


class Problem(NamedTuple):
    """One plan on one configuration. ``tied_s`` follows the synchronisation of both ends where
    there are several stages.

    Compiled functions take it by value and count references to each of its arrays, so these are few
    and their columns named.
    """

    kinds: FloatArray  # of stages, (kinds, 7)
    nodes: FloatArray  # (nodes, 3)
    ends: IntArray  # (edges, 3)
    spans: IntArray  # (nodes + 1, 3)
    chain: bool
    least_downstream_s: FloatArray
    least_upstream_s: FloatArray
    messages_s: FloatArray
    kind_of: IntArray
    least_messages_s: FloatArray
    most_one_way_s: float  # over a boundary
    follows: bool  # whether all data-parallel communication follows the last backward pass
    shorter_part: float  # of a stage's load that its shorter pass has at most, messages left out
    pp: int
    micro_batches: int
    tied_s: float
    least_step_s: float  # of the largest stage, however the layers are cut
    memory_bytes: float


class Stage(NamedTuple):
    """A stage at its place: seconds with its messages, what it costs the pipeline at least, alone
    and with what follows it."""

    forward_s: float
    backward_s: float
    pipeline_s: float
    own_s: float
    after_s: float
    deep_s: float  # seconds of a path through all stages that runs the most micro-batches here
    lag_s: float  # what follows its last backward pass, less what the pipeline still runs then


@inlined
def fits_at(problem: Problem, kind: int, downstream: int) -> bool:
    """Whether a stage of ``kind`` has the memory with ``downstream`` stages behind it."""
    saved = min(downstream + 1, problem.micro_batches) * problem.kinds[kind, SAVED_BYTES]
    return problem.kinds[kind, FIXED_BYTES] + saved <= problem.memory_bytes


@inlined
def stage_at(problem: Problem, edge: int, downstream: int) -> Stage:
    """Stage ``edge`` with ``downstream`` stages behind it."""
    pp, whole, part = problem.pp, problem.ends[edge, WHOLE], problem.ends[edge, PART]
    is_first, kind = downstream == pp - 1, problem.ends[edge, KIND]
    forward_s, backward_s = problem.kinds[kind, FORWARD], problem.kinds[kind, BACKWARD]
    after_s, back_s = problem.kinds[kind, AFTER], 0.0
    downstream_s = problem.nodes[part, DOWNSTREAM]
    if downstream > 0:
        route = problem.kind_of[downstream - 1]
        forward_s += problem.messages_s[route, 0, part]
        downstream_s += (
            problem.messages_s[route, 1, part] + problem.least_messages_s[downstream - 1, part]
        )
    if not is_first:
        back_s = problem.messages_s[problem.kind_of[downstream], 1, whole]
        backward_s += back_s
    if (is_first or downstream == 0) and pp > 1:
        after_s += problem.tied_s
    everything, count = len(problem.nodes) - 1, problem.micro_batches
    total_s = problem.nodes[everything, DOWNSTREAM] + problem.least_messages_s[pp - 1, everything]
    pipeline_s = stage_bound_s(forward_s, backward_s, total_s, downstream_s, downstream, count)
    to_here_s = problem.nodes[whole, UPSTREAM_FORWARD] + forward_s + backward_s + downstream_s
    own_s = stage_bound_s(forward_s, backward_s, to_here_s, downstream_s, downstream, count)
    own_s += after_s - back_s
    more = count - 1
    deep_s = total_s
    if more >= downstream:
        deep_s += (more - downstream) * (forward_s + backward_s) + downstream_s
    lag_s = after_s - back_s
    if not is_first:
        upstream_s = problem.nodes[whole, UPSTREAM_BACKWARD]
        upstream_s += (pp - 2 - downstream) * problem.most_one_way_s
        lag_s = lag_s - upstream_s if problem.follows else -np.inf
    return Stage(forward_s, backward_s, pipeline_s, own_s, after_s - back_s, deep_s, lag_s)


@borrowing_inner
def most_load_s(problem: Problem, limit_s: float) -> float:
    """What a stage of a cut that takes less than ``limit_s`` (without the step) can take per
    micro-batch, messages left out.

    ``least_pipeline_s`` of the largest load, solved for it, under the first stage that leaves it
    the most room.
    """
    pp, more, everything = problem.pp, problem.micro_batches - 1, len(problem.nodes) - 1
    warm_up = min(pp - 1, more)
    total_s = problem.nodes[everything, DOWNSTREAM] + problem.least_messages_s[pp - 1, everything]
    most_s = -np.inf
    for edge in range(problem.spans[everything, FIRST], problem.spans[everything + 1, FIRST]):
        part, kind = problem.ends[edge, PART], problem.ends[edge, KIND]
        if (part == 0) != (pp == 1) or problem.spans[part, DEPTH] < pp - 1:
            continue
        if pp == 1:
            return np.inf
        room_s = limit_s - problem.kinds[kind, AFTER] - problem.tied_s
        load_s = np.inf
        if more > 0:
            load_s = (room_s - total_s) / (more - 0.5 * warm_up)
            shorter_s = warm_up * problem.most_one_way_s
            rounds = more - problem.shorter_part * warm_up
            load_s = min(load_s, (room_s - total_s + shorter_s) / rounds)
        if more >= pp:
            if room_s < total_s + more * total_s / pp:
                load_s = min(load_s, (room_s - total_s) / more)
            elif more > pp:
                load_s = min(load_s, (room_s - 2.0 * total_s) / (more - pp))
        if load_s >= max(problem.kinds[kind, LOAD], problem.least_downstream_s[pp - 2, part]):
            most_s = max(most_s, load_s)
    return most_s * (1.0 + ROUNDING)


@borrowing_outer
def bound_cut(problem: Problem, incumbent_s: float, tables: FloatArray) -> float:
    """Seconds that no cut of the plan beats (inf: none fits, or none beats ``incumbent_s``).

    Fills ``tables`` (5, pp, nodes): the least that the largest of the last j + 1 stages can have of
    ``pipeline_s``, ``own_s``, ``deep_s`` and ``lag_s``, and that all of them can take together. The
    two before that belong together: what follows any stage's last backward pass follows any path,
    less the backward passes of the stages before it.
    """
    pp, everything = problem.pp, len(problem.nodes) - 1
    limit_s = incumbent_s * (1.0 - ROUNDING) - problem.least_step_s
    load_s = most_load_s(problem, limit_s)
    best_s = np.inf
    for downstream in range(pp):
        first = downstream == pp - 1
        for node in range(everything + 1):
            for table in range(5):
                tables[table, downstream, node] = np.inf
            if (node == everything) != first or problem.spans[node, DEPTH] <= downstream:
                continue
            if not first and problem.least_upstream_s[pp - 2 - downstream, node] > load_s:
                continue
            low, high = problem.spans[node, FIRST], problem.spans[node + 1, FIRST]
            if downstream == 0:
                low, high = problem.spans[node, TO_END], problem.spans[node, TO_END] + 1
                if low < 0:
                    continue
            for edge in range(high - 1, low - 1, -1):
                kind = problem.ends[edge, KIND]
                if problem.kinds[kind, LOAD] > load_s:
                    if problem.chain:
                        break
                    continue
                part = problem.ends[edge, PART]
                if problem.spans[part, DEPTH] < downstream or (
                    downstream > 0 and tables[PIPELINE, downstream - 1, part] == np.inf
                ):
                    continue
                if not fits_at(problem, kind, downstream):
                    continue
                stage = stage_at(problem, edge, downstream)
                pipeline_s, own_s = stage.pipeline_s, stage.own_s
                deep_s, lag_s = stage.deep_s, stage.lag_s
                rest_s = stage.forward_s + stage.backward_s
                if downstream > 0:
                    pipeline_s = max(pipeline_s, tables[PIPELINE, downstream - 1, part])
                    own_s = max(own_s, tables[OWN, downstream - 1, part])
                    deep_s = max(deep_s, tables[DEEP, downstream - 1, part])
                    lag_s = max(lag_s, tables[LAG, downstream - 1, part])
                    rest_s += tables[REST, downstream - 1, part]
                if first:
                    best_s = min(best_s, max(pipeline_s + stage.after_s, own_s, deep_s + lag_s))
                if max(pipeline_s, own_s, deep_s + lag_s) >= limit_s:
                    continue
                tables[PIPELINE, downstream, node] = min(
                    tables[PIPELINE, downstream, node], pipeline_s
                )
                tables[OWN, downstream, node] = min(tables[OWN, downstream, node], own_s)
                tables[DEEP, downstream, node] = min(tables[DEEP, downstream, node], deep_s)
                tables[LAG, downstream, node] = min(tables[LAG, downstream, node], lag_s)
                tables[REST, downstream, node] = min(tables[REST, downstream, node], rest_s)
    return best_s + problem.least_step_s
