"""Dollars and carbon of a device: its dies, package, memory, board, links and server, and the
energy of its years of service.

    yield          = (1 + A D / alpha)^-alpha                     negative binomial (Stapper 1983;
    Cunningham, IEEE TSM 1990) dies per wafer = pi (d/2)^2 / A - pi d / sqrt(2 A)             gross
    dies of a round wafer (de Vries, IEEE TSM 2005) cost of a die  = (wafer / dies per wafer + test)
    / (yield + salvaged x (1 - yield)) embodied       = wafer's cm2 / (dies per wafer x the same) x
    (fab's kWh/cm2 x its grid + gases + materials)
                     + memory + package + server (ACT, ISCA 2022)

Making, not selling: prices are what parts cost who builds the system, without a vendor's margin on
the chip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from Estimator.chips.die import DieParts, added
from Estimator.chips.memory import MemorySystem
from Estimator.chips.process import DieProcess
from Estimator.hardware_files import hardware_path
from Estimator.quantity import UncertainQuantity, quantity_problems
from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError
from phaze_common.file_formats import PRICES
from phaze_common.records import read_yaml, to_record
from phaze_common.units import GB

MM2_PER_CM2 = 100.0
HOURS_PER_YEAR = 8766.0
G_PER_KG = 1000.0
MOST_TIERS = 64  # of switches


@dataclass(frozen=True)
class Prices:
    """What is paid for beside wafers (``DieProcess``) and memory (``Memory``), as of ``date``."""

    date: str
    # of dies with defects, sold with fewer cores
    salvaged: Annotated[UncertainQuantity, "fraction"]
    die_test: Annotated[UncertainQuantity, "USD"]  # per die
    substrate: Annotated[UncertainQuantity, "USD per mm2"]  # of die area
    interposer: Annotated[UncertainQuantity, "USD per mm2"]  # of its own area
    interposer_stack_area: Annotated[UncertainQuantity, "mm2"]  # under a stack of memory
    assembly: Annotated[UncertainQuantity, "USD"]  # per die or stack that is joined
    assembly_yield: Annotated[UncertainQuantity, "fraction"]  # per die or stack that is joined
    board: Annotated[UncertainQuantity, "USD"]  # module, power delivery and cooling, per device
    link: Annotated[UncertainQuantity, "USD per GB/s"]  # cables and connectors, per GB/s each way
    # a port of a switch with its transceivers, per GB/s each way
    switch: Annotated[UncertainQuantity, "USD per GB/s"]
    switch_radix: Annotated[UncertainQuantity, "count"]  # ports of a switch
    server: Annotated[UncertainQuantity, "USD"]  # host, storage and rack, per device
    host_power: Annotated[UncertainQuantity, "W"]  # host and fans, per device
    service: Annotated[UncertainQuantity, "years"]  # over which what was bought is written off
    utilisation: Annotated[UncertainQuantity, "fraction"]  # of the years of service, under load
    # energy of the data centre over that of its machines
    pue: Annotated[UncertainQuantity, "ratio"]
    electricity: Annotated[UncertainQuantity, "USD per kWh"]  # energy at the site
    grid_carbon: Annotated[UncertainQuantity, "g/kWh"]  # where the data centre is
    fab_carbon: Annotated[UncertainQuantity, "g/kWh"]  # where the fab is
    package_carbon: Annotated[UncertainQuantity, "kg"]  # per die or stack
    server_carbon: Annotated[UncertainQuantity, "kg"]  # board, host and rack, per device


@dataclass(frozen=True, eq=False)
class CostParts:
    """Dollars of N devices by part, arrays of shape (N,)."""

    dies: FloatArray
    package: FloatArray
    memory: FloatArray
    board: FloatArray
    links: FloatArray
    server: FloatArray

    @property
    def total_usd(self) -> FloatArray:
        """Capital of a device; shape (N,)."""
        return added([getattr(self, entry.name) for entry in fields(self)])

    @property
    def chip_usd(self) -> FloatArray:
        """Of the package alone: dies, package and memory; shape (N,)."""
        return np.asarray(self.dies + self.package + self.memory, dtype=np.float64)


FRACTIONS = ("salvaged", "assembly_yield", "utilisation")
LEAST = MappingProxyType(
    {"assembly_yield": 0.01, "utilisation": 0.01, "pue": 1.0, "service": 0.01, "switch_radix": 2.0}
)
LIMITED = tuple(dict.fromkeys((*FRACTIONS, *LEAST)))


@dataclass(frozen=True, eq=False)
class CarbonParts:
    """Kilograms of CO2 equivalents from making N devices by part, arrays of shape (N,)."""

    dies: FloatArray
    package: FloatArray
    memory: FloatArray
    server: FloatArray

    @property
    def total_kg(self) -> FloatArray:
        """Embodied in a device; shape (N,)."""
        return added([getattr(self, entry.name) for entry in fields(self)])


def load_prices(name_or_path: str) -> Prices:
    """Read prices.

    Raises:
        InputError: no such file, or what is wrong in it.
    """
    path = hardware_path("prices", name_or_path)
    prices = to_record(Prices, PRICES.current(read_yaml(path), str(path)), str(path))
    for problem in quantity_problems(prices):
        raise InputError(f"{path}: {problem}")
    for key in FRACTIONS:
        if getattr(prices, key).high > 1:
            raise InputError(
                f"{path}: {key} goes up to {getattr(prices, key).high:g}; it must be at most 1"
            )
    for key, least in LEAST.items():
        if getattr(prices, key).low < least:
            raise InputError(
                f"{path}: {key} goes down to {getattr(prices, key).low:g}; it must be at least "
                f"{least:g}"
            )
    return prices


def with_possible_ranges(prices: Prices) -> Prices:
    """Prices of which some were changed: ranges that were moved with a value end where values do.

    Raises:
        InputError: a value that cannot be.
    """
    for key in LIMITED:
        least, most = LEAST.get(key, 0.0), 1.0 if key in FRACTIONS else math.inf
        price: UncertainQuantity = getattr(prices, key)
        if not least <= price.value <= most:
            bound = f"at least {least:g}" if price.value < least else f"at most {most:g}"
            raise InputError(f"prices.{key} is {price.value:g} {price.unit}; it must be {bound}")
        low, high = max(price.low, least), min(price.high, most)
        if (low, high) != (price.low, price.high):
            prices = replace(prices, **{key: replace(price, low=low, high=high)})  # type: ignore[arg-type]
    return prices


def die_yield(area_mm2: ArrayLike, die: DieProcess) -> FloatArray:
    """Share of dies without a defect; shape of ``area_mm2``."""
    alpha = die.defect_clustering.value
    defects = np.asarray(area_mm2, dtype=np.float64) / MM2_PER_CM2 * die.defect_density.value
    share: FloatArray = (1 + defects / alpha) ** -alpha
    return share


def dies_per_wafer(area_mm2: ArrayLike, die: DieProcess) -> FloatArray:
    """Whole dies on a wafer; shape of ``area_mm2``."""
    area, across = np.asarray(area_mm2, dtype=np.float64), die.wafer_diameter.value
    whole: FloatArray = math.pi * (across / 2) ** 2 / area - math.pi * across / np.sqrt(2 * area)
    return np.maximum(whole, 1.0)


def die_cost_usd(area_mm2: ArrayLike, die: DieProcess, prices: Prices) -> FloatArray:
    """Dollars of a die that can be sold, tested; shape of ``area_mm2``."""
    sold = _sold_share(area_mm2, die, prices)
    made: FloatArray = die.wafer_price.value / dies_per_wafer(area_mm2, die)
    return (made + prices.die_test.value) / sold


def _sold_share(area_mm2: ArrayLike, die: DieProcess, prices: Prices) -> FloatArray:
    whole = die_yield(area_mm2, die)
    sold: FloatArray = whole + prices.salvaged.value * (1 - whole)
    return sold


def chip_price(
    parts: DieParts,
    die: DieProcess,
    memory: MemorySystem,
    link_bandwidth_bytes_per_s: float,
    prices: Prices,
) -> CostParts:
    """Capital of a device by part, without the switches of its network (``switches_usd``); arrays
    of shape (N,)."""
    total, count = parts.total_mm2, parts.dies.astype(np.float64)
    dies = count * die_cost_usd(total / count, die, prices)
    memory_usd = np.full_like(total, memory.capacity_gib * memory.memory.price_per_gib.value)
    joined = count + memory.stacks * memory.memory.interposer
    carried = (count > 1) | memory.memory.interposer
    stacks_on_interposer = memory.stacks * memory.memory.interposer
    under_stacks_mm2 = stacks_on_interposer * prices.interposer_stack_area.value
    carrier_mm2 = np.where(carried, total + under_stacks_mm2, 0.0)
    made = (
        total * prices.substrate.value
        + carrier_mm2 * prices.interposer.value
        + joined * prices.assembly.value
    )
    # what fails takes its dies and stacks with it
    survive = np.where(carried, prices.assembly_yield.value**joined, 1.0)
    lost = (dies + np.where(memory.memory.interposer, memory_usd, 0.0) + made) * (1 / survive - 1)
    return CostParts(
        dies=dies,
        package=made + lost,
        memory=memory_usd,
        board=np.full_like(total, prices.board.value),
        links=np.full_like(total, link_bandwidth_bytes_per_s / GB * prices.link.value),
        server=np.full_like(total, prices.server.value),
    )


def switches_usd(bandwidth_bytes_per_s: float, devices: int, prices: Prices) -> float:
    """A device's share of the switches that join ``devices`` without blocking, at so many bytes/s
    each way for each.

    A folded Clos of t tiers joins ``2 (radix / 2)^t`` devices with ``2 t - 1`` ports of switches
    for each (Leiserson 1985).
    """
    if devices <= 1:
        return 0.0
    tiers = len(clos_sizes(devices, prices)) + 1
    return (2 * tiers - 1) * bandwidth_bytes_per_s / GB * prices.switch.value


def clos_sizes(devices: int, prices: Prices) -> list[int]:
    """The most devices that 1, 2, ... tiers of switches join, as far as these are fewer than
    ``devices``."""
    radix, sizes = prices.switch_radix.value, list[float]()
    while (
        len(sizes) < MOST_TIERS - 1
        and (joined := 2 * (radix / 2) ** (len(sizes) + 1) if sizes else radix) < devices
    ):
        sizes.append(joined)
    return [int(size) for size in sizes]


def service_s(prices: Prices) -> float:
    """Seconds under load in the years of service, over which capital is spread."""
    return prices.service.value * HOURS_PER_YEAR * 3600.0 * prices.utilisation.value


def embodied_carbon(
    parts: DieParts, die: DieProcess, memory: MemorySystem, prices: Prices
) -> CarbonParts:
    """Kilograms of CO2 equivalents from making a device, by part; arrays of shape (N,)."""
    total, count = parts.total_mm2, parts.dies.astype(np.float64)
    per_cm2 = (
        die.wafer_energy.value * prices.fab_carbon.value / G_PER_KG
        + die.wafer_gases.value
        + die.wafer_materials.value
    )
    wafer_cm2 = math.pi * (die.wafer_diameter.value / 2) ** 2 / MM2_PER_CM2
    sold = dies_per_wafer(total / count, die) * _sold_share(total / count, die, prices)
    dies = count * wafer_cm2 * per_cm2 / sold
    return CarbonParts(
        dies=dies,
        package=(count + memory.stacks) * prices.package_carbon.value,
        memory=np.full_like(total, memory.capacity_gib * memory.memory.carbon_per_gib.value),
        server=np.full_like(total, prices.server_carbon.value),
    )
