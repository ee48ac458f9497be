"""Reference answers of the course, computed by the program when they are asked for; none is stored.

Every function is given the folders in which traced graphs are kept and runs are written.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np

from Estimator.chips.accelerator import Dataflow
from Estimator.chips.systolic import SystolicTime, pipelined_time
from Estimator.devices.files import load_device
from Estimator.plans.pipeline.schedule import PipelineCosts
from Estimator.plans.pipeline.simulation import held_bytes, simulate
from Estimator.plans.results import Iteration
from GraphExtractor.graph import DTYPE_BYTES, Attention, Gemm, GraphKey, LayerGraph, Recompute
from GraphExtractor.storage import load_or_extract
from phaze import library
from phaze.runs.plan_files import evaluate_request
from phaze.settings.request import Request
from phaze.studies.evaluation import evaluated
from phaze.validation.intervals import interval, load_residuals
from phaze_common.choices import PipelineSchedule
from Solver.pareto import better_is_larger, nondominated
from Solver.paths.lattice import lattice_of
from Solver.paths.stage_graph import Stages
from Solver.paths.stage_tables import least_largest
from Solver.schedule.problem import CoreType, ScheduleProblem, ScheduleStructure
from Solver.schedule.registry import SOLVERS

MODEL, TOKENS, MICRO_BATCH = "gpt:layers=4,hidden=256,heads=4,vocabulary=1024", 128, 2
PRODUCT, ROWS, COLUMNS = (
    Gemm(batch=1, m=256, k=256, n=1024),
    128,
    64,
)  # a product, and the array that runs it
NARROW = Gemm(batch=1, m=16, k=1024, n=1024)  # a product that memory limits
DEVICE = "a100_80gb"
LAYERS_MS, STAGES = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3), 4  # a chain to be cut
FORWARD_MS, BACKWARD_MS, MICRO_BATCHES = (1.0, 1.0, 2.0, 1.0), (2.0, 2.0, 4.0, 2.0), 8
# Korthikanti et al. 2022 (arXiv 2205.05198), table 5, second row
MEASURED_S = 13.75
MEASURED_PLAN = {
    "model": "megatron-175b",
    "device": DEVICE,
    "tp": 8,
    "pp": 8,
    "interleave": 3,
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "recompute": "selective",
    "sequence_parallel": True,
    "attention": "eager",
    "precision": "fp16",
}
PREDICTED_S, NOMINAL = 10.0, 0.8


@dataclass(frozen=True)
class Chip:
    """A chip of an exercise: samples per second, mm2 and joules per sample."""

    name: str
    throughput: float
    area_mm2: float
    energy_j: float


CHIPS = (
    Chip("A", 100.0, 200.0, 0.050),
    Chip("B", 95.0, 210.0, 0.050),
    Chip("C", 95.0, 120.0, 0.070),
    Chip("D", 60.0, 30.0, 0.050),
    Chip("E", 60.0, 35.0, 0.048),
    Chip("F", 58.0, 30.0, 0.052),
)


@dataclass(frozen=True)
class Reference:
    """An answer, a number or names, and how it was computed."""

    value: float | frozenset[str]
    how: str


@dataclass(frozen=True)
class Folders:
    """Where traced graphs are kept, and where runs are written."""

    graphs: Path
    output: Path


def block(folders: Folders, attention: Attention = Attention.FLASH) -> LayerGraph:
    """The repeated block of the model of the course."""
    graph = load_or_extract(GraphKey(MODEL, MICRO_BATCH, TOKENS, 1, attention), folders.graphs)
    return graph.layers[graph.sequence[1]]


def parameters(folders: Folders) -> Reference:
    """Parameters of a block."""
    return Reference(
        block(folders).parameter_count, "those that torch counts in the block that was traced"
    )


def forward_flops(folders: Folders) -> Reference:
    """FLOPs of its matrix products forward."""
    return Reference(
        block(folders).forward.flops, "the sum over the operators of the traced forward pass"
    )


def backward_flops(folders: Folders) -> Reference:
    """Those backward, where a fused kernel makes the scores again."""
    return Reference(
        block(folders).backward.flops, "the sum over the operators of the traced backward pass"
    )


def saved_bytes(folders: Folders) -> Reference:
    """Bytes that an eager block keeps for its backward pass."""
    saved = block(folders, Attention.EAGER).saved.under(Recompute.NONE)
    return Reference(saved, "the storages that autograd kept in the traced block")


def product_time() -> SystolicTime:
    """Cycles of the product of the course on its array, weight-stationary and double-buffered."""
    gemm = PRODUCT
    return pipelined_time(
        Dataflow.WEIGHT_STATIONARY, gemm.batch, gemm.m, gemm.k, gemm.n, ROWS, COLUMNS
    )


def folds(_folders: Folders) -> Reference:
    """Folds of the product: what is left of its steady cycles where each streams one row."""
    one_row = pipelined_time(
        Dataflow.WEIGHT_STATIONARY,
        1,
        PRODUCT.m,
        PRODUCT.k,
        PRODUCT.n,
        ROWS,
        COLUMNS,
        rows_per_cycle=ROWS,
    )
    return Reference(
        float(one_row.steady) / PRODUCT.m,
        "steady cycles of Estimator/chips/systolic.py over those of a fold",
    )


def cycles(_folders: Folders) -> Reference:
    """Cycles of the product."""
    time = product_time()
    return Reference(
        float(time.steady + time.fill),
        f"{float(time.steady):,.0f} streaming and {float(time.fill):,.0f} to fill",
    )


def utilization(_folders: Folders) -> Reference:
    """Multiply-accumulates over what the array could have done in those cycles."""
    time = product_time()
    return Reference(
        PRODUCT.macs / float(time.steady + time.fill) / (ROWS * COLUMNS),
        "multiply-accumulates over cycles x cells",
    )


def ridge(_folders: Folders) -> Reference:
    """FLOPs per byte from which a product is limited by arithmetic, at the peaks of the data
    sheet."""
    device = load_device(DEVICE)
    peak, bandwidth = device.peak_flops("bfloat16"), device.memory.bandwidth.value
    return Reference(peak / bandwidth, f"{peak:.4g} FLOP/s over {bandwidth:.4g} bytes/s")


def intensity(_folders: Folders) -> Reference:
    """FLOPs per byte of the narrow product, its operands read and its result written once, in
    bf16."""
    elements = NARROW.m * NARROW.k + NARROW.k * NARROW.n + NARROW.m * NARROW.n
    return Reference(
        2 * NARROW.macs / (elements * DTYPE_BYTES["bfloat16"]),
        "FLOPs over bytes of two operands and a result",
    )


# milliseconds would do as well; a product on both tensor cores takes half as long
SCHEDULE = ScheduleProblem(
    ScheduleStructure(
        (CoreType.TC, CoreType.TC, CoreType.VC, CoreType.VC, CoreType.TC),
        ((0, 2), (1, 3), (2, 4), (3, 4)),
    ),
    single_latency_s=np.array([4.0, 4.0, 3.0, 3.0, 4.0]),
    all_latency_s=np.array([2.0, 2.0, 3.0, 3.0, 2.0]),
    num_tc=2,
    num_vc=1,
)


def critical_path(_folders: Folders) -> Reference:
    """The longest path, each operator at the faster of its ways."""
    fastest_s = np.minimum(SCHEDULE.single_latency_s, SCHEDULE.all_latency_s)
    graph: nx.DiGraph[int] = nx.DiGraph(SCHEDULE.structure.edges)
    weighted: nx.DiGraph[int] = nx.DiGraph()
    weighted.add_weighted_edges_from(
        (source, target, float(fastest_s[source])) for source, target in graph.edges
    )
    ends = [node for node in graph if not graph.out_degree(node)]
    weighted.add_weighted_edges_from(
        (node, len(fastest_s), float(fastest_s[node])) for node in ends
    )
    return Reference(float(nx.dag_longest_path_length(weighted)), "the longest path of networkx")


def makespan(_folders: Folders) -> Reference:
    """The shortest schedule, by every solver that can be used here.

    Raises:
        ValueError: they differ, which is a defect of ours.
    """
    usable = {
        name: solver
        for name, solver in SOLVERS.items()
        if solver.is_available() and solver.license_status().ok
    }
    found = {name: solver.solve(SCHEDULE).makespan_s for name, solver in usable.items()}
    if max(found.values()) - min(found.values()) > 1e-6:
        raise ValueError(f"the solvers differ: {found}")
    return Reference(
        min(found.values()),
        f"{', '.join(found)} agree; the ILP is that of Gurobi and HiGHS, native is combinatorial",
    )


def pipeline_s(
    forward_s: tuple[float, ...], backward_s: tuple[float, ...], micro_batches: int
) -> float:
    """Seconds of a 1F1B pipeline without transfers."""
    none = np.zeros(len(forward_s) - 1)
    costs = PipelineCosts(
        len(forward_s),
        np.array(forward_s),
        np.array(backward_s),
        none,
        none,
        overlap_transfers=True,
    )
    return float(simulate(costs, PipelineSchedule.ONE_F_ONE_B, micro_batches).max())


def bubble(_folders: Folders) -> Reference:
    """Part of an iteration that a stage of four alike waits with eight micro-batches."""
    whole_s = pipeline_s((1.0,) * 4, (2.0,) * 4, MICRO_BATCHES)
    return Reference(
        1.0 - 3.0 * MICRO_BATCHES / whole_s,
        f"a simulated pipeline takes {whole_s:g}, of which a stage works 24",
    )


def unequal(_folders: Folders) -> Reference:
    """Milliseconds of a pipeline with a slow stage."""
    whole_ms = pipeline_s(FORWARD_MS, BACKWARD_MS, MICRO_BATCHES)
    return Reference(whole_ms, "the longest path through all passes")


def in_flight(_folders: Folders) -> Reference:
    """Micro-batches whose activations the second of four stages holds at most."""
    most = held_bytes(np.ones(4), 4, PipelineSchedule.ONE_F_ONE_B, MICRO_BATCHES)
    return Reference(
        float(most[1]), f"most held by each stage: {', '.join(f'{each:g}' for each in most)}"
    )


def cut(_folders: Folders) -> Reference:
    """The largest stage of the best cut of a chain: the search's dynamic program, and brute force
    over all cuts.

    Raises:
        ValueError: they differ, which is a defect of ours.
    """
    best = min(
        _largest(cuts) for cuts in itertools.combinations(range(1, len(LAYERS_MS)), STAGES - 1)
    )
    lattice = lattice_of(len(LAYERS_MS), tuple(itertools.pairwise(range(len(LAYERS_MS)))))
    whole, nodes = lattice.whole, len(lattice.members)
    stages_ms = (lattice.members[whole] & ~lattice.members[lattice.part]) @ np.array(
        LAYERS_MS, dtype=np.float64
    )
    edges, to_end, from_start = np.arange(len(whole)), np.full(nodes, -1), np.full(nodes, -1)
    to_end[whole[lattice.part == 0]] = edges[lattice.part == 0]
    from_start[lattice.part[whole == nodes - 1]] = edges[whole == nodes - 1]
    depth = lattice.members.sum(axis=1)
    ends = whole, lattice.part, to_end, from_start
    stages = Stages(lattice.first, *ends, depth, chain=lattice.chain, kind=edges)
    least = np.empty((STAGES, nodes))
    least_largest(stages, stages_ms, least)
    if least[-1, -1] != best:
        raise ValueError(f"the dynamic program says {least[-1, -1]}, brute force {best}")
    count = len(list(itertools.combinations(range(1, len(LAYERS_MS)), STAGES - 1)))
    return Reference(float(best), f"the dynamic program and brute force over {count} cuts agree")


def _largest(cuts: tuple[int, ...]) -> int:
    bounds = (0, *cuts, len(LAYERS_MS))
    return max(sum(LAYERS_MS[first:stop]) for first, stop in itertools.pairwise(bounds))


def course_study(output: Path | None = None) -> Request:
    """The search of the course."""
    return library.study(
        model=MODEL,
        sequence_length=TOKENS,
        micro_batch_size=[1, MICRO_BATCH],
        recompute="none",
        output=None if output is None else str(output),
    )


def space(_folders: Folders) -> Reference:
    """Design points of the search of the course."""
    size = library.space_size(course_study())
    how = (
        f"{size.configurations:,} accelerators x {size.memory_sizes} HBM size x {size.shapes} "
        "shapes of plans"
    )
    return Reference(size.points, how)


def front(_folders: Folders) -> Reference:
    """Chips that no other one dominates."""
    columns = np.array([(each.throughput, each.area_mm2, each.energy_j) for each in CHIPS]).T
    kept = nondominated(better_is_larger(*columns))
    names = frozenset(each.name for each, stays in zip(CHIPS, kept, strict=True) if stays)
    return Reference(names, "Solver/pareto.py over throughput, area and energy")


def certificate(folders: Folders) -> Reference:
    """The most that any design point which was closed by a bound could reach, in samples per
    second; it searches."""
    result = library.run_solver(course_study(folders.output))
    designs = library.open_run(result.run_directory).designs
    of_pruned = designs.loc[designs["status"] == "pruned", "throughput_bound_samples_per_s"]
    return Reference(
        float(of_pruned.max()),
        f"{len(of_pruned)} pruned rows of designs.parquet in {result.run_directory}",
    )


def measured_iteration(folders: Folders) -> Iteration:
    """What is predicted of the measured run of the course."""
    output = (
        {"output": str(folders.graphs.parents[1])}
        if folders.graphs.parent.name == "GraphExtractor"
        else {}
    )
    return evaluated(evaluate_request(None, MEASURED_PLAN | output)).iteration


def utilization_of_run(folders: Folders) -> Reference:
    """Model FLOPs utilisation of a measured run, all scores of attention counted."""
    found = measured_iteration(folders)
    value = found.all_scores_flops_utilization * found.iteration_s / MEASURED_S
    return Reference(
        value, "FLOPs of the traced graph over the peak of 64 devices in the measured time"
    )


def error(folders: Folders) -> Reference:
    """By what part the prediction is longer than what was measured."""
    found = measured_iteration(folders)
    return Reference(
        found.iteration_s / MEASURED_S - 1.0,
        f"{found.iteration_s:.4g} s predicted, {MEASURED_S} s measured",
    )


def upper_end(_folders: Folders) -> Reference:
    """Until when a run predicted to take ten seconds is measured with 80 % certainty.

    Raises:
        ValueError: too few sources ship.
    """
    found = interval(load_residuals(), None, NOMINAL)
    if found is None:
        raise ValueError("there are too few sources of measured runs for an interval")
    return Reference(
        found.high * PREDICTED_S,
        f"{found.low * PREDICTED_S:.4g} to {found.high * PREDICTED_S:.4g} s: {found.reasons[0]}",
    )
