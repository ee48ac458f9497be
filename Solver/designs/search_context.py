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
from phaze_common.array_types import FloatArray
from phaze_common.bounded_memo import BoundedMemo
from phaze_common.files import content_key
from phaze_common.progress import Progress
from Solver.best_first import ROUNDING
from Solver.designs.shared_incumbent import SharedIncumbent
from Solver.hardware import Hardware, pricing_version
from Solver.plans.shape_bounds import PrunedShapes
from Solver.problem import SearchProblem
from Solver.results import AxisBounds

BOUND_BYTES = 64 * 2**20  # of points, which proofs and the search after them ask for


@dataclass(frozen=True)
class PhaseRecord:
    """Seconds a phase of the run took and the peak resident memory of the process when it ended."""

    name: str
    seconds: float  # that it took
    peak_bytes: int  # resident memory of the process at the end


@dataclass(frozen=True)
class Stores:
    """Folders of artefacts that outlive a run; None: nothing is kept."""

    graphs: Path
    estimates: Path | None
    points: Path | None


# By shape how its groups within a layer may lie; others: in any way
Placements = Mapping[UniformPlan, frozenset[LayerGroups]]


@dataclass(frozen=True, eq=False)
class RemainingSpace:
    """What bounds left of a space of very many designs; none of those that they pruned exceeds
    ``pruned_bound`` under the objective.

    None that was not evaluated exceeds ``open_bound``: less than ``pruned_bound`` where designs
    were evaluated elsewhere.

    ``shapes`` are those of each model that might be best on a chip which is left, ``pruned_shapes``
    the others; plans of the first might be so where groups are ``placements`` in some ways alone.
    The space has so many ``chips`` and, with all memories, ``points``; ``axis_bounds`` are over all
    of it. ``pruned_bound`` is infinite where nothing is known of a part of the space, and minus
    infinity where nothing that was pruned fits."""

    axis_bounds: AxisBounds
    pruned_bound: float
    open_bound: float
    chips: int
    points: int
    shapes: Mapping[str, tuple[UniformPlan, ...]]
    pruned_shapes: Mapping[str, PrunedShapes]
    placements: Mapping[str, Placements] = field(default_factory=dict)

    def proves(self, value: float) -> bool:
        """Whether nothing that was pruned is better than ``value``."""
        return value >= self.pruned_bound * (1.0 - ROUNDING)


@dataclass(frozen=True, eq=False)
class SearchContext:
    """The context of a search; ``phases`` collects the time and memory of each phase.

    ``first`` is false where a problem is asked again, whose models were checked already;
    ``remaining`` is what is left of the space where bounds of all of it were taken before. Of a
    part of a space ``shared_incumbent`` is what all parts know together."""

    problem: SearchProblem
    hardware: Hardware
    stores: Stores
    progress: Progress
    phases: list[PhaseRecord] = field(default_factory=list)
    first: bool = True
    remaining: RemainingSpace | None = None
    shared_incumbent: SharedIncumbent | None = None
    known_bounds: BoundedMemo[FloatArray] = field(
        default_factory=lambda: BoundedMemo(BOUND_BYTES, lambda bound_s: bound_s.nbytes)
    )

    @cached_property
    def machines(self) -> list[Machine]:
        """Machines of the configurations; bandwidths of memory and network alone differ."""
        most = float(max(self.problem.memory_bytes))
        return [self.hardware.machine(row, most) for row in self.hardware.metrics.machines.tolist()]

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """Those of ``machines``, which differ in the bandwidth of links alone."""
        return tuple(dict.fromkeys(machine.cluster for machine in self.machines))

    @cached_property
    def pricing(self) -> str:
        """Content key of the hardware and of the code that decides layer times and points."""
        return content_key(
            self.hardware.fingerprint, pricing_version(), *self.hardware.metrics.bought_with
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record what the block takes under ``name``."""
        start = perf_counter()
        yield
        self.phases.append(PhaseRecord(name, perf_counter() - start, peak_bytes()))

    def knowing(self, own_best: Mapping[str, float]) -> SearchContext:
        """The same run, of which it is known what each of several models reaches alone."""
        return replace(self, problem=replace(self.problem, own_best=own_best))

    def on(self, hardware: Hardware) -> SearchContext:
        """The same run on other hardware, keeping nothing but graphs on disk."""
        stores = Stores(self.stores.graphs, None, None)
        fresh = replace(self, phases=[], first=False, remaining=None, shared_incumbent=None)
        return replace(fresh, hardware=hardware, stores=stores)


def peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
