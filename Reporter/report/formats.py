"""Numbers and names as words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True)
class TimeUnit:
    """A unit that makes some seconds legible: ``seconds * per_second``."""

    name: str
    per_second: float


def unit_for(seconds: float) -> TimeUnit:
    """Seconds, milliseconds, microseconds or nanoseconds: whichever gives ``seconds`` at least one digit before the point."""
    for unit in (TimeUnit("s", 1.0), TimeUnit("ms", 1e3), TimeUnit("µs", 1e6)):
        if seconds * unit.per_second >= 1.0:
            return unit
    return TimeUnit("ns", 1e9)


def duration(seconds: float) -> str:
    """Such as ``97.88 ms``."""
    unit = unit_for(seconds)
    return f"{seconds * unit.per_second:.4g} {unit.name}"


def share(fraction: float) -> str:
    """Such as ``50.5%``; what is not nothing is not shown as nothing."""
    return "<0.1%" if 0.0 < fraction < 0.0005 else f"{fraction:.1%}"


def layer_range(layers: Sequence[str]) -> str:
    """Names of layers, runs of numbered ones shortened: ``embedding, block.0 to block.2``."""
    runs: list[list[str]] = []
    for name in layers:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _follows(before: str, after: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(after)
    return bool(first and second and first[1] == second[1] and int(second[2]) == int(first[2]) + 1)
