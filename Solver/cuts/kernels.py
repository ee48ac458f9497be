"""Compiled loops of the search for the best cut: a bound by dynamic programming, then depth first under it.

A cut is a path of edges from the node that holds all layers to the empty one. Position j counts the stages behind a stage. The
iteration of a cut is exact only once the whole cut is known (``Plans.pipeline.one_f_one_b``); a stage alone bounds it by
``stage_bound_s``, which needs the load of what lies behind it and of everything, known up to messages whose least is taken.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Plans.compiled import inner, outer
from Plans.pipeline.one_f_one_b import SCRATCH_ROWS, finish_in_s, stage_bound_s
from Plans.stage_price import PlanRates, pass_of, stage_price
from Plans.stage_totals import StageSizes, StageTimes
from Solver.cuts.stage_graph import Stages

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Members = NDArray[np.bool_]

ROUNDING = 1e-12  # relative: bounds this close to a value cannot beat it


class Loads(NamedTuple):
    """What bounds need of every node on one configuration, seconds of shape (nodes,): all behind it, and all before."""

    behind_s: FloatArray  # forward and backward of the node's layers as one stage
    ahead_forward_s: FloatArray  # forward of all other layers as one stage
    ahead_backward_s: FloatArray  # backward of all other layers, each a stage of its own: no cut takes longer
    stage_s: FloatArray  # (edges,): forward and backward of every stage without messages and data-parallel communication


class Links(NamedTuple):
    """Messages of a plan: ``seconds[kind, 0]`` forward and ``[kind, 1]`` back over the boundary into each node.

    ``kind_of[j]`` is the kind of the boundary before the stage with j stages behind it. ``least_s[j, node]`` are the least
    messages, both ways, over the boundaries between j + 1 stages that share a node.
    """

    seconds: FloatArray  # (kinds, 2, nodes)
    kind_of: IntArray  # (pp,)
    least_s: FloatArray  # (pp, nodes)


class Priced(NamedTuple):
    """Stages priced for a plan's degrees: arrays of shape (edges,)."""

    forward_s: FloatArray
    backward_s: FloatArray
    after_s: FloatArray
    step_s: FloatArray
    fixed_bytes: FloatArray


class Problem(NamedTuple):
    """One plan on one configuration. ``tied_s`` follows the synchronisation of both ends where there are several stages.

    Flat, since compiled functions take it by value.
    """

    first: IntArray
    whole: IntArray
    part: IntArray
    to_end: IntArray
    depth: IntArray
    chain: bool
    saved_bytes: FloatArray
    behind_s: FloatArray
    ahead_forward_s: FloatArray
    ahead_backward_s: FloatArray
    stage_s: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray
    after_s: FloatArray
    step_s: FloatArray
    fixed_bytes: FloatArray
    messages_s: FloatArray
    kind_of: IntArray
    least_messages_s: FloatArray
    most_back_s: float  # of one message back; infinite where passes hold data-parallel communication
    pp: int
    micro_batches: int
    tied_s: float
    least_step_s: float  # of the largest stage, however the layers are cut
    memory_bytes: float


@outer
def fill_loads(
    rates: PlanRates, stages: Stages, times: StageTimes, sizes: StageSizes, layers: StageTimes, members: Members, loads: Loads
) -> None:
    """Fill ``loads``: as one stage and without data-parallel communication layers take no longer than in several.

    ``layers`` are the times of the single layers, ``members`` (nodes, layers) those of every node.
    """
    alone_s = np.empty(members.shape[1])
    for layer in range(len(alone_s)):
        again_s = pass_of(rates, layers.recompute, layer, 0.0, 0.0, 1.0).total_s
        alone_s[layer] = again_s + pass_of(rates, layers.backward, layer, 0.0, 0.0, 1.0).total_s
    for edge in range(len(loads.stage_s)):
        count = sizes.layers[edge]
        seconds = pass_of(rates, times.forward, edge, 0.0, 0.0, count).total_s
        seconds += pass_of(rates, times.recompute, edge, 0.0, 0.0, count).total_s
        loads.stage_s[edge] = seconds + pass_of(rates, times.backward, edge, 0.0, 0.0, count).total_s
    for node in range(len(stages.first) - 1):
        edge = stages.to_end[node]
        loads.behind_s[node] = loads.stage_s[edge] if edge >= 0 else 0.0
        edge = stages.from_start[node]
        forward_s = pass_of(rates, times.forward, edge, 0.0, 0.0, sizes.layers[edge]).total_s if edge >= 0 else 0.0
        loads.ahead_forward_s[node] = forward_s
        loads.ahead_backward_s[node] = 0.0
        for layer in range(len(alone_s)):
            if not members[node, layer]:
                loads.ahead_backward_s[node] += alone_s[layer]


@outer
def least_largest(stages: Stages, values: FloatArray, least: FloatArray) -> None:
    """Fill ``least`` (most stages, nodes): the least that the largest of j + 1 stages sharing a node can have of ``values``."""
    for behind in range(len(least)):
        for node in range(len(stages.first) - 1):
            least[behind, node] = np.inf
            if behind == 0:
                if stages.to_end[node] >= 0:
                    least[behind, node] = values[stages.to_end[node]]
                continue
            for edge in range(stages.first[node + 1] - 1, stages.first[node] - 1, -1):
                if values[edge] >= least[behind, node]:
                    if stages.chain:
                        break
                    continue
                least[behind, node] = min(least[behind, node], max(values[edge], least[behind - 1, stages.part[edge]]))


@outer
def fill_least_messages(stages: Stages, messages_s: FloatArray, kind_of: IntArray, least_s: FloatArray) -> None:
    """Fill ``least_s`` (pp, nodes), see ``Links``; infinite where a node has fewer layers than there would be stages."""
    for behind in range(len(least_s)):
        for node in range(len(stages.first) - 1):
            least_s[behind, node] = np.inf if behind > 0 or node == 0 else 0.0
            if behind == 0 or stages.depth[node] <= behind:
                continue
            for edge in range(stages.first[node], stages.first[node + 1]):
                part = stages.part[edge]
                if stages.depth[part] >= behind:
                    both_s = messages_s[kind_of[behind - 1], 0, part] + messages_s[kind_of[behind - 1], 1, part]
                    least_s[behind, node] = min(least_s[behind, node], both_s + least_s[behind - 1, part])


@outer
def fill_passes(rates: PlanRates, times: StageTimes, sizes: StageSizes, forward_s: FloatArray, backward_s: FloatArray) -> None:
    """Fill seconds of the passes of all stages without data-parallel communication; shapes (edges,)."""
    for edge in range(len(forward_s)):
        layers = sizes.layers[edge]
        forward_s[edge] = pass_of(rates, times.forward, edge, 0.0, 0.0, layers).total_s
        again_s = pass_of(rates, times.recompute, edge, 0.0, 0.0, layers).total_s
        backward_s[edge] = again_s + pass_of(rates, times.backward, edge, 0.0, 0.0, layers).total_s


@outer
def fill_prices(rates: PlanRates, times: StageTimes, sizes: StageSizes, edges: IntArray, shared: float, priced: Priced) -> None:
    """Price the stages ``edges`` in full; ``shared`` parameters count once on a single stage."""
    for edge in edges:
        price = stage_price(rates, times, sizes, edge, shared)
        priced.forward_s[edge], priced.backward_s[edge] = price.forward_s, price.backward_s
        priced.after_s[edge], priced.step_s[edge] = price.after_s, price.step_s
        priced.fixed_bytes[edge] = price.fixed_bytes


class Stage(NamedTuple):
    """A stage at its place: seconds with its messages, what it costs the pipeline at least, alone and with what follows it."""

    forward_s: float
    backward_s: float
    pipeline_s: float
    own_s: float
    after_s: float
    deep_s: float  # seconds of a path through all stages that runs the most micro-batches here
    lag_s: float  # what follows its last backward pass, less what the pipeline still runs then


@inner
def fits_at(problem: Problem, edge: int, behind: int) -> bool:
    """Whether stage ``edge`` has the memory with ``behind`` stages behind it."""
    held = min(behind + 1, problem.micro_batches)
    return problem.fixed_bytes[edge] + held * problem.saved_bytes[edge] <= problem.memory_bytes


@inner
def stage_at(problem: Problem, edge: int, behind: int) -> Stage:
    """Stage ``edge`` with ``behind`` stages behind it."""
    whole, part = problem.whole[edge], problem.part[edge]
    is_first = behind == problem.pp - 1
    forward_s, backward_s, after_s, back_s = problem.forward_s[edge], problem.backward_s[edge], problem.after_s[edge], 0.0
    behind_s = problem.behind_s[part]
    if behind > 0:
        kind = problem.kind_of[behind - 1]
        forward_s += problem.messages_s[kind, 0, part]
        behind_s += problem.messages_s[kind, 1, part] + problem.least_messages_s[behind - 1, part]
    if not is_first:
        back_s = problem.messages_s[problem.kind_of[behind], 1, whole]
        backward_s += back_s
    if (is_first or behind == 0) and problem.pp > 1:
        after_s += problem.tied_s
    total_s = problem.behind_s[len(problem.first) - 2] + problem.least_messages_s[problem.pp - 1, len(problem.first) - 2]
    pipeline_s = stage_bound_s(forward_s, backward_s, total_s, behind_s, behind, problem.micro_batches)
    mine_s = problem.ahead_forward_s[whole] + forward_s + backward_s + behind_s
    own_s = stage_bound_s(forward_s, backward_s, mine_s, behind_s, behind, problem.micro_batches) + after_s - back_s
    more = problem.micro_batches - 1
    deep_s = total_s
    if more >= behind:
        deep_s += (more - behind) * (forward_s + backward_s) + behind_s
    lag_s = after_s - back_s
    if not is_first:
        if problem.most_back_s == np.inf:
            lag_s = -np.inf
        else:
            lag_s -= problem.ahead_backward_s[whole] + (problem.pp - 2 - behind) * problem.most_back_s
    return Stage(forward_s, backward_s, pipeline_s, own_s, after_s - back_s, deep_s, lag_s)


@outer
def bound_cut(problem: Problem, incumbent_s: float, tables: FloatArray) -> float:
    """Seconds that no cut of the plan beats (inf: none fits, or none beats ``incumbent_s``).

    Fills ``tables`` (4, pp, nodes): the least that the largest of the last j + 1 stages can have of ``pipeline_s``, ``own_s``,
    ``deep_s`` and ``lag_s``. The last two belong together: what follows any stage's last backward pass follows any path, less
    the backward passes of the stages before it.
    """
    pipeline, own, deep, lag = tables[0], tables[1], tables[2], tables[3]
    pp, everything = problem.pp, len(problem.first) - 2
    limit_s = incumbent_s * (1.0 - ROUNDING) - problem.least_step_s
    best_s = np.inf
    for behind in range(pp):
        first = behind == pp - 1
        for node in range(everything + 1):
            for table in range(4):
                tables[table, behind, node] = np.inf
            if (node == everything) != first or problem.depth[node] <= behind:
                continue
            low, high = problem.first[node], problem.first[node + 1]
            if behind == 0:
                low, high = problem.to_end[node], problem.to_end[node] + 1
                if low < 0:
                    continue
            for edge in range(high - 1, low - 1, -1):
                part = problem.part[edge]
                if problem.depth[part] < behind or (behind > 0 and pipeline[behind - 1, part] == np.inf):
                    continue
                if problem.stage_s[edge] * problem.micro_batches >= limit_s:
                    if problem.chain:
                        break
                    continue
                if not fits_at(problem, edge, behind):
                    continue
                stage = stage_at(problem, edge, behind)
                here_s, mine_s, deep_s, lag_s = stage.pipeline_s, stage.own_s, stage.deep_s, stage.lag_s
                if behind > 0:
                    here_s, mine_s = max(here_s, pipeline[behind - 1, part]), max(mine_s, own[behind - 1, part])
                    deep_s, lag_s = max(deep_s, deep[behind - 1, part]), max(lag_s, lag[behind - 1, part])
                if first:
                    best_s = min(best_s, max(here_s + stage.after_s, mine_s, deep_s + lag_s))
                if here_s >= limit_s or mine_s >= limit_s or deep_s + lag_s >= limit_s:
                    continue
                pipeline[behind, node] = min(pipeline[behind, node], here_s)
                own[behind, node] = min(own[behind, node], mine_s)
                deep[behind, node] = min(deep[behind, node], deep_s)
                lag[behind, node] = min(lag[behind, node], lag_s)
    return best_s + problem.least_step_s


class Found(NamedTuple):
    """What a search of cuts found: seconds (inf: nothing better than what was known), and whether it saw all there are."""

    seconds: float
    complete: bool
    leaves: int


@outer
def search_cuts(
    problem: Problem,
    incumbent_s: float,
    tables: FloatArray,
    most_steps: int,
    nodes: IntArray,
) -> Found:
    """The best cut that beats ``incumbent_s``, depth first from the first stage under the tables of ``bound_cut``.

    Fills ``nodes`` (pp + 1,) with its path, from all layers to none. Gives up after ``most_steps`` stages were tried.
    """
    pp, everything = problem.pp, len(problem.first) - 2
    best_s, complete, leaves, steps = incumbent_s, True, 0, 0
    node = np.zeros(pp + 1, np.int64)
    edge = np.zeros(pp, np.int64)
    forward_s, backward_s, after_s = np.empty(pp), np.empty(pp), np.empty(pp)
    pipeline_s, own_s, step_s, deep_s = np.zeros(pp + 1), np.zeros(pp + 1), np.zeros(pp + 1), np.zeros(pp + 1)
    lag_s, ahead_s = np.full(pp + 1, -np.inf), np.zeros(pp + 1)
    pipeline, own, deep, lag = tables[0], tables[1], tables[2], tables[3]
    step_s[0] = problem.least_step_s
    scratch = np.empty((SCRATCH_ROWS + 1, pp))
    node[0] = everything
    place = 0
    edge[0] = problem.first[everything + 1] if pp > 1 else problem.to_end[everything] + 1
    while place >= 0:
        behind = pp - 1 - place
        edge[place] -= 1
        low = problem.first[node[place]] if behind > 0 else problem.to_end[node[place]]
        if edge[place] < low:
            place -= 1
            continue
        part = problem.part[edge[place]]
        if problem.depth[part] < behind or (behind > 0 and pipeline[behind - 1, part] == np.inf):
            continue
        steps += 1
        if steps > most_steps:
            complete = False
            break
        least_s = problem.stage_s[edge[place]] * problem.micro_batches + problem.least_step_s
        if least_s >= best_s * (1.0 - ROUNDING):
            if problem.chain:
                place -= 1
            continue
        if not fits_at(problem, edge[place], behind):
            continue
        stage = stage_at(problem, edge[place], behind)
        here_s, mine_s = max(pipeline_s[place], stage.pipeline_s), max(own_s[place], stage.own_s)
        largest_s = max(step_s[place], problem.step_s[edge[place]])
        forward_s[place], backward_s[place], after_s[place] = stage.forward_s, stage.backward_s, stage.after_s
        deepest_s, lagging_s = max(deep_s[place], stage.deep_s), max(lag_s[place], stage.after_s - ahead_s[place])
        least_s, least_own_s, least_both_s = here_s, mine_s, deepest_s + lagging_s
        if behind > 0:
            least_s, least_own_s = max(here_s, pipeline[behind - 1, part]), max(mine_s, own[behind - 1, part])
            least_both_s = max(deepest_s, deep[behind - 1, part]) + max(lagging_s, lag[behind - 1, part])
        if max(least_s + after_s[0], least_own_s, least_both_s) + largest_s >= best_s * (1.0 - ROUNDING):
            continue
        node[place + 1] = part
        if behind == 0:
            leaves += 1
            seconds = finish_in_s(forward_s, backward_s, after_s, problem.micro_batches, scratch) + largest_s
            if seconds < best_s:
                best_s = seconds
                nodes[:] = node
            continue
        pipeline_s[place + 1], own_s[place + 1], step_s[place + 1] = here_s, mine_s, largest_s
        deep_s[place + 1], lag_s[place + 1], ahead_s[place + 1] = deepest_s, lagging_s, ahead_s[place] + stage.backward_s
        place += 1
        edge[place] = problem.first[part + 1] if behind > 1 else problem.to_end[part] + 1
    return Found(best_s if best_s < incumbent_s else np.inf, complete, leaves)
