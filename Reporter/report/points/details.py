"""What only the run of a point knows: what fills its memory, and the front of its designs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from Common.units import GIB
from Reporter.report.design_points import chip_text
from Reporter.report.stages import stages_of
from Solver.results import DesignPoint
from Studies.finished_run import FinishedRun
from Studies.sweep.points_read import PointSet, ReadPoint


@dataclass(frozen=True)
class FrontDesign:
    """A design on the front of throughput, area and energy of a point, for one model."""

    model: str
    area_mm2: float
    throughput_samples_per_s: float
    energy_per_sample_j: float
    hbm_gib: float
    chip: str


@dataclass(frozen=True, eq=False)
class Details:
    """Of a point with a plan: bytes of a device of the fullest stage by model and part, of ``capacity_bytes``, and its front."""

    point: ReadPoint
    capacity_bytes: float
    memories: dict[str, dict[str, float]] = field(default_factory=dict)
    front: tuple[FrontDesign, ...] = ()


def details_of(points: PointSet, on_point: Callable[[], None] = lambda: None) -> tuple[Details, ...]:
    """The details of every point whose run can be read; ``on_point`` is called after each. One run is held at a time."""
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
    front = run.designs[run.designs["on_front"]]
    columns = ("model", "area_mm2", "throughput_samples_per_s", "energy_per_sample_j", "hbm_bytes")
    rows = zip(*(front[column].tolist() for column in columns), chip_text(front), strict=True)
    return tuple(
        FrontDesign(str(model), area, throughput, energy, size / GIB, chip)
        for model, area, throughput, energy, size, chip in rows
    )
