"""Searches from Python, as on the command line: settings by name, checked the same way, and the same run directory."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from Common.progress import Progress, SilentProgress
from Solver.plan_search.request import PlanRequest, plan_request
from Solver.plan_search.results import PlanAnswer
from Solver.plan_search.settings import asks_for_device
from Solver.results import SearchResult
from Studies import finished_run
from Studies.explain.records import Explanation
from Studies.finished_run import FinishedPlanSearch, FinishedRun
from Studies.study import Study, study_from

logger = logging.getLogger(__name__)

Text = str | os.PathLike[str]
SOURCE = "search.study"  # what refusals name


class CommonSettings(TypedDict, total=False):
    """Settings of both kinds of search; ``phaze run_solver --help`` says what each means and what it is by default."""

    micro_batch_size: int | Sequence[int]
    max_tp: int
    tp: int | Sequence[int]
    sequence_length: int
    recompute: str | Sequence[str]
    attention: str
    sequence_parallel: bool
    global_batch_size: int
    optimizer: str
    cluster: Text
    strict: bool
    name: str
    output: Text
    csv: bool
    force_reextract_model: bool


class ChipSettings(CommonSettings, total=False):
    """Settings of a search that designs the accelerator."""

    hbm_size: float | Sequence[float]
    zero_stage: int
    design_space: Text
    technology: Text
    objective: str
    solver: str


class DeviceSettings(CommonSettings, total=False):
    """Settings of a search on devices that exist."""

    software: Text
    devices: int
    interleave: int | Sequence[int]
    ep: int | Sequence[int]
    precision: str
    zero_stage: int | Sequence[int]


@overload
def study(
    *, model: Text | Sequence[Text] | Mapping[str, float], device: None = None, **settings: Unpack[ChipSettings]
) -> Study: ...


@overload
def study(*, model: Text, device: Text, **settings: Unpack[DeviceSettings]) -> PlanRequest: ...


def study(**settings: Any) -> Study | PlanRequest:
    """What to search: the settings of ``phaze run_solver`` by their names, lists where several values are to be tried.

    A mapping of models gives their weights. With a ``device`` the plan alone is searched, on devices that exist. Relative paths
    are those from the current folder.

    Raises:
        InputError: a setting, model or file that does not exist, or values that are not allowed or contradict each other.
    """
    given = {key: _plain(value) for key, value in settings.items() if value is not None}
    if asks_for_device(given):
        return plan_request(given, {}, SOURCE)
    asked = study_from(given, {}, SOURCE)
    for note in asked.notes:
        logger.info("%s", note)
    return asked


@overload
def run_solver(study: Study, progress: Progress | None = None) -> SearchResult: ...


@overload
def run_solver(study: PlanRequest, progress: Progress | None = None) -> PlanAnswer: ...


def run_solver(study: Study | PlanRequest, progress: Progress | None = None) -> SearchResult | PlanAnswer:
    """Search, and write the run directory: ``run_directory`` of the result, or ``run`` of a request on given devices.

    Nothing feasible is an answer too, with its ``reason``. ``progress`` is silent by default; ``Common.progress`` has others.

    Raises:
        InputError: what the study names does not fit together after all.
        PhazeError: an artefact cannot be written, or a solver failed.
    """
    progress = progress or SilentProgress()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # of a library that would draw bars in a notebook
        if isinstance(study, Study):
            from Solver.search.cosearch import run_solver as search

            return search(study, progress)
        from Solver.plan_search.run import answer, run_plan_search

        return answer(run_plan_search(study, progress))


def open_run(folder: Text) -> FinishedRun:
    """Everything that a finished run left in ``folder``: result, manifest, schedules, and ``designs`` as a DataFrame.

    Raises:
        InputError: there is no finished run in it.
        ArtefactError: a file of it is missing, damaged or of another version.
    """
    return finished_run.open_run(Path(folder))


def explain(run: FinishedRun, instead: str | Sequence[str] = (), progress: Progress | None = None) -> Explanation:
    """Why the answer of ``run`` is the answer, what limits it, and what each alternative of ``instead`` would cost.

    An alternative is written as ``num_tc=4,width=256`` or ``pp=8``: the best design that has these values. Explaining alone
    reads the run; alternatives are searched anew.

    Raises:
        InputError: an alternative that cannot be read or that nothing has, or a run that cannot be asked again.
    """
    from Studies.explain.alternatives import alternative
    from Studies.explain.asking import ask_again
    from Studies.explain.explanation import explain as explained
    from Studies.explain.plan_alternatives import ask_plans_again, plan_alternative
    from Studies.explain.wishes import read_plan_wish, read_wish

    explanation = explained(run)
    texts = (instead,) if isinstance(instead, str) else tuple(instead)
    if not texts:
        return explanation
    progress = progress or SilentProgress()
    if isinstance(run, FinishedPlanSearch):
        plan_wishes = [read_plan_wish(text) for text in texts]
        plans = ask_plans_again(run, progress)
        return replace(explanation, alternatives=tuple(plan_alternative(plans, wish) for wish in plan_wishes))
    wishes = [read_wish(text) for text in texts]
    asker = ask_again(run, progress)
    return replace(explanation, alternatives=tuple(alternative(asker, wish) for wish in wishes))


def _plain(value: object) -> object:
    """Paths as text, also within lists."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
