"""One plan, priced: what an evaluation found of the plan of a request."""

from dataclasses import dataclass, replace
from pathlib import Path

from Estimator.coverage import PricedByBytes, check_functions
from Estimator.plans.cuts import chunk_layers
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import layer_groups
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import check_stages, placed_stages, stage_degrees
from Estimator.plans.heterogeneous.pricing import PricedStages
from Estimator.plans.iteration import iteration_of, price_iteration
from Estimator.plans.layer_costs import LayerCosts, layer_names
from Estimator.plans.placement import Placement, placement_of, used_part
from Estimator.plans.plan import Plan, check_cluster, check_plan, with_own_degrees
from Estimator.plans.rates import Machine
from Estimator.plans.results import Iteration, TimeInterval
from Estimator.plans.unused_settings import unused_settings
from Estimator.profiled.sources import SourceCounts
from GraphExtractor.graph import ModelGraph, Recompute
from GraphExtractor.models.registry import find_model
from GraphExtractor.storage import load_or_extract
from phaze.settings.problem import hardware_of, hardware_report, memory_sizes, single_plan
from phaze.settings.request import Request, StatedChunks, StatedStages
from phaze.studies.prediction_errors import time_intervals
from phaze_common.errors import InputError
from Solver.results import HardwareReport


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A plan on a machine, by its ``degrees`` too (None: stages differ), and its iteration.

    ``price_sources`` say how much was measured, of hardware that was profiled, ``placement`` where
    the groups of a plan lie whose stages are alike, ``by_bytes`` what no formula describes. Graphs
    are kept below ``output``, as of a request.
    """

    plan: Plan
    degrees: UniformPlan | None
    hardware: HardwareReport
    machine: Machine
    iteration: Iteration
    price_sources: SourceCounts | None = None
    placement: Placement | None = None
    by_bytes: tuple[PricedByBytes, ...] = ()
    output: Path | None = None
    without_effect: tuple[str, ...] = ()  # settings that are about nothing the plan has, and why

    @property
    def time_intervals(self) -> tuple[TimeInterval, ...]:
        """How sure the time of an iteration is."""
        found, records = self.iteration, self.hardware.records
        return time_intervals(records, self.plan.model, found.site_devices, found.iteration_s)

    @property
    def offloads(self) -> bool:
        """Whether anything is in host memory."""
        return any(stage.degrees.offload for stage in self.plan.stages)

    @property
    def uniform(self) -> UniformPlan:
        """``degrees`` of a plan of stages alike.

        Raises:
            ValueError: its stages differ.
        """
        if self.degrees is None:
            raise ValueError("the stages of the plan differ")
        return self.degrees


@dataclass(frozen=True, eq=False)
class PreparedPlan:
    """A plan with what its layers cost: ready to be priced, also with other batch sizes."""

    degrees: UniformPlan
    costs: LayerCosts
    machine: Machine
    price_sources: SourceCounts | None = None
    placement: Placement | None = None
    by_bytes: tuple[PricedByBytes, ...] = ()


def evaluated(request: Request) -> Evaluation:
    """Time and memory of one iteration; extracts the training graph where it is not on disk.

    Raises:
        InputError: the plan contradicts the model, the device or the cluster.
    """
    if request.stages is not None:
        return _of_stages(request, request.stages)
    return evaluation_of(request, prepared(request))


def _of_stages(request: Request, stated: StatedStages) -> Evaluation:
    """A plan whose stages differ, priced."""
    hardware, plan = hardware_of(request), stated.plan
    machine = hardware.machine(0, float(memory_sizes(request)[0]))
    graphs = []
    for stage in plan.stages:
        key = stage_degrees(plan, stage).graph_key(plan.model, plan.sequence_length)
        graphs.append(load_or_extract(key, request.folders.graphs, code=request.code))
    check_functions(graphs, hardware.known_functions, strict=request.search.strict)
    try:
        stages = placed_stages(plan, layer_names(graphs[0]))
        check_stages(stages, hardware.cluster)
        layers = []
        for placed, graph in zip(stages, graphs, strict=True):
            groups = layer_groups(placed.degrees, hardware.cluster, placed.first_device)
            modes = (Recompute.NONE, placed.degrees.recompute)
            proven = (hardware.proven(graph, mode, groups) for mode in modes)
            kept, repeated = (hardware.attributed(each, groups, 0) for each in proven)
            layers.append(RecomputableLayers(kept, repeated))
        iteration = iteration_of(PricedStages(stages, layers, machine))
    except InputError as error:
        raise InputError(f"{stated.source}: {error}") from error
    iteration = replace(iteration, stages=with_own_degrees(plan, iteration.stages))
    found = Evaluation(plan, None, hardware_report(request), machine, iteration)
    return replace(found, output=request.output.output)


def prepared(request: Request) -> PreparedPlan:
    """The plan of ``request`` and its costs; extracts the training graph where it is not on disk.

    Raises:
        InputError: the plan contradicts the model, the device or the cluster.
    """
    hardware, model = hardware_of(request), request.workload.models[0].name
    degrees = single_plan(request)
    check_plan(degrees)
    check_cluster(degrees, hardware.cluster)
    caps = None if request.hardware.max_cluster_cost is None else hardware.metrics.caps
    if caps is not None and degrees.devices > caps[0]:
        raise InputError(
            f"the plan uses {degrees.devices:,} devices, and max_cluster_cost buys at most "
            f"{caps[0]:,} of this chip; give more, or lower tp, pp, cp or dp"
        )
    key = degrees.graph_key(model, request.workload.sequence_length[0])
    graph = load_or_extract(key, request.folders.graphs, code=request.code)
    if request.chunk_layers is not None:
        degrees = _as_stated(request, request.chunk_layers, degrees, graph)
    check_functions([graph], hardware.known_functions, strict=request.search.strict)
    used = hardware.cluster
    if request.chunk_layers is None:  # else a search has placed it
        used = used_part(degrees, hardware.cluster)
    placement = placement_of(degrees, hardware.cluster, used)
    hardware = hardware if used == hardware.cluster else hardware.in_cluster(used)
    groups = layer_groups(degrees, used)
    costs = hardware.attributed(hardware.proven(graph, degrees.recompute, groups), groups, 0)
    sources = hardware.source_counts(graph, degrees.recompute)
    by_bytes = hardware.by_bytes(graph, degrees.recompute)
    machine = hardware.machine(0, float(memory_sizes(request)[0]))
    return PreparedPlan(degrees, costs, machine, sources, placement, by_bytes)


def evaluation_of(request: Request, plan: PreparedPlan) -> Evaluation:
    """``plan``, which is that of ``request``, priced."""
    graph, degrees, model = plan.costs.graph, plan.degrees, request.workload.models[0].name
    iteration = price_iteration(degrees, plan.costs, plan.machine)
    names = layer_names(graph)
    chunks = tuple(tuple(names[layer] for layer in chunk) for chunk in chunk_layers(degrees, graph))
    whole = Plan.uniform(degrees, model, request.workload.sequence_length[0], chunks)
    on_machine = hardware_report(request), plan.machine, iteration
    of_costs = plan.price_sources, plan.placement, plan.by_bytes
    experts, software = find_model(model).experts, plan.machine.software
    unused = tuple(unused_settings(degrees, graph, software, experts))
    found = Evaluation(whole, degrees, *on_machine, *of_costs, without_effect=unused)
    return replace(found, output=request.output.output)


def _as_stated(
    request: Request, stated: StatedChunks, degrees: UniformPlan, graph: ModelGraph
) -> UniformPlan:
    """``degrees`` with the layers of each chunk that a file states.

    Raises: InputError: they are not those of the model, or in an order in which they cannot run;
        names the file.
    """
    workload = request.workload
    plan = Plan.uniform(
        degrees, workload.models[0].name, workload.sequence_length[0], stated.layers
    )
    try:
        held = plan.as_uniform(layer_names(graph))
        chunk_layers(held, graph)
    except InputError as error:
        raise InputError(f"{stated.source}: {error}") from error
    return held
