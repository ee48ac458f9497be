"""A chip's own links, as they are asked for: ``18x25GB/s``, so many of so much bandwidth each way
each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from phaze_common.errors import InputError
from phaze_common.quantities import QuantityError, in_unit
from phaze_common.units import GB

MOST_LINKS, MOST_BYTES_PER_S = 4096, 1e15
_TEXT = re.compile(r"\s*(?P<count>[^x×]*?)\s*[x×]\s*(?P<each>.*?)\s*")
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class OwnLinks:
    """``count`` links of ``bytes_per_s`` each, each way."""

    count: int
    bytes_per_s: float

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Of all links together, each way."""
        return self.count * self.bytes_per_s

    @property
    def label(self) -> str:
        """``18x25GB/s``: links that are alike have one label, by which chips know them."""
        return f"{self.count}x{self.bytes_per_s / GB:.12g}GB/s"

    @property
    def words(self) -> str:
        """``18 links of 25 GB/s``."""
        return f"{self.count} link{'s' * (self.count != 1)} of {self.bytes_per_s / GB:.12g} GB/s"


@lru_cache(maxsize=256)
def own_links(text: str) -> OwnLinks:
    """Read ``18x25GB/s``.

    Raises:
        InputError: another form, or a number or a bandwidth that no links have.
    """
    try:
        return _read(text)
    except ValueError as wrong:
        raise InputError(
            f"links is {text!r:.100}: {wrong}; give 1 to {MOST_LINKS} links and the bandwidth of "
            "each, each way, such as 18x25GB/s"
        ) from wrong


def _read(text: str) -> OwnLinks:
    """As ``own_links``; a ``ValueError`` says what is wrong with the text."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError("there is no x between the number of links and the bandwidth of each")
    number, given = found["count"], found["each"]
    if not _COUNT.fullmatch(number):
        raise ValueError(f"{number!r:.40} is no number of links")
    count = int(number)
    if not 1 <= count <= MOST_LINKS:
        raise ValueError(f"there cannot be {count} links")
    try:
        each = float(in_unit(given, "bytes/s"))
    except (QuantityError, OverflowError):
        unitless = " without a unit" if _NUMBER.fullmatch(given) else ""
        raise ValueError(f"{given!r:.40} is no bandwidth{unitless}") from None
    if not 0 < each <= MOST_BYTES_PER_S:
        raise ValueError(f"a link cannot have {given:.40}")
    return OwnLinks(count, each)
