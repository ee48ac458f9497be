"""What a circumstance brings, as a fraction and in words."""

from Studies.wording import EQUAL, percent

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
    return f"{percent(gain)} more" if gain < 1.0 else f"{1.0 + gain:.3g} times as much"
