"""Runs a sweep: finds what is finished, and has the rest computed and stored."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phaze.runs.run_directory import Holds, refuse_other_kind
from phaze.settings.hardware import HardwareFiles
from phaze.studies.sweep.axes import Combination, Sweep
from phaze.studies.sweep.executors import Executor
from phaze.studies.sweep.points import SweepPoint, sweep_point
from phaze.studies.sweep.store import FinishedPoint, Store
from phaze.studies.sweep.work import Ending, Outcome, Task
from phaze_common.errors import ArtefactError, InputError, PhazeError
from phaze_common.files import artefact_bytes, check_writable, refuse_replacing, write_atomically
from phaze_common.numbers import number
from phaze_common.progress import Progress
from phaze_common.records import parse_yaml
from phaze_common.run_files import SWEEP, TABLE, TABLE_CSV

logger = logging.getLogger(__name__)

# points without a result: what went wrong may go well again, or cannot
FAILED, IMPOSSIBLE = "failed", "impossible"


@dataclass(frozen=True)
class ResolvedPoint:
    """A combination of settings, with its point or the sentence why there is none."""

    combination: Combination
    point: SweepPoint | None
    problem: str


@dataclass(frozen=True)
class SweptPoint:
    """A point as it ended, or why there is none; ``found`` where an earlier sweep computed it."""

    number: int
    settings: Mapping[str, Any]
    key: str
    point: FinishedPoint | None
    problem: str
    found: bool
    impossible: bool

    @property
    def status(self) -> str:
        """That of the search, or why there is none."""
        if self.point is not None:
            return self.point.result.status.value
        return IMPOSSIBLE if self.impossible else FAILED


OnPoint = Callable[[SweptPoint], None]


def resolved_points(sweep: Sweep) -> list[ResolvedPoint]:
    """Resolve every point of a sweep.

    Raises:
        InputError: no point is possible; says why the first is not.
    """
    resolved, files = [], HardwareFiles()
    for combination in sweep.combinations():
        try:
            point = sweep_point(combination.settings, sweep.output, files, sweep.run_code)
        except InputError as error:
            resolved.append(ResolvedPoint(combination, None, str(error)))
        else:
            resolved.append(ResolvedPoint(combination, point, ""))
    if all(each.point is None for each in resolved):
        first = resolved[0].problem
        words = first.removeprefix("this point: ")
        many = "" if len(resolved) == 1 else "no point of the sweep is possible; the first: "
        raise InputError(f"{sweep.source}: {many}{words}")
    return resolved


def _claim(sweep: Sweep) -> None:
    """Write what the sweep asks behind its store, with a warning where its table is replaced.

    Raises: InputError: a file that no sweep wrote would be replaced, or the folder is of a sweep of
        another name.
    """
    asked, path = sweep.to_yaml().encode(), sweep.folder / SWEEP
    flag = "name" if sweep.output is None else "--output"
    refuse_other_kind(sweep.folder, Holds.SWEEP, flag)
    there = None
    with suppress(OSError, ArtefactError):
        there = artefact_bytes(path)
    name = _name_in(there, path) if sweep.named and there is not None else None
    if name not in (None, sweep.name):
        raise InputError(
            f"{sweep.folder} holds the sweep {name}, whose table that of {sweep.name} would "
            f"replace; give another {flag}, or leave its name out to go on with its points"
        )
    if not sweep.store.is_dir():
        refuse_replacing(sweep.folder, (SWEEP, TABLE, TABLE_CSV), "sweep")
    if there not in (None, asked):
        logger.warning(
            "%s held the table of another sweep, which this one replaces; its points are kept",
            path.parent,
        )
    check_writable(sweep.store)
    write_atomically(path, asked)


def _name_in(content: bytes, path: Path) -> str | None:
    """The name in the content of a ``sweep.yaml`` at ``path``; None where it has none."""
    with suppress(PhazeError, UnicodeDecodeError):
        document = parse_yaml(content.decode(), str(path))
        name = document.get("name") if isinstance(document, dict) else None
        return name if isinstance(name, str) else None
    return None


def run_sweep(
    sweep: Sweep, executor: Executor, progress: Progress, on_point: OnPoint
) -> list[SweptPoint]:
    """Compute what is not in the store yet; every point goes to ``on_point`` as it ends.

    A point that fails is among them, and is tried again by the next run; so is one that is
    impossible.

    Raises:
        InputError: no point is possible.
        PhazeError: the sweep's folders cannot be written.
    """
    resolved = resolved_points(sweep)
    _claim(sweep)
    ended = dict[int, SweptPoint]()
    points, combinations = dict[str, SweepPoint](), defaultdict[str, list[Combination]](list)

    def end(each: Combination, outcome: Outcome) -> None:
        here, cannot = outcome.ending is Ending.THERE, outcome.ending is Ending.IMPOSSIBLE
        of_outcome = outcome.key, outcome.point, outcome.problem, here, cannot
        ended[each.number] = SweptPoint(each.number, each.settings, *of_outcome)
        on_point(ended[each.number])

    for each in resolved:
        if each.point is None:
            end(each.combination, Outcome("", Ending.IMPOSSIBLE, problem=each.problem))
        else:
            points[each.point.key] = each.point
            combinations[each.point.key].append(each.combination)
    phase, store = f"points of {sweep.name}", Store(sweep.store)
    for outcome in outcomes_of(list(points.values()), store, executor, progress, phase):
        for combination in combinations[outcome.key]:  # one point, which is run once
            end(combination, outcome)
    return [ended[number] for number in sorted(ended)]


def outcomes_of(
    points: Sequence[SweepPoint], store: Store, executor: Executor, progress: Progress, phase: str
) -> Iterator[Outcome]:
    """What comes of different points: those of ``store`` at once, others as they are computed.

    Raises:
        PhazeError: the store cannot be written.
    """
    missing = []
    for point in points:
        finished = store.load(point.key)
        if finished is None:
            missing.append(point)
        else:
            yield Outcome(point.key, Ending.THERE, finished)
    tasks = [Task(each, store.root, store.identity()) for each in _spread(missing)]
    if not tasks:
        return
    with progress.phase(phase, len(tasks)) as advance:
        busy = []
        for outcome in _outcomes(executor, tasks, store):
            if outcome.ending is Ending.BUSY:
                busy.append(outcome.key)
            else:
                yield outcome
                advance(1)
        if busy:
            logger.info(
                "%s points are being computed by another process; waiting for it", number(len(busy))
            )
            again = [replace(task, wait=True) for task in tasks if task.point.key in busy]
            for outcome in _outcomes(executor, again, store):
                yield outcome
                advance(1)


def _outcomes(executor: Executor, tasks: Sequence[Task], store: Store) -> Iterable[Outcome]:
    """What comes of the tasks, with points from machines that do not see the store put into it."""
    with closing(executor.outcomes(tasks)) as outcomes:  # type: ignore[type-var]
        for outcome in outcomes:
            for message in outcome.warnings:
                logger.warning("%s", message)
            if outcome.point is None or outcome.contents is None:
                yield outcome
                continue
            try:
                store.receive(outcome.point, outcome.contents)
            except PhazeError as error:
                yield Outcome(outcome.key, Ending.FAILED, problem=str(error))
            else:
                yield outcome


def _spread(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """One of each family, then a second of each, ...: the first makes what the others share."""
    families: dict[str, list[SweepPoint]] = defaultdict(list)
    for each in points:
        families[each.family].append(each)
    rounds = range(max((len(family) for family in families.values()), default=0))
    return [family[turn] for turn in rounds for family in families.values() if turn < len(family)]
