"""A finished search, ready to be repeated under other constraints: its request, its hardware, its
best design."""

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
from phaze_common.compiled_code import user_cache
from phaze_common.errors import InputError
from phaze_common.numbers import number
from phaze_common.progress import Progress
from phaze_common.run_files import STUDY
from phaze_common.setting_fields import Mode
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
        if not _is_worth(now, said):
            worth = (
                f"{number(now.point.value, REPEATED_DIGITS)} instead of "
                f"{number(said.value, REPEATED_DIGITS)}"
            )
            if self.finished.study_edited:
                raise InputError(
                    f"{self.finished.folder / STUDY} was edited since the run and asks another "
                    "question than it answered: "
                    f"its best design now comes out at {worth}; undo the edit, or run the study"
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
        """Whether the design is worth what the run says, so that the run's other numbers can be
        relied upon too."""
        said = self.finished.result.best
        return said is not None and _is_worth(self.best, said)

    def price(self, hardware: Hardware, request: Request | None = None) -> PricedHardware:
        """``hardware`` priced for the models of the run; ``request`` may ask for other memory and
        plans."""
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
        run = run_of(request, progress).knowing(finished.result.own_best)
        alone = (
            replace(run, problem=search_problem(_only_its_plan(finished, best)))
            if len(best.models) == 1
            else run
        )
    return RepeatedSearch(request, run, finished, hardware_alone(run.hardware, best), alone)


def _only_its_plan(finished: FinishedRun, best: DesignPoint) -> Request:
    (plan,) = best.models.values()
    return request_of(finished, constraint_of(plan).within(()) | {"dp": [plan.dp]})


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
    """What ``finished`` was asked, with ``changes`` of its settings; what is made for it goes
    beside it (``place_of``).

    Refusals name the ``source`` of the changes, where it is given, else the study.

    Raises:
        InputError: files that the study names are gone, or the changes are not possible.
    """
    settings = settings_for(Mode.SEARCH).override(finished.settings, changes or {}) | {
        "force_reextract_model": False
    }
    settings.pop("output", None)
    request = resolve(
        settings, {}, source=source or str(finished.folder / STUDY), run_code=finished.run_code
    )
    return replace(
        request.with_settings(output=place_of(finished.folder)), run_folder=finished.folder
    )


def place_of(folder: Path) -> Path:
    """The folder below which graphs of the run in ``folder`` are, or are made: beside it, else in
    the user's cache.

    It follows from where the run lies now. What its study says of folders is of another place where
    the run was moved, and of another person's choice where it came from one.
    """
    folder = folder.absolute()
    of_sweep = folder.parent.parent if folder.parent.name in {"points", "parts"} else folder
    root = (
        of_sweep.parent.parent.parent
        if of_sweep.parent.parts[-2:] == ("Solver", "output")
        else of_sweep
    )
    used = (
        place for place in (folder, of_sweep, root) if any(each.exists() for each in _kept(place))
    )
    place = next(used, folder)
    cache = user_cache()
    return place if cache is None or _is_for_writing(place) else cache / RUNS


def _kept(place: Path) -> tuple[Path, Path]:
    """What a study reads of an earlier one: its graphs, and accelerators in place of the design
    space's."""
    folders = folders_of(place)
    return folders.graphs, folders.arch_configs / CORES


def _is_for_writing(place: Path) -> bool:
    """Whether graphs can be written below ``place``, and no link leads them elsewhere."""
    graphs = folders_of(place).graphs
    try:
        within = [graphs, graphs.parent, *(graphs.iterdir() if graphs.is_dir() else ())]
    except OSError:
        return False
    there = next((each for each in (graphs, graphs.parent, place) if each.exists()), None)
    return (
        there is not None
        and os.access(there, os.W_OK)
        and not any(each.is_symlink() for each in within)
    )


def run_of(request: Request, progress: Progress) -> SearchContext:
    """The run of ``request`` that keeps nothing on disk but graphs.

    Raises:
        InputError: files that the request names are gone.
    """
    return SearchContext(
        search_problem(request),
        hardware_of(request),
        Stores(request.folders.graphs, None, None),
        progress,
    )


def hardware_alone(hardware: Hardware, point: DesignPoint) -> Hardware:
    """The configuration of ``point`` alone."""
    if isinstance(hardware, DesignedChips) and point.accelerator is not None:
        return hardware.only([point.accelerator])
    return hardware


def best_design(chips: PricedHardware, memory_sizes: tuple[int, ...]) -> Designed | None:
    """The best of ``chips`` in full, of equals that with the least memory; None where nothing
    fits."""
    found = [
        (size, optimum)
        for size in sorted(memory_sizes)
        if (optimum := chips.optimum(size)) is not None
    ]
    if not found:
        return None
    most = max(optimum.value for _, optimum in found)
    size, optimum = next(each for each in found if each[1].value >= most * (1 - 1e-12))
    return Designed(*chips.scored_optimum(optimum, size))
