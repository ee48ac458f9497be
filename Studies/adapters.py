"""Requests as the present searches read them, and the one place that knows what these cannot do yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from Common.choices import GroupOrder, Objective, Optimizer, PipelineSchedule, Precision, Recompute, SolverName
from Common.errors import InputError
from Estimator.devices.device import Device, Software
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.registry import find_model
from Plans.plan import TrainingPlan
from Solver.plan_search.space import PlanSpace
from Studies.evaluation import Evaluation
from Studies.folders import Folders
from Studies.request import Request, WeightedModel

CHIPS_DIVIDE_EXPERTS = False  # whether a search of accelerators tries expert parallel degrees by default


@dataclass(frozen=True)
class ChipStudy:
    """A request as the search of accelerators reads it."""

    request: Request

    @property
    def models(self) -> tuple[WeightedModel, ...]:
        """Models and weights."""
        return self.request.models

    @property
    def micro_batch_sizes(self) -> tuple[int, ...]:
        """Samples."""
        return self.request.micro_batch_size

    @property
    def tp_widths(self) -> tuple[int, ...]:
        """Tensor parallel widths."""
        return self.request.tp

    @property
    def hbm_sizes_gb(self) -> tuple[float, ...]:
        """HBM per device, GiB."""
        return self.request.hbm_size

    @property
    def hbm_sizes_bytes(self) -> tuple[int, ...]:
        """HBM per device, bytes."""
        return self.request.hbm_sizes_bytes

    @property
    def recompute(self) -> tuple[Recompute, ...]:
        """Recomputation modes."""
        return self.request.recompute

    @property
    def global_batch_size(self) -> int:
        """Samples."""
        return self.request.global_batch_size

    @property
    def optimizer(self) -> Optimizer:
        """Optimizer."""
        return self.request.optimizer

    @property
    def zero_stage(self) -> int:
        """ZeRO stage."""
        return self.request.zero_stage[0]

    @property
    def objective(self) -> Objective:
        """What is maximised."""
        return self.request.objective

    @property
    def solver(self) -> SolverName:
        """Scheduler of operators."""
        return self.request.solver

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.request.name

    @property
    def csv(self) -> bool:
        """Whether the design points are written as CSV too."""
        return self.request.csv

    @property
    def strict(self) -> bool:
        """Whether operators without a cost are refused."""
        return self.request.strict

    @property
    def force_reextract(self) -> bool:
        """Whether graphs are extracted again."""
        return self.request.force_reextract_model

    @property
    def folders(self) -> Folders:
        """Where artefacts go."""
        return self.request.folders

    def graph_key(self, model: str, micro_batch_size: int, tp: int) -> GraphKey:
        """What the graph of ``model`` for one micro-batch size and tensor parallel width is made for."""
        request = self.request
        sequence_parallel = request.sequence_parallel == (True,) and tp > 1
        return GraphKey(model, micro_batch_size, request.sequence_length_of(model), tp, request.attention, sequence_parallel)

    def with_values(self, **values: object) -> ChipStudy:
        """The same study with other values of fields of its request."""
        return replace(self, request=replace(self.request, **values))  # type: ignore[arg-type]


@dataclass(frozen=True)
class PlanSpaceSize:
    """Shapes are tp x micro-batch x recomputation x sequence parallelism; a shape has many plans.

    ``plans`` is None where only a trace tells how many blocks the model has.
    """

    shapes: int
    plans: int | None


@dataclass(frozen=True)
class PinnedSpace(PlanSpace):
    """The plans of a space whose degrees and order are among those that were asked for; None: any."""

    pp: tuple[int, ...] | None = None
    dp: tuple[int, ...] | None = None
    group_order: tuple[GroupOrder, ...] | None = None

    def plans(self, shape: TrainingPlan, blocks: int, cluster: Cluster) -> Iterator[TrainingPlan]:
        """As ``PlanSpace.plans``."""
        for plan in super().plans(shape, blocks, cluster):
            if all(asked is None or value in asked for value, asked in self._pairs(plan)):
                yield plan

    def _pairs(self, plan: TrainingPlan) -> Iterator[tuple[object, tuple[object, ...] | None]]:
        return iter([(plan.pp, self.pp), (plan.dp, self.dp), (plan.group_order, self.group_order)])


@dataclass(frozen=True)
class PlanRequest:
    """A request as the search of plans on devices that exist reads it; ``space`` says what is searched."""

    request: Request
    space: PlanSpace

    @property
    def model(self) -> str:
        """The one model."""
        return self.request.models[0].name

    @property
    def sequence_length(self) -> int:
        """Tokens per sample."""
        return self.request.sequence_length[0]

    @property
    def device(self) -> Device:
        """The device."""
        assert self.request.hardware.device is not None
        return self.request.hardware.device

    @property
    def cluster(self) -> Cluster:
        """As many devices as are in use."""
        return self.request.hardware.cluster

    @property
    def software(self) -> Software:
        """The training framework."""
        assert self.request.hardware.software is not None
        return self.request.hardware.software

    @property
    def hardware(self) -> Mapping[str, str]:
        """Device, cluster and software as they were named."""
        return {key: str(getattr(self.request, key)) for key in ("device", "cluster", "software")}

    @property
    def graphs(self) -> Path:
        """Folder of training graphs."""
        return self.request.folders.graphs

    @property
    def run(self) -> Path:
        """Folder of the run."""
        return self.request.folders.run

    @property
    def size(self) -> PlanSpaceSize:
        """What would be searched."""
        shapes = list(self.space.shapes())
        blocks = find_model(self.model).layers
        plans = sum(1 for each in shapes for _ in self.space.plans(each, blocks, self.cluster)) if blocks else None
        return PlanSpaceSize(len(shapes), plans)


def chip_study(request: Request) -> ChipStudy:
    """A request for the search of accelerators.

    Raises:
        InputError: it asks for what that search cannot do yet.
    """
    several = len(request.hardware.cluster.tiers) > 1
    able: dict[str, Any] = {
        "use_all_devices": False,
        "pp": None,
        "dp": None,
        "cp": (1,),
        "ep": (1,),
        "sequence_parallel": request.sequence_parallel[:1],
        "interleave": (1,),
        "zero_stage": request.zero_stage[:1],
        "group_order": tuple(GroupOrder) if several else (GroupOrder.DATA_INNER,),
        "overlap_gradients": (False,),
        "overlap_tensor": (False,),
        "precision": Precision.BF16,
    }
    _refuse_others(request, able, "a search of accelerators", "leave it out, or give a --device")
    return ChipStudy(request)


def plan_search(request: Request) -> PlanRequest:
    """A request for the search of plans on devices that exist.

    Raises:
        InputError: it asks for what that search cannot do yet.
    """
    able: dict[str, Any] = {
        "use_all_devices": True,
        "cp": request.cp[:1],
        "overlap_gradients": request.overlap_gradients[:1],
        "overlap_tensor": request.overlap_tensor[:1],
    }
    _refuse_others(request, able, "a search on devices that exist", "give one value, or leave it out")
    several = len(request.hardware.cluster.tiers) > 1
    orders = tuple(GroupOrder) if several else (GroupOrder.DATA_INNER,)
    space = PinnedSpace(
        devices=request.devices,
        base=TrainingPlan(
            global_batch_size=request.global_batch_size,
            cp=request.cp[0],
            optimizer=request.optimizer.value,
            precision=request.precision,
            attention=request.attention,
            overlap_gradients=request.overlap_gradients[0],
            overlap_tensor=request.overlap_tensor[0],
        ),
        sequence_length=request.sequence_length[0],
        tp_widths=request.tp,
        micro_batch_sizes=request.micro_batch_size,
        recompute=request.recompute,
        sequence_parallel=request.sequence_parallel,
        interleave=request.interleave,
        zero_stages=request.zero_stage,
        ep_degrees=request.ep,
        pp=request.pp,
        dp=request.dp,
        group_order=None if request.group_order == orders else request.group_order,
    )
    return PlanRequest(request, space)


def evaluation(request: Request) -> Evaluation:
    """A request for one plan.

    Raises:
        InputError: it asks for what cannot be priced yet.
    """
    hardware = request.hardware
    if hardware.device is None or hardware.software is None:
        raise InputError("evaluate prices plans on devices that exist as yet, given a chip; name a device with --device")
    assert request.pp is not None and request.dp is not None and request.interleave is not None
    plan = TrainingPlan(
        micro_batch_size=request.micro_batch_size[0],
        global_batch_size=request.global_batch_size,
        tp=request.tp[0],
        pp=request.pp[0],
        dp=request.dp[0],
        cp=request.cp[0],
        ep=request.ep[0],
        interleave=request.interleave[0],
        gpipe=request.schedule is PipelineSchedule.GPIPE,
        recompute=request.recompute[0],
        sequence_parallel=request.sequence_parallel[0],
        zero_stage=request.zero_stage[0],
        optimizer=request.optimizer.value,
        precision=request.precision,
        attention=request.attention,
        group_order=request.group_order[0],
        stage_layers=request.stage_layers,
        overlap_gradients=request.overlap_gradients[0],
        overlap_tensor=request.overlap_tensor[0],
    )
    return Evaluation(
        request.models[0].name,
        request.sequence_length[0],
        plan,
        hardware.device,
        hardware.cluster,
        hardware.software,
        request.folders.graphs,
        request.strict,
    )


def graph_keys(request: Request) -> list[tuple[GraphKey, ...]]:
    """What graphs the request needs: of chips by model and micro-batch size, one per width; of devices all together."""
    if request.on_devices:
        asked = plan_search(request)
        shapes = asked.space.shapes()
        return [tuple(dict.fromkeys(shape.graph_key(asked.model, asked.sequence_length) for shape in shapes))]
    study = chip_study(request)
    return [
        tuple(study.graph_key(model.name, size, tp) for tp in study.tp_widths)
        for model in study.models
        for size in study.micro_batch_sizes
    ]


def _refuse_others(request: Request, able: Mapping[str, Any], who: str, remedy: str) -> None:
    for key, value in able.items():
        given = getattr(request, key)
        if given != value:
            shown = " ".join(
                str(getattr(each, "value", each)).lower() for each in (given if isinstance(given, tuple) else (given,))
            )
            raise InputError(f"{who} does not know {key} {'all' if given is None else shown} yet; {remedy}")
