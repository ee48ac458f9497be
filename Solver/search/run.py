"""What every step of a search needs: the problem, the hardware, the stores, the progress."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter

from Common.files import content_key
from Common.progress import Progress
from Plans.rates import Machine
from Solver.hardware import Hardware, pricing_version
from Solver.problem import SearchProblem


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


@dataclass(frozen=True, eq=False)
class Run:
    """The context of a search; ``phases`` collects the time and memory of each phase.

    ``first`` is false where a problem is asked again, whose models were checked already.
    """

    problem: SearchProblem
    hardware: Hardware
    stores: Stores
    progress: Progress
    phases: list[PhaseRecord] = field(default_factory=list)
    first: bool = True

    @cached_property
    def machines(self) -> list[Machine]:
        """Those that configurations run plans on, which differ in the bandwidth of their memories alone, slowest first."""
        most = float(max(self.problem.memory_bytes))
        return [self.hardware.machine(row, most) for row in self.hardware.figures.machines.tolist()]

    @cached_property
    def pricing(self) -> str:
        """Content key of the hardware and of the code that decides what a layer time or a design point is."""
        return content_key(self.hardware.fingerprint, pricing_version(), *self.hardware.figures.bought_with)

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
        return replace(self, hardware=hardware, stores=Stores(self.stores.graphs, None, None), phases=[], first=False)


def peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
