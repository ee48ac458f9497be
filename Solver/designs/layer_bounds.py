"""What layers take at least on many chips, layer by layer, from prices that may be bounds
themselves; nothing is scheduled.

Between sums of whole models (``Solver.designs.least_work``) and schedules: every pass of every
layer has a bound of its own, so that plans can be bounded by the stages that they make of unequal
layers. The weights are those of ``Solver.schedule.concurrency``, by chip and by operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from Estimator.chips.latency_table import LatencyTable, OperatorTimes
from Estimator.chips.least_prices import least_table
from Estimator.plans.groups import LayerGroups
from GraphExtractor.graph import GraphKey, ModelGraph, OperatorGraph
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.recompute_modules import Recomputation
from Solver.designs.layer_times import chip_layer_costs
from Solver.designs.network_times import PassNetwork, schedule_structure
from Solver.designs.schedule_times import GraphTimes, ScheduledGraph, over_passes
from Solver.hardware import DesignedChips, PricedGraph
from Solver.schedule.concurrency import concurrency_of, longest_chain
from Solver.schedule.problem import CoreType, ScheduleStructure
from Solver.schedule.solver import NodeLimit
from Solver.schedule.structure import closure, members

NEGLIGIBLE = (0.0, 0.05, 0.25)  # of the longest operator of a pass


@dataclass(frozen=True, eq=False)
class BoundedChips(DesignedChips):
    """Chips whose layers cost what no schedule is below, at peak rates and compulsory traffic."""

    _tables: dict[GraphKey, LatencyTable] = field(default_factory=dict)

    @classmethod
    def of(cls, chips: DesignedChips) -> BoundedChips:
        """``chips`` as they are bounded."""
        platform, solver = chips.platform, chips.solver
        return cls(
            chips.accelerators, platform, chips.cluster, chips.software, solver, space=chips.space
        )

    def price(
        self,
        graph: ModelGraph,
        modes: Sequence[Recomputation],
        groups: LayerGroups,
        folder: Path | None,
    ) -> PricedGraph:
        """Bounds of the layer costs of ``graph``; nothing is kept in ``folder``."""
        if graph.key not in self._tables:
            self._tables[graph.key] = least_table(graph, self.accelerators, self.platform)
        table = self._tables[graph.key]
        network = self._network(graph, groups)
        scheduled = ScheduledGraph(
            graph, table, network, self.solver, None, least_times(graph, table, network)
        )
        costs = {mode: chip_layer_costs(scheduled, mode, least=True) for mode in modes}
        return PricedGraph(costs, costs)


def least_times(graph: ModelGraph, table: LatencyTable, network: PassNetwork) -> GraphTimes:
    """What no schedule of a pass goes below on the chips of ``table``, seconds and joules apart."""
    chips = table.accelerators

    def least_pass(operators: OperatorGraph, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        each = enumerate(operators.operators)
        waiting = frozenset(place for place, one in each if one.collective is not None)
        structure = schedule_structure(operators)
        times = network.operator_times(operators, table, rows)
        cores = chips.num_tc[rows], chips.num_vc[rows]
        joules = np.minimum(times.all_j, times.single_j).sum(axis=1)
        return least_makespan_s(structure, waiting, times, *cores), joules

    seconds, joules = over_passes(graph.layers, 2, np.arange(len(chips)), least_pass)
    node_limit = np.full((len(chips), 1), NodeLimit.FIRST, np.int8)
    return GraphTimes(seconds, seconds, joules, joules, node_limit)


def least_makespan_s(
    structure: ScheduleStructure,
    waiting: frozenset[int],
    times: OperatorTimes,
    num_tc: IntArray,
    num_vc: IntArray,
) -> FloatArray:
    """The least seconds of any schedule, (chips,): ``sum_i l'_i / X_i`` of
    ``Solver.schedule.concurrency``, ``X_i`` of each operator.

    Operators of ``waiting`` are collectives, of which no more run at once than there are vector
    cores; all of them are counted and, where that is more, one chain of them. An operator of no
    weight takes no part of what others hold: so short ones are left out, by several thresholds,
    where that makes the bound larger."""
    least_s = np.minimum(times.all_s, times.single_s)
    chain = longest_chain(structure, {place: float(least_s[:, place].mean()) for place in waiting})
    best_s = np.zeros(len(least_s))
    for counted in dict.fromkeys((waiting, chain)):
        taken_s = least_s.copy()
        taken_s[:, sorted(waiting - counted)] = 0.0
        cores = times.single_s, num_tc, num_vc
        sum_s = _least_sum_s(structure, waiting, counted, taken_s, *cores)
        best_s = np.maximum(best_s, sum_s)
    return best_s


def _least_sum_s(
    structure: ScheduleStructure,
    waiting: frozenset[int],
    counted: frozenset[int],
    least_s: FloatArray,
    single_s: FloatArray,
    num_tc: IntArray,
    num_vc: IntArray,
) -> FloatArray:
    share = np.divide(least_s, single_s, out=np.zeros_like(least_s), where=single_s > 0.0)
    order, around = closure(structure), concurrency_of(structure, waiting, counted)
    tensor = np.array([each is not CoreType.VC for each in structure.core_types])
    limits = ("tensor", num_tc), ("vector", num_vc), ("waiting", num_vc)
    kinds = np.where(tensor, 0, np.where([place in waiting for place in range(len(tensor))], 2, 1))
    places = (sorted(members(order.parallel(place))) for place in range(len(around)))
    parallel = [np.array(others, dtype=np.int64) for others in places]
    beside_it = [
        [others[kinds[others] == kind] for kind in range(len(limits))] for others in parallel
    ]
    counts = [
        np.minimum(np.stack([getattr(each, name) for each in around])[:, None], cores)
        for name, cores in limits
    ]
    longest_s, best_s = least_s.max(axis=1, keepdims=True), np.zeros(len(least_s))
    for negligible in NEGLIGIBLE:
        taken = (least_s > 0.0) & (least_s >= negligible * longest_s)
        weights, total_s = np.where(taken, share, 0.0), np.zeros(len(least_s))
        for place in range(len(around)):
            held = weights[:, place].copy()
            for kind, mine in enumerate(beside_it[place]):
                if len(mine):
                    held += np.maximum(counts[kind][place] - (kinds[place] == kind), 0) * weights[
                        :, mine
                    ].max(axis=1)
            total_s += np.where(taken[:, place], least_s[:, place] / np.maximum(held, 1.0), 0.0)
        best_s = np.maximum(best_s, total_s)
    return best_s
