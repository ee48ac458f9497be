"""What the server answers about its points: pages, plans, and what alternatives cost."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from GraphExtractor.names import label
from phaze.library import explain
from phaze.report.pages.page import Served, page
from phaze.report.pages.points.labels import point_label
from phaze.report.pages.points.points_report import points_report
from phaze.report.pages.search_report import search_report
from phaze.report.sentences.designs import hardware_text, unit_of, whole_plan_text
from phaze.report.sentences.records import Alternative
from phaze.report.tables.explain_tables import terms_table
from phaze.runs.finished_run import FinishedRun, open_run
from phaze.studies.sweep.points_read import PointSet, ReadPoint, infeasible_text
from phaze_common.errors import InputError
from phaze_common.numbers import number, size_text, time_text

Thing = TypeVar("Thing")

CACHED_RUNS, CACHED_PAGES = 3, 16
LONGEST_QUESTION = 400  # characters


@dataclass(frozen=True)
class PlanAnswer:
    """A point's plan in words; ``page`` is where its own report is, or empty."""

    title: str
    sentences: tuple[str, ...]
    can_ask: bool
    page: str


@dataclass(frozen=True)
class ExplainAnswer:
    """What an alternative costs: sentences, and where an iteration goes in both, term by term."""

    title: str
    sentences: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Cache(Generic[Thing]):
    """The last ``most`` things that were used, by number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._things: OrderedDict[int, Thing] = OrderedDict()

    def get(self, number_: int, make: Callable[[], Thing]) -> Thing:
        """What was made before, or is made now; the longest unused goes."""
        if number_ not in self._things:
            self._things[number_] = make()
        self._things.move_to_end(number_)
        while len(self._things) > self._most:
            self._things.popitem(last=False)
        return self._things[number_]


class NoSuchPointError(Exception):
    """A point was asked for that there is not."""


@dataclass(eq=False)
class Answers:
    """Answers about ``points``, or one run whose report is the page (``alone``), for threads.

    ``run_code`` are model files (Python) that may be run to search again.
    """

    points: PointSet
    alone: bool
    run_code: frozenset[str] | None = frozenset()
    _runs: Cache[FinishedRun] = field(default_factory=lambda: Cache(CACHED_RUNS))
    _pages: Cache[str] = field(default_factory=lambda: Cache(CACHED_PAGES))
    _reading: threading.RLock = field(default_factory=threading.RLock)
    # a search takes all cores that there are
    _searching: threading.Lock = field(default_factory=threading.Lock)

    def page(self) -> str:
        """The page of all, or of the one run."""
        if self.alone:
            return self.point_page(self.points.points[0].number, api="")
        with self._reading:
            return self._pages.get(0, self._whole_page)

    def point_page(self, number_: int, api: str = "../../") -> str:
        """The report of a point's run.

        Raises:
            NoSuchPointError: there is none.
        """
        with self._reading:
            run = self._run(number_)
            return self._pages.get(number_, lambda: page(search_report(run), Served(api, number_)))

    def plan(self, number_: int) -> PlanAnswer:
        """What a point chose, or why it has no plan.

        Raises:
            NoSuchPointError: there is none of that number.
        """
        point = self._point(number_)
        title = f"Point {point.number}: {point_label(self.points, point)}"
        if point.folder is None or not point.feasible:
            why = f", {point.problem.rstrip('.')}" if point.problem else ""
            said = f"There is no plan: {infeasible_text(point)}{why}."
            return PlanAnswer(title, (said,), False, "")
        with self._reading:
            run = self._run(number_)
        address = "" if self.alone else f"points/{point.number}/"
        return PlanAnswer(title, tuple(_plan_sentences(run)), True, address)

    def explain(self, number_: int, instead: str) -> ExplainAnswer:
        """What the best design with ``instead`` would cost, beside the point's own.

        Raises:
            NoSuchPointError: there is none of that number, or it has no plan.
            InputError: the alternative cannot be read, or nothing has it.
        """
        text = instead.strip()
        if not text or len(text) > LONGEST_QUESTION:
            raise InputError(
                f"an alternative has 1 to {LONGEST_QUESTION} characters; write for instance pp=8 "
                "or num_tc=4,width=256"
            )
        if not self._point(number_).feasible:
            raise NoSuchPointError
        with self._reading:
            run = self._run(number_)
        with self._searching:
            (alternative,) = explain(run, text).alternatives
        return _explained(alternative)

    def _whole_page(self) -> str:
        def link(point: ReadPoint) -> str:
            return "" if point.folder is None else f"points/{point.number}/"

        return page(points_report(self.points, link), Served("", None))

    def _point(self, number_: int) -> ReadPoint:
        for point in self.points.points:
            if point.number == number_:
                return point
        raise NoSuchPointError

    def _run(self, number_: int) -> FinishedRun:
        folder = self._point(number_).folder
        if folder is None:
            raise NoSuchPointError
        return self._runs.get(number_, partial(open_run, folder, self.run_code))


def _plan_sentences(run: FinishedRun) -> list[str]:
    best = run.result.best
    assert best is not None  # the point has a plan
    chip = hardware_text(best.accelerator, run.result.hardware)
    proof = "proven optimal" if best.optimal else "not proven optimal"
    found = [f"{number(best.value)} {unit_of(best)} on {chip}, {proof}."]
    for model, plan in best.models.items():
        took = f"{time_text(plan.time_per_batch_s)} per iteration on {plan.devices_used:,} devices"
        found.append(f"{label(model)}: {whole_plan_text(plan)}; {took}.")
        used = f"{size_text(plan.memory_bytes)} of {size_text(plan.hbm_bytes)}"
        found.append(f"The fullest stage uses {used}.")
    binding = sorted(best.limits, key=lambda limit: -limit.unlimited_gain)
    return found + [limit.words for limit in binding[:2]]


def _explained(alternative: Alternative) -> ExplainAnswer:
    title = f"instead: {alternative.asked}"
    if alternative.slower is None:
        return ExplainAnswer(title, (f"Nothing with that fits: {alternative.reason}.",), (), ())
    table = terms_table(alternative.terms)
    return ExplainAnswer(title, alternative.sentences, table.columns, table.rows)
