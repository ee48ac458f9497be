"""Seconds that no cut of the layers can beat, for many plans of one shape at once: what makes
pruning a plan safe."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_outer, inlined
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.paths.stage_graph import Stages
from Solver.paths.stage_tables import Loads, loads_at

# relative: a bound that the formulas of another one exceed by as much does so whatever rounding
APART = 1e-9


class PlanBounds(NamedTuple):
    """What bounds need of every plan whatever the hardware's speed, arrays of shape (plans,) unless
    said otherwise.

    ``parameters`` (kinds,) are those of stages that are all-reduced or scattered under every plan,
    ``least_parameters`` (most stages, nodes) what the largest of j + 1 stages that share a node has
    of them at least. The seconds of synchronisation have shape (plans, 2, algorithms): it takes at
    least a sum of two collectives, each the least of its algorithms; unused algorithms are
    infinite, unused collectives 0. ``pass_parameter_s`` are the seconds of the collectives that
    every micro-batch's passes take at least for each of ``parameters``. Of several stages the first
    one takes at least ``first_sync_s`` (plans,), and one of the others ``rest_sync_s``."""

    skip: BoolArray
    pp: IntArray
    micro_batches: IntArray
    least_messages_s: FloatArray  # over one boundary, both ways
    least_one_way_s: FloatArray  # over one boundary, whichever way is shorter
    most_one_way_s: FloatArray  # over one boundary
    follows: BoolArray  # whether all data-parallel communication follows the last backward pass
    least_step_s: FloatArray
    tied_s: FloatArray
    sync_fixed_s: FloatArray
    sync_per_parameter_s: FloatArray
    pass_parameter_s: FloatArray
    parameters: FloatArray
    least_parameters: FloatArray
    tied_parameters: float
    first_sync_s: FloatArray
    rest_sync_s: FloatArray


@inlined
def least_sync_s(bounds: PlanBounds, plan: int, parameters: float) -> float:
    """Seconds of synchronising so many parameters at least; nothing is sent for none."""
    seconds = 0.0
    for collective in range(2 if parameters > 0.0 else 0):
        fastest_s = np.inf
        for algorithm in range(bounds.sync_fixed_s.shape[2]):
            per_parameter_s = bounds.sync_per_parameter_s[plan, collective, algorithm]
            fastest_s = min(
                fastest_s,
                bounds.sync_fixed_s[plan, collective, algorithm] + per_parameter_s * parameters,
            )
        seconds += fastest_s
    return seconds


@inlined
def deepest_s(total_s: float, load_s: float, pp: int, more: int) -> float:
    """Seconds at least of the longest path through the last stage, where one of ``pp`` stages takes
    ``load_s`` or more.

    With b stages behind it, it runs ``more`` - b further micro-batches before what is behind it,
    which takes at least ``total_s`` less as many loads as there are other stages; whatever b is."""
    if more < pp:
        return total_s
    return max(total_s + (more - pp + 1) * load_s, 2.0 * total_s + (more - pp) * load_s)


@inlined
def unwaited_s(
    bounds: PlanBounds, plan: int, load_s: float, total_s: float, shorter_part: float
) -> float:
    """Seconds at most that the stage of the largest load does not wait for."""
    pp, more = bounds.pp[plan], bounds.micro_batches[plan] - 1
    shorter_s = 0.5 * load_s
    if bounds.pass_parameter_s[plan] == 0.0:
        shorter_s = min(shorter_s, shorter_part * load_s + bounds.most_one_way_s[plan])
    seconds = min(pp - 1, more) * shorter_s
    if more >= pp:  # else more imbalance could make up for a larger load
        seconds = min(seconds, max(pp * load_s - total_s, 0.0))
    return seconds


@borrowing_outer
def fill_sync(bounds: PlanBounds, stages: Stages) -> None:
    """Fill ``first_sync_s`` and ``rest_sync_s``."""
    everything = len(stages.first) - 2
    for plan in range(len(bounds.pp)):
        bounds.first_sync_s[plan], bounds.rest_sync_s[plan] = 0.0, 0.0
        if bounds.skip[plan] or bounds.pp[plan] == 1:
            continue
        rest, first, of_rest = bounds.pp[plan] - 2, np.inf, np.inf
        for edge in range(stages.first[everything], stages.first[everything + 1]):
            part = stages.part[edge]
            if part > 0 and stages.depth[part] > rest:
                first = min(first, bounds.parameters[stages.kind[edge]])
                of_rest = min(of_rest, bounds.least_parameters[rest, part])
        if first < np.inf:
            bounds.first_sync_s[plan] = least_sync_s(bounds, plan, first)
            bounds.rest_sync_s[plan] = least_sync_s(bounds, plan, of_rest)


@inlined
def plan_bound_s(
    bounds: PlanBounds,
    plan: int,
    stages: Stages,
    loads: Loads,
    shorter_part: float,
    parameters_per_s: float,
    accumulates: bool,
    enough_s: float,
) -> float:
    """Seconds that no cut of a plan beats on one configuration, or some that are more than
    ``enough_s``, whatever the first stage is.

    With the first stage given, the largest load V is at least its own or that of the best cut of
    the rest, and the total W is known; wherever the stage with the largest load is, the iteration
    takes at least W + (m-1) V less what it does not wait for, which is at most the imbalance pp · V
    - W, and at most the shorter pass for each stage behind it (``stage_bound_s``), half the load or
    ``shorter_part`` of the load but for messages. The first stage synchronises its gradients after
    everything; of the others, one has at least the parameters of the best cut of the rest, and
    follows the longest path to the last stage and back (``deepest_s``) but for the backward passes
    of the stages before it. Collectives within passes lengthen each load by a part of it, where
    every stage has ``parameters_per_s`` for a second of its load or more."""
    everything = len(stages.first) - 2
    whole = stages.kind[stages.to_end[everything]]
    pp, more = bounds.pp[plan], bounds.micro_batches[plan] - 1
    follows = bounds.follows[plan] and not accumulates
    pass_parameter_s = bounds.pass_parameter_s[plan]
    slower = 1.0 + pass_parameter_s * parameters_per_s
    parameters = bounds.parameters[whole] - (bounds.tied_parameters if pp == 1 else 0.0)
    whole_s = loads.stage_s[whole] + pass_parameter_s * parameters
    back_s = loads.upstream_backward_s[0] + (pp - 1) * bounds.most_one_way_s[plan]
    total_s = whole_s + (pp - 1) * bounds.least_messages_s[plan]
    if pp > 1 and enough_s < np.inf:
        load_s = slower * loads.least_downstream_s[pp - 1, everything]
        load_s += bounds.least_one_way_s[plan]
        least_s = total_s + more * load_s - unwaited_s(bounds, plan, load_s, total_s, shorter_part)
        least_s += bounds.first_sync_s[plan] + bounds.tied_s[plan]
        if follows:
            deep_s = deepest_s(total_s, load_s, pp, more)
            least_s = max(least_s, deep_s + bounds.rest_sync_s[plan] - back_s)
        least_s += bounds.least_step_s[plan]
        if least_s * (1.0 - APART) > enough_s:
            return least_s
    best_s = np.inf
    for edge in range(stages.first[everything + 1] - 1, stages.first[everything] - 1, -1):
        part, kind = stages.part[edge], stages.kind[edge]
        if (
            (part == 0) != (pp == 1)
            or stages.depth[part] < pp - 1
            or loads.fitting_s[kind] == np.inf
        ):
            continue
        if pp == 1:
            after_s = least_sync_s(bounds, plan, parameters)
            best_s = min(best_s, (more + 1) * whole_s + after_s)
            continue
        first_s = slower * loads.stage_s[kind]
        rest_s = slower * loads.least_downstream_s[pp - 2, part]
        if rest_s == np.inf:
            continue
        load_s = max(first_s, rest_s) + bounds.least_one_way_s[plan]
        least_s = total_s + more * load_s - unwaited_s(bounds, plan, load_s, total_s, shorter_part)
        if stages.chain and first_s >= rest_s and least_s >= best_s:
            break  # larger first stages take longer
        least_s += least_sync_s(bounds, plan, bounds.parameters[kind]) + bounds.tied_s[plan]
        if follows:
            rest_after_s = least_sync_s(bounds, plan, bounds.least_parameters[pp - 2, part])
            least_s = max(least_s, deepest_s(total_s, load_s, pp, more) + rest_after_s - back_s)
        best_s = min(best_s, least_s)
    return best_s + bounds.least_step_s[plan]


@borrowing_outer
def plan_bounds_s(
    bounds: PlanBounds,
    stages: Stages,
    loads: Loads,
    shorter_part: float,
    parameters_per_s: float,
    accumulates: bool,
    enough_s: FloatArray,
    seconds: FloatArray,
) -> None:
    """Fill ``seconds`` (plans,) for one configuration where ``bounds`` does not skip, with the
    bounds of plans or some that are more than ``enough_s`` (plans,)."""
    for plan in range(len(seconds)):
        if not bounds.skip[plan]:
            seconds[plan] = plan_bound_s(
                bounds,
                plan,
                stages,
                loads,
                shorter_part,
                parameters_per_s,
                accumulates,
                enough_s[plan],
            )


@borrowing_outer
def least_bounds_s(
    bounds: PlanBounds,
    stages: Stages,
    every: Loads,
    shorter_part: FloatArray,
    parameters_per_s: FloatArray,
    accumulates: BoolArray,
    weights: FloatArray,
    least_s: FloatArray,
) -> None:
    """Lower ``least_s`` (rows,) to the least bound of the plans that ``bounds`` does not skip on
    each configuration, by ``weights`` (rows or 1, plans); those of infinite weight do not count."""
    first = 0  # the plan of the least bound so far, which lets the others of a row end early
    for row in range(len(least_s)):
        loads, counts = loads_at(every, row), weights[min(row, len(weights) - 1)]
        for place in range(-1, len(counts)):
            plan = place if place >= 0 else first
            if bounds.skip[plan] or counts[plan] == np.inf:
                continue
            bound_s = plan_bound_s(
                bounds,
                plan,
                stages,
                loads,
                shorter_part[row],
                parameters_per_s[row],
                accumulates[row],
                least_s[row] / counts[plan],
            )
            if bound_s * counts[plan] < least_s[row]:
                least_s[row], first = bound_s * counts[plan], plan
