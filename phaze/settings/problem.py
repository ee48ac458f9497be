"""A request as the searches read it: hardware, and the plans that are compared for every model."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.plans.assignment import Assignment, tier_capacities
from Estimator.plans.axes import PLAN_AXES, PlanAxis
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import offload_of, offloads_searched
from Estimator.plans.state_formats import FORMAT_KEYS, StateFormats
from Estimator.profiled.machine import profile_folder
from GraphExtractor import storage
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.registry import find_model
from phaze.settings.designed_chips import design_space_of, designed_accelerators
from phaze.settings.hardware import CHIP_SOFTWARE
from phaze.settings.layouts import other_layouts
from phaze.settings.request import Request
from phaze_common.choices import (
    Combine,
    ExpertWidth,
    FrontAxis,
    LayoutName,
    PipelineSchedule,
    StageCuts,
)
from phaze_common.numbers import number
from phaze_common.setting_fields import Mode
from Solver.designs.search_criteria import USUAL
from Solver.hardware import DesignedChips, ExistingDevice, Hardware
from Solver.plans.space import COMBINED, PlanSpace
from Solver.problem import ModelProblem, SearchProblem
from Solver.results import HardwareRecords, HardwareReport, SpaceSize
from Solver.schedule import solver_named

logger = logging.getLogger(__name__)
DESIGNED = "designed accelerators"  # what plans run on where no chip or device was given

# axes of which a plan has something else than a request
MADE_OF_SETTINGS = frozenset(
    {"layout", "offload", "schedule", "optimizer", "stage_layers", *FORMAT_KEYS}
)
# whole chips, of more of which a front is certified only where it is asked for
MOST_WITH_FRONT = 20_000
OF_WHOLE_CHIPS = (FrontAxis.THROUGHPUT, FrontAxis.COST)


def search_problem(request: Request) -> SearchProblem:
    """The problem of ``request``, of which the best is asked alone."""
    return SearchProblem(
        name=request.output.name,
        models=tuple(
            ModelProblem(model.name, model.weight, plan_space(request, model.name))
            for model in request.workload.models
        ),
        memory_bytes=memory_sizes(request),
        objective=request.search.objective,
        combine=request.search.combine or Combine.MEAN,
        strict=request.search.strict,
        force_reextract=request.output.force_reextract_model,
        code=request.code,
    )


def front_of(request: Request, hardware: Hardware) -> tuple[FrontAxis, ...]:
    """The axes of the front that is certified: as specified, else the usual; empty: none."""
    if request.hardware.space_part is not None:
        return ()
    if request.search.front is not None:
        return () if FrontAxis.NONE in request.search.front else request.search.front
    if request.on_devices:
        return (FrontAxis.THROUGHPUT,)
    if hardware.metrics.memory_bytes is None:
        return USUAL.front
    if hardware.configurations <= MOST_WITH_FRONT:
        return OF_WHOLE_CHIPS
    message = "no Pareto front of %s chips is certified unless it is asked for, as --front %s"
    logger.info(message, number(hardware.configurations), FrontAxis.COST)
    return ()


def memory_sizes(request: Request) -> tuple[int, ...]:
    """Bytes of memory that a device may have."""
    device, space, chip = request.records.device, request.records.space, request.records.chip
    if device is not None:
        return (round(device.memory.capacity.value),)
    labels = () if space is None else space.axes.memory or ()
    if chip is not None and chip.memory_system is not None:
        labels = (chip.memory_system,)
    if space is None or not labels:
        return request.hardware.hbm_sizes_bytes
    return tuple(sorted({space.platform.memory(label).capacity_bytes for label in labels}))


def plan_space(request: Request, model: str) -> PlanSpace:
    """The plans that ``request`` compares for ``model``; only models with experts divide them."""
    cluster = request.records.cluster
    return PlanSpace(
        devices=request.hardware.devices,
        use_all_devices=request.search.use_all_devices,
        whole_micro_batches=request.search.whole_micro_batches,
        base=UniformPlan(
            **shared_settings(request, (each for each in PLAN_AXES if not each.field.holds_many)),
            optimizer=request.plan.optimizer.value,
            state_formats=state_formats(request),
        ),
        sequence_length=request.sequence_length_of(model),
        tp_widths=request.plan.tp
        if LayoutName.ONE_D in request.plan.layout or LayoutName.AUTO in request.plan.layout
        else (),
        micro_batch_sizes=request.plan.micro_batch_size,
        recompute=request.plan.recompute,
        sequence_parallel=request.plan.sequence_parallel,
        cp_degrees=request.plan.cp if request.plan.layout == (LayoutName.ONE_D,) else (1,),
        layouts=other_layouts(request, model),
        ep_degrees=request.plan.ep if find_model(model).experts else (1,),
        expert_widths=request.plan.etp if find_model(model).experts else (ExpertWidth.SAME,),
        pp_degrees=request.plan.pp,
        dp_degrees=request.plan.dp,
        interleave=request.plan.interleave,
        zero_stages=request.plan.zero_stage,
        group_orders=tuple(
            order.over(len(cluster.tiers)) if isinstance(order, Assignment) else order
            for order in request.plan.group_order
        ),
        capacities=tier_capacities(cluster, request.hardware.devices),
        overlap_gradients=request.plan.overlap_gradients,
        overlap_tensor=request.plan.overlap_tensor,
        further=(
            *((each.key, getattr(request.plan, each.key)) for each in PLAN_AXES if _further(each)),
            ("offload", offloads_searched(request.plan.offload or ())),
        ),
    )


def _further(axis: PlanAxis) -> bool:
    """Whether a search lists the values of an axis with those of all others."""
    return axis.decides_layer_costs and axis.field.holds_many and axis.key not in COMBINED


def hardware_of(request: Request) -> Hardware:
    """The hardware of ``request``: its device, or the accelerators it compares.

    Raises:
        InputError: a file of accelerators is not readable, or the design space has none.
    """
    records = request.records
    if records.device is not None:
        return ExistingDevice(
            records.device, records.cluster, records.software, request.plan.precision
        )
    space, solver = design_space_of(request), solver_named(request.search.solver)
    accelerators = designed_accelerators(request)
    references = () if request.hardware.space_part else space.references
    return DesignedChips(
        accelerators, space.platform, records.cluster, records.software, solver, references, space
    )


def hardware_report(request: Request) -> HardwareReport:
    """The hardware of ``request``, by name and by value."""
    device = request.records.device
    return HardwareReport(
        title=_title(request),
        device=request.hardware.device,
        accelerator=request.records.chip,
        memory_bytes=float(max(memory_sizes(request))),
        cluster=request.hardware.cluster
        if profile_folder(request.hardware.cluster) is None
        else request.records.cluster.name,
        software=request.hardware.software or CHIP_SOFTWARE,
        design_space=request.hardware.design_space,
        records=HardwareRecords(
            cluster=request.records.cluster,
            software=request.records.software,
            device=device,
            space=request.records.space,
            solver=request.search.solver.value,
        ),
    )


def chips_of(request: Request, accelerators: Sequence[Accelerator]) -> DesignedChips:
    """Some accelerators of the design space, in its order, as hardware to compare."""
    records, space = request.records, design_space_of(request)
    chips = AcceleratorSet.of(sorted(accelerators, key=space.place))
    solver = solver_named(request.search.solver)
    return DesignedChips(
        chips, space.platform, records.cluster, records.software, solver, space.references, space
    )


def _title(request: Request) -> str:
    if request.records.device is not None:
        title, software = request.records.device.title, request.records.software
        if request.hardware.attention_kernel is None:
            return title
        return f"{title} with attention {software.attention_kernel}"
    if request.hardware.chip is None:
        return DESIGNED
    return "accelerator" if "/" in request.hardware.chip else request.hardware.chip


def shared_settings(request: Request, axes: Iterable[PlanAxis]) -> dict[str, Any]:
    """The first or only value of those ``axes`` that plans and requests have alike, by name."""
    found = {
        each.key: getattr(request.plan, each.key)
        for each in axes
        if each.key not in MADE_OF_SETTINGS
    }
    return {key: value[0] if isinstance(value, tuple) else value for key, value in found.items()}


def single_plan(request: Request) -> UniformPlan:
    """The one plan of a request to evaluate."""
    return UniformPlan(
        **shared_settings(request, PLAN_AXES),
        layout=request.plan.layout[0].axes,
        gpipe=request.plan.schedule is PipelineSchedule.GPIPE,
        optimizer=request.plan.optimizer.value,
        stage_layers=request.plan.stage_layers,
        offload=offload_of(request.plan.offload or ()),
        state_formats=state_formats(request),
    )


def state_formats(request: Request) -> StateFormats:
    """Number formats of training state that ``request`` states."""
    formats = {key: getattr(request.plan, key) for key in FORMAT_KEYS}
    return StateFormats(**{key: value for key, value in formats.items() if value is not None})


def check_code(request: Request) -> None:
    """Refuse what needs code that may not be run, before anything is said or done.

    Raises:
        InputError: as ``GraphExtractor.storage.check_code``.
    """
    if request.mode is Mode.SEARCH:
        keys = [key for keys in graph_keys(request) for key in keys]
    else:
        model, length = request.workload.models[0].name, request.workload.sequence_length[0]
        keys = [single_plan(request).graph_key(model, length)]
    storage.check_code(
        keys, request.folders.graphs, request.code, force=request.output.force_reextract_model
    )


def graph_keys(request: Request) -> list[tuple[GraphKey, ...]]:
    """The graphs that a search needs, by model."""
    problem = search_problem(request)
    return [
        tuple(dict.fromkeys(model.graph_key(shape) for shape in model.space.shapes()))
        for model in problem.models
    ]


def space_size(request: Request) -> SpaceSize:
    """Count what ``run_solver`` would search, without searching."""
    problem, hardware = search_problem(request), hardware_of(request)
    shapes = [list(model.space.shapes()) for model in problem.models]
    layers = [find_model(model.name).layers for model in problem.models]
    plans = None
    if all(layers) and request.plan.stage_cuts is StageCuts.BETWEEN:
        plans = sum(
            len(model.space.plans(shape, number + 2, hardware.cluster))
            for model, mine, number in zip(problem.models, shapes, layers, strict=True)
            for shape in mine
        )
    count = sum(map(len, shapes))
    # chips that bring theirs have one each
    sizes = len(problem.memory_bytes) if hardware.metrics.memory_bytes is None else 1
    return SpaceSize(
        configurations=hardware.configurations,
        memory_sizes=sizes,
        micro_batch_sizes=len(request.plan.micro_batch_size),
        models=len(problem.models),
        shapes=count,
        points=hardware.configurations * sizes * count,
        plans=plans,
    )
