"""How much of a layer pass may run at once, whatever operators take: what makes sums of prices a bound of makespans.

Give operator i the weight ``rho_i = e_i / X_i``, where ``e_i >= l'_i / l_i`` (all cores over one) and ``X_i`` is at least the sum
of the ``e_j`` of any operators that can run on single cores at one instant together with i. The weights of any such set sum to at
most 1, so by ``Solver.schedule.bounds``

    makespan >= sum_i min(l'_i, rho_i l_i) >= sum_i l'_i / X_i.

``X_i`` needs only how many operators of each core type may run beside i (``Beside``), so that a million chips are bounded by a
few sums of the prices of their cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import networkx as nx

from Solver.schedule.problem import CoreType, ScheduleStructure
from Solver.schedule.structure import Order, closure, members


@dataclass(frozen=True)
class Beside:
    """The most operators of each kind that may run at one instant with an operator, itself among them.

    ``tensor`` occupy tensor cores, ``vector`` vector cores alone, ``waiting`` (collectives) a vector core for a time that no
    cores shorten.
    """

    tensor: int
    vector: int
    waiting: int

    @property
    def alone(self) -> bool:
        """Whether nothing can run beside the operator."""
        return self.tensor + self.vector + self.waiting <= 1


@lru_cache(maxsize=1024)
def beside(structure: ScheduleStructure, waiting: frozenset[int]) -> tuple[Beside, ...]:
    """Of every operator what may run beside it; those of ``waiting`` are collectives."""
    order = closure(structure)
    on_tensor = {place for place, kind in enumerate(structure.core_types) if kind is not CoreType.VC}
    found = []
    for place in range(len(order)):
        mask = order.parallel(place) | 1 << place
        at_once = set(members(mask))
        kinds = (at_once & on_tensor, at_once - on_tensor - waiting, at_once & waiting)
        found.append(Beside(*(_largest_antichain(order, kind) for kind in kinds)))
    return tuple(found)


def _largest_antichain(order: Order, operators: set[int]) -> int:
    """The most pairwise parallel ones of ``operators``: as many as chains that cover them (Dilworth 1950)."""
    if len(operators) < 2:
        return len(operators)
    graph: nx.Graph[tuple[str, int]] = nx.Graph()
    before = [("before", place) for place in operators]
    graph.add_nodes_from(before)
    graph.add_nodes_from(("after", place) for place in operators)
    for place in operators:
        graph.add_edges_from((("before", place), ("after", other)) for other in members(order.after[place]) if other in operators)
    matching = nx.bipartite.hopcroft_karp_matching(graph, before)
    return len(operators) - len(matching) // 2
