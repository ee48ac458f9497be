"""What a chip may take: area of its die, power with everything on it busy, money. The clock falls
where power binds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Platform
from Estimator.chips.clock import maximum_frequency_hz
from Estimator.chips.whole_chip import WholeChips
from phaze_common.array_types import FloatArray

CLOCK_STEP = 0.05  # of the platform's clock, by which the clock falls where power binds


@dataclass(frozen=True)
class ChipLimits:
    """The most that one chip may take; None: any amount. Of several dies the area is that of all of
    them."""

    area_mm2: float | None = None
    power_w: float | None = None
    cost_usd: float | None = None
    # of all devices with servers and switches: it buys one of each chip at least
    cluster_usd: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.stated)

    @property
    def stated(self) -> tuple[Stated, ...]:
        """Those that there are."""
        every = ((kind, getattr(self, kind.limit)) for kind in KINDS)
        return tuple(Stated(kind, limit) for kind, limit in every if limit is not None)

    def passing(self, whole: WholeChips) -> NDArray[np.bool_]:
        """Which chips could be built within the limits, shape (chips,): their dies carry their
        memories too."""
        found: NDArray[np.bool_] = whole.buildable.copy()
        for each in self.stated:
            found &= each.holds(whole)
        return found


@dataclass(frozen=True)
class LimitKind:
    """A field of ``ChipLimits``, the flag that states it, and the field of ``WholeChips`` it is of,
    in words with its unit."""

    limit: str
    flag: str
    taken: str
    verb: str
    unit: str
    beside: str = ""

    def words(self, amount: str, more: str = "") -> str:
        """``draw 41 W or more``."""
        return f"{self.verb} {amount} {self.unit}{more}{self.beside}"


KINDS = (
    LimitKind("area_mm2", "--max-area", "area_mm2", "take", "mm2"),
    LimitKind("power_w", "--max-power", "peak_w", "draw", "W"),
    LimitKind("cost_usd", "--max-chip-cost", "cost_usd", "cost", "USD"),
    LimitKind(
        "cluster_usd",
        "--max-cluster-cost",
        "owning_usd",
        "cost",
        "USD",
        " with their share of servers",
    ),
)


@dataclass(frozen=True)
class Stated:
    """A limit of some ``kind`` that was given."""

    kind: LimitKind
    limit: float

    @property
    def words(self) -> str:
        """``--max-power 300``."""
        return f"{self.kind.flag} {self.limit:.10g}"

    def taken(self, whole: WholeChips) -> FloatArray:
        """What chips have of it, shape (chips,)."""
        taken: FloatArray = getattr(whole, self.kind.taken)
        return taken

    def holds(self, whole: WholeChips) -> NDArray[np.bool_]:
        """Which chips are within it, shape (chips,)."""
        return self.taken(whole) <= self.limit


NO_LIMITS = ChipLimits()


def lowered_clocks(platform: Platform, limits: ChipLimits) -> list[float]:
    """Hertz at which chips of ``platform`` may run, highest first: its own, and lower ones in steps
    where power is limited."""
    own, die = platform.frequency_hz, platform.technology.die
    if limits.power_w is None or die is None:
        return [own]
    steps = np.arange(round(1.0 / CLOCK_STEP), 0, -1) * CLOCK_STEP
    return [own * float(step) for step in steps if own * step <= maximum_frequency_hz(die)] or [own]
