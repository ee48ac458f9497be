"""The operator schedules of a best design as they are kept in ``schedules.json.gz``: which operator runs where and when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScheduledOperator:
    """An operator in its place. ``cores`` (TC, VC or TC+VC) says which types it occupies.

    In mode ``single`` it is on tensor core ``tc`` and vector core ``vc`` (None: none of that type), in mode ``all`` on all of its
    types' cores, while nothing else runs.
    """

    name: str
    kind: str
    cores: str
    mode: str
    tc: int | None
    vc: int | None
    start_s: float
    end_s: float


@dataclass(frozen=True)
class KeptSchedule:
    """The schedule of one pass (``graph``: forward, backward, backward_selective) of a distinct layer of one best design.

    ``repeats`` counts how often a micro-batch runs it on its way through the model.
    """

    hbm_bytes: int
    model: str
    layer: str
    graph: str
    repeats: int
    makespan_s: float
    bound_s: float
    solver: str
    operators: tuple[ScheduledOperator, ...]


@dataclass(frozen=True)
class KeptSchedules:
    """All schedules of a run."""

    schedules: tuple[KeptSchedule, ...]
