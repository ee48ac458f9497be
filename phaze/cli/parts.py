"""``phaze run_solver --parts N``: the parts of a design space searched apart, and joined."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from phaze.cli.arguments import Command
from phaze_common.numbers import number
from phaze_common.progress import duration

if TYPE_CHECKING:
    from phaze.runs.run_directory import PartRecord
    from phaze.settings.request import Request
    from phaze_common.progress import Progress
    from Solver.results import SearchResult

logger = logging.getLogger(__name__)


def searched_in_parts(
    request: Request, command: Command, progress: Progress
) -> tuple[SearchResult, bool]:
    """The result of all parts together, and whether one has failed, which is said; a line for each
    as it ends."""
    from Estimator.plans.results import Status
    from phaze.studies.parts import failures, run_parts
    from phaze.studies.sweep.executors import executor_named

    assert command.parts is not None  # else the space is searched as a whole
    executor = executor_named(command.executor, command.workers, command.address)
    ended = 0

    def tell(part: PartRecord, found: bool) -> None:
        nonlocal ended
        ended += 1
        took = "already there" if found else f"{duration(part.seconds)} on {part.machine}"
        if part.status is Status.FAILED:
            words = f"failed: {part.problem}"
        elif part.value is not None:
            words = f"its best reaches {number(part.value)} ({took})"
        else:
            closed = part.status is Status.CLOSED
            words = f"{'nothing as good as what is known' if closed else 'nothing fits'} ({took})"
        level = logging.WARNING if part.status is Status.FAILED else logging.INFO
        logger.log(level, "[%d/%d] part %s: %s", ended, command.parts, part.part, words)

    joined = run_parts(request, command.parts, executor, command.executor, progress, tell)
    if joined.parts.failed:
        logger.warning("%s", failures(joined.parts))
    return joined.result, bool(joined.parts.failed)
