"""Numbers as published tables write them: 50,257, 1.5k, ~60 s, 80GB, 1.5 (estimated)."""

import math
import re

_NUMBER = re.compile(
    r"[~≈]?\s*(?P<number>[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?\.\d+)(?P<rest>.*)",
    re.DOTALL,
)
_SCALE = re.compile(r"\s?(?P<scale>[kKMGTB])(?![A-Za-z])")
_REMARK = re.compile(r"%?|[A-Za-zµ%][A-Za-zµ%/²]*|[\s(\[]+(?!x\s*\d|-|to\b|or\b|/)\D.*", re.DOTALL)
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_INFINITY = re.compile(r"([+-]?)inf(inity)?", re.IGNORECASE)


def number_in(text: str) -> float | None:
    """The number that ``text`` starts with, its scale applied, a unit or remark behind it left out;
    None where there is none.

    A range or a product, such as ``1-2`` or ``8x4``, is no number. Infinite and negative numbers
    are returned as they are.
    """
    text = text.strip()
    infinite = _INFINITY.fullmatch(text)
    if infinite is not None:
        return -math.inf if infinite[1] == "-" else math.inf
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    rest, factor = found["rest"], 1.0
    scale = _SCALE.match(rest)
    if scale is not None:
        rest, factor = rest[scale.end() :], _SCALES[scale["scale"]]
    if _REMARK.fullmatch(rest.rstrip()):
        return float(found["number"].replace(",", "")) * factor
    return None
