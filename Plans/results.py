"""Records of a prediction: how long an iteration takes, what fills the memory, and where the time goes."""

from __future__ import annotations

from dataclasses import dataclass

from Solver.results import PipelineReport, Status


@dataclass(frozen=True)
class IterationBreakdown:
    """Where an iteration's seconds go on the pipeline stage that decides it; the fields but the hidden ones add up to it.

    ``compute_s`` is arithmetic, ``memory_bound_s`` what memory bandwidth adds to it, ``launch_s`` starting kernels and waiting
    for the host that issues them. ``recompute_s`` is all of the repeated forward pass but its communication, which counts
    where it is exposed; ``hidden_*`` runs beside computation. ``bubble_s`` is waiting for other stages.
    """

    compute_s: float
    memory_bound_s: float
    launch_s: float
    recompute_s: float
    tensor_communication_s: float
    context_communication_s: float
    pipeline_communication_s: float
    data_communication_s: float
    expert_communication_s: float
    bubble_s: float
    optimizer_s: float
    hidden_tensor_communication_s: float
    hidden_data_communication_s: float

    @property
    def total_s(self) -> float:
        """Sum of what is exposed: the iteration."""
        exposed = (value for name, value in vars(self).items() if not name.startswith("hidden_"))
        return float(sum(exposed))


@dataclass(frozen=True)
class StagePrediction:
    """A pipeline stage: its layers (all chunks), seconds per micro-batch, and bytes on each of its devices."""

    layers: int
    forward_s: float
    backward_s: float
    parameters: int
    parameter_state_bytes: float
    activation_bytes: float
    workspace_bytes: float
    reserved_bytes: float

    @property
    def memory_bytes(self) -> float:
        """All that a device of the stage holds."""
        return self.parameter_state_bytes + self.activation_bytes + self.workspace_bytes + self.reserved_bytes


@dataclass(frozen=True)
class Prediction:
    """One iteration of a plan. Model FLOPs count forward and backward once, hardware FLOPs also what is recomputed.

    ``status`` is feasible where every stage fits in memory, else infeasible with the reason; times are given all the same.
    """

    status: Status
    reason: str
    iteration_s: float
    samples_per_s: float
    tokens_per_s: float
    model_tflops_per_device: float
    hardware_tflops_per_device: float
    model_flops_utilization: float
    hardware_flops_utilization: float
    devices: int
    micro_batches_per_pipeline: int
    stages: tuple[StagePrediction, ...]
    breakdown: IterationBreakdown
    pipeline: PipelineReport

    @property
    def memory_bytes(self) -> float:
        """Of the fullest stage."""
        return max(stage.memory_bytes for stage in self.stages)
