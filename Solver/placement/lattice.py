"""The sets of layers that the last stages of a pipeline can hold, for layer graphs that branch.

Such a set is closed under successors. A chain of n layers has n + 1 of them; parallel branches multiply their numbers, so a limit
is set on how many are handled exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from Common.errors import InputError
from Solver.placement.kernels import EPSILON, outer
from Solver.placement.problem import FloatArray, IntArray

# mypy: disable-error-code="untyped-decorator,no-any-return"

MOST_SETS = 20_000


@dataclass(frozen=True, eq=False)
class Lattice:
    """Sets of layers, small to large: set 0 is empty, the last one holds all layers.

    ``members`` (sets, layers) says what is in each. ``smaller[first[d] : first[d + 1]]`` are the sets that set d becomes without
    one of its first layers, which are ``removed`` at the same places.
    """

    members: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    first: IntArray
    smaller: IntArray
    removed: IntArray


def lattice_of(layers: int, edges: Iterable[tuple[int, int]]) -> Lattice:
    """All successor-closed sets of the graph with these (producer, consumer) ``edges``.

    Raises:
        InputError: the edges have a cycle, or there are more than ``MOST_SETS`` sets.
    """
    following, preceding = [0] * layers, [0] * layers
    for source, destination in edges:
        following[source] |= 1 << destination
        preceding[destination] |= 1 << source
    index = {0: 0}
    sets = [0]
    for current in sets:  # grows while it is read: breadth first, so small sets come first
        for layer in range(layers):
            grown = current | 1 << layer
            if grown != current and following[layer] & ~current == 0 and grown not in index:
                index[grown] = len(sets)
                sets.append(grown)
        if len(sets) > MOST_SETS:
            raise InputError(
                f"the {layers} layers branch into more than {MOST_SETS} sets that stages could end at, too many to place exactly"
                "; merge layers of a branch or put the layers into one sequence and place that chain"
            )
    if sets[-1] != (1 << layers) - 1:
        raise InputError("the tensors between the layers form a cycle; a layer may only use what layers before it have made")
    first, smaller, removed = [0], [], []
    for current in sets:
        for layer in range(layers):
            if current >> layer & 1 and preceding[layer] & current == 0:
                smaller.append(index[current & ~(1 << layer)])
                removed.append(layer)
        first.append(len(smaller))
    members = np.array([[bool(current >> layer & 1) for layer in range(layers)] for current in sets])
    return Lattice(members, np.array(first), np.array(smaller, dtype=np.int64), np.array(removed, dtype=np.int64))


class SetCosts(NamedTuple):
    """One case on a lattice, for compiled kernels: sums over each set (sets,), transfers at the cut before it (tiers, sets)."""

    first: IntArray
    smaller: IntArray
    removed: IntArray
    work: FloatArray
    parameters: FloatArray
    saved: FloatArray
    workspace: FloatArray  # (layers,)
    entering: FloatArray
    leaving: FloatArray
    tiers: IntArray  # tier of the link into the stage at each position from the end
    in_flight: int
    resident_bytes: float
    hbm_bytes: float


@outer
def least_transfers_of_sets(costs: SetCosts, stages: int, limit: float, cap: float, rest: IntArray) -> tuple[float, float, float]:
    """Least transfer sum over exactly ``stages`` stages with loads to ``limit`` and parameters to ``cap``; infinity if none.

    Also the largest load and parameter sum of that cut. ``rest[position, set]`` (stages + 1, sets) becomes the set that the
    stages after the one at ``position`` hold.
    """
    sets = len(costs.work)
    best = np.full((stages + 1, sets), np.inf)
    load_of, held_of = np.zeros((stages + 1, sets)), np.zeros((stages + 1, sets))
    best[0, 0] = 0.0
    seen, space, stack = np.full(sets, -1), np.zeros(sets), np.empty(sets, np.int64)
    for whole in range(1, sets):
        stack[0], space[whole], seen[whole] = whole, 0.0, whole
        top = 1
        while top > 0:
            top -= 1
            part = stack[top]
            if part != whole:
                work = costs.work[whole] - costs.work[part]
                held = costs.parameters[whole] - costs.parameters[part]
                if work > limit * EPSILON or held > cap * EPSILON:
                    continue
                saved = costs.saved[whole] - costs.saved[part]
                for position in range(1, stages + 1):
                    memory = held * costs.resident_bytes + min(position, costs.in_flight) * saved + space[part]
                    if memory > costs.hbm_bytes * EPSILON:
                        break
                    if best[position - 1, part] == np.inf or (position == stages) != (whole == sets - 1):
                        continue
                    before, behind = costs.tiers[position], costs.tiers[position - 1]
                    load = work + costs.entering[before, whole] + costs.leaving[behind, part]
                    if load > limit * EPSILON:
                        continue
                    transfers = best[position - 1, part] + costs.entering[before, whole] + costs.leaving[before, whole]
                    if transfers < best[position, whole]:
                        best[position, whole] = transfers
                        load_of[position, whole] = max(load, load_of[position - 1, part])
                        held_of[position, whole] = max(held, held_of[position - 1, part])
                        rest[position, whole] = part
            for k in range(costs.first[part], costs.first[part + 1]):
                smaller = costs.smaller[k]
                if seen[smaller] != whole:
                    seen[smaller] = whole
                    space[smaller] = max(space[part], costs.workspace[costs.removed[k]])
                    stack[top] = smaller
                    top += 1
    return best[stages, sets - 1], load_of[stages, sets - 1], held_of[stages, sets - 1]


@outer
def bottlenecks_of_sets(costs: SetCosts, most_stages: int) -> FloatArray:
    """Least possible largest load for every number of stages up to ``most_stages`` (index 0 unused), with one kind of link."""
    sets = len(costs.work)
    best = np.full((sets, most_stages + 1), np.inf)
    sizes, widest = np.zeros(sets, np.int64), np.zeros(sets)
    seen, space, queue = np.full(sets, -1), np.zeros(sets), np.empty(sets, np.int64)
    for whole in range(1, sets):
        k = costs.first[whole]
        sizes[whole] = sizes[costs.smaller[k]] + 1
        widest[whole] = max(widest[costs.smaller[k]], costs.workspace[costs.removed[k]])
        memory = costs.parameters[whole] * costs.resident_bytes + min(1, costs.in_flight) * costs.saved[whole] + widest[whole]
        if memory <= costs.hbm_bytes * EPSILON:
            best[whole, 1] = costs.work[whole] + costs.entering[0, whole]
        queue[0], space[whole], seen[whole] = whole, 0.0, whole
        head, tail = 0, 1
        while head < tail:  # small stages first, so that ``best`` soon tells that larger ones do not help
            part = queue[head]
            head += 1
            helps = part == whole
            if not helps:
                work = costs.work[whole] - costs.work[part]
                held = costs.parameters[whole] - costs.parameters[part]
                saved = costs.saved[whole] - costs.saved[part]
                load = work + costs.entering[0, whole] + costs.leaving[0, part]
                for position in range(2, min(most_stages, sizes[whole]) + 1):
                    memory = held * costs.resident_bytes + min(position, costs.in_flight) * saved + space[part]
                    if memory > costs.hbm_bytes * EPSILON:
                        break
                    helps |= work < best[whole, position]
                    best[whole, position] = min(best[whole, position], max(load, best[part, position - 1]))
            if helps:
                for k in range(costs.first[part], costs.first[part + 1]):
                    smaller = costs.smaller[k]
                    if seen[smaller] != whole:
                        seen[smaller] = whole
                        space[smaller] = max(space[part], costs.workspace[costs.removed[k]])
                        queue[tail] = smaller
                        tail += 1
    return best[sets - 1]


@outer
def stage_values_within(costs: SetCosts, of_load: bool, lower: float, upper: float) -> tuple[float, float]:
    """Least and largest stage load (or parameter sum) that some set of layers has in [lower, upper]; (inf, -inf) if none."""
    sets = len(costs.work)
    sums = costs.work if of_load else costs.parameters
    tiers = len(costs.entering) if of_load else 1
    least, largest = np.inf, -np.inf
    seen, stack = np.full(sets, -1), np.empty(sets, np.int64)
    for whole in range(1, sets):
        stack[0], seen[whole] = whole, whole
        top = 1
        while top > 0:
            top -= 1
            part = stack[top]
            value = sums[whole] - sums[part]
            if value > upper * EPSILON:
                continue
            if part != whole:
                for before in range(tiers):
                    for behind in range(tiers):
                        here = value
                        if of_load:
                            here += costs.entering[before, whole] + costs.leaving[behind, part]
                        if lower <= here * EPSILON and here <= upper * EPSILON:
                            least, largest = min(least, here), max(largest, here)
            for k in range(costs.first[part], costs.first[part + 1]):
                smaller = costs.smaller[k]
                if seen[smaller] != whole:
                    seen[smaller] = whole
                    stack[top] = smaller
                    top += 1
    return least, largest
