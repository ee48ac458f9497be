"""Records of what the solvers answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from Common.choices import Objective as Objective
from Estimator.chips.accelerator import Accelerator


class Status(StrEnum):
    """How a solve ended. Infeasible, timed out and failed are three different things."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


@dataclass(frozen=True)
class StageReport:
    """A pipeline stage: names of its layers, devices, seconds per micro-batch, and where its memory goes (bytes per device)."""

    layers: tuple[str, ...]
    devices: int
    load_s: float
    memory_bytes: float
    parameter_state_bytes: float  # weights, gradients and optimizer state
    activation_bytes: float  # saved for the micro-batches in flight
    workspace_bytes: float


@dataclass(frozen=True)
class Breakdown:
    """Where an iteration's seconds go, seen from the slowest stage; the fields add up to the iteration time."""

    forward_s: float
    backward_s: float
    recompute_s: float
    stage_transfer_s: float
    bubble_s: float
    gradient_sync_s: float
    optimizer_s: float


@dataclass(frozen=True)
class TimeBreakdown(Breakdown):
    """A breakdown that tells how much of forward, backward and recompute goes into tensor-parallel collectives."""

    tensor_communication_s: float


@dataclass(frozen=True)
class PipelineReport:
    """What a pipeline runs: seconds per micro-batch of its chunks in model order, of which each stage has one or several.

    Parts ``receive_*_s`` of the passes wait for what other stages sent (where a search charges that to the receiver);
    ``transfer_s`` and ``backward_transfer_s`` between a chunk and the next take time of their own, and the sender's as well
    unless ``overlap_transfers``. Gradients are synchronised (``sync_s`` of each stage) after a stage's last backward pass, and
    the optimizer's step follows when all are done.
    """

    schedule: str  # a ``PipelineSchedule``
    pp: int
    micro_batches: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]  # with what is recomputed
    receive_forward_s: tuple[float, ...]
    receive_backward_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    backward_transfer_s: tuple[float, ...]
    overlap_transfers: bool
    sync_s: tuple[float, ...]
    optimizer_s: float


@dataclass(frozen=True)
class Limit:
    """What more of one resource would bring on the same chip, its plan chosen anew; gains are fractions of the objective.

    ``amount`` of ``unit`` is given. ``one_more_gain`` is for one unit more, ``unlimited_gain`` for any amount: where that is
    nothing, the resource does not bind. ``words`` say it in a sentence.
    """

    resource: str
    unit: str
    amount: float
    one_more_gain: float
    unlimited_gain: float
    words: str

    @property
    def binds(self) -> bool:
        """Whether more of it would change the answer."""
        return self.unlimited_gain > 1e-9


@dataclass(frozen=True)
class ExpertReport:
    """The plan a published expert would use, priced by the same model on the same chip, blocks balanced over its stages.

    ``breakdown_s`` is None where the plan does not apply to the model.
    """

    status: Status
    source: str
    tp: int
    pp: int
    dp: int
    recompute: str
    throughput_samples_per_s: float
    time_per_batch_s: float
    reason: str
    breakdown_s: Breakdown | None = None


@dataclass(frozen=True)
class ModelPlan:
    """The best plan of one model on one accelerator."""

    throughput_samples_per_s: float
    time_per_batch_s: float
    time_per_batch_bound_s: float  # no placement on this accelerator is faster
    micro_batch_size: int
    hbm_bytes: int
    recompute: str
    tp: int
    pp: int
    dp: int
    micro_batches_per_pipeline: int
    devices_used: int
    stages: tuple[StageReport, ...]
    pipeline: PipelineReport
    breakdown_s: TimeBreakdown
    model_flops_utilization: float
    energy_per_sample_j: float
    tc_utilization: float
    vc_utilization: float
    expert: ExpertReport | None
    speedup_over_expert: float | None
    plans_lost: str = ""  # which plans were not considered, because the layers branch too much; the bound counts them too


@dataclass(frozen=True)
class ScheduleConfirmation:
    """One layer of a winner, solved again as the ILP by an independent solver."""

    model: str
    layer: str
    graph: str  # forward | backward | backward_selective
    native_makespan_s: float
    ilp_makespan_s: float
    ilp_gap: float
    ilp_solver: str
    agrees: bool


@dataclass(frozen=True)
class Certificate:
    """Why the design point is called optimal: no other point can reach it, and its schedules were solved again as ILPs."""

    # The best objective that any pruned point could have had (None: none was pruned). Where plans were lost, that any point
    # could have had with any plan (None: unknown, because schedules are not proven either).
    best_open_bound: float | None
    schedules: tuple[ScheduleConfirmation, ...]


@dataclass(frozen=True)
class DesignPoint:
    """An accelerator with the plan of every model on it."""

    status: Status
    optimal: bool
    objective: Objective
    value: float
    accelerator: Accelerator
    hbm_bytes: int
    models: dict[str, ModelPlan]
    certificate: Certificate | None
    limits: tuple[Limit, ...] = ()  # of the optimum over everything; not stated for others


@dataclass(frozen=True)
class ReferencePoint:
    """A known chip scored by the same model, with the best plan on it."""

    name: str
    source: str
    status: Status
    accelerator: Accelerator
    hbm_bytes: int
    value: float
    best_over_reference: float | None
    models: dict[str, ModelPlan]


@dataclass(frozen=True)
class Counts:
    """Design points (see ``point_meaning`` in the manifest): evaluated + pruned + infeasible == space."""

    space: int
    evaluated: int
    pruned: int
    infeasible: int

    @property
    def complete(self) -> bool:
        """Whether every point of the space is accounted for."""
        return self.evaluated + self.pruned + self.infeasible == self.space


@dataclass(frozen=True)
class SizeRow:
    """The best accelerator of one model for one HBM size and micro-batch size (a row of the result table)."""

    model: str
    hbm_bytes: int
    micro_batch_size: int
    status: Status
    value: float
    accelerator: Accelerator | None
    throughput_samples_per_s: float
    recompute: str
    tp: int
    pp: int
    dp: int
    reason: str


@dataclass(frozen=True)
class SearchResult:
    """The answer to a study. ``best`` is the optimum over everything, ``per_hbm`` the optimum for each HBM size."""

    study: str
    status: Status
    best: DesignPoint | None
    per_hbm: tuple[DesignPoint, ...]
    rows: tuple[SizeRow, ...]
    references: tuple[ReferencePoint, ...]
    counts: Counts
    run_directory: str
    reason: str = ""  # why nothing is feasible


@dataclass(frozen=True)
class SpaceSize:
    """What a study would evaluate (``--dry-run``)."""

    accelerators: int
    hbm_sizes: int
    micro_batch_sizes: int
    models: int
    plans_per_point: int  # tensor parallel widths x recomputation modes
    points: int
