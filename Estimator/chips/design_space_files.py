"""Design spaces and chips from their YAML files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from Estimator.chips.accelerator import Accelerator, Platform
from Estimator.chips.chip_limits import NO_LIMITS, ChipLimits
from Estimator.chips.clock import maximum_frequency_hz
from Estimator.chips.cost import Prices, load_prices, with_possible_ranges
from Estimator.chips.design_space import (
    LARGEST_GRID,
    Axes,
    ChipSize,
    DesignSpace,
    KeepRule,
    ReferenceChip,
    accelerator_of,
)
from Estimator.chips.memory import Memory
from Estimator.chips.memory_files import check_memory, memory_system
from Estimator.chips.own_links import own_links
from Estimator.chips.process import process_problems
from Estimator.chips.space_part import MOST_PARTS
from Estimator.constants import EVERY, ConstantChange, Kind, asked_of, changed
from Estimator.hardware_files import (
    check_platform,
    hardware_path,
    load_platform,
    load_technology,
    load_vector_functions,
)
from phaze_common.errors import InputError
from phaze_common.file_formats import CHIP, DESIGN_SPACE
from phaze_common.files import beside
from phaze_common.records import read_yaml, to_record
from phaze_common.refusals import FileRefusals
from phaze_common.units import GIGA

LEAST_GHZ = 1e-3  # of a clock: a megahertz
PRICES = "datacenter_2025"  # where none are given
TEXTS = frozenset({"memory", "links"})  # axes whose values are no numbers
LARGEST_VALUE = 2**20  # of an axis: far beyond any chip, far from overflow


@dataclass(frozen=True)
class NamedChip:
    """A reference accelerator."""

    name: str
    source: str
    accelerator: ChipSize  # its sizes


@dataclass(frozen=True)
class Budget:
    """Largest area: that of an accelerator, or a number."""

    accelerator: ChipSize | None = None  # no chip is larger than this one
    area_mm2: float | None = None  # no chip is larger than this


@dataclass(frozen=True)
class DesignSpaceFile:
    """A design space as its file states it; other files by name or by path relative to this one."""

    name: str
    technology: str  # areas and energies: a technology
    platform: str  # what all accelerators share: clock, bandwidths, buffers
    vector_functions: str  # cycles of vector functions
    axes: Axes  # the values that each size takes; accelerators are all combinations
    budget: Budget  # the largest area of a chip
    keep: KeepRule  # which of those that fit the budget are kept
    # known chips that are scored beside the optimum, inside the space or not
    references: tuple[NamedChip, ...] = ()


@dataclass(frozen=True)
class SpaceChanges:
    """What a request has in place of what the file of a space states; empty: nothing.

    Chips that state no links have some of ``link_bandwidth_bytes_per_s``, and all cost what
    ``prices`` say.
    """

    technology: str | None = None
    memory: tuple[str, ...] = ()
    limits: ChipLimits = NO_LIMITS
    link_bandwidth_bytes_per_s: float = 0.0
    prices: Prices | None = None
    constants: tuple[ConstantChange, ...] = ()
    links: tuple[str, ...] = ()


NO_CHANGES = SpaceChanges()


def load_design_space(name_or_path: str, changes: SpaceChanges = NO_CHANGES) -> DesignSpace:
    """Read a design space with all the files it names, and with ``changes``.

    Raises: InputError: unknown name, unreadable file, bad key, empty or non-positive axis, budget
        missing or stated twice, memory
            as it is sold under a technology that does not describe a whole die, or the other way
            round.
    """
    path = hardware_path("design_spaces", name_or_path)
    stated = to_record(DesignSpaceFile, DESIGN_SPACE.current(read_yaml(path), str(path)), str(path))
    _check(stated, path)
    own = str(beside(path.parent.absolute(), stated.technology))
    asked = changes.technology
    process = (
        load_technology(stated.technology, path.parent) if asked is None else load_technology(asked)
    )
    functions = load_vector_functions(stated.vector_functions, path.parent)
    platform = load_platform(stated.platform, process, functions, path.parent)
    memory = changes.memory or stated.axes.memory or ()
    sizes = [stated.budget.accelerator, *(each.accelerator for each in stated.references)]
    labels = dict.fromkeys(
        [*memory, *(size.memory for size in sizes if size is not None and size.memory is not None)]
    )
    # what is asked lies where people are
    here = {label: None if label in changes.memory else path.parent for label in labels}
    systems = {label: memory_system(label, folder) for label, folder in here.items()}
    platform = replace(
        platform, memories=tuple({each.label: each for each in systems.values()}.values())
    )
    platform = _with_constants(platform, changes.constants)
    links = _labels(changes.links or stated.axes.links or ())
    axes = replace(
        stated.axes, memory=tuple(systems[label].label for label in memory) or None, links=links
    )
    space = DesignSpace(
        name=stated.name,
        technology=asked or own,
        own_technology=own,
        platform=platform,
        axes=axes,
        budget_mm2=math.inf,
        keep=stated.keep,
        references=(),
        link_bandwidth_bytes_per_s=changes.link_bandwidth_bytes_per_s if memory else 0.0,
        prices=_changed_prices(changes.prices or load_prices(PRICES), changes.constants)
        if memory
        else None,
        limits=changes.limits,
    )
    _check_die(space, str(path))

    def chip(size: ChipSize) -> Accelerator:
        named = size.memory and systems[size.memory].label
        if named is None and axes.memory is not None:
            named = axes.memory[0]  # a chip that states none has that of the space
        linked = size.links or (axes.links[0] if axes.links else None)
        return space.with_area(accelerator_of(replace(size, memory=named, links=linked), platform))

    references = tuple(
        ReferenceChip(each.name, each.source, chip(each.accelerator)) for each in stated.references
    )
    if stated.budget.accelerator is None:
        limit = stated.budget.area_mm2
    else:
        limit = chip(stated.budget.accelerator).area_mm2
    assert limit is not None
    return replace(space, references=references, budget_mm2=limit)


def with_changes(space: DesignSpace, changes: SpaceChanges) -> DesignSpace:
    """A design space that was read before, with what of it may be changed without its file.

    Raises:
        InputError: as ``load_design_space``.
    """
    asked = changes.memory or changes.links or changes.limits.any or changes.constants
    if not asked and space.axes.memory is None:
        return space
    systems = tuple(memory_system(label) for label in changes.memory)
    memories = tuple({each.label: each for each in (*space.platform.memories, *systems)}.values())
    labels = tuple(each.label for each in systems) or space.axes.memory
    other = replace(
        space,
        platform=_with_constants(replace(space.platform, memories=memories), changes.constants),
        axes=replace(space.axes, memory=labels, links=_labels(changes.links) or space.axes.links),
        limits=changes.limits,
        link_bandwidth_bytes_per_s=changes.link_bandwidth_bytes_per_s,
        prices=_changed_prices(changes.prices or space.prices, changes.constants),
    )
    _check_die(other, space.name)
    return other


def _labels(links: Sequence[str]) -> tuple[str, ...] | None:
    """Distinct links, each by its label; None where there are none."""
    return tuple(dict.fromkeys(own_links(text).label for text in links)) or None


def _changed_prices(prices: Prices | None, changes: tuple[ConstantChange, ...]) -> Prices | None:
    other = changed(prices, Kind.PRICES, changes)
    return other if other is None or other is prices else with_possible_ranges(other)


def _with_constants(platform: Platform, changes: tuple[ConstantChange, ...]) -> Platform:
    """``platform`` with its constants changed, those of its process and of its memories among
    them."""
    if not changes:
        return platform
    technology = changed(platform.technology, Kind.TECHNOLOGY, changes)
    for problem in (
        () if technology.die is None else process_problems(technology.die, f"{Kind.TECHNOLOGY}.die")
    ):
        raise problem
    memories = tuple(
        replace(each, memory=_changed_memory(each.memory, changes, platform))
        for each in platform.memories
    )
    for memory in (each.memory for each in memories):
        check_memory(memory, f"{asked_of(changes, Kind.MEMORY)}: {Kind.MEMORY} {memory.name}")
    platform = replace(
        changed(platform, Kind.PLATFORM, changes), technology=technology, memories=memories
    )
    if asked := asked_of(changes, Kind.PLATFORM):
        check_platform(platform, asked)
        file = FileRefusals(asked)
        _check_clock(platform.frequency_hz / GIGA, platform, file, "frequency")
        file.raise_any()
    return platform


def _changed_memory(
    memory: Memory, changes: Sequence[ConstantChange], platform: Platform
) -> Memory:
    """``memory`` with changes of all memories, as ``memory.price_per_gib``, and of its own, as
    ``memory.hbm3.price_per_gib``."""
    names = {each.memory.name for each in platform.memories}
    for change in (each for each in changes if each.kind is Kind.MEMORY):
        first, *rest = change.path
        if rest and first not in {*names, EVERY}:
            raise InputError(
                f"{change.asked!r:.200}: {first!r:.100} is no memory of these chips; give "
                f"{', '.join(sorted(names))}, * for all of them, or leave it out"
            )
        if not rest or first in {memory.name, EVERY}:
            memory = replace(change, path=tuple(rest) or change.path).of(memory)
    return memory


def load_chip(path: Path, space: DesignSpace) -> Accelerator:
    """Read an accelerator of ``space`` from a YAML file of its sizes (``ChipSize``).

    Raises:
        InputError: unreadable file, bad key or value, or a die that cannot be.
    """
    size = to_record(ChipSize, CHIP.current(read_yaml(path), str(path)), str(path))
    file = FileRefusals(path)
    whole = f"a whole number from 1 to {LARGEST_VALUE}"
    for key, value in vars(size).items():
        if key not in {*TEXTS, "frequency_ghz"}:
            file.require(0 < value <= LARGEST_VALUE, key, value, whole)
    if size.frequency_ghz is not None:
        _check_clock(size.frequency_ghz, space.platform, file, "frequency_ghz")
    file.raise_any()
    axes = space.axes.memory
    if size.memory is None and axes is not None:
        allowed = f"one of those of the design space {space.name}: {', '.join(axes)}"
        file.require(len(axes) == 1, "memory", "left out", allowed)
        file.raise_any()
        size = replace(size, memory=axes[0])
    elif size.memory is not None:
        system = memory_system(size.memory, path.parent)
        # whose constants a request may have changed
        known = [each.label for each in space.platform.memories]
        if system.label not in known:
            raise InputError(
                f"{path}: memory is {system.label}, but the design space {space.name} has "
                f"{', '.join(known) or 'none'}; see --memory"
            )
        size = replace(size, memory=system.label)
    links = space.axes.links or ()
    if size.links is None and links:
        allowed = f"given, as in the design space {space.name}: {', '.join(links)}"
        file.require(len(links) == 1, "links", "left out", allowed)
        file.raise_any()
        size = replace(size, links=links[0])
    possible = size.links is None or size.memory is not None
    file.require(possible, "links", size.links, "left out where memory is not as it is sold")
    file.raise_any()
    return space.with_area(accelerator_of(size, space.platform))


def _check_die(space: DesignSpace, source: str) -> None:
    """Whether memory as it is sold and a technology that describes whole dies come together."""
    technology, memory = space.platform.technology, space.platform.memories
    if memory and technology.die is None:
        raise InputError(
            f"{source}: memory is {memory[0].label}, but the technology {technology.name} does not "
            "describe memory interfaces; give one that describes whole dies with --technology, as "
            "foundry_7nm, or leave memory out"
        )
    if technology.die is not None and not space.axes.memory:
        raise InputError(
            f"{source}: the technology {technology.name} describes whole dies, which carry memory "
            "as it is sold, and none is given; name one with --memory, as hbm2e:4 for four stacks "
            "('phaze list memories' shows them)"
        )
    if space.axes.links and not space.axes.memory:
        raise InputError(
            f"{source}: links are {space.axes.links[0]}, which take area and power of a whole die, "
            f"and the technology {technology.name} does not describe them; give --technology, as "
            "foundry_7nm, and --memory, as hbm2e:4"
        )
    if space.limits.any and not space.axes.memory:
        asked = " and ".join(each.words for each in space.limits.stated)
        need = "needs" if len(space.limits.stated) == 1 else "need"
        raise InputError(
            f"{asked} {need} whole dies, which the technology {technology.name} of the design "
            f"space {space.name} does not describe; give a --design-space of whole dies, as "
            "tpu_like_7nm, or --technology, as foundry_7nm, and --memory, as hbm2e:4"
        )
    file = FileRefusals(Path(source))
    for clock in space.axes.frequency_ghz or ():
        _check_clock(clock, space.platform, file, "axes.frequency_ghz")
    if technology.die is not None:
        _check_clock(space.platform.frequency_hz / GIGA, space.platform, file, "frequency")
    file.raise_any()


def _check_clock(ghz: float, platform: Platform, file: FileRefusals, key: str) -> None:
    die, given = platform.technology.die, f"{ghz:g} GHz"
    if die is None:
        file.require(LEAST_GHZ <= ghz < math.inf, key, given, f"at least {LEAST_GHZ:g} GHz")
        return
    most = maximum_frequency_hz(die) / GIGA
    allowed = f"at least {LEAST_GHZ:g} and at most {most:.3g} GHz in {platform.technology.name}"
    file.require(LEAST_GHZ <= ghz <= most, key, given, allowed)


def _check(stated: DesignSpaceFile, path: Path) -> None:
    file = FileRefusals(path)
    axes = {axis: values for axis, values in vars(stated.axes).items() if values is not None}
    for axis, values in axes.items():
        key = f"axes.{axis}"
        if not file.require(len(values) > 0, key, "empty", "one or more values"):
            continue
        distinct = len(set(values)) == len(values)
        file.require(distinct, key, list(values), "without repetition")
        if axis not in TEXTS:
            largest = max(values)
            file.require(min(values) > 0, key, list(values), "positive")
            file.require(largest <= LARGEST_VALUE, key, largest, f"at most {LARGEST_VALUE}")
    grid, most = math.prod(map(len, axes.values())), LARGEST_GRID * MOST_PARTS
    fewer = f"at most {most:,}; list fewer values"
    file.require(grid <= most, "axes", f"a grid of {grid:,} chips", fewer)
    budget = stated.budget
    stated_once = (budget.accelerator is None) != (budget.area_mm2 is None)
    file.require(stated_once, "budget", vars(budget), "either an accelerator or an area_mm2")
    if budget.area_mm2 is not None:
        file.require(0 < budget.area_mm2 < math.inf, "budget.area_mm2", budget.area_mm2, "positive")
    fraction = stated.keep.minimum_area_fraction
    file.require(0 <= fraction <= 1, "keep.minimum_area_fraction", fraction, "between 0 and 1")
    names = [chip.name for chip in stated.references]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    own_names = "every chip under a name of its own"
    file.require(twice is None, "references", f"{twice!r} several times", own_names)
    chips = [
        ("budget.accelerator", budget.accelerator),
        *((f"references.{c.name}", c.accelerator) for c in stated.references),
    ]
    for key, chip in chips:
        if chip is not None:
            sizes = [value for value in vars(chip).values() if isinstance(value, int)]
            possible = 0 < min(sizes) <= max(sizes) <= LARGEST_VALUE
            file.require(possible, key, vars(chip), f"positive and at most {LARGEST_VALUE}")
    file.raise_any()
