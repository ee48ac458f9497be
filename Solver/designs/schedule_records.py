"""The operator schedules of a best design as they are kept in ``schedules.json.gz``: which operator
runs where and when."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.chips.energy import EnergyParts


@dataclass(frozen=True)
class ScheduledOperator:
    """An operator in its place. ``cores`` (TC, VC or TC+VC) says which types it occupies.

    In mode ``single`` it is on tensor core ``tc`` and vector core ``vc`` (None: none of that type),
    in mode ``all`` on all of its types' cores, while nothing else runs. ``exposed_s`` of its time
    it waits for what it streams from and to other devices."""

    name: str
    kind: str  # of operator
    cores: str
    mode: str  # single: on one core of each of its types; all: on all of them
    tc: int | None
    vc: int | None
    start_s: float  # when it begins
    end_s: float  # when it ends
    exposed_s: float = 0.0

    @property
    def waiting_share(self) -> float:
        """Part of its time that it waits."""
        return self.exposed_s / (self.end_s - self.start_s) if self.exposed_s else 0.0


@dataclass(frozen=True)
class KeptSchedule:
    """The schedule of one pass (``graph``: forward, backward, backward_selective) of a distinct
    layer of one best design.

    ``repeats`` counts how often a micro-batch runs it on its way through the model, ``layers`` are
    those it stands for, by name."""

    hbm_bytes: int
    model: str  # as it was named
    layer: str  # by name
    graph: str
    repeats: int
    makespan_s: float  # from the first start to the last end
    bound_s: float  # no schedule is shorter
    solver: str  # that found it
    operators: tuple[ScheduledOperator, ...]  # of the schedule or the design
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class PricedOperator:
    """What an operator of the best design costs a device for one micro-batch each time it runs,
    ``repeats`` times.

    ``layers`` are those it stands for, by name. ``flops`` are of matrix products,
    ``vector_operations`` the elements that functions are applied to. ``hbm_bytes`` are what a
    designed chip moves, re-reads included, of a device that exists the operands alone; ``seconds``
    leave out waiting for what is streamed; ``energy`` is None where it is not known."""

    model: str  # as it was named
    layer: str  # by name
    graph: str  # forward | backward | recompute
    layers: tuple[str, ...]
    name: str
    kind: str  # of operator
    repeats: int
    flops: int
    vector_operations: int
    hbm_bytes: float
    seconds: float
    energy: EnergyParts | None


@dataclass(frozen=True)
class KeptTensor:
    """A tensor between layers of the best design's model, by name: ``source`` makes it, all
    ``destinations`` use it.

    ``gradient_bytes`` flow back; both are of a device and micro-batch."""

    model: str  # as it was named
    source: str
    destinations: tuple[str, ...]
    forward_bytes: int  # that go forward
    gradient_bytes: int


@dataclass(frozen=True)
class KeptSchedules:
    """All schedules of a run, the costs of its best design's operators, tensors between layers."""

    schedules: tuple[KeptSchedule, ...]  # of the distinct layers
    operators: tuple[PricedOperator, ...] = ()  # of the schedule or the design
    tensors: tuple[KeptTensor, ...] = ()  # between the layers of the best design
