"""``phaze run_solver``: the best accelerator and plan, of the whole space or of its parts apart."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from phaze.cli import mode
from phaze.cli.exit_status import DONE, FAILED, NOTHING_FEASIBLE
from phaze.cli.printing import print_shown
from phaze.cli.study import STUDY_USAGES, StudyCommand, print_size, request_of
from phaze_common.errors import InputError
from phaze_common.numbers import number
from phaze_common.progress import duration

if TYPE_CHECKING:
    from phaze.runs.run_directory import PartRecord
    from phaze.settings.request import Request
    from Solver.results import SearchResult

logger = logging.getLogger(__name__)


def _parts(text: str) -> int:
    """How many parts are wanted; whether there can be so many is checked later."""
    from Estimator.chips.space_part import no_count

    try:
        return int(text)
    except ValueError:
        raise InputError(no_count(text)) from None


@dataclass(frozen=True, kw_only=True)
class RunSolver(StudyCommand):
    """Search the best accelerator and placement (default)."""

    limits: bool = mode.flag(
        False,
        "then search what limits the best chip, and what other values of every axis allow; on "
        "devices that is always told (explain RUN --limits does so later)",
    )
    parts: int | None = mode.flag(
        None,
        "divide the design space into N parts, which tell each other of their best; search them "
        "apart and join them",
        read=_parts,
    )
    executor: Literal["joblib", "ray"] = mode.flag(
        "joblib", "with --parts: what runs the parts (default joblib)"
    )
    address: str | None = mode.flag(
        None, "with --executor ray: the cluster's address (default: a local one)", "A"
    )
    workers: int | None = mode.flag(
        None, "with --parts: parts run at a time (default: one per core)"
    )


def run(command: RunSolver) -> int:
    """Search the study and print the best accelerator and plan, or the best plan on a device."""
    with_parts = command.workers is not None or command.address is not None
    if command.parts is None and (command.executor != "joblib" or with_parts):
        raise InputError(
            "--executor, --workers and --address are about the parts of a search; add --parts, or "
            "leave them out"
        )
    request = request_of(command)
    if command.dry_run:
        return print_size(request, command, command.parts)
    from Estimator.plans.results import Status
    from phaze.report.tables.search_tables import print_result
    from phaze.runs.run_directory import best_json

    if command.parts is not None:
        result, failed = _searched_in_parts(request, command, command.parts)
    else:
        from phaze.studies.search_run import run_search

        result, failed = run_search(request, command.progress, limits=command.limits), False
    print_shown(best_json(result).decode(), print_result, result, command)
    if failed:
        return FAILED
    other = result.heterogeneous
    if result.best is not None or (other is not None and other.best is not None):
        return DONE
    return NOTHING_FEASIBLE if result.status is Status.INFEASIBLE else FAILED


def _searched_in_parts(
    request: Request, command: RunSolver, count: int
) -> tuple[SearchResult, bool]:
    """The result of all parts together, and whether one has failed; each is logged."""
    from Estimator.plans.results import Status
    from phaze.studies.parts import failures, run_parts
    from phaze.studies.sweep.executors import executor_named

    executor = executor_named(command.executor, command.workers, command.address)
    ended = 0

    def report(part: PartRecord, found: bool) -> None:
        nonlocal ended
        ended += 1
        took = "already there" if found else f"{duration(part.seconds)} on {part.machine}"
        if part.status is Status.FAILED:
            outcome = f"failed: {part.problem}"
        elif part.value is not None:
            outcome = f"its best reaches {number(part.value)} ({took})"
        elif part.status is Status.CLOSED:
            outcome = f"nothing as good as what is known ({took})"
        else:
            outcome = f"nothing fits ({took})"
        level = logging.WARNING if part.status is Status.FAILED else logging.INFO
        logger.log(level, "[%d/%d] part %s: %s", ended, count, part.part, outcome)

    progress, named = command.progress, command.executor
    joined = run_parts(request, count, executor, named, progress, report, limits=command.limits)
    if joined.parts.failed:
        logger.warning("%s", failures(joined.parts))
    return joined.result, bool(joined.parts.failed)


MODE = mode.Mode("run_solver", mode.SEARCH_AND_PRICE, RunSolver, run, STUDY_USAGES, mode.OF_STUDIES)
