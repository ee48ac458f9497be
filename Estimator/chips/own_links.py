"""A chip's own links, as they are asked for: ``18x25GB/s``, so many of so much bandwidth each way each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from Common.errors import InputError
from Common.quantities import QuantityError, in_unit
from Common.units import GB

MOST_LINKS, MOST_BYTES_PER_S = 4096, 1e15
_TEXT = re.compile(r"\s*(?P<count>[0-9]{1,9})\s*[x×]\s*(?P<each>.+)")


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
    found = _TEXT.fullmatch(text)
    count = 0 if found is None else int(found["count"])
    try:
        each = 0.0 if found is None else float(in_unit(found["each"], "bytes/s"))
    except (QuantityError, OverflowError):
        each = 0.0
    if not 1 <= count <= MOST_LINKS or not 0 < each <= MOST_BYTES_PER_S:
        raise InputError(
            f"links is {text!r:.100}; give 1 to {MOST_LINKS} links and the bandwidth of each, each way, such as 18x25GB/s"
        )
    return OwnLinks(count, each)
