"""What is said where limits of chips leave none: which of them, and what the least is that would
leave one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from Estimator.chips.chip_limits import ChipLimits, Stated
from Estimator.chips.whole_chip import WholeChips
from phaze_common.errors import InputError

DIGITS = 4  # of the least value, which is rounded up


def refuse_none_left(limits: ChipLimits, space: str, whole: WholeChips) -> None:
    """Refuse ``limits`` within which there is none of the chips ``whole``, those of the ``space``
    as slow as they may be.

    Raises:
        InputError: names the flags, and the least of the space.
    """
    alone = [each for each in limits.stated if not each.holds(whole).any()]
    if alone:
        flags, them = _joined([each.words for each in alone]), "it" if len(alone) == 1 else "them"
        least = _joined([_or_more(each, float(each.taken(whole).min())) for each in alone])
        leave = "leaves" if len(alone) == 1 else "leave"
        raise InputError(
            f"{flags} {leave} no chip of {space}: its chips {least}; raise {them}, or leave "
            f"{them} out"
        )
    within = [(each, _least_within(each, limits.stated, whole)) for each in limits.stated]
    least = _joined(
        [_or_more(each, amount) for each, amount in within if math.isfinite(amount)], "or"
    )
    flags = _joined([each.words for each in limits.stated])
    that = f": chips within the {'others' if len(within) > 2 else 'other'} {least}" if least else ""
    raise InputError(
        f"{flags} together leave no chip of {space}{that}; raise one of them, or leave it out"
    )


def refuse_chip(limits: ChipLimits, name: str, whole: WholeChips) -> None:
    """Refuse the one chip ``whole`` that is beyond ``limits``, or whose dies do not carry its
    memory.

    Raises:
        InputError: names the flags, and what the chip takes.
    """
    beyond = [each for each in limits.stated if not each.holds(whole).all()]
    if not beyond:
        raise InputError(
            f"the dies of the chip {name} cannot carry its memory; give another chip, or another "
            "--memory"
        )
    flags, them = _joined([each.words for each in beyond]), "it" if len(beyond) == 1 else "them"
    takes = _joined([each.kind.words(_rounded_up(float(each.taken(whole)[0]))) for each in beyond])
    does = "does" if len(beyond) == 1 else "do"
    raise InputError(
        f"{flags} {does} not allow the chip {name}, of which each would {takes}; raise {them}, or "
        "give another chip"
    )


def _least_within(one: Stated, every: Sequence[Stated], whole: WholeChips) -> float:
    """The least that chips take of ``one`` that are within all others; infinite where there is
    none."""
    others = np.all([each.holds(whole) for each in every if each != one], axis=0)
    return float(one.taken(whole)[others].min(initial=math.inf))


def _or_more(stated: Stated, least: float) -> str:
    return stated.kind.words(_rounded_up(least), " or more")


def _rounded_up(value: float) -> str:
    """In so few digits, or whole, never less than ``value``."""
    decimals = max(0, DIGITS - 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{math.ceil(value * 10**decimals) / 10**decimals:.{decimals}f}"


def _joined(parts: Sequence[str], link: str = "and") -> str:
    return f" {link} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
