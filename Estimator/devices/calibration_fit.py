"""Constants of a device as unknowns of a least-squares problem: which there are, and their best
values.

The residual of a row is the logarithm of predicted over measured time, so that short and long
operators weigh the same. What the device had before weighs as much as a fraction of one row: it
decides where the rows do not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from Estimator.chips.technology import Quantity
from Estimator.devices.calibration_tables import MeasuredOperator
from Estimator.devices.device import Device
from Estimator.devices.isolated import isolated_s
from phaze_common.array_types import FloatArray

LEAST_FRACTION = 0.01
MOST_FILL = 1000.0  # steps of k
OUTLIER = 0.1  # residuals beyond this count less
TRUST = 0.05  # residual of a constant e times as large as the device had it
# of the shortest time of a launch kind: where the search for ``alone`` starts
STARTS = (0.02, 0.5, 0.98)
STEP = 0.01  # of a constant's range, by which it is moved to see whether the table determines it
UNDETERMINED = 1e-5  # a constant that moves no residual by more is not determined
DIGITS = 4  # of a fitted value
SHORTEST_S = 1e-9  # less is none


@dataclass(frozen=True)
class Constant:
    """An unknown: ``device.<part>.<name>`` or, in a mapping, ``device.<part>.<name>[key]``, from
    ``low`` to ``high``."""

    part: str
    name: str
    key: str | None
    unit: str
    low: float
    high: float
    start: float

    def scaled(self, value: float) -> float:
        """The value as the search sees it: fractions as logarithms, for halving one is as large a
        step as doubling it."""
        return math.log(value) if self.unit == "fraction" else value / self.high

    def value(self, scaled: float) -> float:
        """The inverse of ``scaled``."""
        return math.exp(scaled) if self.unit == "fraction" else scaled * self.high

    def moved(self, value: float) -> float:
        """Logarithmic distance from the device's value; none for a launch, which is the
        measurement's."""
        if self.part == "launch":
            return 0.0
        return math.log((value + self.least) / (self.start + self.least))

    @property
    def least(self) -> float:
        """Values far below this are as good as none."""
        return 0.0 if self.unit == "fraction" else 1.0

    def put(self, device: Device, value: float | None, source: str) -> Device:
        """The device with this value; None takes the constant out of its mapping."""
        part = getattr(device, self.part)
        content: object = None if value is None else Quantity(value, self.unit, source)
        if self.key is not None:
            others = {
                key: other for key, other in getattr(part, self.name).items() if key != self.key
            }
            content = others if content is None else {**getattr(part, self.name), self.key: content}
        return replace(device, **{self.part: replace(part, **{self.name: content})})


@dataclass(frozen=True)
class FittedConstant:
    """A constant with its value; ``determined`` says whether the rows depend on it there."""

    constant: Constant
    value: float
    determined: bool


def unknowns(rows: Sequence[MeasuredOperator], owner: str, device: Device) -> tuple[Constant, ...]:
    """What the times of ``rows`` determine: all of them matrix products, or kernels whose
    efficiency is kept under ``owner``."""
    engine, memory = device.matrix, device.memory
    found = []
    if rows[0].operator.products:
        found.append(_fraction("matrix", "efficiency", None, engine.efficiency))
        found.append(
            Constant("matrix", "fill", None, engine.fill.unit, 0.0, MOST_FILL, engine.fill.value)
        )
        formats = {row.operator.number_format for row in rows}
        if len(formats) > 1:  # of one alone it is part of the efficiency
            found += [
                _fraction("matrix", "formats", name, share)
                for name, share in engine.formats.items()
                if name in formats
            ]
        if engine.operand_bandwidth is not None:
            found.append(_fraction("matrix", "operand_bandwidth", None, engine.operand_bandwidth))
        if any(gemm.batch > 1 for row in rows for gemm in row.operator.products):
            found.append(_fraction("matrix", "batched_bandwidth", None, engine.batched_bandwidth))
    elif owner:
        found.append(_fraction("memory", "functions", owner, memory.functions[owner]))
    else:
        found.append(_fraction("memory", "efficiency", None, memory.efficiency))
    for launch in sorted({row.operator.launch for row in rows}):
        shortest_s = min(row.seconds for row in rows if row.operator.launch == launch)
        found.append(Constant("launch", "alone", launch, "s", 0.0, shortest_s, shortest_s))
        found.append(Constant("launch", "floor", launch, "s", 0.0, 2 * shortest_s, shortest_s))
    return tuple(found)


def _fraction(part: str, name: str, key: str | None, known: Quantity) -> Constant:
    return Constant(part, name, key, "fraction", LEAST_FRACTION, 1.0, known.value)


def fit(
    constants: Sequence[Constant], rows: Sequence[MeasuredOperator], device: Device
) -> tuple[FittedConstant, ...]:
    """Best values of the constants for ``rows``: of several searches, as a launch may hide in
    ``alone`` or in ``floor``."""
    from scipy.optimize import least_squares

    logs = np.log([row.seconds for row in rows])

    def residuals(scaled: FloatArray) -> FloatArray:
        trial = device
        for constant, each in zip(constants, scaled, strict=True):
            trial = constant.put(trial, constant.value(float(each)), "")
        predicted: FloatArray = np.log([isolated_s(row.operator, trial) for row in rows])
        return predicted - logs

    def objective(scaled: FloatArray) -> FloatArray:
        moved = [
            each.moved(each.value(float(x))) for each, x in zip(constants, scaled, strict=True)
        ]
        return np.append(residuals(scaled), TRUST * np.array(moved))

    low, high = np.array([(each.scaled(each.low), each.scaled(each.high)) for each in constants]).T
    searches = []
    for share in STARTS:
        start = [
            each.scaled(each.start * share if each.name == "alone" else each.start)
            for each in constants
        ]
        inside = np.clip(start, low + 1e-6 * (high - low), high - 1e-6 * (high - low))
        searches.append(
            least_squares(objective, inside, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER)
        )
    best = min(searches, key=lambda search: float(search.cost)).x
    found = []
    for position, constant in enumerate(constants):
        moved = [best.copy(), best.copy()]
        for each, sign in zip(moved, (1, -1), strict=True):
            each[position] += sign * STEP * (high[position] - low[position])
        reach = max(
            float(np.max(np.abs(residuals(np.clip(each, low, high)) - residuals(best))))
            for each in moved
        )
        found.append(
            FittedConstant(
                constant, _rounded(constant.value(float(best[position]))), reach > UNDETERMINED
            )
        )
    return tuple(found)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if value >= SHORTEST_S else 0.0
