"""A whole training from the price of its iterations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from Estimator.plans.checkpoint import checkpoint_bytes
from Estimator.plans.directions import DirectedPart, directed_parts
from Estimator.plans.flops import utilization
from Estimator.plans.iteration import price_iteration
from Estimator.plans.plan import check_plan
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.results import Iteration
from phaze.studies.evaluation import PreparedPlan
from phaze.studies.training_time.failures import (
    Interrupted,
    Interruptions,
    daly_interval_s,
    interrupted,
    young_daly_interval_s,
)
from phaze.studies.training_time.records import (
    DAY_S,
    HOUR_S,
    WORK_PER_KWH_J,
    EnergyReport,
    FailureReport,
    PricedLevel,
    TrainingPart,
    TrainingTime,
)
from phaze.studies.training_time.settings import TrainingSettings, samples_asked
from phaze.studies.training_time.warm_up import BatchLevel, BatchSizeWarmUp, batch_levels
from phaze_common.errors import InputError

TERA, PETA = 1e12, 1e15
DATA_SHEET = "thermal design power of the boards alone, an upper bound"
GIVEN = "the device power that was given"
OPERATORS = "the energy of the operators alone"


@dataclass(frozen=True)
class _Level:
    """A level of batch sizes, and the parts of an iteration of it."""

    level: PricedLevel
    parts: tuple[DirectedPart, ...]


def training_time_of(
    plan: PreparedPlan,
    settings: TrainingSettings,
    warm_up: BatchSizeWarmUp | None = None,
    board_power_w: float | None = None,
) -> TrainingTime:
    """What a training takes with ``plan``, on devices that draw at most ``board_power_w``.

    Raises: InputError: there is less to train on than one iteration takes, a batch of the warm-up
        does not fit the plan, or failures come too often.
    """
    length = plan.costs.graph.key.sequence_length
    batch, sites = plan.degrees.global_batch_size, plan.degrees.sites
    first = sites * (batch if warm_up is None else warm_up.start)
    asked = samples_asked(settings, first, length)  # of which each site trains on a part
    levels = _priced(plan, batch_levels(-(-asked // sites), batch, warm_up))
    full = price_iteration(plan.degrees, plan.costs, plan.machine)
    work_s = math.fsum(each.level.iterations * each.level.iteration_s for each in levels)
    failures, lost = _failures(plan, settings, work_s)
    parts = (*_parts(levels), *_interruptions(lost, settings))
    wall_clock_s = math.fsum(part.total_s for part in parts)
    devices, samples = full.devices, sum(each.level.samples for each in levels)
    peak = plan.machine.peak_flops * devices
    each_s = full.iteration_s / (sites * batch)  # of a sample, all of which have the same FLOPs
    flops = samples * each_s * peak
    model = flops * full.model_flops_utilization
    all_scores = flops * full.all_scores_flops_utilization
    hardware = flops * full.hardware_flops_utilization
    device_hours = devices * wall_clock_s / HOUR_S
    price = settings.price_per_device_hour
    return TrainingTime(
        plan=plan.degrees,
        status=full.status,
        reason=full.reason,
        devices=devices,
        iterations=sum(each.level.iterations for each in levels),
        samples=samples,
        tokens=samples * length if length > 1 else None,
        iteration_s=full.iteration_s,
        micro_batches_per_pipeline=full.micro_batches_per_pipeline,
        levels=tuple(each.level for each in levels),
        work_s=work_s,
        wall_clock_s=wall_clock_s,
        wall_clock_days=wall_clock_s / DAY_S,
        device_hours=device_hours,
        parts=parts,
        model_flops=model,
        hardware_flops=hardware,
        model_tflops_per_device=model / work_s / devices / TERA,
        all_scores_tflops_per_device=all_scores / work_s / devices / TERA,
        hardware_tflops_per_device=hardware / work_s / devices / TERA,
        model_pflops_of_cluster=model / work_s / PETA,
        hardware_pflops_of_cluster=hardware / work_s / PETA,
        model_flops_utilization=utilization(model, work_s * peak),
        all_scores_flops_utilization=all_scores / work_s / peak,
        hardware_flops_utilization=utilization(hardware, work_s * peak),
        effective_model_flops_utilization=utilization(model, wall_clock_s * peak),
        failures=failures,
        energy=_energy(settings, board_power_w, device_hours, full.energy_per_sample_j, samples),
        price=None if price is None else price * device_hours,
    )


def _priced(plan: PreparedPlan, levels: Sequence[BatchLevel]) -> list[_Level]:
    """Levels with the price of their iterations, which depends on the number of micro-batches."""
    priced: dict[int, tuple[Iteration, tuple[DirectedPart, ...]]] = {}
    found = []
    for level in levels:
        degrees = replace(plan.degrees, global_batch_size=level.global_batch_size)
        try:
            check_plan(degrees)
        except InputError as error:
            if level.global_batch_size == plan.degrees.global_batch_size:
                raise
            raise InputError(
                f"batch_size_warmup has batches of {level.global_batch_size}: {error}"
            ) from error
        if degrees.micro_batches not in priced:
            iteration = price_iteration(degrees, plan.costs, plan.machine)
            parts = directed_parts(
                PricedPlan(degrees, plan.costs, plan.machine), iteration.breakdown
            )
            priced[degrees.micro_batches] = iteration, parts
        iteration, parts = priced[degrees.micro_batches]
        samples = plan.degrees.sites * level.samples
        of_level = level.global_batch_size, level.iterations, samples
        times = iteration.micro_batches_per_pipeline, iteration.iteration_s
        found.append(_Level(PricedLevel(*of_level, *times), parts))
    return found


def _parts(levels: Sequence[_Level]) -> tuple[TrainingPart, ...]:
    """Parts of all iterations."""
    sums: dict[str, list[list[float]]] = defaultdict(lambda: [[], [], []])
    for each in levels:
        for part in each.parts:
            for place, seconds in enumerate((part.forward_s, part.backward_s, part.neither_s)):
                sums[part.name][place].append(each.level.iterations * seconds)
    found = []
    for name, (forward, backward, neither) in sums.items():
        each_s = math.fsum(forward), math.fsum(backward), math.fsum(neither)
        found.append(TrainingPart(name, *each_s, math.fsum(forward + backward + neither)))
    return tuple(found)


def _interruptions(lost: Interrupted | None, settings: TrainingSettings) -> Iterator[TrainingPart]:
    """Parts of the wall-clock that are no iterations."""
    if lost is None:
        return
    named = {"checkpoints": lost.checkpoints_s}
    if settings.device_mtbf_hours is not None:
        named |= {"lost_work": lost.lost_work_s, "restarts": lost.restarts_s}
    for name, seconds in named.items():
        yield TrainingPart(name, 0.0, 0.0, seconds, seconds)


def _failures(
    plan: PreparedPlan, settings: TrainingSettings, work_s: float
) -> tuple[FailureReport, Interrupted] | tuple[None, None]:
    """Checkpoints and failures, and what they cost; None where nothing is known of them."""
    if settings.checkpoint_bandwidth_bytes_per_s is None:
        return None, None
    sites = plan.degrees.sites  # each writes what it has, and all wait for one that fails
    size = sites * checkpoint_bytes(plan.degrees, plan.costs)
    written_s = size / settings.checkpoint_bandwidth_bytes_per_s
    hours = settings.device_mtbf_hours
    mtbf_s = None if hours is None else hours * HOUR_S / (sites * plan.degrees.devices)
    young_s = None if mtbf_s is None else young_daly_interval_s(written_s, mtbf_s)
    interval_s = settings.checkpoint_interval_s or young_s
    assert interval_s is not None  # one of them was given
    restart_s = settings.restart_time_s or 0.0
    lost = interrupted(work_s, interval_s, Interruptions(mtbf_s, written_s, restart_s))
    report = FailureReport(
        cluster_mtbf_s=mtbf_s,
        checkpoint_bytes=size,
        checkpoint_s=written_s,
        restart_s=restart_s,
        interval_s=interval_s,
        young_daly_interval_s=young_s,
        daly_interval_s=None if mtbf_s is None else daly_interval_s(written_s, mtbf_s),
        checkpoints=work_s / interval_s,
        failures=lost.failures,
        longer_by=lost.total_s / work_s,
    )
    return report, lost


def _energy(
    settings: TrainingSettings,
    board_power_w: float | None,
    device_hours: float,
    sample_j: float | None,
    samples: int,
) -> EnergyReport | None:
    """Energy, where a power or the energy of operators is known."""
    power = settings.device_power_w if settings.device_power_w is not None else board_power_w
    if power is None and sample_j is None:
        return None
    pue = 1.0 if settings.pue is None else settings.pue
    if power is not None:
        basis = GIVEN if settings.device_power_w is not None else DATA_SHEET
        devices_kwh = power * device_hours / 1000.0
    else:
        assert sample_j is not None
        basis, devices_kwh = OPERATORS, sample_j * samples / WORK_PER_KWH_J
    energy_kwh, grid = devices_kwh * pue, settings.grid_intensity_g_per_kwh
    carbon_kg = None if grid is None else energy_kwh * grid / 1000.0
    return EnergyReport(basis, power, pue, energy_kwh, grid, carbon_kg)
