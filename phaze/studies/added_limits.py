"""What limits the best design of a finished run, searched now and kept with it."""

from __future__ import annotations

from dataclasses import replace

from phaze.runs.finished_run import FinishedRun, open_run
from phaze.runs.run_directory import add_to_run
from phaze.settings.problem import hardware_report
from phaze.settings.request import Request
from phaze.studies.context import search_context
from phaze.studies.explain.repeat import repeating, request_of
from phaze.studies.parts import joined_again
from phaze.studies.sweep.points import key_of
from phaze.studies.written_answer import with_limits
from phaze_common.errors import InputError
from phaze_common.files import check_writable
from phaze_common.progress import Progress
from Solver.designs.search import Searched, search
from Solver.results import DesignPoint

EQUAL = 1e-9  # relative: the value of a design that is found again


def add_limits(run: FinishedRun, progress: Progress) -> FinishedRun:
    """``run`` with what limits its best design and what other values of the axes allow; all else
    that its folder holds stays as it is. A run that states them is given back.

    Raises:
        InputError: the study cannot be repeated, or its answer is another now.
        PhazeError: the folder is not writable, or a solver failed.
    """
    result, best = run.result, run.result.best
    if best is None or best.limits:
        return run
    check_writable(run.folder)
    with repeating(run):
        request = request_of(run)
        searched = _searched_again(run, request, progress)
    now = searched.result.best
    if now is None or not _are_equal(now, best):
        raise InputError(
            f"the study of {run.folder} has another answer now than when it was run: its settings "
            "were edited, or the code or files that it names have changed; run it again"
        )
    context = searched.context
    there = len(context.phases)
    found = with_limits(replace(searched, result=replace(searched.result, best=best)))
    assert found is not None  # there is a best design
    result = replace(result, best=found)
    phases = (*run.manifest.phases, *context.phases[there:])
    manifest = replace(run.manifest, phases=phases)
    if key_of(request) != manifest.question:  # what was edited has other limits
        manifest = replace(manifest, question="")
    add_to_run(run.folder, manifest, result)
    return open_run(run.folder, run.run_code)


def _searched_again(run: FinishedRun, request: Request, progress: Progress) -> Searched:
    """The search of the run, most of which was kept with it."""
    if run.manifest.parts is not None:
        return joined_again(request, run.manifest.parts, progress)
    context = search_context(request, progress)
    return search(context, hardware_report(request), str(run.folder))


def _are_equal(now: DesignPoint, said: DesignPoint) -> bool:
    return (
        now.accelerator == said.accelerator
        and now.hbm_bytes == said.hbm_bytes
        and abs(now.value / said.value - 1.0) <= EQUAL
    )
