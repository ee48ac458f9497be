"""Which constants were fitted to which published runs; everything else that is told of runs is a
prediction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from phaze_common.records import read_yaml, to_record

FITTED = Path(__file__).with_name("fitted.yaml")


@dataclass(frozen=True)
class Fitted:
    """``constants`` that were fitted to the time or memory (``of``) of runs in whose source
    ``pattern`` is found."""

    pattern: str
    of: str
    constants: str


@dataclass(frozen=True)
class _File:
    fits: tuple[Fitted, ...]


@cache  # of the file that ships
def fitted_constants() -> tuple[Fitted, ...]:
    """All of those that there are."""
    return to_record(_File, read_yaml(FITTED), str(FITTED)).fits


def fitted_to(source: str) -> str:
    """What was fitted to runs of ``source``, in words; empty where all of them are predictions."""
    found = (each for each in fitted_constants() if re.search(each.pattern, source, re.IGNORECASE))
    return "; ".join(f"{each.of}: {each.constants}" for each in found)
