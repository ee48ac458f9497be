"""What chips take as a whole: area of the die, power that they draw, money and carbon that they
cost.

Where memory is not named, area is that of Phaze's model (``area``), which has no interfaces, and
power and money are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import AcceleratorSet, Platform
from Estimator.chips.area import area_mm2
from Estimator.chips.axes import SIZES
from Estimator.chips.clock import at_frequency
from Estimator.chips.cost import Prices, chip_price, embodied_carbon
from Estimator.chips.die import DieParts, die_parts, die_process, edge_problem, too_large
from Estimator.chips.own_links import own_links
from Estimator.chips.power import constant_power, peak_power_parts
from phaze_common.array_types import FloatArray


@dataclass(frozen=True, eq=False)
class WholeChips:
    """What each chip takes, arrays of shape (chips,).

    ``static_w`` is drawn all the time, ``peak_w`` with everything busy. ``cost_usd`` is what the
    chip costs with its memory and package, ``owning_usd`` with board, cables and its part of a
    server too. What is not known is 0. ``buildable`` says that the die carries its memory.
    """

    area_mm2: FloatArray
    static_w: FloatArray
    peak_w: FloatArray
    cost_usd: FloatArray
    owning_usd: FloatArray
    embodied_kg: FloatArray
    buildable: NDArray[np.bool_]


def whole_chips(
    chips: AcceleratorSet,
    platform: Platform,
    link_bandwidth_bytes_per_s: float,
    prices: Prices | None,
) -> WholeChips:
    """What ``chips`` take, each with its own memory, clock and links; those that state none have
    links of so many bytes/s."""
    count = len(chips)
    area, static, peak, cost, owning, embodied = np.zeros((6, count))
    found = WholeChips(area, static, peak, cost, owning, embodied, np.ones(count, dtype=np.bool_))
    for place, variant in enumerate(chips.variants):
        mine = np.flatnonzero(chips.variant == place)
        if not len(mine):
            continue
        some, of_variant = chips.some(mine), platform.at(variant)
        if variant.memory is None:
            sizes = {name: getattr(some, name) for name in SIZES}
            found.area_mm2[mine] = area_mm2(**sizes, platform=platform)
            continue
        memory, die = platform.memory(variant.memory), die_process(platform.technology)
        clock = at_frequency(die, of_variant.frequency_hz)
        own = None if variant.links is None else own_links(variant.links)
        links_bytes_per_s = link_bandwidth_bytes_per_s if own is None else own.bandwidth_bytes_per_s
        parts: DieParts = die_parts(some, of_variant, memory, links_bytes_per_s)
        found.area_mm2[mine] = parts.total_mm2
        found.static_w[mine] = constant_power(parts, die, clock, memory).total_w
        busy = peak_power_parts(some, platform, memory, parts, clock, links_bytes_per_s)
        found.peak_w[mine] = busy.total_w
        found.buildable[mine] = ~(
            edge_problem(parts.total_mm2, memory, parts.dies) | too_large(parts)
        )
        if prices is not None:
            price = chip_price(parts, die, memory, links_bytes_per_s, prices)
            found.cost_usd[mine], found.owning_usd[mine] = price.chip_usd, price.total_usd
            found.embodied_kg[mine] = embodied_carbon(parts, die, memory, prices).total_kg
    return found
