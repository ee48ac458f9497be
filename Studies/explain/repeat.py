"""A finished search, ready to be repeated under other constraints: its request, its hardware, its models."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from Solver.search.inputs import FREE, Degrees
from Solver.search.what_if import PricedAccelerators, priced

from Common.errors import InputError
from Common.progress import Progress
from Estimator.chips.accelerator import AcceleratorSet
from GraphExtractor import load_or_extract
from GraphExtractor.graph import ModelGraph
from Solver.results import DesignPoint
from Solver.schedule import solver_named
from Solver.search.run import Run, Stores
from Solver.search.winner_schedules import LayerSchedule
from Studies.adapters import chip_study
from Studies.finished_run import FinishedSearch
from Studies.hardware import hardware_to_design
from Studies.request import Request
from Studies.resolve import resolve

logger = logging.getLogger(__name__)
AGREEMENT = 1e-9  # relative, between the value of the best design now and when the run was made


@dataclass(frozen=True, eq=False)
class Designed:
    """A design point and the schedules of its layers."""

    point: DesignPoint
    schedules: tuple[LayerSchedule, ...]


@dataclass(frozen=True, eq=False)
class RepeatedSearch:
    """The search of ``run`` under other constraints. ``best`` is the best design, priced as everything is now.

    ``unchanged`` tells whether it is worth what the run says, so that the run's other numbers can be relied upon too.
    """

    run: Run
    finished: FinishedSearch
    best: Designed
    unchanged: bool

    @property
    def request(self) -> Request:
        """What the run was asked."""
        return self.run.study.request

    def price(self, accelerators: AcceleratorSet, request: Request | None = None) -> PricedAccelerators:
        """The accelerators, priced for the models of the run; ``request`` may ask for other sizes, widths and modes."""
        return _price(self.run, accelerators, request or self.request)


def repeat_search(finished: FinishedSearch, progress: Progress) -> RepeatedSearch:
    """Get ready to repeat the search of ``finished``.

    Raises:
        InputError: it found nothing, or files that its study names are gone or do not fit any more.
    """
    best = finished.result.best
    if best is None:
        raise InputError(f"{finished.folder} found nothing feasible, so there is nothing to compare an alternative with")
    run = run_of(finished, progress)
    with progress.phase("pricing the best design again", 1) as advance:
        now = designed(_price(run, AcceleratorSet.of([best.accelerator]), run.study.request), best.hbm_bytes)
        advance(1)
    if now is None:
        raise InputError(
            f"the best design of {finished.folder} does not fit any more: the code or files that its study names have changed; "
            "run the study again"
        )
    unchanged = abs(now.point.value / best.value - 1.0) <= AGREEMENT
    if not unchanged:
        logger.warning(
            "the best design now comes out at %.6g instead of %.6g: the code or files that the study names have changed since "
            "the run, and all that follows is priced as they are now; run the study again to be sure that it is still the best",
            now.point.value,
            best.value,
        )
    return RepeatedSearch(run, finished, now, unchanged)


def run_of(finished: FinishedSearch, progress: Progress, changes: Mapping[str, object] | None = None) -> Run:
    """The run over its study, with ``changes`` of its settings, that reads graphs from where it is now and keeps nothing.

    Raises:
        InputError: files that the study names are gone, or the changes are not possible.
    """
    try:
        request = resolve({**finished.settings, **(changes or {})}, {}, source=str(finished.folder / "study.yaml"))
        hardware = hardware_to_design(request)
        output = None if request.output is None else finished.folder
        study = chip_study(replace(request, output=output, force_reextract_model=False))
    except InputError as error:
        raise InputError(f"the study of {finished.folder} cannot be repeated: {error}") from error
    return Run(study, hardware, solver_named(study.solver), Stores(study.folders.graphs, None, None), progress)


def designed(chips: PricedAccelerators, hbm_bytes: int, degrees: Degrees = FREE) -> Designed | None:
    """The best of the accelerators in full, None where nothing fits."""
    optimum = chips.optimum(hbm_bytes, degrees)
    return None if optimum is None else Designed(*chips.design(optimum, hbm_bytes))


def _price(run: Run, accelerators: AcceleratorSet, request: Request) -> PricedAccelerators:
    asked = replace(run, study=chip_study(request))
    return priced(asked, graphs_of(asked), accelerators)


def graphs_of(run: Run) -> list[tuple[ModelGraph, ...]]:
    """Graphs of every model and micro-batch size of the study, one per tensor parallel width.

    Raises:
        PhazeError: a model cannot be extracted.
    """
    study = run.study
    return [
        tuple(load_or_extract(study.graph_key(model.name, size, tp), run.stores.graphs) for tp in study.tp_widths)
        for model in study.models
        for size in study.micro_batch_sizes
    ]
