"""Records of explanations."""

from dataclasses import dataclass

from Estimator.plans.results import Status
from Solver.results import DesignPoint, Limit

NOT_GIVEN = "-"


@dataclass(frozen=True)
class Term:
    """A part of an iteration of ``model`` in two designs, called as in the breakdown."""

    model: str
    name: str
    best_s: float
    other_s: float


@dataclass(frozen=True)
class Alternative:
    """The best design that has what was asked for (``asked``, as typed), beside the best of all.

    ``slower`` is the objective of the best over that of the alternative. ``sentences`` say what the
    difference comes from. Without a ``point`` ``reason`` says why there is none.
    """

    asked: str
    status: Status
    point: DesignPoint | None
    slower: float | None
    terms: tuple[Term, ...]
    sentences: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class WhatIf:
    """What a run would have answered under other circumstances, written as ``asked``.

    ``same`` is the objective of the run's own design with its best plans of then over what it was,
    None where none of them fits or it could not be built within the limits, for which
    ``not_possible`` says why; ``best`` is that of ``point``. ``same_design`` says that the run's
    own is as good, ``same_plan`` that the degrees are the same.
    """

    asked: str
    status: Status
    point: DesignPoint | None
    same: float | None
    best: float | None
    same_design: bool
    same_plan: bool
    reason: str = ""
    not_possible: str = ""


@dataclass(frozen=True)
class Explanation:
    """Why the best design of a run is the best: its lead, its limits, and alternatives.

    All texts are whole sentences. ``limits`` are in the order of ``limits_in_words``, what matters
    most first.
    """

    answer: str
    lead: tuple[str, ...]  # over the next-best chip, the known chips, the expert's plan
    limits: tuple[Limit, ...]
    limits_in_words: tuple[str, ...]
    time_in_words: tuple[str, ...]  # where the time of an iteration goes, and what fills the memory
    alternatives: tuple[Alternative, ...]
    warnings: tuple[str, ...] = ()  # what could go wrong with it
    what_ifs: tuple[WhatIf, ...] = ()


@dataclass(frozen=True)
class Change:
    """What differs between two runs: a key of study.yaml, a version, a field of the answer."""

    key: str
    before: str
    after: str


@dataclass(frozen=True)
class Exchange:
    """The objective of a design when only some inputs change; None where it does not fit."""

    what: str
    value: float | None


@dataclass(frozen=True)
class Comparison:
    """Two runs: what changed in their inputs, what changed in their answers, and why."""

    before: str  # name of the run
    after: str
    changes: tuple[Change, ...]
    answers: tuple[Change, ...]  # fields of the best design
    terms: tuple[Term, ...]  # best_s before, other_s after
    exchanges: tuple[Exchange, ...]
    sentences: tuple[str, ...]
