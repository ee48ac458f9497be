"""What only the run of a point knows: what fills its memory, and the front of its designs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from phaze.report.pages.design_points import chip_text
from phaze.report.pages.front_axes import other_axes
from phaze.report.pages.stages import stages_of
from phaze.runs.design_tables import axis_column
from phaze.runs.finished_run import FinishedRun
from phaze.studies.sweep.points_read import PointSet, ReadPoint
from phaze_common.choices import FrontAxis
from phaze_common.units import GIB
from Solver.results import DesignPoint


@dataclass(frozen=True)
class FrontDesign:
    """A design on the front of a point for one model, with its amounts besides throughput."""

    model: str
    throughput_samples_per_s: float
    amounts: Mapping[FrontAxis, float]
    hbm_gib: float
    chip: str


@dataclass(frozen=True, eq=False)
class Details:
    """Of a point with a plan: bytes of the fullest device by model and part, and its front."""

    point: ReadPoint
    capacity_bytes: float
    memories: dict[str, dict[str, float]] = field(default_factory=dict)
    front: tuple[FrontDesign, ...] = ()


def details_of(
    points: PointSet, on_point: Callable[[], None] = lambda: None
) -> tuple[Details, ...]:
    """Details of every point whose run can be read, one at a time; calls ``on_point`` after."""
    found = []
    for point in points.points:
        run = point.open() if point.feasible else None
        if run is not None and run.result.best is not None:
            found.append(_details(point, run, run.result.best))
        on_point()
    return tuple(found)


def _details(point: ReadPoint, run: FinishedRun, best: DesignPoint) -> Details:
    memories = {}
    for model, plan in best.models.items():
        memories[model] = max(stages_of(plan), key=lambda stage: stage.total_bytes).memory_bytes
    return Details(point, best.hbm_bytes, memories, () if run.on_device else _front(run))


def _front(run: FinishedRun) -> tuple[FrontDesign, ...]:
    front, axes = run.designs[run.designs["on_front"]], other_axes(run.manifest.front)
    names = ("model", "throughput_samples_per_s", "hbm_bytes")
    amounts = (front[axis_column(front, axis)].tolist() for axis in axes)
    rows = zip(*(front[name].tolist() for name in names), chip_text(front), *amounts, strict=True)
    return tuple(
        FrontDesign(str(model), throughput, dict(zip(axes, mine, strict=True)), size / GIB, chip)
        for model, throughput, size, chip, *mine in rows
    )
