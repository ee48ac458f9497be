"""Searches from Python, as on the command line: settings by name, checked the same way, and the
same run directory."""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from GraphExtractor.permission import EVERY_FILE, files_to_run
from phaze.report.sentences.records import Explanation
from phaze.runs import finished_run
from phaze.runs.finished_run import FinishedRun
from phaze.runs.plan_files import PlanFile
from phaze.settings.request import Request, settings_for
from phaze.settings.resolve import resolve
from phaze.studies.training_time.records import TrainingTime
from phaze.studies.training_time.settings import all_settings
from phaze_common.echo import as_given
from phaze_common.errors import InfeasibleError, InputError
from phaze_common.files import user_path
from phaze_common.progress import Progress, SilentProgress
from phaze_common.refusals import Refusals
from phaze_common.setting_fields import Mode
from Solver.results import SearchResult, SpaceSize

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

Text = str | os.PathLike[str]
SOURCE = "phaze.study"  # what refusals name


def study(**settings: Any) -> Request:
    """What to search: the settings of ``phaze run_solver`` by their names, lists where several
    values are to be tried.

    A mapping of models gives their weights. With a ``device`` the plan alone is searched, on
    devices that exist. Relative paths are those from the current folder. ``help(phaze.study)``
    lists the settings, ``phaze run_solver --help`` says what they mean.

    Raises: InputError: a setting, model or file that does not exist, or values that are not allowed
        or contradict each other.
    """
    given = {key: _plain(value) for key, value in settings.items() if value is not None}
    asked = resolve(given, {}, source=SOURCE, run_code=EVERY_FILE)
    for note in asked.notes:
        logger.info("%s", note)
    return asked


study.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None)
        for key in settings_for(Mode.SEARCH).keys
    ],
    return_annotation=Request,
)


def run_solver(
    request: Request, progress: Progress | None = None, *, limits: bool = False
) -> SearchResult:
    """Search, and write the run directory, ``request.folders.run``.

    Nothing feasible is an answer too, with its ``reason``. ``progress`` is silent by default;
    ``phaze_common.progress`` has others. ``limits`` asks what limits the best chip as well, and
    what other values of the axes allow; of devices both are always told.

    Raises:
        InputError: what the request names does not fit together after all.
        PhazeError: an artefact cannot be written, or a solver failed.
    """
    _check_kind(request, Request, "request", "what phaze.study() returns")
    from phaze.studies.search_run import run_search

    with warnings.catch_warnings():
        # of a library that would draw bars in a notebook
        warnings.filterwarnings("ignore", "IProgress not found")
        return run_search(request, progress or SilentProgress(), limits=limits)


def space_size(request: Request) -> SpaceSize:
    """Count what ``run_solver`` would search, without searching."""
    from phaze.settings.problem import space_size as size

    _check_kind(request, Request, "request", "what phaze.study() returns")
    return size(request)


def evaluate_many(plans: pd.DataFrame | Mapping[str, Any], **settings: Any) -> pd.DataFrame:
    """Price many plans of a model on one device or chip at once: ``plans`` with columns of what an
    iteration of each costs.

        grid = pandas.DataFrame({"tp": 8, "pp": [8, 16], "dp": [8, 4], "micro_batch_size": 1})
        evaluate_many(grid, model="megatron-175b", device="a100_80gb", global_batch_size=512)

    Columns of ``plans``, a DataFrame or mapping of lists, are the axes that searches compare
    (``phaze.settings.plan_table.COLUMNS``: layout, tp, ep, etp, dispatcher and others; one that is
    unknown is refused with the list of all) and global_batch_size; what is left out is 1, none or
    the framework's (panels those of ``evaluate``), the global batch that of ``settings``. Blocks
    are balanced over stages as Megatron-LM does. ``settings`` are those of ``study`` that say model
    and hardware, with a ``device`` or a ``chip``. Each plan uses as many devices of the cluster as
    its degrees need; where ``devices`` are given, all plans use just so many, and a dp that is left
    out follows from them. Added are iteration_s, samples_per_s, step_s (of the optimizer, within
    iteration_s), memory_bytes (of the fullest stage) and feasible (whether it fits).

    Raises: InputError: a setting or column that does not exist, or a plan that contradicts itself,
        the model or the cluster.
    """
    from phaze.studies.many import evaluated_many

    devices = (
        settings_for(Mode.SEARCH)
        .read({"devices": settings.pop("devices", None)}, SOURCE)
        .get("devices")
    )
    searched = ("use_all_devices", "whole_micro_batches")  # rules for what is searched
    every = dict.fromkeys(searched, False) if settings.get("device") is not None else {}
    return evaluated_many(study(**every | settings), plans, devices)


def training_time(progress: Progress | None = None, **settings: Any) -> TrainingTime:
    """What a whole training takes, as ``phaze training-time`` says it: days, energy, money, carbon,
    and where the time goes.

        training_time(model="gpt3-175b", device="h100", devices=1024, tokens=300e9,
        global_batch_size=1536).wall_clock_days

    Without a setting that says what the plan is the best one is searched.
    ``help(phaze.training_time)`` lists the settings, ``phaze training-time --help`` says what they
    mean. Where the plan does not fit in memory, the ``status`` says so.

    Raises: InputError: a setting that does not exist, or values that are not allowed or contradict
        each other. InfeasibleError: no plan that was searched fits.
    """
    from phaze.studies.training_time.request import training_of_file
    from phaze.studies.training_time.run import price_training

    given = {key: _plain(value) for key, value in settings.items() if value is not None}
    answer = price_training(
        training_of_file(PlanFile(given), "phaze.training_time", run_code=EVERY_FILE), progress
    )
    if isinstance(answer, SearchResult):
        raise InfeasibleError(
            answer.reason or f"no plan of {answer.study} was found: {answer.status.value}"
        )
    return answer.training


training_time.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("progress", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None),
        *(
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None)
            for key in all_settings().keys
        ),
    ],
    return_annotation=TrainingTime,
)


def open_run(folder: Text, run_code: Text | Sequence[Text] = ()) -> FinishedRun:
    """Everything that a finished run left in ``folder``: result, manifest, schedules, and
    ``designs`` as a DataFrame.

    ``run_code`` are model files (Python) which ``explain`` may run where the study of the run names
    them.

    Raises: InputError: there is no finished run in it, or a file of it is missing, damaged or of
        another version.
    """
    _check_kind(folder, str | os.PathLike, "folder", "the path of a run's folder")
    files = _texts(run_code, "run_code", "paths of model files")
    return finished_run.open_run(
        user_path(os.fspath(folder)), files_to_run(os.fspath(each) for each in files)
    )


def explain(
    run: FinishedRun,
    instead: str | Sequence[str] = (),
    progress: Progress | None = None,
    what_if: str | Sequence[str] = (),
    *,
    limits: bool = False,
) -> Explanation:
    """Why the answer of ``run`` is the answer, what limits it, and what each alternative of
    ``instead`` would cost.

    An alternative is written as ``num_tc=4,width=256`` or ``pp=8``: the best design that has these
    values. Explaining alone reads the run; alternatives are searched anew. So is every ``what_if``,
    written as ``hbm_bandwidth=2x`` or ``devices=256``: what the run would have answered then. Where
    the run does not state what limits its chip, ``limits`` has that searched and kept with the run.

    Raises: InputError: an alternative that cannot be read or that nothing has, or a run that cannot
        be asked again.
    """
    _check_kind(run, FinishedRun, "run", "what phaze.open_run() returns")
    texts = _texts(instead, "instead", "texts such as num_tc=4,width=256")
    supposed = _texts(what_if, "what_if", "texts such as hbm_bandwidth=2x")
    from phaze.report.sentences.explanation import explain as explained
    from phaze.studies.explain.alternatives import alternative
    from phaze.studies.explain.constraints import read_constraint
    from phaze.studies.explain.repeat import repeat_search

    refusals = Refusals()
    asked = [
        refusals.attempt(partial(read_constraint, text, on_device=run.on_device), None)
        for text in texts
    ]
    refusals.raise_any()  # before the run is explained, which can take long
    constraints = [each for each in asked if each is not None]
    if limits:
        from phaze.studies.added_limits import add_limits

        run = add_limits(run, progress or SilentProgress())
    explanation = explained(run)
    if supposed:
        from phaze.studies.explain.what_if import what_if as answered

        explanation = replace(
            explanation, what_ifs=tuple(answered(run, each, progress) for each in supposed)
        )
    if not constraints:
        return explanation
    search = repeat_search(run, progress or SilentProgress())
    return replace(
        explanation, alternatives=tuple(alternative(search, each) for each in constraints)
    )


def _check_kind(value: object, kind: Any, name: str, wanted: str) -> None:
    """Refuse what is not of the ``kind`` that is ``wanted``."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is {as_given(value)}; give {wanted}")


def _texts(value: object, name: str, wanted: str) -> tuple[str, ...]:
    """One text or path, or several, as texts."""
    several = (value,) if isinstance(value, str | os.PathLike) else value
    if not isinstance(several, list | tuple | set | frozenset):
        raise InputError(f"{name} is {as_given(value)}; give {wanted}")
    for each in several:
        _check_kind(each, str | os.PathLike, name, wanted)
    return tuple(str(os.fspath(each)) for each in several)


def _plain(value: object, deepest: int = 8) -> object:
    """Paths as text, numbers and arrays of numpy and pandas as Python's, also within lists."""
    if isinstance(value, range):
        return list(value)
    plain = getattr(value, "tolist", None)
    if callable(plain) and hasattr(value, "dtype"):
        return plain()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple) and deepest:  # one may contain itself
        return [_plain(item, deepest - 1) for item in value]
    return value
