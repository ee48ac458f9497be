"""What axes, values and points are called, and how points are grouped by them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Estimator.plans.axes import PLAN_AXES
from GraphExtractor.names import label
from phaze.studies.sweep.points_read import PointSet, ReadPoint
from phaze.studies.sweep.table import value_text
from phaze_common.numbers import number

MODEL, DEVICES, BATCH = "model", "devices", "global_batch_size"
# values say what they are
BY_NAME = frozenset({MODEL, "device", "chip", "cluster", "software", "design_space", "technology"})
# What a point is asked about. The best of a group has these in common; the other axes are choices,
# among which it is the best.
QUESTION = BY_NAME | {
    *("sequence_length", "hbm_size", "memory_size", "memory_bandwidth", "peak_flops"),
    *("fast_domain", DEVICES, BATCH, "optimizer", "precision", "attention", "objective"),
}
TITLES = {
    "hbm_size": "HBM, GiB",
    "memory_size": "memory, GiB",
    "memory_bandwidth": "memory bandwidth, GB/s",
    "peak_flops": "peak, TFLOP/s",
    "fast_domain": "devices per fast domain",
    "sequence_length": "tokens per sample",
    **{each.key: each.axis.title for each in PLAN_AXES if not each.is_symbol},
}
PHRASES = {  # a value within a label: what stands before and behind it
    "hbm_size": ("HBM", " GiB"),
    "memory_size": ("memory", " GiB"),
    "memory_bandwidth": ("", " GB/s"),
    "peak_flops": ("", " TFLOP/s"),
    DEVICES: ("", " devices"),
    "fast_domain": ("fast domain", ""),
    "micro_batch_size": ("micro-batch", ""),
    "sequence_length": ("", " tokens"),
    BATCH: ("batch", ""),
    "zero_stage": ("ZeRO", ""),
    "recompute": ("recomputation", ""),
    "interleave": ("", " chunks per stage"),
}


@dataclass(frozen=True, eq=False)
class Series:
    """Points that share the values of some axes, which ``label`` says."""

    label: str
    points: tuple[ReadPoint, ...]

    @property
    def feasible(self) -> tuple[ReadPoint, ...]:
        """Those that have a plan."""
        return tuple(point for point in self.points if point.feasible)

    @property
    def best(self) -> ReadPoint | None:
        """The one with the largest objective, the first of equal ones; None where nothing fits."""
        return max(self.feasible, key=lambda point: point.objective, default=None)


def title_of(key: str) -> str:
    """An axis as a heading has it, with its unit."""
    return TITLES.get(key, key.replace("_", " "))


def shown(key: str, value: Any) -> str:
    """A value of an axis as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    text = value_text(value)
    if key == MODEL:
        return " ".join(label(word) for word in text.split())
    return Path(text).stem if "/" in text else text


def phrase(key: str, value: Any) -> str:
    """A value of an axis with what it is one of: ``HBM 32 GiB``, ``tp 8``, ``h100``."""
    before, behind = ("", "") if key in BY_NAME else PHRASES.get(key, (key.replace("_", " "), ""))
    return f"{before} {shown(key, value)}{behind}".strip()


def settings_label(point: ReadPoint, keys: Iterable[str]) -> str:
    """The values that a point has of some axes, in a line."""
    return ", ".join(phrase(key, point.value(key)) for key in keys)


def point_label(points: PointSet, point: ReadPoint) -> str:
    """What tells a point from others: its values in a sweep, the name of its folder among runs."""
    settings = settings_label(point, points.axes)
    if points.sweep:
        return settings or f"point {point.number}"
    alone = sum(other.source == point.source for other in points.points) == 1
    return point.source if alone or not settings else f"{point.source}: {settings}"


def grouped(points: Iterable[ReadPoint], keys: Sequence[str]) -> list[Series]:
    """Points by their values of ``keys``, in the order of the points."""
    found: dict[tuple[str, ...], list[ReadPoint]] = {}
    for point in points:
        found.setdefault(tuple(value_text(point.value(key)) for key in keys), []).append(point)
    return [Series(settings_label(several[0], keys), tuple(several)) for several in found.values()]


def fewer_axes(points: PointSet, keys: Sequence[str], most: int) -> tuple[str, ...]:
    """``keys`` for at most ``most`` groups: numbers of many values are left out first."""
    left = list(keys)

    def many(key: str) -> tuple[bool, int]:
        return key not in BY_NAME, len(points.values(key))

    while left and math.prod(len(points.values(key)) for key in left) > most:
        left.remove(max(left, key=many))
    return tuple(left)
