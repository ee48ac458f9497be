"""Records of what a whole training takes."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.results import Status

HOUR_S = 3600.0
DAY_S = 86400.0
WORK_PER_KWH_J = 3.6e6


@dataclass(frozen=True)
class PricedLevel:
    """Iterations with one global batch size; ``micro_batches`` are those of a pipeline."""

    global_batch_size: int  # samples of an iteration, over all replicas
    iterations: int  # of the training
    samples: int  # trained on
    micro_batches: int
    iteration_s: float  # seconds of an iteration


@dataclass(frozen=True)
class TrainingPart:
    """Seconds of the whole training by cause: in forward passes, in backward passes, in neither.

    Names are those of a ``Breakdown`` without ``_s``, then ``checkpoints``, ``lost_work`` and
    ``restarts``.
    """

    name: str
    forward_s: float  # seconds of forward passes
    backward_s: float  # seconds of backward passes
    neither_s: float  # seconds in neither pass
    total_s: float  # what the three add up to


@dataclass(frozen=True)
class FailureReport:
    """How a training is interrupted; ``cluster_mtbf_s`` is that of all devices, if any fail.

    ``interval_s`` is the work between two checkpoints: as given, else the Young-Daly interval
    ``young_daly_interval_s``; ``daly_interval_s`` is the interval to higher order.
    ``checkpoint_bytes`` are weights and optimizer state, each once. ``longer_by`` is what
    checkpoints and failures add to the work, as part of it.
    """

    cluster_mtbf_s: float | None
    checkpoint_bytes: float
    checkpoint_s: float  # to write one
    restart_s: float  # from a failure until the last checkpoint is read
    interval_s: float
    young_daly_interval_s: float | None
    daly_interval_s: float | None
    checkpoints: float  # that are written
    failures: float  # that are expected
    longer_by: float


@dataclass(frozen=True)
class EnergyReport:
    """Energy of a training with the power usage effectiveness ``pue``, and its ``basis``.

    ``device_power_w`` is None where the energy is that of the operators. ``carbon_kg`` is None
    without an intensity of the grid.
    """

    basis: str
    device_power_w: float | None
    pue: float
    energy_kwh: float  # of the whole training
    grid_intensity_g_per_kwh: float | None  # carbon intensity of the electricity
    carbon_kg: float | None


@dataclass(frozen=True)
class TrainingTime:
    """What a training takes; ``samples`` and ``tokens`` (None of images) are of whole iterations.

    ``work_s`` is the time of all iterations, ``wall_clock_s`` that with checkpoints and failures;
    ``parts`` add up to it. ``levels`` are iterations by batch size, the last of them with the
    global batch size that was asked for. FLOP/s are those while iterations run, per device and of
    the ``cluster`` of all devices; model FLOPs count forward and backward once, without scores that
    masks leave out, ``all_scores`` ones with these, hardware FLOPs all that are computed.
    ``effective_model_flops_utilization`` is that over the wall-clock. What follows from a number
    that was not given is None: ``failures``, ``energy``, ``price``.
    """

    plan: UniformPlan
    status: Status  # how the search of it ended
    reason: str  # why there is none, or empty
    devices: int  # in use
    iterations: int  # of the training
    samples: int
    tokens: int | None
    iteration_s: float  # seconds of an iteration
    micro_batches_per_pipeline: int  # micro-batches of a replica in an iteration
    levels: tuple[PricedLevel, ...]
    work_s: float
    wall_clock_s: float
    wall_clock_days: float  # of the whole training, with checkpoints and failures
    device_hours: float  # of all devices
    parts: tuple[TrainingPart, ...]
    # three times those of a forward pass, without scores that a causal mask leaves out, of the
    # whole training
    model_flops: float
    hardware_flops: float  # model FLOPs and what is recomputed, of the whole training
    model_tflops_per_device: float  # model FLOPs per second and device
    # as model_tflops_per_device, counting also the scores that a causal mask leaves out
    all_scores_tflops_per_device: float
    hardware_tflops_per_device: float  # the same per second and device
    model_pflops_of_cluster: float  # model FLOPs per second, of all devices
    hardware_pflops_of_cluster: float  # the same per second, of all devices
    # MFU: model FLOPs, without scores that a causal mask leaves out, over the peak of the devices
    model_flops_utilization: float
    # the same as model_flops_utilization, also counting scores that a causal mask leaves out
    all_scores_flops_utilization: float
    # FLOPs that are computed, also again, over the peak of the devices in use
    hardware_flops_utilization: float
    effective_model_flops_utilization: float
    failures: FailureReport | None
    energy: EnergyReport | None
    price: float | None
