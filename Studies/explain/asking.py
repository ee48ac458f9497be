"""A finished search, ready to be asked again: its study, its hardware, its models."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from Common.errors import InputError
from Common.progress import Progress
from Estimator.chips.accelerator import AcceleratorSet
from GraphExtractor import load_or_extract
from GraphExtractor.graph import ModelGraph, Recompute
from Solver.results import DesignPoint
from Solver.schedule import solver_named
from Solver.search.inputs import FREE, Degrees
from Solver.search.run import Run, Stores
from Solver.search.what_if import PricedAccelerators, priced
from Solver.search.winner_schedules import LayerSchedule
from Studies.finished_run import FinishedSearch
from Studies.hardware import load_hardware
from Studies.study import Study, study_from

logger = logging.getLogger(__name__)
AGREEMENT = 1e-9  # relative, between the value of the best design now and when the run was made


@dataclass(frozen=True, eq=False)
class Designed:
    """A design point and the schedules of its layers."""

    point: DesignPoint
    schedules: tuple[LayerSchedule, ...]


@dataclass(frozen=True, eq=False)
class Asker:
    """Answers questions about the study of ``run``. ``best`` is the best design, priced as everything is now.

    ``unchanged`` tells whether it is worth what the run says, so that the run's other numbers can be relied upon too.
    """

    run: Run
    finished: FinishedSearch
    best: Designed
    unchanged: bool

    @property
    def study(self) -> Study:
        """What the run was asked."""
        return self.run.study

    def price(self, accelerators: AcceleratorSet, study: Study | None = None) -> PricedAccelerators:
        """The accelerators, priced for the models of the run; ``study`` may ask for other sizes, widths and modes."""
        return _price(self.run, accelerators, study or self.run.study)


def ask_again(finished: FinishedSearch, progress: Progress) -> Asker:
    """Get ready to ask the study of ``finished`` again.

    Raises:
        InputError: it found nothing, or files that its study names are gone or do not fit any more.
    """
    best = finished.result.best
    if best is None:
        raise InputError(f"{finished.folder} found nothing feasible, so there is nothing to compare an alternative with")
    run = run_of(finished, progress)
    with progress.phase("pricing the best design again", 1) as advance:
        now = designed(_price(run, AcceleratorSet.of([best.accelerator]), run.study), best.hbm_bytes)
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
    return Asker(run, finished, now, unchanged)


def run_of(finished: FinishedSearch, progress: Progress, changes: Mapping[str, object] | None = None) -> Run:
    """The run over its study, with ``changes`` of its settings, that reads graphs from where it is now and keeps nothing.

    Raises:
        InputError: files that the study names are gone, or the changes are not possible.
    """
    try:
        study = study_from({**finished.settings, **(changes or {})}, {}, str(finished.folder / "study.yaml"))
        hardware = load_hardware(study)
    except InputError as error:
        raise InputError(f"the study of {finished.folder} cannot be asked again: {error}") from error
    if study.output is not None:
        study = replace(study, output=finished.folder)
    stores = Stores(study.folders.graphs, None, None)
    return Run(replace(study, force_reextract=False), hardware, solver_named(study.solver), stores, progress)


def designed(chips: PricedAccelerators, hbm_bytes: int, degrees: Degrees = FREE) -> Designed | None:
    """The best of the accelerators in full, None where nothing fits."""
    optimum = chips.optimum(hbm_bytes, degrees)
    return None if optimum is None else Designed(*chips.design(optimum, hbm_bytes))


def _price(run: Run, accelerators: AcceleratorSet, study: Study) -> PricedAccelerators:
    asked = replace(run, study=study)
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


def with_values(
    study: Study, *, micro_batch_size: int | None = None, recompute: str | None = None, tp: int | None = None
) -> Study:
    """``study`` with single values instead of its lists, where they are given."""
    return replace(
        study,
        micro_batch_sizes=study.micro_batch_sizes if micro_batch_size is None else (micro_batch_size,),
        recompute=study.recompute if recompute is None else (Recompute(recompute),),
        tp_widths=study.tp_widths if tp is None else (tp,),
    )
