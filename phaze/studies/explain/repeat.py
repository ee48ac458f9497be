"""A finished search, ready to be repeated under other constraints."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from phaze.report.sentences.designs import EQUAL
from phaze.report.sentences.differences import Designed
from phaze.runs.finished_run import FinishedRun
from phaze.settings.designed_chips import CORES
from phaze.settings.folders import RUNS, folders_of
from phaze.settings.problem import hardware_of, search_problem
from phaze.settings.request import Request, settings_for
from phaze.settings.resolve import resolve
from phaze.studies.explain.constraints import constraint_of
from phaze_common.errors import InputError
from phaze_common.numbers import number
from phaze_common.progress import Progress
from phaze_common.run_files import STUDY
from phaze_common.setting_fields import Mode
from phaze_common.user_cache import user_cache
from Solver.designs.re_solve import PricedHardware, priced
from Solver.designs.search_context import SearchContext, Stores
from Solver.hardware import DesignedChips, Hardware
from Solver.results import DesignPoint

logger = logging.getLogger(__name__)
REPEATED_DIGITS = 6  # of a value that comes out otherwise


@dataclass(frozen=True, eq=False)
class RepeatedSearch:
    """The search of ``run`` under other constraints. ``hardware`` is that of the best design alone.

    ``alone`` is the run of its plan alone, where it has one model.
    """

    request: Request
    run: SearchContext
    finished: FinishedRun
    hardware: Hardware
    alone: SearchContext

    @cached_property
    def best(self) -> Designed:
        """The best design, priced as everything is now, once it is asked for.

        Raises:
            InputError: it does not fit any more, or the study was edited so that it is another.
        """
        said = self.finished.result.best
        assert said is not None  # repeat_search refuses others
        with self.run.progress.phase("pricing the best design again", 1) as advance:
            now = best_design(priced(self.alone, self.hardware), (said.hbm_bytes,))
            advance(1)
        if now is None:
            raise InputError(
                f"the best design of {self.finished.folder} does not fit any more: the code or "
                "files that its study names have changed; run the study again"
            )
        if _is_worth(now, said):
            return now
        values = (number(each, REPEATED_DIGITS) for each in (now.point.value, said.value))
        worth = " instead of ".join(values)
        if self.finished.study_edited:
            raise InputError(
                f"{self.finished.folder / STUDY} was edited since the run and asks another "
                f"question than it answered: its best design now comes out at {worth}; undo the "
                "edit, or run the study"
            )
        logger.warning(
            "the best design now comes out at %s: the code or files that the study names have "
            "changed since the run, and all that follows is priced as they are now; run the "
            "study again to be sure that it is still the best",
            worth,
        )
        return now

    @property
    def unchanged(self) -> bool:
        """Whether the design is worth what the run says: then its other numbers hold too."""
        said = self.finished.result.best
        return said is not None and _is_worth(self.best, said)

    def price(self, hardware: Hardware, request: Request | None = None) -> PricedHardware:
        """``hardware`` priced for the models of the run, with memory and plans of ``request``."""
        asked = self.run if request is None else replace(self.run, problem=search_problem(request))
        return priced(asked.knowing(self.run.problem.own_best), hardware)


def _is_worth(now: Designed, said: DesignPoint) -> bool:
    return abs(now.point.value / said.value - 1.0) <= EQUAL


def repeat_search(finished: FinishedRun, progress: Progress) -> RepeatedSearch:
    """Get ready to repeat the search of ``finished``.

    Raises:
        InputError: it found nothing, or files that its study names are gone or do not fit any more.
    """
    best = finished.result.best
    if best is None:
        raise InputError(
            f"{finished.folder} found nothing feasible, so there is nothing to compare an "
            "alternative with"
        )
    with repeating(finished):
        request = request_of(finished)
        alone = run = run_of(request, progress).knowing(finished.result.own_best)
        if len(best.models) == 1:
            (plan,) = best.models.values()
            its_plan = constraint_of(plan).within(()) | {"dp": [plan.dp]}
            alone = replace(run, problem=search_problem(request_of(finished, its_plan)))
    return RepeatedSearch(request, run, finished, hardware_alone(run.hardware, best), alone)


@contextmanager
def repeating(finished: FinishedRun) -> Iterator[None]:
    """What cannot be is a study that cannot be repeated."""
    try:
        yield
    except InputError as error:
        raise InputError(f"the study of {finished.folder} cannot be repeated: {error}") from error


def request_of(
    finished: FinishedRun, changes: Mapping[str, object] | None = None, *, source: str = ""
) -> Request:
    """What ``finished`` was asked, with ``changes``; what is made goes to its ``place_of``.

    Refusals name the ``source`` of the changes, where it is given, else the study.

    Raises:
        InputError: files that the study names are gone, or the changes are not possible.
    """
    settings = settings_for(Mode.SEARCH).override(finished.settings, changes or {})
    settings |= {"force_reextract_model": False}
    settings.pop("output", None)
    source = source or str(finished.folder / STUDY)
    request = resolve(settings, {}, source=source, run_code=finished.run_code)
    request = request.with_settings(output=place_of(finished.folder))
    return replace(request, run_folder=finished.folder)


def place_of(folder: Path) -> Path:
    """The folder of the graphs of the run in ``folder``: beside it, else in the user's cache.

    It follows from where the run lies now. What its study says of folders is of another place where
    the run was moved, and of another person's choice where it came from one.
    """
    folder = root = folder.absolute()
    if folder.parent.name in {"points", "parts"}:
        root = folder.parent.parent
    places = [folder, root]
    if root.parent.parts[-2:] == ("Solver", "output"):
        places.append(root.parents[2])
    place = next(filter(_is_used, places), folder)
    cache = user_cache()
    return place if cache is None or _is_for_writing(place) else cache / RUNS


def _is_used(place: Path) -> bool:
    """Whether an earlier study left graphs there, or accelerators instead of a design space."""
    folders = folders_of(place)
    return folders.graphs.exists() or (folders.arch_configs / CORES).exists()


def _is_for_writing(place: Path) -> bool:
    """Whether graphs can be written below ``place``, and no link leads them elsewhere."""
    graphs = folders_of(place).graphs
    try:
        within = [graphs, graphs.parent, *(graphs.iterdir() if graphs.is_dir() else ())]
    except OSError:
        return False
    if any(each.is_symlink() for each in within):
        return False
    there = next((each for each in (graphs, graphs.parent, place) if each.exists()), None)
    return there is not None and os.access(there, os.W_OK)


def run_of(request: Request, progress: Progress) -> SearchContext:
    """The run of ``request`` that keeps nothing on disk but graphs.

    Raises:
        InputError: files that the request names are gone.
    """
    stores = Stores(request.folders.graphs, None, None)
    return SearchContext(search_problem(request), hardware_of(request), stores, progress)


def hardware_alone(hardware: Hardware, point: DesignPoint) -> Hardware:
    """The configuration of ``point`` alone."""
    if isinstance(hardware, DesignedChips) and point.accelerator is not None:
        return hardware.only([point.accelerator])
    return hardware


def best_design(chips: PricedHardware, memory_sizes: tuple[int, ...]) -> Designed | None:
    """The best of ``chips`` with its schedules, of equals that with the least memory."""
    optima = {size: chips.optimum(size) for size in sorted(memory_sizes)}
    found = {size: optimum for size, optimum in optima.items() if optimum is not None}
    most = max((optimum.value for optimum in found.values()), default=0.0)
    for size, optimum in found.items():
        if optimum.value >= most * (1 - 1e-12):
            return Designed(*chips.scored_optimum(optimum, size))
    return None
