"""The accelerators that may be built: a grid of axes under an area budget and limits. ``design_space_files`` reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from Common.errors import InputError
from Common.units import MIB
from Estimator.chips.accelerator import SIZES, STANDARD, Accelerator, AcceleratorSet, IntArray, Platform, Variant
from Estimator.chips.chip_limits import NO_LIMITS, ChipLimits, lowered_clocks
from Estimator.chips.cost import Prices
from Estimator.chips.own_links import own_links
from Estimator.chips.whole_chip import WholeChips, whole_chips

GIGA = 1e9
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Axes:
    """Values each parameter takes. ``width_vc`` null: vector cores are as wide as tensor cores.

    ``memory`` lists memories as they are sold, as hbm3e:4 for four stacks, ``frequency_ghz`` clocks; null: the platform's.
    ``links`` lists a chip's own, as 18x25GB/s; null: those of the cluster.
    """

    num_tc: tuple[int, ...]
    num_vc: tuple[int, ...]
    width: tuple[int, ...]
    depth: tuple[int, ...]
    width_vc: tuple[int, ...] | None
    glb_mib: tuple[int, ...]
    memory: tuple[str, ...] | None = None
    frequency_ghz: tuple[float, ...] | None = None
    links: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ChipSize:
    """An accelerator as people write it down."""

    num_tc: int
    num_vc: int
    width: int
    depth: int
    width_vc: int
    glb_mib: int
    memory: str | None = None
    frequency_ghz: float | None = None
    links: str | None = None


@dataclass(frozen=True)
class KeepRule:
    """Of what fits the budget: at least this fraction of it, or (where true) any chip with a single core of a kind."""

    minimum_area_fraction: float
    any_single_tc: bool
    any_single_vc: bool


@dataclass(frozen=True)
class ReferenceChip:
    """A known accelerator that results are compared with."""

    name: str
    source: str
    accelerator: Accelerator


@dataclass(frozen=True)
class DesignSpace:
    """A design space with the platform all its accelerators share; ``technology`` names what the platform's areas come from.

    ``own_technology`` is the one that the file of the space names; both are names or absolute paths. Where chips have memory as
    it is sold, their area is that of the whole die, with links of their own, or of ``link_bandwidth_bytes_per_s`` where they
    state none, and ``prices`` say what they cost; ``limits`` are what they may take.
    """

    name: str
    technology: str
    own_technology: str
    platform: Platform
    axes: Axes
    budget_mm2: float
    keep: KeepRule
    references: tuple[ReferenceChip, ...]
    link_bandwidth_bytes_per_s: float = 0.0
    prices: Prices | None = None
    limits: ChipLimits = NO_LIMITS

    def generate(self) -> AcceleratorSet:
        """All accelerators of the space, in lexicographic order of memories, links, clocks and the other axes.

        Raises:
            InputError: nothing on the axes passes budget, rule and limits.
        """
        axes = self.axes
        lanes = (0,) if axes.width_vc is None else axes.width_vc
        grid = np.meshgrid(axes.num_tc, axes.num_vc, axes.width, axes.depth, lanes, axes.glb_mib, indexing="ij")
        num_tc, num_vc, width, depth, width_vc, glb_mib = (axis.reshape(-1).astype(np.int64) for axis in grid)
        if axes.width_vc is None:
            width_vc = width
        columns = (num_tc, num_vc, width, depth, width_vc, glb_mib * MIB)
        variants = [Variant(memory, None, links) for memory in axes.memory or (None,) for links in axes.links or (None,)]
        found = [self._kept(columns, variant) for variant in variants]
        every = AcceleratorSet.joined([kept.chips for kept in found])
        if not len(every):
            least, most = min(kept.least_mm2 for kept in found), max(kept.most_mm2 for kept in found)
            refusal = f"the budget of {self.budget_mm2:g} mm2 and the keep rule"
            if self.limits.any:
                refusal += f" and the limits of {self.limits.words} per chip"
            raise InputError(
                f"design space {self.name} is empty: of {len(num_tc) * len(found)} accelerators ({least:g} to {most:g} mm2) "
                f"none passes {refusal}; widen the axes, the budget or the limits"
            )
        return every

    def whole(self, chips: AcceleratorSet) -> WholeChips:
        """What ``chips`` take in area, power and money, part by part."""
        return whole_chips(chips, self.platform, self.link_bandwidth_bytes_per_s, self.prices)

    def with_area(self, chip: Accelerator) -> Accelerator:
        """``chip`` with the area that it takes."""
        return replace(chip, area_mm2=float(self.whole(AcceleratorSet.of([chip])).area_mm2[0]))

    def links_bytes_per_s(self, chip: Accelerator) -> float:
        """Bandwidth of all links of ``chip``, each way."""
        return self.link_bandwidth_bytes_per_s if chip.links is None else own_links(chip.links).bandwidth_bytes_per_s

    def _kept(self, columns: tuple[IntArray, ...], variant: Variant) -> _Kept:
        """The chips with one memory and links, and the range of all areas."""
        named = dict(zip(SIZES, columns, strict=True))
        chips = AcceleratorSet(**named, area_mm2=np.zeros(len(columns[0])), variants=(variant,))
        area = self.whole(chips).area_mm2
        chips = replace(chips, area_mm2=area)
        kept = area >= self.keep.minimum_area_fraction * self.budget_mm2
        if self.keep.any_single_tc:
            kept |= chips.num_tc == 1
        if self.keep.any_single_vc:
            kept |= chips.num_vc == 1
        kept &= area <= self.budget_mm2
        return _Kept(self._clocked(chips.some(kept)), float(area.min()), float(area.max()))

    def _clocked(self, chips: AcceleratorSet) -> AcceleratorSet:
        """``chips`` within the limits at the clocks of the space, without any at the highest that the power limit allows."""
        (variant,) = chips.variants
        if variant == STANDARD and self.axes.frequency_ghz is None:
            return chips
        clocks = [ghz * GIGA for ghz in self.axes.frequency_ghz or ()] or lowered_clocks(self.platform, self.limits)
        found, left = [], np.ones(len(chips), dtype=np.bool_)
        for frequency_hz in clocks:
            clock = None if frequency_hz == self.platform.frequency_hz else frequency_hz
            clocked = replace(chips, variants=(replace(variant, frequency_hz=clock),))
            passing: BoolArray = self.limits.passing(self.whole(clocked)) & left
            found.append(clocked.some(passing))
            if self.axes.frequency_ghz is None:
                left = left & ~passing
        return AcceleratorSet.joined(found)


@dataclass(frozen=True, eq=False)
class _Kept:
    """Chips of a space with one memory and links, and the least and the largest area on its grid."""

    chips: AcceleratorSet
    least_mm2: float
    most_mm2: float


def accelerator_of(size: ChipSize, platform: Platform, area_mm2: float = 0.0) -> Accelerator:
    """The accelerator of these sizes."""
    cores = (size.num_tc, size.num_vc, size.width, size.depth, size.width_vc, size.glb_mib * MIB)
    frequency_hz = None if size.frequency_ghz is None else size.frequency_ghz * GIGA
    clock = None if frequency_hz == platform.frequency_hz else frequency_hz
    return Accelerator(*cores, area_mm2, size.memory, clock, None if size.links is None else own_links(size.links).label)
