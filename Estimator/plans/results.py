"""Records of what an iteration of a plan costs: how long it takes, what fills the memory, and where
the time goes."""

from dataclasses import dataclass
from enum import StrEnum

from Estimator.plans.degrees import Degrees


class Status(StrEnum):
    """How a solve ended. Infeasible, timed out and failed are three different things.

    Closed is a part of a space in which nothing is better than what is known elsewhere.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class Breakdown:
    """Where an iteration's seconds go on its busiest pipeline stage; the fields but the hidden ones
    add up to it.

    ``arithmetic_s`` is limited by arithmetic, ``memory_bound_s`` by a memory's bandwidth,
    ``launch_s`` by starting operators and, once, by what the host does between iterations;
    ``recompute_s`` is what recomputation repeats of them. Communication counts where it is exposed,
    ``hidden_*`` runs beside computation. With sequence parallelism the gathers and scatters that
    replace all-reduces are ``sequence_communication_s``; what a 2D layout sends along both of its
    axes is ``tensor_communication_s``. ``host_communication_s`` is waiting for what is kept in host
    memory. ``bubble_s`` is waiting for other stages. Where the cores of a chip run operators side
    by side, a layer's time is attributed along the critical path of its schedule.
    """

    arithmetic_s: float
    memory_bound_s: float
    launch_s: float
    recompute_s: float
    tensor_communication_s: float
    sequence_communication_s: float
    context_communication_s: float  # context-parallel communication
    expert_communication_s: float  # tokens on their way to experts and back
    pipeline_communication_s: float  # messages between stages, as far as they show
    data_communication_s: float  # gradients, over replicas, as far as they show
    bubble_s: float
    optimizer_s: float  # the optimizer's step
    hidden_tensor_communication_s: float  # beside computation, in none of the others
    hidden_data_communication_s: float  # beside computation, in none of the others
    host_communication_s: float = 0.0
    site_communication_s: float = 0.0  # outer steps of several sites, an iteration's part
    hidden_host_communication_s: float = 0.0  # beside computation, in none of the others
    hidden_expert_communication_s: float = 0.0  # beside computation, in none of the others

    @property
    def total_s(self) -> float:
        """Sum of what is exposed: the iteration."""
        exposed = (value for name, value in vars(self).items() if not name.startswith("hidden_"))
        return float(sum(exposed))


@dataclass(frozen=True)
class TimeInterval:
    """Seconds between which an iteration is measured with probability ``nominal``, and what that is
    known from."""

    nominal: float
    low_s: float  # lower end
    high_s: float  # upper end
    reasons: tuple[str, ...]  # what makes it so wide


@dataclass(frozen=True)
class StageReport:
    """A pipeline stage: names of its layers (chunk after chunk), seconds per micro-batch, and bytes
    on each of its devices.

    ``degrees`` are its own where it is trained otherwise than the first stage, of whose layers
    ``recomputed_layers`` are recomputed (None: all).
    """

    layers: tuple[str, ...]  # by name, in order
    devices: int  # of the stage, all replicas together
    load_s: float  # forward and backward
    forward_s: float  # seconds of the forward pass of a micro-batch
    backward_s: float  # with what is recomputed
    after_s: float  # exposed seconds of synchronisation after its last backward pass
    parameters: int  # on each device
    memory_bytes: float  # reserved: held from the device, which has to have room for it
    parameter_state_bytes: float  # weights, gradients and optimizer state
    activation_bytes: float  # saved for the micro-batches in flight
    workspace_bytes: float  # largest temporaries
    reserved_bytes: float  # by the framework and its allocator, beyond what is allocated
    # of ``forward_s``, as far as it shows: parts of products, tokens, sharded weights
    forward_communication_s: float = 0.0
    backward_communication_s: float = 0.0  # of ``backward_s``
    host_bytes: float = 0.0  # in host memory
    # of ``reserved_bytes``, those that the allocator holds besides tensors; null as below
    cached_bytes: float | None = None
    # by tensors: state, activations and workspace; null in files of earlier versions
    allocated_bytes: float | None = None
    degrees: Degrees | None = None
    recomputed_layers: int | None = None


@dataclass(frozen=True)
class PipelineReport:
    """What a pipeline runs: seconds per micro-batch of its chunks in model order, of which each
    stage has one or several.

    ``transfer_s`` and ``backward_transfer_s`` between a chunk and the next take time of their own,
    and the sender's as well unless ``overlap_transfers``. Gradients are synchronised (``sync_s`` of
    each stage) after a stage's last backward pass, and the optimizer's step follows when all are
    done. A micro-batch leaves ``saved_bytes`` on a device of each chunk from its forward to its
    backward pass (runs of earlier versions do not say).
    """

    schedule: str  # a ``PipelineSchedule``
    pp: int
    micro_batches: int  # of a replica in an iteration
    forward_s: tuple[float, ...]  # seconds of the forward passes of each chunk
    backward_s: tuple[float, ...]  # with what is recomputed
    transfer_s: tuple[float, ...]
    backward_transfer_s: tuple[float, ...]
    overlap_transfers: bool
    sync_s: tuple[float, ...]
    optimizer_s: float  # the optimizer's step
    saved_bytes: tuple[float, ...] = ()
    between_s: float = 0.0  # of the host, behind the step
    # whether an interleaved schedule of only pp micro-batches runs all forward passes first
    whole_warm_up: bool = False

    def sent_s(self, forward: bool, chunk: int) -> float:
        """Seconds for which a pass on ``chunk`` sends its output to the next, or back."""
        if forward:
            return self.transfer_s[chunk] if chunk < len(self.transfer_s) else 0.0
        return self.backward_transfer_s[chunk - 1] if chunk else 0.0


@dataclass(frozen=True)
class Iteration:
    """One iteration of a plan. Model FLOPs count forward and backward once, without scores that a
    causal mask leaves out.

    ``all_scores`` ones count these too, hardware FLOPs are all that are computed, also again
    (``Estimator.plans.flops``). ``status`` is feasible where every stage fits in memory, else
    infeasible with the reason; times are given all the same. ``energy_per_sample_j`` is that of the
    operators of all devices; None where the hardware's energy is not known. Samples, tokens and
    ``devices`` are those of all sites, what is of a stage or a pipeline that of one.
    """

    status: Status
    reason: str
    iteration_s: float
    samples_per_s: float
    tokens_per_s: float
    model_tflops_per_device: float
    all_scores_tflops_per_device: float
    hardware_tflops_per_device: float
    model_flops_utilization: float
    all_scores_flops_utilization: float
    hardware_flops_utilization: float
    energy_per_sample_j: float | None
    devices: int
    micro_batches_per_pipeline: int
    stages: tuple[StageReport, ...]
    breakdown: Breakdown
    pipeline: PipelineReport

    @property
    def site_devices(self) -> int:
        """Devices of one site."""
        return sum(stage.devices for stage in self.stages)

    @property
    def memory_bytes(self) -> float:
        """Reserved in the fullest stage."""
        return max(stage.memory_bytes for stage in self.stages)

    @property
    def allocated_bytes(self) -> float:
        """Allocated in the stage where that is most."""
        return max(stage.memory_bytes - stage.reserved_bytes for stage in self.stages)

    @property
    def pooled_bytes(self) -> float:
        """Held by the allocator in the stage where that is most: tensors and what it keeps for
        others."""
        return max(
            stage.memory_bytes - stage.reserved_bytes + (stage.cached_bytes or 0.0)
            for stage in self.stages
        )
