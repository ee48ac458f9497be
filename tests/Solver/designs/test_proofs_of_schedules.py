"""Schedules under a larger limit: what is proven stays as it is, and only the rest is solved."""

import dataclasses

import numpy as np
import pytest

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.latency_table import populate_estimates
from Solver.designs.network_times import PassNetwork
from Solver.designs.schedule_times import scheduled_graph
from Solver.schedule.native import NativeSolver
from Solver.schedule.solver import NodeLimit
from tests.builders.operators_by_hand import model_graph

CHIPS = AcceleratorSet.of(
    [Accelerator(2**place, 4, 64, 64, 64, 8 << 20, 0.0) for place in range(4)]
)


class HalfProving(NativeSolver):
    """Proves chips with more than two tensor cores at once, the others under a larger limit; says
    which it was asked for."""

    name = "half"

    def __init__(self) -> None:
        self.asked: list[tuple[NodeLimit, list[int]]] = []

    def solve_batch(self, structure, single_s, all_s, num_tc, num_vc, node_limit):  # type: ignore[no-untyped-def]
        self.asked.append((node_limit, num_tc.tolist()))
        solved = super().solve_batch(structure, single_s, all_s, num_tc, num_vc)
        longer = np.where((num_tc <= 2) & (node_limit is NodeLimit.FIRST), 1.1, 1.0)
        return dataclasses.replace(solved, makespan_s=solved.makespan_s * longer)


def test_only_what_is_not_proven_is_solved_again() -> None:
    graph, solver = model_graph(), HalfProving()
    platform, every = load_design_space("phaze_icml24").platform, np.arange(len(CHIPS))
    table = populate_estimates([graph], CHIPS, platform)
    what = graph, table, PassNetwork(lambda collective: 1e-5)
    first = scheduled_graph(*what, solver, None)
    solver.asked.clear()
    better = first.refined(every, NodeLimit.SHORT)
    assert solver.asked and all(
        asked == (NodeLimit.SHORT, [1, 2]) for asked in solver.asked
    )  # in whatever pass
    proven = scheduled_graph(*what, NativeSolver(), None)
    for name in ("seconds", "least_s", "joules", "least_joules"):
        found, expected = getattr(better.times, name), getattr(proven.times, name)
        assert found == pytest.approx(expected, rel=1e-12), name
    assert (better.times.node_limit[:2] == NodeLimit.SHORT).all()
    assert better.refined(every, NodeLimit.THOROUGH) is better
