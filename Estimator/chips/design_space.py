"""The accelerators that may be built: a grid of axes under an area budget and limits.
``design_space_files`` reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from Estimator.chips.accelerator import STANDARD, Accelerator, AcceleratorSet, Platform, Variant
from Estimator.chips.axes import SIZES
from Estimator.chips.chip_limits import NO_LIMITS, ChipLimits, lowered_clocks
from Estimator.chips.cost import Prices
from Estimator.chips.die import check_edge, edge_problem
from Estimator.chips.limit_refusals import refuse_none_left
from Estimator.chips.own_links import own_links
from Estimator.chips.space_part import WHOLE, SpacePart, part_numbers
from Estimator.chips.whole_chip import WholeChips, whole_chips
from phaze_common.array_types import BoolArray, IntArray
from phaze_common.errors import InputError
from phaze_common.units import GIGA, MIB

LARGEST_GRID = 5_000_000  # combinations of axis values, which bounds memory to about 2 GiB


@dataclass(frozen=True)
class Axes:
    """Values each parameter takes. ``width_vc`` null: vector cores are as wide as tensor cores.

    ``memory`` lists memories as they are sold, as hbm3e:4 for four stacks, ``frequency_ghz``
    clocks; null: the platform's. ``links`` lists a chip's own, as 18x25GB/s; null: those of the
    cluster.
    """

    num_tc: tuple[int, ...]  # tensor cores
    num_vc: tuple[int, ...]  # vector cores
    width: tuple[int, ...]  # columns of processing elements of a tensor core
    depth: tuple[int, ...]  # rows of processing elements of a tensor core
    width_vc: tuple[int, ...] | None
    glb_mib: tuple[int, ...]  # global buffer
    memory: tuple[str, ...] | None = None
    frequency_ghz: tuple[float, ...] | None = None
    links: tuple[str, ...] | None = None

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Values by ``SIZES``, of the buffer in bytes; none where lanes are as many as columns."""
        cores = {name: getattr(self, name) or () for name in SIZES if name != "glb_bytes"}
        return cores | {"glb_bytes": tuple(size * MIB for size in self.glb_mib)}


@dataclass(frozen=True)
class ChipSize:
    """An accelerator as people write it down."""

    num_tc: int  # tensor cores
    num_vc: int  # vector cores
    width: int  # columns of processing elements of a tensor core
    depth: int  # rows of processing elements of a tensor core
    width_vc: int  # lanes of a vector core
    glb_mib: int  # global buffer
    memory: str | None = None  # as it is sold, KIND:STACKS; where the design space has several
    frequency_ghz: float | None = None  # None: the platform's
    links: str | None = None  # its own, as 18x25GB/s; where the design space has several


@dataclass(frozen=True)
class KeepRule:
    """Of what fits the budget: at least this fraction of it, or (where true) any chip with a single
    core of a kind."""

    minimum_area_fraction: float  # of the budget
    any_single_tc: bool  # whether chips with one tensor core are kept however small
    any_single_vc: bool  # whether chips with one vector core are kept however small


@dataclass(frozen=True)
class ReferenceChip:
    """A known accelerator that results are compared with."""

    name: str
    source: str
    accelerator: Accelerator


@dataclass(frozen=True)
class DesignSpace:
    """A design space with the platform all its accelerators share; ``technology`` names what the
    platform's areas come from.

    ``own_technology`` is the one that the file of the space names; both are names or absolute
    paths. Where chips have memory as it is sold, their area is that of the whole die, with links of
    their own, or of ``link_bandwidth_bytes_per_s`` where they state none, and ``prices`` say what
    they cost; ``limits`` are what they may take.
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

    @property
    def grid(self) -> tuple[int, ...]:
        """How many values each axis has: memories and links, then ``SIZES``; clocks are chosen
        behind these."""
        return (len(self.variants), *(len(each) or 1 for each in self.axes.sizes.values()))

    @property
    def largest_mm2(self) -> float:
        """The most that a chip may have: the budget of the space, or a lower limit."""
        limit = self.limits.area_mm2
        return self.budget_mm2 if limit is None else min(self.budget_mm2, limit)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Memories and links that chips may have, at the platform's clock."""
        axes = self.axes
        return tuple(
            Variant(memory, None, links)
            for memory in axes.memory or (None,)
            for links in axes.links or (None,)
        )

    @property
    def combinations(self) -> int:
        """Combinations of axis values, clocks among them."""
        return math.prod(self.grid) * len(self.axes.frequency_ghz or (None,))

    def generate(self, part: SpacePart = WHOLE) -> AcceleratorSet:
        """All accelerators of the space, or of a part of it, ordered by memories, links, clocks and
        the other axes.

        Raises: InputError: the grid is too large, or nothing on the axes passes budget, rule and
            limits; a part may be empty.
        """
        most = part.size(self.combinations)
        if most > LARGEST_GRID:
            needed = -(-self.combinations // LARGEST_GRID)
            raise InputError(
                f"design space {self.name}: a grid of {most:,} chips at once, at most "
                f"{LARGEST_GRID:,} are possible; divide its "
                f"search with run_solver --parts {needed}, or list fewer values"
            )
        each = math.prod(self.grid[1:])
        found = [
            self._of_variant(self._columns(part, place * each), variant)
            for place, variant in enumerate(self.variants)
        ]
        every = AcceleratorSet.joined([each.chips for each in found])
        if not len(every) and part.count == 1:
            self._refuse_empty(found)
        return every

    def part_sizes(self, count: int) -> IntArray:
        """How many accelerators each of ``count`` parts has, shape (count,); as much at once as
        ``generate`` takes."""
        sizes, pieces = np.zeros(count, dtype=np.int64), -(-self.combinations // LARGEST_GRID)
        for piece in SpacePart.all_of(pieces):
            numbers = part_numbers(self._places(self.generate(piece)), count)
            sizes += np.bincount(numbers - 1, minlength=count)
        return sizes

    def _places(self, chips: AcceleratorSet) -> IntArray:
        """Where ``chips`` are among the combinations of memories, links and sizes, shape
        (chips,)."""
        ids = [(each.memory, each.links) for each in self.variants]
        variants = np.array(
            [ids.index((each.memory, each.links)) for each in chips.variants], dtype=np.int64
        )[chips.variant]
        sizes = self.axes.sizes.items()
        found = [_places_of(getattr(chips, name), values) for name, values in sizes]
        places: IntArray = np.ravel_multi_index((variants, *found), self.grid)
        return places

    def place(self, chip: Accelerator) -> tuple[int, ...]:
        """Where ``chip`` is in the order of ``generate``: its places on the axes."""
        axes, hertz = self.axes, chip.frequency_hz or self.platform.frequency_hz
        clocks = tuple(ghz * GIGA for ghz in axes.frequency_ghz or ())
        return (
            _place(chip.memory_system, axes.memory or ()),
            _place(chip.links, axes.links or ()),
            _place(hertz, clocks),
            *(_place(getattr(chip, name), values) for name, values in axes.sizes.items()),
        )

    def _columns(self, part: SpacePart, first: int) -> dict[str, IntArray]:
        """Sizes by name of the chips of ``part`` with the memory whose chips begin at the place
        ``first``."""
        shape, sizes = self.grid[1:], self.axes.sizes
        chosen = part.places(first, first + math.prod(shape)) - first
        places = dict(zip(sizes, np.unravel_index(chosen, shape), strict=True))
        if not sizes["width_vc"]:  # lanes are as many as columns
            sizes["width_vc"], places["width_vc"] = sizes["width"], places["width"]
        return {name: np.array(sizes[name], dtype=np.int64)[places[name]] for name in sizes}

    def _refuse_edges(self) -> None:
        """Refuse memories of which none lies along the edge of as large a chip as the budget
        allows."""
        die, largest = self.platform.technology.die, self.budget_mm2
        memories = [self.platform.memory(label) for label in self.axes.memory or ()]
        if die is None or not memories or not math.isfinite(largest):
            return
        dies = np.arange(1, max(math.ceil(largest / die.reticle.value), 1) + 1)
        if all(edge_problem(largest, memory, dies).all() for memory in memories):
            check_edge(largest, min(memories, key=lambda memory: memory.edge_mm), int(dies[-1]))

    def _refuse_empty(self, found: Sequence[_OfVariant]) -> None:
        if self.limits.any:
            every = self._slowest(replace(self, limits=NO_LIMITS).generate())
            refuse_none_left(self.limits, self.name, self.whole(every))
        self._refuse_edges()
        least, most = min(each.least_mm2 for each in found), max(each.most_mm2 for each in found)
        raise InputError(
            f"design space {self.name} is empty: of {math.prod(self.grid)} accelerators ({least:g} "
            f"to {most:g} mm2) none passes the budget of {self.budget_mm2:g} mm2 and the keep "
            "rule; widen the axes or the budget"
        )

    def _slowest(self, chips: AcceleratorSet) -> AcceleratorSet:
        """``chips`` at the lowest clock that the limits would let them have, at which they draw
        least."""
        if self.axes.frequency_ghz is not None:
            return chips
        clock = lowered_clocks(self.platform, self.limits)[-1]
        return replace(
            chips, variants=tuple(replace(each, frequency_hz=clock) for each in chips.variants)
        )

    def whole(self, chips: AcceleratorSet) -> WholeChips:
        """What ``chips`` take in area, power and money, part by part."""
        return whole_chips(chips, self.platform, self.link_bandwidth_bytes_per_s, self.prices)

    def with_area(self, chip: Accelerator) -> Accelerator:
        """``chip`` with the area that it takes."""
        return replace(chip, area_mm2=float(self.whole(AcceleratorSet.of([chip])).area_mm2[0]))

    def links_bytes_per_s(self, chip: Accelerator) -> float:
        """Bandwidth of all links of ``chip``, each way."""
        if chip.links is None:
            return self.link_bandwidth_bytes_per_s
        return own_links(chip.links).bandwidth_bytes_per_s

    def _of_variant(self, columns: dict[str, IntArray], variant: Variant) -> _OfVariant:
        """The chips with one memory and links, and the range of all areas."""
        area = np.zeros(len(columns["num_tc"]))
        chips = AcceleratorSet(**columns, area_mm2=area, variants=(variant,))
        area = self.whole(chips).area_mm2
        chips = replace(chips, area_mm2=area)
        within = area >= self.keep.minimum_area_fraction * self.budget_mm2
        if self.keep.any_single_tc:
            within |= chips.num_tc == 1
        if self.keep.any_single_vc:
            within |= chips.num_vc == 1
        within &= area <= self.budget_mm2
        least, most = float(area.min(initial=math.inf)), float(area.max(initial=0.0))
        return _OfVariant(self._clocked(chips.some(within)), least, most)

    def _clocked(self, chips: AcceleratorSet) -> AcceleratorSet:
        """``chips`` within the limits at the clocks of the space, without any at the highest that
        the power limit allows."""
        (variant,) = chips.variants
        if variant == STANDARD and self.axes.frequency_ghz is None:
            return chips
        clocks = [ghz * GIGA for ghz in self.axes.frequency_ghz or ()] or lowered_clocks(
            self.platform, self.limits
        )
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
class _OfVariant:
    """Chips of a space with one memory and links, and the least and the largest area on its
    grid."""

    chips: AcceleratorSet
    least_mm2: float
    most_mm2: float


def _places_of(column: IntArray, axis: Sequence[int]) -> IntArray:
    """Places of the values of ``column`` on an axis that has all of them; 0 on one without
    values."""
    if not axis:
        return np.zeros(len(column), dtype=np.int64)
    order = np.argsort(axis)
    found: IntArray = order[np.searchsorted(np.asarray(axis)[order], column)]
    return found


def _place(value: object, axis: Sequence[object]) -> int:
    return axis.index(value) if value in axis else len(axis)


def accelerator_of(size: ChipSize, platform: Platform) -> Accelerator:
    """The accelerator of these sizes, its area not known yet."""
    cores = (size.num_tc, size.num_vc, size.width, size.depth, size.width_vc, size.glb_mib * MIB)
    frequency_hz = None if size.frequency_ghz is None else size.frequency_ghz * GIGA
    clock = None if frequency_hz == platform.frequency_hz else frequency_hz
    links = None if size.links is None else own_links(size.links).label
    return Accelerator(*cores, 0.0, size.memory, clock, links)
