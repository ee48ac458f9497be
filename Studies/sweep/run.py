"""Runs a sweep: finds what is finished, has the rest computed, stores it, and tells of every point as it ends."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from Common.errors import InputError, PhazeError
from Common.files import write_atomically
from Common.progress import Progress
from Studies.sweep.axes import Combination, Sweep
from Studies.sweep.executors import Executor
from Studies.sweep.questions import Question, question
from Studies.sweep.store import FinishedPoint, Store
from Studies.sweep.work import Ending, Outcome, Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AskedPoint:
    """A combination of settings, with its question or the sentence why there is none."""

    combination: Combination
    question: Question | None
    problem: str


@dataclass(frozen=True)
class SweptPoint:
    """A point as it ended: finished, or the sentence why it failed. ``found`` where an earlier sweep had computed it."""

    number: int
    settings: Mapping[str, Any]
    key: str
    point: FinishedPoint | None
    problem: str
    found: bool


OnPoint = Callable[[SweptPoint], None]


def ask(sweep: Sweep) -> list[AskedPoint]:
    """Resolve every point of a sweep.

    Raises:
        InputError: no point is possible; says why the first is not.
    """
    asked = []
    for combination in sweep.combinations():
        try:
            asked.append(AskedPoint(combination, question(combination.settings, sweep.output), ""))
        except InputError as error:
            asked.append(AskedPoint(combination, None, str(error)))
    if all(point.question is None for point in asked):
        raise InputError(
            asked[0].problem if len(asked) == 1 else f"no point of the sweep is possible; the first: {asked[0].problem}"
        )
    return asked


def run_sweep(sweep: Sweep, executor: Executor, progress: Progress, on_point: OnPoint) -> list[SweptPoint]:
    """Compute what is not in the store yet; every point, in the order of the sweep, and to ``on_point`` as it ends.

    A point that fails is among them, and is tried again by the next run.

    Raises:
        InputError: no point is possible.
        PhazeError: the sweep's folders cannot be written.
    """
    asked = ask(sweep)
    write_atomically(sweep.folder / "sweep.yaml", sweep.to_yaml().encode())
    store = Store(sweep.store)
    ended = _Ended(asked, on_point)
    for point in asked:
        if point.question is None:
            ended.failed(point)
    questions = {point.question.key: point.question for point in asked if point.question}
    missing = []
    for key, each in questions.items():
        finished = store.load(key)
        if finished is None:
            missing.append(each)
        else:
            ended.tell(key, finished, "", found=True)
    tasks = [Task(each, sweep.store, store.identity()) for each in _spread(missing)]
    if tasks:
        with progress.phase(f"points of {sweep.name}", len(tasks)) as advance:
            busy = []
            for outcome in _outcomes(executor, tasks, store):
                if outcome.ending is Ending.BUSY:
                    busy.append(outcome.key)
                else:
                    ended.tell(outcome.key, outcome.point, outcome.problem, found=outcome.ending is Ending.THERE)
                    advance(1)
            if busy:
                logger.info("%d points are being computed by another sweep; waiting for it", len(busy))
                again = [replace(task, wait=True) for task in tasks if task.question.key in busy]
                for outcome in _outcomes(executor, again, store):
                    ended.tell(outcome.key, outcome.point, outcome.problem, found=outcome.ending is Ending.THERE)
                    advance(1)
    return ended.in_order()


class _Ended:
    """The points that ended so far, told one by one."""

    def __init__(self, asked: Sequence[AskedPoint], on_point: OnPoint) -> None:
        self._on_point = on_point
        self._points: dict[int, SweptPoint] = {}
        self._by_key: dict[str, list[Combination]] = defaultdict(list)
        for point in asked:
            if point.question:
                self._by_key[point.question.key].append(point.combination)

    def failed(self, asked: AskedPoint) -> None:
        """A combination that is no question."""
        self._add(SweptPoint(asked.combination.number, asked.combination.settings, "", None, asked.problem, found=False))

    def tell(self, key: str, point: FinishedPoint | None, problem: str, *, found: bool) -> None:
        """All combinations that ask the same question, which is run once."""
        for combination in self._by_key[key]:
            self._add(SweptPoint(combination.number, combination.settings, key, point, problem, found))

    def in_order(self) -> list[SweptPoint]:
        """All points in the order of the sweep."""
        return [self._points[number] for number in sorted(self._points)]

    def _add(self, point: SweptPoint) -> None:
        self._points[point.number] = point
        self._on_point(point)


def _outcomes(executor: Executor, tasks: Sequence[Task], store: Store) -> Iterable[Outcome]:
    """What the executor answers, with points from machines that do not see the store put into it."""
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


def _spread(questions: Sequence[Question]) -> list[Question]:
    """First one of each family, then a second of each, and so on: those of a family share layer times, made by the first."""
    families: dict[str, list[Question]] = defaultdict(list)
    for each in questions:
        families[each.family].append(each)
    rounds = range(max((len(family) for family in families.values()), default=0))
    return [family[turn] for turn in rounds for family in families.values() if turn < len(family)]
