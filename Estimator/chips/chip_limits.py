"""What a chip may take: area of its die, power with everything on it busy, money. The clock falls where power binds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Platform
from Estimator.chips.clock import maximum_frequency_hz
from Estimator.chips.whole_chip import WholeChips

CLOCK_STEP = 0.05  # of the platform's clock, by which the clock falls where power binds


@dataclass(frozen=True)
class ChipLimits:
    """The most that one chip may take; None: any amount. Of several dies the area is that of all of them."""

    area_mm2: float | None = None
    power_w: float | None = None
    cost_usd: float | None = None
    cluster_usd: float | None = None  # of all devices with servers and switches: it buys one of each chip at least

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return any(each is not None for each in (self.area_mm2, self.power_w, self.cost_usd, self.cluster_usd))

    @property
    def words(self) -> str:
        """The limits in words, empty where there are none."""
        shares = (self.cluster_usd, "USD with its share of servers")
        stated = ((self.area_mm2, "mm2"), (self.power_w, "W"), (self.cost_usd, "USD"), shares)
        return " and ".join(f"{limit:g} {unit}" for limit, unit in stated if limit is not None)

    def passing(self, whole: WholeChips) -> NDArray[np.bool_]:
        """Which chips could be built within the limits, shape (chips,): their dies carry their memories too."""
        found: NDArray[np.bool_] = whole.buildable.copy()
        for limit, taken in (
            (self.area_mm2, whole.area_mm2),
            (self.power_w, whole.peak_w),
            (self.cost_usd, whole.cost_usd),
            (self.cluster_usd, whole.owning_usd),
        ):
            if limit is not None:
                found &= taken <= limit
        return found


NO_LIMITS = ChipLimits()


def lowered_clocks(platform: Platform, limits: ChipLimits) -> list[float]:
    """Hertz at which chips of ``platform`` may run, highest first: its own, and lower ones in steps where power is limited."""
    own, die = platform.frequency_hz, platform.technology.die
    if limits.power_w is None or die is None:
        return [own]
    steps = np.arange(round(1.0 / CLOCK_STEP), 0, -1) * CLOCK_STEP
    return [own * float(step) for step in steps if own * step <= maximum_frequency_hz(die)] or [own]
