"""Curves over numbers of devices: strong scaling (one batch), and weak (samples per device)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from phaze.report.pages.points.labels import BATCH, DEVICES, QUESTION, Series, fewer_axes, grouped
from phaze.report.pages.points.outcomes import plan_of
from phaze.studies.sweep.points_read import PointSet, ReadPoint
from phaze_common.numbers import number

MOST_CURVES = 12  # of one kind, in a figure


class Scaling(StrEnum):
    """What stays the same along a curve."""

    STRONG = "strong"  # the global batch
    WEAK = "weak"  # the samples per device


@dataclass(frozen=True, eq=False)
class Step:
    """A point of a curve; what follows from a plan is None where none fits on the ``devices``.

    ``efficiency`` is samples per second and device over that of the fewest devices that fit, the
    ideal ones follow from those.
    """

    point: ReadPoint
    devices: int
    batch: int
    time_s: float | None
    throughput: float | None
    ideal_time_s: float | None = None
    ideal_throughput: float | None = None
    efficiency: float | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """Points of one kind of scaling, the fewest devices first."""

    kind: Scaling
    label: str
    steps: tuple[Step, ...]


def curves_of(points: PointSet, kind: Scaling) -> tuple[Curve, ...]:
    """Curves of one kind: by all other axes if few, else the best of their choices."""
    keys = [key for key in points.axes if key not in (DEVICES, BATCH)]
    found = _curves(points, keys, kind)
    if len(found) > MOST_CURVES:
        asked = [key for key in keys if key in QUESTION]
        found = _curves(points, asked, kind)
        if len(found) > MOST_CURVES:
            found = _curves(points, fewer_axes(points, asked, MOST_CURVES // 2), kind)[:MOST_CURVES]
    return tuple(found)


def _curves(points: PointSet, keys: list[str] | tuple[str, ...], kind: Scaling) -> list[Curve]:
    batches = {point.value(BATCH) for point in points.points} - {None}
    # which a point that failed need not say itself
    batch = batches.pop() if len(batches) == 1 else None
    groups = grouped(points.points, keys)
    found = [curve for series in groups for curve in _of_series(series, kind, batch)]
    if len(found) > 1:
        return found
    return [replace(curve, label=curve.label or "all points") for curve in found]


def _of_series(series: Series, kind: Scaling, batch: int | None) -> Iterator[Curve]:
    """The curves of points that differ in devices and batch, and in what is chosen."""
    steps = [step for point in series.points if (step := _step(point, batch)) is not None]
    constant: dict[float, list[Step]] = {}
    strong = kind is Scaling.STRONG
    for step in steps:
        constant.setdefault(step.batch if strong else step.batch / step.devices, []).append(step)
    for value, several in sorted(constant.items()):
        if len({step.devices for step in several}) > 1:
            what = f"batch {number(value)}" if strong else f"{number(value)} samples per device"
            name = [series.label] if series.label else []
            names = [*name, what] if len(constant) > 1 or not name else name
            yield Curve(kind, ", ".join(names), _with_ideal(several))


def _step(point: ReadPoint, common: int | None) -> Step | None:
    devices, batch = point.value(DEVICES), point.value(BATCH) or common
    if not isinstance(devices, int) or not isinstance(batch, int):
        return None
    plan = plan_of(point)
    if plan is None or not point.feasible:
        return None if point.feasible else Step(point, devices, batch, None, None)
    return Step(point, devices, batch, plan.time_per_batch_s, plan.throughput_samples_per_s)


def _with_ideal(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The fastest step of each number of devices, with what the fewest devices that fit promise."""
    best: dict[int, Step] = {}
    for step in steps:
        other = best.get(step.devices)
        if other is None or (step.throughput or 0.0) > (other.throughput or 0.0):
            best[step.devices] = step
    ordered = [best[devices] for devices in sorted(best)]
    first = next((step for step in ordered if step.throughput), None)
    if first is None or not first.throughput:
        return tuple(ordered)
    per_device = first.throughput / first.devices
    return tuple(
        replace(
            step,
            ideal_throughput=per_device * step.devices,
            ideal_time_s=step.batch / (per_device * step.devices),
            efficiency=None
            if step.throughput is None
            else step.throughput / step.devices / per_device,
        )
        for step in ordered
    )
