"""Names that are another one misspelt, or that other one without words that say little."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

NEARLY = 0.93  # of the letters of two names are the same, where one is the other misspelt
_SAYING_LITTLE = frozenset({"size", "model", "per", "gpu", "num", "number", "of", "the"})


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` names that ``name`` seems to mean; None where it is near none.

    Words may be parted by dashes, underlines or points, and those that say little (size, model,
    ...) may lack.
    """
    names, telling = _sorted(frozenset(known))
    if name in names:
        return name
    own = _telling(name)
    if own in telling:
        return telling[own]
    near = get_close_matches(name, names, 1, NEARLY)
    if near:
        return near[0]
    near = get_close_matches(own, telling, 1, NEARLY)
    begun = [each for each in telling if each.startswith(own) and len(own) >= 0.8 * len(each)]
    return telling[(near or begun)[0]] if near or begun else None


@lru_cache(maxsize=16)
def _sorted(known: frozenset[str]) -> tuple[list[str], dict[str, str]]:
    names = sorted(known)
    return names, {_telling(each): each for each in names}


def _telling(name: str) -> str:
    words = re.split(r"[-_]", name.lower())
    return "-".join(word for word in words if word not in _SAYING_LITTLE) or name
