"""The axes of the accelerators of a space, and what no design with a value of one exceeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Estimator.chips.axes import CHIP_AXES
from phaze_common.array_types import FloatArray
from Solver.hardware import DesignedChips
from Solver.results import AxisBounds

AXES = tuple(each.key for each in CHIP_AXES)


def axis_column(hardware: DesignedChips, axis: str) -> list[int | str]:
    """Values of an axis, of each chip; a clock in whole hertz."""
    chips, platform = hardware.accelerators, hardware.platform
    if axis in {"memory_system", "links"}:
        return [str(value) for value in getattr(chips, axis)]
    if axis == "frequency_hz":
        return [
            round(platform.frequency_hz if value is None else value) for value in chips.frequency_hz
        ]
    found: list[int | str] = getattr(chips, axis).tolist()
    return found


def axis_bounds(hardware: DesignedChips, most: FloatArray) -> AxisBounds:
    """What no design with each value of an axis exceeds, from ``most`` of each chip; 0: no fit."""
    chips = hardware.accelerators
    found: dict[str, dict[str, float]] = {}
    for axis in AXES:
        values, place = np.unique(np.array(axis_column(hardware, axis)), return_inverse=True)
        bounds = np.zeros(len(values))
        np.maximum.at(bounds, place.reshape(-1), most)
        found[axis] = dict(zip(map(str, values.tolist()), bounds.tolist(), strict=True))
    return AxisBounds(found, tied=bool(np.array_equal(chips.width, chips.width_vc)))


def joined_bounds(parts: Sequence[AxisBounds]) -> AxisBounds:
    """The same of all parts of a space together."""
    found: dict[str, dict[str, float]] = {axis: {} for axis in AXES}
    for part in parts:
        for axis, bounds in part.most.items():
            for value, most in bounds.items():
                found[axis][value] = max(found[axis].get(value, 0.0), most)
    return AxisBounds(found, tied=all(part.tied for part in parts))
