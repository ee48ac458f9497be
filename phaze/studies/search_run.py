"""``run_solver``: answer a request, or give back the answer that its folder has."""

from __future__ import annotations

import logging

from Estimator.plans.results import Status
from GraphExtractor.models.registry import find_model
from phaze.runs.finished_run import answer_there
from phaze.runs.run_directory import Holds, check_replaceable, refuse_other_kind, refuse_other_run
from phaze.settings.file_contents import file_contents
from phaze.settings.problem import hardware_report
from phaze.settings.request import Request
from phaze.settings.resolve import resolve
from phaze.studies.sweep.points import key_of
from phaze_common.files import check_writable
from phaze_common.progress import Progress
from Solver.results import SearchResult

logger = logging.getLogger(__name__)


def run_search(request: Request, progress: Progress, *, limits: bool = False) -> SearchResult:
    """Answer ``request`` and write its run directory, with what limits the best chip where
    ``limits`` are asked for. The answer of a run that is there to the same question is given back.

    Raises:
        InputError: the request names something that does not exist or does not fit together.
        PhazeError: an artefact cannot be written, or a solver failed.
    """
    contents, question = prepared(request), key_of(request)
    there = _answer_there(request, question, limits=limits)
    if there is not None:
        return there
    # imports what a search takes
    from phaze.studies.context import search_context
    from phaze.studies.written_answer import write_answer
    from Solver.designs.search import search

    run = search_context(request, progress)
    searched = search(run, hardware_report(request), str(request.folders.run))
    return write_answer(request, searched, contents, question=question, limits=limits)


def _answer_there(request: Request, question: str, *, limits: bool) -> SearchResult | None:
    """The proven answer of a run to the same ``question``, which is complete; none of models in
    code of one's own, which may read what no key knows."""
    if not all(find_model(model.name).described for model in request.workload.models):
        return None
    if request.output.force_reextract_model or request.hardware.space_part is not None:
        return None
    folder, study = request.folders.run, request.to_yaml().encode()
    result = answer_there(folder, question, study)
    if result is None or result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return None
    best = result.best
    if limits and best is not None and not (best.limits or best.axes):
        return None
    logger.info("%s has the answer to this question; remove its best.json to search again", folder)
    return result


def prepared(request: Request) -> dict[str, str]:
    """Hashes of the files that ``request`` names, before its answer; its folder can be written.

    Raises: InputError: it cannot, or holds files that no run wrote or the run of another study, or
        a file is not there any more.
    """
    check_writable(request.folders.run)
    check_replaceable(request.folders.run)
    flag = "--name" if request.output.output is None else "--output"
    refuse_other_kind(request.folders.run, Holds.SEARCH, flag)
    refuse_other_run(
        request.folders.run,
        request.as_mapping(),
        flag,
        lambda there: resolve({}, there, request.mode).as_mapping(),
    )
    return file_contents(request)
