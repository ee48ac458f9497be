"""The training time of one configuration, what each correction changes of it, and what the
published formulas would have said."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from phaze_common.errors import InputError

from .breakdown import Breakdown, breakdown
from .configuration import Configuration, Rows, read_configuration
from .corrections import NAMES, Correction, applied
from .lookup import shipped_tables
from .rules import MEMORY, MEMORY_BYTES, build_table, check_mapping, has_memory
from .times import TOTAL_S, TimeQuantities

EXAMPLE = Path(__file__).parent / "examples" / "gpt3_175b_1024_a100.json"


@dataclass(frozen=True)
class Totals:
    """What changes with the formulas: seconds of the training, bytes on each accelerator."""

    time_s: float
    memory_bytes: float


@dataclass(frozen=True)
class Effect:
    """A correction that was applied, and the totals with this one alone left as published."""

    correction: Correction
    kept: Totals


@dataclass(frozen=True)
class TrainingTime:
    """The answer: the breakdown, the parameters behind it, and the corrections.

    ``as_published`` is None where the published formulas refuse the configuration.
    """

    configuration: Configuration
    table: TimeQuantities
    breakdown: Breakdown
    effects: tuple[Effect, ...]
    kept: tuple[str, ...]
    as_published: Totals | None

    @property
    def totals(self) -> Totals:
        """Time and memory."""
        return _totals(self.table)

    @property
    def seconds(self) -> float:
        """The whole training."""
        return self.totals.time_s

    @property
    def days(self) -> float:
        """The whole training."""
        return self.breakdown["Total time to train (days)"]

    @property
    def fits(self) -> bool | None:
        """Whether the accelerator's memory suffices; None where the configuration does not say how
        much there is."""
        return bool(MEMORY.holds(self.table)) if has_memory(self.configuration) else None


def estimate(configuration: Configuration, kept: Collection[str] = ()) -> TrainingTime:
    """The training time under all corrections but those ``kept`` as published. Raises InputError:
    the configuration is incomplete or contradicts itself, or a correction is unknown."""
    corrections = applied(kept)
    table = build_table(configuration, corrections)
    check_mapping(table, configuration.source)
    effects = tuple(
        Effect(each, _kept(configuration, {*kept, each.name}, table)) for each in corrections
    )
    try:
        as_published = _totals(build_table(configuration, ()))
    except InputError:
        as_published = None
    ordered = tuple(name for name in NAMES if name in kept)
    return TrainingTime(configuration, table, breakdown(table), effects, ordered, as_published)


def _kept(configuration: Configuration, kept: Collection[str], otherwise: TimeQuantities) -> Totals:
    try:
        return _totals(build_table(configuration, applied(kept)))
    except InputError:
        return _totals(otherwise)


def _totals(table: TimeQuantities) -> Totals:
    return Totals(table.number(TOTAL_S), table.number(MEMORY_BYTES))


def estimate_training_time(
    accelerator: str = "",
    transformer: str = "",
    configuration: str | Path = EXAMPLE,
    *,
    as_published: bool = False,
) -> TrainingTime:
    """The training time of a configuration file with the accelerator (and transformer) of these
    rows of the lookup tables.

    ``estimate_training_time("H100 PCIe").days`` is that of GPT-3 175B on the shipped example's 128
    nodes of 8; the example's network stays as it is. Empty names leave the file's rows.

    Raises:
        InputError: there is no such row, or the file cannot be used.
    """
    read = read_configuration(Path(configuration), shipped_tables(), Rows(transformer, accelerator))
    return estimate(read, NAMES if as_published else ())


estimateTrainingTime = estimate_training_time  # noqa: N816 - AMPeD's own name for it
