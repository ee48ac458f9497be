"""What a circumstance brings, as a fraction and in words."""

from phaze.report.sentences.designs import EQUAL
from phaze_common.numbers import number, percent

HARDLY = 0.01


def gain_of(value: float, base: float) -> float:
    """What ``value`` brings over ``base``, as a fraction; what does not help need not be used."""
    gain = value / base - 1.0
    return gain if gain > EQUAL else 0.0


def binds(plenty: float) -> str:
    """How much a resource matters of which plenty brings so much."""
    return "binds" if plenty >= HARDLY else "hardly binds"


def gained(gain: float) -> str:
    """A gain in words: ``nothing``, ``18% more``, ``5.3 times as much``."""
    if gain <= EQUAL:
        return "nothing"
    return f"{percent(gain)} more" if gain < 1.0 else f"{number(1.0 + gain, 3)} times as much"


def steps(one: float, step: str, plenty: float, rest: str) -> str:
    """What one step and plenty of a resource bring; a step that is too small to be of use is told
    as that."""
    first = f"{step} brings {gained(one)}" if one > EQUAL else f"{step} alone is of no use yet"
    return f"{first}, {rest} {'brings ' if one <= EQUAL else ''}{gained(plenty)}"
