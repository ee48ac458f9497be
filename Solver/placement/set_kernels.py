"""Compiled inner loops over the sets of a lattice, for one case of a placement problem.

As in ``kernels``, positions count stages from the end of the pipeline, 1 being the last; infinity means that there is no such
plan, and values within ``EPSILON`` of each other are equal. Plans have exactly the number of stages asked for.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Solver.placement.kernels import EPSILON, inner, outer
from Solver.placement.problem import FloatArray, IntArray


class SetCosts(NamedTuple):
    """What the sets and stages of a lattice cost one variant in one case.

    Stage s is set ``whole`` less set ``part[s]``, for s from ``first[whole]`` to ``first[whole + 1]``. Sums are over each set
    (sets,); transfers (sets, positions + 1) cross the cut before a set on the link into the stage at each position.
    """

    first: IntArray
    part: IntArray
    space: FloatArray  # (stages,): largest workspace of its layers
    sizes: IntArray
    work: FloatArray
    parameters: FloatArray
    saved: FloatArray
    saved_from: FloatArray  # with what a stage that starts with the set copies from before
    entering: FloatArray
    leaving: FloatArray
    in_flight: int
    resident_bytes: float
    hbm_bytes: float


@inner
def last_position(costs: SetCosts, whole: int, stage: int, most: int) -> int:
    """The earliest place in the pipeline, at most ``most`` from its end, whose memory holds the stage; 0 if none does."""
    part = costs.part[stage]
    held = costs.parameters[whole] - costs.parameters[part]
    saved = costs.saved_from[whole] - costs.saved[part]
    room = costs.hbm_bytes * EPSILON - held * costs.resident_bytes - costs.space[stage]
    if room < 0.0:
        return 0
    if costs.in_flight * saved <= room:
        return min(most, costs.sizes[part] + 1)
    return min(most, costs.sizes[part] + 1, int(room / saved))


@outer
def bottlenecks(costs: SetCosts, most: int) -> FloatArray:
    """Least possible largest load for every number of stages up to ``most`` (index 0 unused).

    Where links differ by position they are those of one number of stages only, and so is the answer.
    """
    best = np.full((len(costs.work), most + 1), np.inf)
    best[0, 0] = 0.0
    for whole in range(1, len(costs.work)):
        for stage in range(costs.first[whole], costs.first[whole + 1]):
            part = costs.part[stage]
            work = costs.work[whole] - costs.work[part]
            for position in range(1, last_position(costs, whole, stage, most) + 1):
                load = work + costs.entering[whole, position] + costs.leaving[part, position - 1]
                before = best[part, position - 1]
                longest = before if before > load else load
                best[whole, position] = longest if longest < best[whole, position] else best[whole, position]
    return best[-1]


class OpenStages(NamedTuple):
    """The stages that plans of some number of stages may have, in the order of a lattice; arrays (stages,)."""

    whole: IntArray
    part: IntArray
    work: FloatArray
    held: FloatArray
    latest: IntArray  # least position from the end
    earliest: IntArray  # greatest


class Box(NamedTuple):
    """Plans whose largest load and largest parameter sum lie in these intervals."""

    least_load: float
    most_load: float
    least_held: float
    most_held: float


@outer
def open_stages(costs: SetCosts, stages: int, limit: float, cap: float) -> OpenStages:
    """The stages with loads to ``limit`` and parameter sums to ``cap`` that some plan of ``stages`` stages has room for."""
    sets, most = len(costs.work), len(costs.part)
    into, out_of = np.empty(sets), np.empty(sets)  # on the fastest link
    for each in range(sets):
        into[each], out_of[each] = costs.entering[each, 1 : stages + 1].min(), costs.leaving[each, :stages].min()
    whole, part, latest, earliest = (
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    behind = np.full(sets, stages + 1)  # fewest stages that a set fills
    behind[0] = 0
    count = 0
    for larger in range(1, sets):
        for stage in range(costs.first[larger], costs.first[larger + 1]):
            smaller = costs.part[stage]
            load = costs.work[larger] - costs.work[smaller] + into[larger] + out_of[smaller]
            held = costs.parameters[larger] - costs.parameters[smaller]
            if load > limit * EPSILON or held > cap * EPSILON:
                continue
            nearest, farthest = behind[smaller] + 1, last_position(costs, larger, stage, stages)
            if nearest <= farthest:
                whole[count], part[count], latest[count], earliest[count] = larger, smaller, nearest, farthest
                behind[larger] = min(behind[larger], nearest)
                count += 1
    before = np.full(sets, stages + 1)  # fewest stages that hold what a set lacks
    before[sets - 1] = 0
    kept = np.zeros(count, np.bool_)
    for k in range(count - 1, -1, -1):
        earliest[k] = min(earliest[k], stages - before[whole[k]])
        kept[k] = latest[k] <= earliest[k]
        if kept[k]:
            before[part[k]] = min(before[part[k]], before[whole[k]] + 1)
    whole, part, latest, earliest = whole[:count][kept], part[:count][kept], latest[:count][kept], earliest[:count][kept]
    work, held_by = costs.work[whole] - costs.work[part], costs.parameters[whole] - costs.parameters[part]
    return OpenStages(whole, part, work, held_by, latest, earliest)


@outer
def least_transfers_of_sets(
    costs: SetCosts, candidates: OpenStages, stages: int, limit: float, cap: float
) -> tuple[float, float, float, IntArray]:
    """Least transfer sum with loads to ``limit`` and parameter sums to ``cap``, and the plan of candidates that has it.

    Returns (transfer seconds, largest load, largest parameter sum, sets held from each stage on, first stage first).
    """
    best = np.full((len(costs.work), stages + 1), np.inf)
    taken = np.zeros((len(costs.work), stages + 1), np.int64)
    best[0, 0] = 0.0
    for stage in range(len(candidates.part)):
        if candidates.work[stage] > limit * EPSILON or candidates.held[stage] > cap * EPSILON:
            continue
        whole, part = candidates.whole[stage], candidates.part[stage]
        for position in range(candidates.latest[stage], candidates.earliest[stage] + 1):
            load = candidates.work[stage] + costs.entering[whole, position] + costs.leaving[part, position - 1]
            transfers = best[part, position - 1] + costs.entering[whole, position] + costs.leaving[whole, position]
            if load <= limit * EPSILON and transfers < best[whole, position]:
                best[whole, position], taken[whole, position] = transfers, stage
    sets = np.zeros(stages + 1, np.int64)
    largest, most, whole = 0.0, 0.0, len(costs.work) - 1
    if best[whole, stages] == np.inf:
        return np.inf, largest, most, sets
    for position in range(stages, 0, -1):
        stage = taken[whole, position]
        part = candidates.part[stage]
        load = candidates.work[stage] + costs.entering[whole, position] + costs.leaving[part, position - 1]
        largest, most = max(largest, load), max(most, candidates.held[stage])
        sets[stages - position] = whole
        whole = part
    return best[-1, stages], largest, most, sets


@outer
def tightened(costs: SetCosts, candidates: OpenStages, box: Box) -> Box:
    """The box down to values that candidates have; infinite and empty where none has any."""
    least_load, most_load, least_held, most_held = np.inf, -np.inf, np.inf, -np.inf
    for stage in range(len(candidates.part)):
        work, held = candidates.work[stage], candidates.held[stage]
        if work > box.most_load * EPSILON or held > box.most_held * EPSILON:
            continue
        if box.least_held <= held * EPSILON:
            least_held, most_held = min(least_held, held), max(most_held, held)
        for position in range(candidates.latest[stage], candidates.earliest[stage] + 1):
            load = work + costs.entering[candidates.whole[stage], position] + costs.leaving[candidates.part[stage], position - 1]
            if box.least_load <= load * EPSILON and load <= box.most_load * EPSILON:
                least_load, most_load = min(least_load, load), max(most_load, load)
    return Box(least_load, most_load, least_held, most_held)


@outer
def cheapest_chains(first: IntArray, part: IntArray, sizes: IntArray, crossing: FloatArray, most: int) -> FloatArray:
    """Least transfer sum for every number of stages up to ``most``, whatever loads and memory; ``crossing`` (sets,)."""
    best = np.full((len(crossing), most + 1), np.inf)
    best[0, 0] = 0.0
    for whole in range(1, len(crossing)):
        for stage in range(first[whole], first[whole + 1]):
            for position in range(1, min(most, sizes[part[stage]] + 1) + 1):
                transfers = best[part[stage], position - 1] + crossing[whole]
                best[whole, position] = min(best[whole, position], transfers)
    return best[-1]


@outer
def stages_needed_of_sets(costs: SetCosts) -> int:
    """Least number of stages (two or more) whose memory suffices; more than there are layers where none does."""
    layers = costs.sizes[-1]
    needed = np.full(len(costs.work), layers + 1)
    needed[0] = 0
    for whole in range(1, len(costs.work)):
        for stage in range(costs.first[whole], costs.first[whole + 1]):
            position = needed[costs.part[stage]] + 1  # earlier in the pipeline it would need no less memory
            if position < needed[whole] and last_position(costs, whole, stage, layers) >= position:
                needed[whole] = position
    return max(needed[-1], 2)


@outer
def largest_workspaces(members: FloatArray, first: IntArray, part: IntArray, workspace: FloatArray) -> FloatArray:
    """Largest workspace of the layers of every stage; ``members`` (sets, layers) are booleans."""
    space = np.zeros(len(part))
    for whole in range(len(members)):
        for stage in range(first[whole], first[whole + 1]):
            for layer in range(len(workspace)):
                if members[whole, layer] and not members[part[stage], layer] and workspace[layer] > space[stage]:
                    space[stage] = workspace[layer]
    return space
