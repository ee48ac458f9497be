"""Records of what a plan search answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from Plans.plan import TrainingPlan
from Plans.results import IterationBreakdown, Prediction
from Solver.results import Counts, PipelineReport, Status


class PlanOutcome(StrEnum):
    """What became of a plan of the space."""

    EVALUATED = "evaluated"  # its best cut into stages is known, or the best of those tried
    PRUNED = "pruned"  # its bound does not beat a plan that was evaluated
    INFEASIBLE = "infeasible"  # no cut of it fits in memory


@dataclass(frozen=True)
class PlanPoint:
    """A plan and its outcome; no cut of it into stages takes less than ``bound_s``."""

    plan: TrainingPlan
    outcome: PlanOutcome
    bound_s: float
    iteration_s: float | None
    memory_bytes: float | None
    reason: str = ""


@dataclass(frozen=True)
class PlanSearchResult:
    """The fastest plan; ``optimal`` where no plan of the space, however it is cut into stages, is faster.

    Otherwise none takes less than ``bound_s``.
    """

    status: Status
    optimal: bool
    plan: TrainingPlan | None
    prediction: Prediction | None
    bound_s: float | None
    counts: Counts
    points: tuple[PlanPoint, ...]
    reason: str = ""


@dataclass(frozen=True)
class FoundChunk:
    """A model chunk of the best plan: its layers, the pipeline stage that runs it, seconds per micro-batch.

    Bytes are those of one device of the stage, all of its chunks together.
    """

    layers: tuple[str, ...]
    stage: int
    devices: int
    load_s: float
    memory_bytes: float
    parameter_state_bytes: float
    activation_bytes: float
    workspace_bytes: float
    reserved_bytes: float


@dataclass(frozen=True)
class FoundPlan:
    """The best plan as ``best.json`` has it; what is named as in ``TrainingPlan`` is that plan's."""

    throughput_samples_per_s: float
    tokens_per_s: float
    time_per_batch_s: float
    time_per_batch_bound_s: float | None
    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    micro_batch_size: int
    global_batch_size: int
    interleave: int
    schedule: str
    recompute: str
    sequence_parallel: bool
    zero_stage: int
    optimizer: str
    precision: str
    attention: str
    group_order: str
    overlap_gradients: bool | None
    overlap_tensor: bool | None
    sequence_length: int
    micro_batches_per_pipeline: int
    devices_used: int
    stages: tuple[FoundChunk, ...]
    pipeline: PipelineReport
    breakdown_s: IterationBreakdown
    model_flops_utilization: float
    hardware_flops_utilization: float


@dataclass(frozen=True)
class PlanAnswer:
    """What a search on given hardware answered, as ``best.json`` has it: hardware as it was named, plans by model."""

    status: Status
    optimal: bool
    objective: str
    value: float | None  # samples per second
    device: str
    device_title: str
    device_memory_bytes: float
    cluster: str
    software: str
    models: dict[str, FoundPlan]
    counts: Counts
    reason: str


@dataclass(frozen=True)
class PlanManifest:
    """Provenance of a search on given hardware. ``contents`` are hashes of the files that were named."""

    versions: dict[str, str]
    contents: dict[str, str]
    git_commit: str | None
    seconds: float
    peak_bytes: int
    point_meaning: str
    counts: Counts
