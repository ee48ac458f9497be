"""What a higher limit of a chip's power or price would bring: the space is searched again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.chip_limits import Stated
from Estimator.chips.design_space import DesignSpace
from phaze.report.sentences.designs import EQUAL
from phaze.report.sentences.gains import binds, gain_of, steps
from phaze_common.numbers import number
from Solver.designs.re_solve import priced
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.results import Limit

NAMES = {"power_w": "chip power", "cost_usd": "chip price"}  # others are told as area and as money
UNITS = {"power_w": "W", "cost_usd": "$"}


@dataclass(frozen=True)
class LimitGain:
    """What one unit more of a field of ``ChipLimits``, and no limit at all, bring as fractions."""

    limit: str
    one: float
    plenty: float


def limit_gains(run: SearchContext, hardware: DesignedChips, base: float) -> tuple[LimitGain, ...]:
    """Gains over ``base``; none where the chips are not those that the space generates."""
    space, found = hardware.space, list[LimitGain]()
    if space is None or run.remaining is not None or hardware.generating_space is None:
        return ()
    for name in (each.kind.limit for each in space.limits.stated if each.kind.limit in NAMES):
        limit = float(getattr(space.limits, name))
        plenty = _gain(run, hardware, _with_limit(space, name, None), base)
        one = 0.0
        if plenty:
            one = _gain(run, hardware, _with_limit(space, name, limit + 1.0), base)
        found.append(LimitGain(name, min(one, plenty), plenty))
    return tuple(found)


def _with_limit(space: DesignSpace, name: str, limit: float | None) -> DesignSpace:
    return replace(space, limits=replace(space.limits, **{name: limit}))


def limit_of_chip(space: DesignSpace, chip: Accelerator, gain: LimitGain) -> Limit:
    """The limit in words."""
    stated: Stated = next(each for each in space.limits.stated if each.kind.limit == gain.limit)
    unit, name = UNITS[gain.limit], NAMES[gain.limit]
    takes = float(stated.taken(space.whole(AcceleratorSet.of([chip])))[0])
    used = (
        f"the accelerator {'draws' if unit == 'W' else 'costs'} {number(takes)} of "
        f"{number(stated.limit)} {unit}"
    )
    title = name[0].upper() + name[1:]
    if gain.plenty <= EQUAL:
        words = f"{title} does not bind: {used}, and no chip that takes more is better."
    else:
        words = (
            f"{title} {binds(gain.plenty)}: {used}; "
            f"{steps(gain.one, f'one more {unit}', gain.plenty, 'no limit at all')}."
        )
    return Limit(name, unit, stated.limit, gain.one, gain.plenty, words)


def _gain(run: SearchContext, hardware: DesignedChips, space: DesignSpace, base: float) -> float:
    """What the best chip of ``space`` brings over ``base``."""
    chips = space.generate()
    other = replace(hardware, accelerators=chips, space=space, known_metrics=None, _scheduled={})
    own = other.metrics.memory_bytes
    if own is not None:
        sizes = tuple(int(size) for size in np.unique(own).tolist())
        run = replace(run, problem=replace(run.problem, memory_bytes=sizes))
    optimum = priced(run, other, least=base).best_optimum()
    if optimum is None or not math.isfinite(optimum.value):
        return 0.0
    return gain_of(optimum.value, base)
