"""What every step of a search needs: the question, the hardware, the schedule solver, the stores, the progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from Common.progress import Progress
from Estimator.accelerator import AcceleratorSet
from Solver.hardware import Hardware
from Solver.schedule.solver import ScheduleSolver
from Solver.search.run_directory import PhaseRecord, peak_bytes
from Solver.study import Study


@dataclass(frozen=True)
class Stores:
    """Folders of artefacts that outlive a run."""

    graphs: Path
    estimates: Path
    points: Path


@dataclass(frozen=True, eq=False)
class Run:
    """The context of a search; ``phases`` collects the time and memory of each phase."""

    study: Study
    hardware: Hardware
    solver: ScheduleSolver
    stores: Stores
    progress: Progress
    phases: list[PhaseRecord] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record what the block takes under ``name``."""
        start = perf_counter()
        yield
        self.phases.append(PhaseRecord(name, perf_counter() - start, peak_bytes()))

    def on(self, accelerators: AcceleratorSet) -> Run:
        """The same run over other accelerators."""
        return replace(self, hardware=replace(self.hardware, accelerators=accelerators))

    def with_widths(self, *tp_widths: int) -> Run:
        """The same run with other tensor parallel widths."""
        return replace(self, study=replace(self.study, tp_widths=tp_widths))
