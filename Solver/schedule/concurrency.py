"""How much of a layer pass may run at once, whatever operators take: what makes sums of prices a
bound of makespans.

Weights ``rho_i`` of operators that sum to at most 1 over any that can run on single cores at one
instant bound every schedule by ``Solver.schedule.bounds``: with ``l'_i`` seconds on all cores and
``l_i`` on one,

    makespan >= sum_i min(l'_i, rho_i l_i).

With ``e_i >= l'_i / l_i`` and ``X_i`` at least the sum of the ``e_j`` of any operators that can run
beside i, itself among them, ``rho_i = e_i / X_i`` are such weights, and the sum is that of ``l'_i /
X_i``. So are ``e_i / max(X_i, 1)`` of some operators, with ``X_i`` of these alone, where others get
``1 - X_i`` of what they would have by themselves: many cores make ``e_i`` small, and so products
keep their whole weight, and what cores do not shorten (collectives, ``e_i = 1``) most of its own.
``X_i`` needs only how many operators of each core type may run beside i (``Concurrency``): a
million chips are bounded by a few sums of the prices of their cores. Operators may be left out, as
if they took no time. Of collectives those of one chain are worth more than all, since no two of
them share an instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import networkx as nx

from Solver.schedule.problem import CoreType, ScheduleStructure
from Solver.schedule.structure import Order, closure, members


@dataclass(frozen=True)
class Concurrency:
    """The most operators of each kind that may run at one instant with an operator, itself among
    them.

    ``tensor`` occupy tensor cores, ``vector`` vector cores alone, ``waiting`` (collectives) a
    vector core for a time that no cores shorten.
    """

    tensor: int
    vector: int
    waiting: int

    @property
    def alone(self) -> bool:
        """Whether nothing can run beside the operator."""
        return self.tensor + self.vector + self.waiting <= 1


@lru_cache(maxsize=1024)
def concurrency_of(
    structure: ScheduleStructure, waiting: frozenset[int], counted: frozenset[int]
) -> tuple[Concurrency, ...]:
    """Concurrency of every operator; those of ``waiting`` are collectives, of which only those
    ``counted`` matter."""
    order, types = closure(structure), structure.core_types
    on_tensor = {place for place, kind in enumerate(types) if kind is not CoreType.VC}
    found = []
    for place in range(len(order)):
        at_once = set(members(order.parallel(place) | 1 << place))
        kinds = (at_once & on_tensor, at_once - on_tensor - waiting, at_once & counted)
        found.append(Concurrency(*(_largest_antichain(order, kind) for kind in kinds)))
    return tuple(found)


def longest_chain(structure: ScheduleStructure, seconds: Mapping[int, float]) -> frozenset[int]:
    """Of the operators of ``seconds`` those that take longest of any that follow one another; none
    where all take no time."""
    order = closure(structure)
    until: dict[int, tuple[float, frozenset[int]]] = {}
    for place in sorted(
        (each for each in seconds if seconds[each] > 0.0),
        key=lambda each: order.before[each].bit_count(),
    ):
        earlier = [until[other] for other in members(order.before[place]) if other in until]
        length_s, chain = max(earlier, key=lambda each: each[0], default=(0.0, frozenset[int]()))
        until[place] = length_s + seconds[place], chain | {place}
    return max(until.values(), key=lambda each: each[0], default=(0.0, frozenset[int]()))[1]


def _largest_antichain(order: Order, operators: set[int]) -> int:
    """The most pairwise parallel ones of ``operators``: as many as chains that cover them (Dilworth
    1950)."""
    if len(operators) < 2:
        return len(operators)
    graph: nx.Graph[tuple[str, int]] = nx.Graph()
    before = [("before", place) for place in operators]
    graph.add_nodes_from(before)
    graph.add_nodes_from(("after", place) for place in operators)
    for place in operators:
        graph.add_edges_from(
            (("before", place), ("after", other))
            for other in members(order.after[place])
            if other in operators
        )
    matching = nx.bipartite.hopcroft_karp_matching(graph, before)
    return len(operators) - len(matching) // 2
