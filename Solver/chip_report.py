"""What a chip with memory as it is sold takes, part by part: area, power at its peak and in the
plans found, money and carbon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.clock import at_frequency
from Estimator.chips.cost import chip_price, embodied_carbon
from Estimator.chips.design_space import DesignSpace
from Estimator.chips.die import PARTS, die_parts, die_process
from Estimator.chips.power import peak_power_parts
from Solver.chip_metrics import ChipMetrics
from Solver.chip_records import BoughtCluster, ChipPart, ChipReport, ChipUse
from Solver.plan_report import PlanReport

MILLION = 1e6


def chip_report(
    chip: Accelerator, space: DesignSpace, metrics: ChipMetrics, models: Mapping[str, PlanReport]
) -> ChipReport | None:
    """``chip`` of ``space`` with ``metrics`` of its own, under the plans of ``models``; None where
    its memory is not as sold."""
    if chip.memory_system is None or space.prices is None or metrics.use is None:
        return None
    alone, memory = AcceleratorSet.of([chip]), space.platform.memory(chip.memory_system)
    die, platform = die_process(space.platform.technology), space.platform.at(chip.variant)
    clock = at_frequency(die, platform.frequency_hz)
    links = space.links_bytes_per_s(chip)
    parts = die_parts(alone, space.platform, memory, links)
    power = peak_power_parts(alone, space.platform, memory, parts, clock, links)
    price = chip_price(parts, die, memory, links, space.prices)
    carbon = embodied_carbon(parts, die, memory, space.prices)
    return ChipReport(
        dies=int(parts.dies[0]),
        frequency_hz=platform.frequency_hz,
        voltage_v=clock.voltage_v,
        area_mm2=_parts(parts, PARTS),
        peak_w=_parts(power),
        cost_usd=_parts(price, ("dies", "package", "memory")),
        owning_usd=float(
            metrics.owned(max(plan.devices_used for plan in models.values())).owning_usd[0]
        ),
        embodied_kg=_parts(carbon),
        uses={
            name: replace(
                _use(plan, metrics.owned(plan.devices_used)),
                bought=_bought(plan.devices_used, metrics),
            )
            for name, plan in models.items()
        },
    )


def _bought(devices: int, metrics: ChipMetrics) -> BoughtCluster | None:
    """What money bought for a plan that uses so many ``devices``; None where their number was
    given."""
    purchase = metrics.purchase
    if purchase is None or metrics.caps is None:
        return None
    cost = purchase.cluster_usd(float(metrics.owning_usd[0]), devices)
    return BoughtCluster(
        devices, cost, max(purchase.usd - cost, 0.0), int(metrics.caps[0]), purchase.most_devices
    )


def _use(plan: PlanReport, metrics: ChipMetrics) -> ChipUse:
    """The chip under one plan; the devices of the cluster that the plan leaves idle draw what they
    always do."""
    assert metrics.use is not None and plan.energy_per_sample_j is not None
    throughput = np.array([plan.throughput_samples_per_s])
    sample_j = float(metrics.sample_joules(np.array([plan.energy_per_sample_j]), throughput)[0])
    beside_j = plan.beside_operators_j or 0.0
    busy_w = (
        (plan.energy_per_sample_j + beside_j) * plan.throughput_samples_per_s / plan.devices_used
    )
    sample_s = metrics.devices / plan.throughput_samples_per_s / metrics.use.service_s
    samples = MILLION / plan.sequence_length
    all_j = sample_j + metrics.use.host_w * metrics.devices / plan.throughput_samples_per_s
    return ChipUse(
        average_w=busy_w + float(metrics.static_w[0]),
        sample_j=sample_j,
        usd_per_million_tokens=samples
        * (metrics.owning_usd[0] * sample_s + metrics.use.usd_per_j * all_j),
        kg_per_million_tokens=samples
        * (metrics.embodied_kg[0] * sample_s + metrics.use.kg_per_j * all_j),
        beside_j=beside_j,
    )


def _parts(record: object, names: tuple[str, ...] = ()) -> tuple[ChipPart, ...]:
    """Fields of a record of arrays of shape (1,), those that are not 0."""
    every = names or tuple(field.name for field in fields(record))  # type: ignore[arg-type]
    found = (ChipPart(name.replace("_", " "), float(getattr(record, name)[0])) for name in every)
    return tuple(each for each in found if each.amount > 0.0)
