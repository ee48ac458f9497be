"""What every step of a search needs: the question, the hardware, the schedule solver, the stores, the progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter

from Common.files import code_version, content_key
from Common.progress import Progress
from Common.records import to_json
from Estimator.chips.accelerator import AcceleratorSet
from Solver.schedule.solver import ScheduleSolver
from Studies.adapters import ChipStudy
from Studies.folders import REPOSITORY
from Studies.hardware import Hardware
from Studies.run_directory import PhaseRecord, peak_bytes

PRICED_BY = ("Estimator", "Plans", "Solver")  # rooms whose code makes earlier prices stale


@dataclass(frozen=True)
class Stores:
    """Folders of artefacts that outlive a run; None: nothing is kept."""

    graphs: Path
    estimates: Path | None
    points: Path | None


@dataclass(frozen=True, eq=False)
class Run:
    """The context of a search; ``phases`` collects the time and memory of each phase."""

    study: ChipStudy
    hardware: Hardware
    solver: ScheduleSolver
    stores: Stores
    progress: Progress
    phases: list[PhaseRecord] = field(default_factory=list)

    @cached_property
    def pricing(self) -> str:
        """Content key of the hardware and of the code that decides what a layer time or a design point is."""
        hardware = self.hardware
        return content_key(
            hardware.accelerators.fingerprint,
            to_json(hardware.platform).decode(),
            to_json(hardware.cluster).decode(),
            code_version(REPOSITORY / room for room in PRICED_BY),
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record what the block takes under ``name``."""
        start = perf_counter()
        yield
        self.phases.append(PhaseRecord(name, perf_counter() - start, peak_bytes()))

    def on(self, accelerators: AcceleratorSet) -> Run:
        """The same run over other accelerators."""
        return replace(self, hardware=replace(self.hardware, accelerators=accelerators))

    def unkept(self) -> Run:
        """The same run, but neither prices nor design points are read from disk or written there."""
        return replace(self, stores=Stores(self.stores.graphs, None, None), phases=[])

    def with_widths(self, *tp_widths: int) -> Run:
        """The same run with other tensor parallel widths."""
        return replace(self, study=self.study.with_values(tp=tp_widths))
