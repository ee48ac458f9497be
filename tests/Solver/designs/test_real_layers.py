"""Layers of real models as ILPs: within gurobipy's bundled licence, and in agreement with the
native solver."""

import numpy as np
import pytest

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.latency_table import populate_estimates
from Estimator.hardware_files import load_cluster
from Estimator.plans.results import Status
from GraphExtractor import extract
from GraphExtractor.graph import GraphKey, KeyExchange, TensorLayout
from Solver.designs.schedule_times import schedule_problem
from Solver.schedule import check_schedule, confirm_with_ilp, solver_named
from tests.builders.operators_by_hand import innermost_network

CHIPS = (
    Accelerator(
        num_tc=32, num_vc=256, width=64, depth=128, width_vc=64, glb_bytes=4 * 2**20, area_mm2=0.0
    ),
    Accelerator(
        num_tc=8, num_vc=64, width=128, depth=128, width_vc=128, glb_bytes=32 * 2**20, area_mm2=0.0
    ),
)


TWO_D = {"layout": TensorLayout.TWO_D, "tp2": 2, "exchange": KeyExchange.RING}
RING = {"cp": 4, "exchange": KeyExchange.RING, "sequence_parallel": True}
LAYERS = [("bertlarge", 1, {}), ("gpt2", 1, {}), ("llama2", 1, {}), ("megatrongpt3", 8, {})]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "tp", "layout"), [*LAYERS, ("gpt3-125m", 2, TWO_D), ("gpt3-125m", 2, RING)]
)
def test_every_layer_fits_the_bundled_licence_and_gurobi_agrees(model, tp, layout):
    platform, cluster = load_design_space("phaze_icml24").platform, load_cluster("phaze_icml24")
    accelerators, network = AcceleratorSet.of(CHIPS), innermost_network(cluster)
    graph = extract.extract_graph(GraphKey(model, 1, 512, tp, **layout))
    table = populate_estimates([graph], accelerators, platform)
    for layer in graph.layers:
        for operators in (layer.forward, layer.backward):
            for row in range(len(accelerators)):
                problem = schedule_problem(operators, table, row, network)
                native = solver_named("native").solve(problem)
                ilp = confirm_with_ilp(problem, native)
                check_schedule(problem, native)
                check_schedule(problem, ilp)
                assert (ilp.solver, ilp.status, native.status) == (
                    "gurobi",
                    Status.OPTIMAL,
                    Status.OPTIMAL,
                )
                assert ilp.makespan_s == pytest.approx(native.makespan_s, rel=1e-6)
                serial_s = np.minimum(problem.single_latency_s, problem.all_latency_s).sum()
                assert native.makespan_s <= serial_s * (1 + 1e-9)
