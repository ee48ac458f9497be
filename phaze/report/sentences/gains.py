"""What a circumstance brings, as a fraction and in words."""

from phaze.report.sentences.designs import EQUAL
from phaze_common.numbers import number, percent, size_text
from phaze_common.units import GIB
from Solver.results import DesignPoint

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
    """What one step and plenty of a resource bring, also where the step is too small."""
    first = f"{step} brings {gained(one)}" if one > EQUAL else f"{step} alone is of no use yet"
    return f"{first}, {rest} {'brings ' if one <= EQUAL else ''}{gained(plenty)}"


def memory_limit_text(best: DesignPoint, one: float, plenty: float) -> str:
    """What one GiB more and any amount of memory bring ``best``, in a sentence."""
    fullest = max(plan.memory_bytes for plan in best.models.values())
    given = best.hbm_bytes / GIB
    used = f"the fullest stage uses {size_text(fullest)} of {size_text(best.hbm_bytes)}"
    if plenty <= EQUAL:
        return f"HBM capacity does not bind: {used}, and no plan that needs more is better."
    step = f"one more GiB ({number(given)} to {number(given + 1)})"
    return f"HBM capacity {binds(plenty)}: {used}; {steps(one, step, plenty, 'any amount of it')}."
