"""Clock and voltage: the supply that a frequency needs, and what it does to energy and leakage.

Alpha-power law (Sakurai & Newton, IEEE JSSC 1990): ``f ~ (V - Vt)^alpha / V``. Dynamic energy goes
with V^2. Leakage power goes with V^3: the supply times a current that barrier lowering raises about
as V^2 over the range of a supply (an assumption near the exponential of Kim et al., IEEE Computer
2003); a warmer die doubles it every ``leakage_doubling`` kelvin.
"""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.chips.process import DieProcess
from phaze_common.errors import InputError
from phaze_common.units import GIGA

BISECTIONS = 60


@dataclass(frozen=True)
class Clock:
    """A frequency, the supply voltage it needs, and energy per operation and leakage relative to
    the nominal voltage."""

    frequency_hz: float
    voltage_v: float
    dynamic_energy_factor: float
    leakage_factor: float


def _relative_speed(die: DieProcess, voltage: float) -> float:
    """``(V - Vt)^alpha / V`` of ``voltage`` over that of the nominal one."""
    threshold = die.threshold_voltage.value
    alpha = die.velocity_saturation.value
    nominal = die.nominal_voltage.value
    speed = ((voltage - threshold) / (nominal - threshold)) ** alpha * nominal / voltage
    return float(speed)


def maximum_frequency_hz(die: DieProcess) -> float:
    """The largest frequency: at the highest voltage, and at most what the process is stated to
    reach."""
    reached = die.nominal_frequency.value * _relative_speed(die, die.maximum_voltage.value)
    return min(reached, die.maximum_frequency.value)


def at_frequency(die: DieProcess, frequency_hz: float) -> Clock:
    """The clock at a frequency: at the lowest voltage that reaches it, and never below the
    process's minimum.

    Raises:
        InputError: the frequency is not positive or beyond the maximum.
    """
    most = maximum_frequency_hz(die)
    if not 0 < frequency_hz <= most * (1 + 1e-12):
        raise InputError(
            f"frequency is {frequency_hz / GIGA:g} GHz; this process allows above 0 and at most "
            f"{most / GIGA:.3g} GHz"
        )
    low, high = die.minimum_voltage.value, die.maximum_voltage.value
    wanted = frequency_hz / die.nominal_frequency.value
    if _relative_speed(die, low) >= wanted:
        high = low
    for _ in range(BISECTIONS):  # the law rises with the voltage above the threshold
        middle = (low + high) / 2
        low, high = (low, middle) if _relative_speed(die, middle) >= wanted else (middle, high)
    ratio = high / die.nominal_voltage.value
    return Clock(frequency_hz, high, ratio**2, ratio**3)


def leakage_w_per_mm2(die: DieProcess, clock: Clock, temperature_c: float | None = None) -> float:
    """Leakage of a mm2 at the clock's voltage, at the temperature the process states it at or
    another."""
    warmer = 0.0 if temperature_c is None else temperature_c - die.leakage_temperature.value
    return float(
        die.leakage.value * clock.leakage_factor * 2 ** (warmer / die.leakage_doubling.value)
    )
