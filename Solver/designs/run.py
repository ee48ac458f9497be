"""What every step of a search needs: the problem, the hardware, the stores, the progress."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter

from Estimator.network.cluster import Cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from Estimator.plans.rates import Machine
from phaze_common.files import content_key
from phaze_common.progress import Progress
from Solver.designs.best_known import BestKnown
from Solver.hardware import Hardware, pricing_version
from Solver.plans.closed_shapes import ClosedShapes
from Solver.problem import SearchProblem
from Solver.results import AxisBounds

ROUNDING = 1e-12  # relative: a bound this close to a value may belong to an equally good design


@dataclass(frozen=True)
class PhaseRecord:
    """Seconds a phase of the run took and the peak resident memory of the process when it ended."""

    name: str
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Stores:
    """Folders of artefacts that outlive a run; None: nothing is kept."""

    graphs: Path
    estimates: Path | None
    points: Path | None


# By shape how its groups within a layer may lie; others: in any way
Lying = Mapping[UniformPlan, frozenset[LayerGroups]]


@dataclass(frozen=True, eq=False)
class Kept:
    """What bounds left of a space of very many designs; none of those that they closed exceeds
    ``closed`` under the objective.

    None that was not evaluated exceeds ``open_bound``: less than ``closed`` where designs were
    evaluated elsewhere.

    ``shapes`` are those of each model that might be best on a chip which is left, ``closed_shapes``
    the others; plans of the first might be so where groups are ``lying`` in some ways alone. The
    space has so many ``chips`` and, with all memories, ``points``; ``axis_bounds`` are over all of
    it. ``closed`` is infinite where nothing is known of a part of the space, and minus infinity
    where nothing that was closed fits.
    """

    axis_bounds: AxisBounds
    closed: float
    open_bound: float
    chips: int
    points: int
    shapes: Mapping[str, tuple[UniformPlan, ...]]
    closed_shapes: Mapping[str, ClosedShapes]
    lying: Mapping[str, Lying] = field(default_factory=dict)

    def proves(self, value: float) -> bool:
        """Whether nothing that was closed is better than ``value``."""
        return value >= self.closed * (1.0 - ROUNDING)


@dataclass(frozen=True, eq=False)
class Run:
    """The context of a search; ``phases`` collects the time and memory of each phase.

    ``first`` is false where a problem is asked again, whose models were checked already; ``kept``
    is what is left of the space where bounds of all of it were taken before. Of a part of a space
    ``best_known`` is what all parts know together.
    """

    problem: SearchProblem
    hardware: Hardware
    stores: Stores
    progress: Progress
    phases: list[PhaseRecord] = field(default_factory=list)
    first: bool = True
    kept: Kept | None = None
    best_known: BestKnown | None = None

    @cached_property
    def machines(self) -> list[Machine]:
        """Those that configurations run plans on, which differ in the bandwidth of memory and
        network alone."""
        most = float(max(self.problem.memory_bytes))
        return [self.hardware.machine(row, most) for row in self.hardware.figures.machines.tolist()]

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """Those of ``machines``, which differ in the bandwidth of links alone."""
        return tuple(dict.fromkeys(machine.cluster for machine in self.machines))

    @cached_property
    def pricing(self) -> str:
        """Content key of the hardware and of the code that decides what a layer time or a design
        point is."""
        return content_key(
            self.hardware.fingerprint, pricing_version(), *self.hardware.figures.bought_with
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record what the block takes under ``name``."""
        start = perf_counter()
        yield
        self.phases.append(PhaseRecord(name, perf_counter() - start, peak_bytes()))

    def knowing(self, own_best: Mapping[str, float]) -> Run:
        """The same run, of which it is known what each of several models reaches alone."""
        return replace(self, problem=replace(self.problem, own_best=own_best))

    def on(self, hardware: Hardware) -> Run:
        """The same run on other hardware, keeping nothing but graphs on disk."""
        stores = Stores(self.stores.graphs, None, None)
        return replace(
            self,
            hardware=hardware,
            stores=stores,
            phases=[],
            first=False,
            kept=None,
            best_known=None,
        )


def peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
