"""The stated rules that fill in what published runs do not say, from ``assumptions.yaml``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from Common.records import read_yaml, to_record
from Validation.records import Assumption, MeasuredRun, UsedRule

ASSUMPTIONS = Path(__file__).with_name("assumptions.yaml")


_YEAR = re.compile(r"\b(20[12]\d)\b|'([12]\d)\b|\b([12]\d)(?:0[1-9]|1[0-2])\.\d{4,5}\b")


class HasPattern(Protocol):
    """An entry of a list of which the first that is found counts."""

    @property
    def pattern(self) -> str:
        """Regular expression, compared without case."""


Entry = TypeVar("Entry", bound=HasPattern)


@dataclass(frozen=True)
class Framework:
    """What a framework does where a run does not say otherwise: in runs up to the year ``until``, of models named ``model``.

    No ``software`` is the device's usual one.
    """

    name: str
    pattern: str
    software: str | None
    attention: str
    precision: str
    sequence_parallel: bool
    zero_stage: int
    counts_recomputation: bool
    reason: str
    until: int | None = None
    model: str | None = None


@dataclass(frozen=True)
class RecentDevices:
    """Devices on which no run can be older than ``year``."""

    pattern: str
    year: int


@dataclass(frozen=True)
class NamedModel:
    """The family of models whose names have ``pattern``; None for models that cannot be predicted."""

    pattern: str
    family: str | None
    reason: str


@dataclass(frozen=True)
class NamedCluster:
    """The cluster of runs whose network is described with ``pattern``."""

    pattern: str
    cluster: str
    reason: str


@dataclass(frozen=True)
class Convention:
    """How published FLOP/s are counted: with what is ``recomputed`` or not, with this part of the products of ``attention``."""

    name: str
    pattern: str
    recomputed: bool
    attention: float
    source: str


@dataclass(frozen=True)
class Rule:
    """What a rule fills in, and why."""

    says: str
    reason: str


@dataclass(frozen=True)
class Assumptions:
    """All rules; lists in the order in which they are tried."""

    frameworks: tuple[Framework, ...]
    other_framework: Framework
    recent_devices: RecentDevices
    models: tuple[NamedModel, ...]
    clusters: tuple[NamedCluster, ...]
    conventions: tuple[Convention, ...]
    vocabulary: int
    head_width: int
    parameter_factor: float
    micro_batch_sizes: tuple[int, ...]
    rules: dict[str, Rule]

    def framework_of(self, run: MeasuredRun) -> Framework:
        """The framework of a run, by its framework, source, or model and notes."""
        year = self._year(run)
        of_the_time = [each for each in self.frameworks if each.until is None or year is None or year <= each.until]
        possible = [each for each in of_the_time if each.model is None or re.search(each.model, run.model, re.IGNORECASE)]
        return first_found(possible, run.framework, run.source, f"{run.model} {run.notes}") or self.other_framework

    def _year(self, run: MeasuredRun) -> int | None:
        """The latest year that source and framework name, as 2021, SC'21 or arXiv 2104.04473."""
        words = f"{run.source} {run.framework}"
        years = [int(next(filter(None, found))) for found in _YEAR.findall(words)]
        if re.search(self.recent_devices.pattern, run.gpu, re.IGNORECASE):
            years.append(self.recent_devices.year)
        return max((year + 2000 if year < 100 else year for year in years), default=None)

    def convention(self, words: str) -> Convention | None:
        """The convention that ``words`` name."""
        return first_found(self.conventions, words)

    def named_convention(self, name: str) -> Convention:
        """The convention of this name."""
        return next(each for each in self.conventions if each.name == name)

    def used(self, assumptions: Sequence[Sequence[Assumption]]) -> tuple[UsedRule, ...]:
        """The rules that runs needed, given the assumptions of each, with the number of those runs."""
        counts = {name: sum(any(each.rule == name for each in run) for run in assumptions) for name in self.rules}
        return tuple(UsedRule(name, rule.says, rule.reason, counts[name]) for name, rule in self.rules.items() if counts[name])


def load_assumptions() -> Assumptions:
    """Read the rules that ship."""
    return to_record(Assumptions, read_yaml(ASSUMPTIONS), str(ASSUMPTIONS))


def first_found(entries: Sequence[Entry], *texts: str) -> Entry | None:
    """The first entry found in the first of ``texts`` that has any."""
    for text in texts:
        for entry in entries:
            if text and re.search(entry.pattern, text, re.IGNORECASE):
                return entry
    return None


class Notes:
    """Assumptions of one run, in the order in which they were made."""

    def __init__(self) -> None:
        self._made: dict[str, Assumption] = {}

    def assume(self, rule: str, value: str) -> None:
        """Note that ``rule`` filled in ``value``; a later value of the same rule joins the earlier ones."""
        earlier = self._made.get(rule)
        self._made[rule] = Assumption(rule, value if earlier is None else f"{earlier.value}; {value}")

    def made(self) -> tuple[Assumption, ...]:
        """All of them."""
        return tuple(self._made.values())
