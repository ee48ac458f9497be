"""What a larger area budget would bring."""

from dataclasses import dataclass, replace

import numpy as np

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.axes import CHIP_AXES, SIZES
from Estimator.chips.design_space import DesignSpace
from phaze.report.sentences.designs import EQUAL, accelerator_text, listed
from phaze.report.sentences.gains import binds, gain_of, steps
from phaze_common.numbers import number
from phaze_common.units import MIB
from Solver.designs.re_solve import priced
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.results import DesignPoint, Limit

MORE_MM2 = 1.0


@dataclass(frozen=True)
class AreaGain:
    """What 1 mm² more, and growing the best chip ``into`` another, bring as fractions."""

    one: float
    plenty: float
    into: Accelerator | None


def area_gain(
    run: SearchContext, hardware: DesignedChips, best: DesignPoint, base: float
) -> AreaGain | None:
    """What a larger budget would bring: 1 mm² more, or growing one axis of the best chip alone.

    None where the accelerators are not those that the design space generates, as where bounds
    closed others.
    """
    chip = best.accelerator
    if chip is None or run.remaining is not None or (space := hardware.generating_space) is None:
        return None
    budget = space.largest_mm2
    grown = [each for each in _grown(space, chip) if each.area_mm2 > budget]
    slightly = [
        *_within(space, budget, budget + MORE_MM2),
        *(each for each in grown if each.area_mm2 <= budget + MORE_MM2),
    ]
    much = [each for each in grown if each.area_mm2 > budget + MORE_MM2]
    found = [_best_of(run, hardware, chips, best.hbm_bytes) for chips in (slightly, much)]
    gains = [gain_of(each.value, base) for each in found]
    enough = max(gains) * (1 - EQUAL)
    chips = (
        each.chip for each, gain in zip(found, gains, strict=True) if each.chip and gain >= enough
    )
    return AreaGain(gains[0], max(gains), next(chips, None) if max(gains) else None)


def area_limit(space: DesignSpace, chip: Accelerator, gain: AreaGain) -> Limit:
    """The limit that the area is for the best ``chip``, in words."""
    budget, one, plenty = space.largest_mm2, gain.one, gain.plenty
    used = f"the accelerator takes {number(chip.area_mm2)} of {number(budget)} mm²"
    if gain.into is None:
        words = (
            f"Chip area does not bind: {used}, and no chip of one mm² more, nor this one with "
            "more of anything, is better."
        )
    else:
        into = f"{accelerator_text(gain.into)} ({number(gain.into.area_mm2)} mm²)"
        words = (
            f"Chip area {binds(plenty)}: {used}; "
            f"{steps(one, 'one more mm² of budget', plenty, f'growing it to {into}')}."
        )
    edges = _at_the_edge(space, chip)
    if edges:
        words += f" The design space has no larger {listed(edges)}."
    return Limit("chip area", "mm²", budget, one, plenty, words)


@dataclass(frozen=True)
class _Best:
    """The best of several chips, the smallest of equals; None and 0 where there is none."""

    chip: Accelerator | None
    value: float


def _best_of(
    run: SearchContext, hardware: DesignedChips, chips: list[Accelerator], hbm_bytes: int
) -> _Best:
    found = priced(run, hardware.only(chips)) if chips else None
    own = found is not None and found.context.hardware.metrics.memory_bytes is not None
    optimum = None if found is None else found.best_optimum() if own else found.optimum(hbm_bytes)
    return _Best(None, 0.0) if optimum is None else _Best(chips[optimum.row], optimum.value)


def _within(space: DesignSpace, above: float, most: float) -> list[Accelerator]:
    """The chips of the grid whose area is above one and at most another number of mm²."""
    keep = replace(space.keep, minimum_area_fraction=0.0)
    limits = replace(space.limits, area_mm2=None)
    larger = replace(space, budget_mm2=most, keep=keep, limits=limits).generate()
    return [larger.accelerator(row) for row in np.flatnonzero(larger.area_mm2 > above).tolist()]


def _grown(space: DesignSpace, chip: Accelerator) -> list[Accelerator]:
    """The chip with a larger value on one axis, where no limit but that of area forbids it."""
    found = []
    for axis, values in _axes(space).items():
        for value in values:
            if value > getattr(chip, axis):
                grown = replace(chip, **{axis: value})  # type: ignore[arg-type]
                if space.axes.width_vc is None and axis == "width":
                    grown = replace(grown, width_vc=value)
                found.append(space.with_area(grown))
    allowed = replace(space.limits, area_mm2=None).passing(space.whole(AcceleratorSet.of(found)))
    return [each for each, may in zip(found, allowed.tolist(), strict=True) if may]


def _axes(space: DesignSpace) -> dict[str, tuple[int, ...]]:
    """Values of each field of an accelerator that has an axis of its own."""
    sizes = {name: getattr(space.axes, name, None) for name in SIZES}
    sizes["glb_bytes"] = tuple(size * MIB for size in space.axes.glb_mib)
    return {name: values for name, values in sizes.items() if values is not None}


def _at_the_edge(space: DesignSpace, chip: Accelerator) -> list[str]:
    axes = _axes(space)
    return [
        each.help
        for each in CHIP_AXES
        if (values := axes.get(each.key, ()))
        and len(values) > 1
        and getattr(chip, each.key) == max(values)
    ]
