"""The accelerators that may be built: a grid of axes under an area budget, from YAML."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from Common.errors import InputError
from Common.files import beside
from Common.records import read_yaml, to_record
from Common.refusals import FileRefusals
from Common.units import MIB
from Estimator.chips.accelerator import Accelerator, AcceleratorSet, Platform
from Estimator.chips.area import area_mm2
from Estimator.hardware_files import hardware_path, load_platform, load_technology, load_vector_functions, require

LARGEST_VALUE = 2**20  # of an axis: far beyond any chip, far from overflow
LARGEST_GRID = 5_000_000  # combinations of axis values, which bounds memory to about 2 GiB


@dataclass(frozen=True)
class Axes:
    """Values each parameter takes. ``width_vc`` null: vector cores are as wide as tensor cores."""

    num_tc: tuple[int, ...]
    num_vc: tuple[int, ...]
    width: tuple[int, ...]
    depth: tuple[int, ...]
    width_vc: tuple[int, ...] | None
    glb_mib: tuple[int, ...]


@dataclass(frozen=True)
class ChipSize:
    """An accelerator as people write it down."""

    num_tc: int
    num_vc: int
    width: int
    depth: int
    width_vc: int
    glb_mib: int


@dataclass(frozen=True)
class Budget:
    """Largest area: that of an accelerator, or a number."""

    accelerator: ChipSize | None = None
    area_mm2: float | None = None


@dataclass(frozen=True)
class KeepRule:
    """Of what fits the budget: at least this fraction of it, or (where true) any chip with a single core of a kind."""

    minimum_area_fraction: float
    any_single_tc: bool
    any_single_vc: bool


@dataclass(frozen=True)
class NamedChip:
    """A reference accelerator."""

    name: str
    source: str
    accelerator: ChipSize


@dataclass(frozen=True)
class DesignSpaceFile:
    """A design space as its file states it; other files by name or by path relative to this one."""

    name: str
    technology: str
    platform: str
    vector_functions: str
    axes: Axes
    budget: Budget
    keep: KeepRule
    references: tuple[NamedChip, ...] = ()


@dataclass(frozen=True)
class ReferenceChip:
    """A known accelerator that results are compared with."""

    name: str
    source: str
    accelerator: Accelerator


@dataclass(frozen=True)
class DesignSpace:
    """A design space with the platform all its accelerators share; ``technology`` names what the platform's areas come from.

    ``own_technology`` is the one that the file of the space names; both are names or absolute paths.
    """

    name: str
    technology: str
    own_technology: str
    platform: Platform
    axes: Axes
    budget_mm2: float
    keep: KeepRule
    references: tuple[ReferenceChip, ...]

    def generate(self) -> AcceleratorSet:
        """All accelerators of the space, in lexicographic order of the axes.

        Raises:
            InputError: nothing on the axes passes budget and rule.
        """
        axes = self.axes
        lanes = (0,) if axes.width_vc is None else axes.width_vc
        grid = np.meshgrid(axes.num_tc, axes.num_vc, axes.width, axes.depth, lanes, axes.glb_mib, indexing="ij")
        num_tc, num_vc, width, depth, width_vc, glb_mib = (axis.reshape(-1).astype(np.int64) for axis in grid)
        if axes.width_vc is None:
            width_vc = width
        glb_bytes = glb_mib * MIB
        area = area_mm2(num_tc, num_vc, width, depth, width_vc, glb_bytes, self.platform)
        kept = area >= self.keep.minimum_area_fraction * self.budget_mm2
        if self.keep.any_single_tc:
            kept |= num_tc == 1
        if self.keep.any_single_vc:
            kept |= num_vc == 1
        kept &= area <= self.budget_mm2
        if not kept.any():
            raise InputError(
                f"design space {self.name} is empty: of {len(area)} accelerators ({area.min():g} to {area.max():g} mm2) "
                f"none passes the budget of {self.budget_mm2:g} mm2 and the keep rule; widen the axes or the budget"
            )
        columns: tuple[NDArray[Any], ...] = (num_tc, num_vc, width, depth, width_vc, glb_bytes, area)
        return AcceleratorSet(*(column[kept] for column in columns))


def load_design_space(name_or_path: str, technology: str | None = None) -> DesignSpace:
    """Read a design space with all the files it names, with ``technology`` (a name or a path) instead of its own if given.

    Raises:
        InputError: unknown name, unreadable file, bad key, empty or non-positive axis, budget missing or stated twice.
    """
    path = hardware_path("design_spaces", name_or_path)
    stated = to_record(DesignSpaceFile, read_yaml(path), str(path))
    _check(stated, path)
    areas = load_technology(stated.technology, path.parent) if technology is None else load_technology(technology)
    functions = load_vector_functions(stated.vector_functions, path.parent)
    platform = load_platform(stated.platform, areas, functions, path.parent)
    references = tuple(
        ReferenceChip(each.name, each.source, accelerator_of(each.accelerator, platform)) for each in stated.references
    )
    limit = stated.budget.area_mm2
    if stated.budget.accelerator is not None:
        limit = accelerator_of(stated.budget.accelerator, platform).area_mm2
    assert limit is not None
    own = str(beside(path.parent.absolute(), stated.technology))
    return DesignSpace(stated.name, technology or own, own, platform, stated.axes, limit, stated.keep, references)


def load_chip(path: Path, platform: Platform) -> Accelerator:
    """Read an accelerator from a YAML file of its sizes (``ChipSize``).

    Raises:
        InputError: unreadable file, bad key or value.
    """
    size = to_record(ChipSize, read_yaml(path), str(path))
    file = FileRefusals(path)
    for key, value in vars(size).items():
        require(0 < value <= LARGEST_VALUE, file, key, value, f"a whole number from 1 to {LARGEST_VALUE}")
    file.raise_any()
    return accelerator_of(size, platform)


def accelerator_of(size: ChipSize, platform: Platform) -> Accelerator:
    """The accelerator of these sizes, with its area on a platform."""
    cores = (size.num_tc, size.num_vc, size.width, size.depth, size.width_vc, size.glb_mib * MIB)
    return Accelerator(*cores, area_mm2=float(area_mm2(*cores, platform)))


def _check(stated: DesignSpaceFile, path: Path) -> None:
    file = FileRefusals(path)
    for axis, values in vars(stated.axes).items():
        if values is not None:
            if not require(len(values) > 0, file, f"axes.{axis}", "empty", "one or more positive integers"):
                continue
            require(min(values) > 0, file, f"axes.{axis}", list(values), "positive integers")
            require(max(values) <= LARGEST_VALUE, file, f"axes.{axis}", max(values), f"at most {LARGEST_VALUE}")
            require(len(set(values)) == len(values), file, f"axes.{axis}", list(values), "without repetition")
    grid = math.prod(len(values) for values in vars(stated.axes).values() if values is not None)
    require(grid <= LARGEST_GRID, file, "axes", f"a grid of {grid:,} chips", f"at most {LARGEST_GRID:,}; list fewer values")
    budget = stated.budget
    stated_once = (budget.accelerator is None) != (budget.area_mm2 is None)
    require(stated_once, file, "budget", vars(budget), "either an accelerator or an area_mm2")
    if budget.area_mm2 is not None:
        require(0 < budget.area_mm2 < math.inf, file, "budget.area_mm2", budget.area_mm2, "positive")
    fraction = stated.keep.minimum_area_fraction
    require(0 <= fraction <= 1, file, "keep.minimum_area_fraction", fraction, "between 0 and 1")
    names = [chip.name for chip in stated.references]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    require(twice is None, file, "references", f"{twice!r} several times", "every chip under a name of its own")
    chips = [("budget.accelerator", budget.accelerator), *((f"references.{c.name}", c.accelerator) for c in stated.references)]
    for key, chip in chips:
        if chip is not None:
            in_range = 0 < min(vars(chip).values()) <= max(vars(chip).values()) <= LARGEST_VALUE
            require(in_range, file, key, vars(chip), f"positive and at most {LARGEST_VALUE} in every field")
    file.raise_any()
