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

    global_batch_size: int
    iterations: int
    samples: int
    micro_batches: int
    iteration_s: float


@dataclass(frozen=True)
class TrainingPart:
    """Seconds of the whole training by cause: in forward passes, in backward passes, in neither.

    Names are those of a ``Breakdown`` without ``_s``, then ``checkpoints``, ``lost_work`` and
    ``restarts``.
    """

    name: str
    forward_s: float
    backward_s: float
    neither_s: float
    total_s: float


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
    checkpoint_s: float
    restart_s: float
    interval_s: float
    young_daly_interval_s: float | None
    daly_interval_s: float | None
    checkpoints: float
    failures: float
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
    energy_kwh: float
    grid_intensity_g_per_kwh: float | None
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
    status: Status
    reason: str
    devices: int
    iterations: int
    samples: int
    tokens: int | None
    iteration_s: float
    micro_batches_per_pipeline: int
    levels: tuple[PricedLevel, ...]
    work_s: float
    wall_clock_s: float
    wall_clock_days: float
    device_hours: float
    parts: tuple[TrainingPart, ...]
    model_flops: float
    hardware_flops: float
    model_tflops_per_device: float
    all_scores_tflops_per_device: float
    hardware_tflops_per_device: float
    model_pflops_of_cluster: float
    hardware_pflops_of_cluster: float
    model_flops_utilization: float
    all_scores_flops_utilization: float
    hardware_flops_utilization: float
    effective_model_flops_utilization: float
    failures: FailureReport | None
    energy: EnergyReport | None
    price: float | None
