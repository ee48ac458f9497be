"""The stated rules that fill in what published runs do not say, from ``assumptions.yaml``."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from phaze.validation.published_runs import PublishedRow
from phaze.validation.records import Assumption, UsedRule
from phaze.validation.typed_run import FlopsConvention, MemoryFigure
from phaze_common.choices import MomentDtype, Precision, StateDtype
from phaze_common.records import read_yaml, to_record

ASSUMPTIONS = Path(__file__).with_name("assumptions.yaml")
_YEAR = re.compile(
    r"\b(20[12]\d)\b|(20[12]\d)(?:0[1-9]|1[0-2])[0-3]\d\b|['’]([12]\d)\b|\b([12]\d)(?:0[1-9]|1[0-2])\.\d{4,5}\b"
)
# of a container or a release: 24.07
_VERSION = re.compile(r"(?<![\d.])(2\d)\.(?:0[1-9]|1[0-2])(?![\d%])")
_NAMED_VERSION = re.compile(
    rf"(?:ngc|nemo|container|docker|pytorch|release|bridge)[^\d]{{0,24}}{_VERSION.pattern}",
    re.IGNORECASE,
)
_ONLY_LIKE = re.compile(r"[\w.+-]+?(?: zero[- ]?\d)?[ -](?:style|like|inspired)\b", re.IGNORECASE)


class HasPattern(Protocol):
    """An entry of a list of which the first that is found counts."""

    @property
    def pattern(self) -> str:
        """Regular expression, compared without case."""


Entry = TypeVar("Entry", bound=HasPattern)


@dataclass(frozen=True)
class Framework:
    """What a framework does where a run does not say otherwise.

    In runs up to the year ``until``, of models named ``model``, in one of the ``formats`` (none:
    any), which the run itself must say where ``stated_format``. No ``software`` is the device's
    usual one. ``general`` names stand for many programs: a more particular one in the source or the
    notes counts before them. A ``title`` names a paper that compares others with its own: it counts
    where the framework is named so, or not at all. One with a ``source`` is that paper's own
    program, whatever the framework is called there; so it is where its ``notes`` are found in those
    of a run. ``of_model`` counts where the model is named with it, as collections of several
    programs' benchmarks do. ``gradient_bytes`` are per parameter by number format, where the
    software has others, ``moment_dtype`` and ``main_weight_dtype`` are the formats of the
    optimizer's moments and weights where these are not fp32, ``memory`` is what its figures of
    memory count, ``fp8_weights`` the devices on which weights are held in fp8 in trainings in fp8;
    ``overlap_...`` None leaves it to the software. ``recompute`` are the modes that it has.
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
    formats: tuple[str, ...] = ()
    stated_format: bool = False
    general: bool = False
    title: bool = False
    source: str | None = None
    notes: str | None = None
    of_model: bool = False
    overlap_gradients: bool | None = None
    overlap_tensor: bool | None = None
    gradient_bytes: dict[str, int] = field(default_factory=dict)
    moment_dtype: MomentDtype | None = None
    main_weight_dtype: StateDtype | None = None
    memory: MemoryFigure | None = None
    fp8_weights: str | None = None
    recompute: tuple[str, ...] = ("none", "selective", "full")


@dataclass(frozen=True)
class Release:
    """The year of what ``pattern`` finds: of a release, or in which a device or model appeared."""

    pattern: str
    year: int


@dataclass(frozen=True)
class PublishedName:
    """How tables call a model: what ``pattern`` finds is ``model``, listed or spelled out, its
    groups put in by number."""

    pattern: str
    model: str

    def meant(self, found: re.Match[str]) -> str:
        """The name of the model."""
        return self.model.format(
            *(group.lower().replace("_", "-").replace(" ", "-") for group in found.groups())
        )


@dataclass(frozen=True)
class PublishedPlan:
    """The plan of runs whose address has ``pattern``: ``samples_per_device`` are those that a
    device trains on between two steps, all at once."""

    pattern: str
    tp: int
    samples_per_device: int
    recompute: str
    reason: str


@dataclass(frozen=True)
class Words:
    """What a run says by ``pattern``, and what that ``means``."""

    pattern: str
    means: str


@dataclass(frozen=True)
class Routing:
    """How experts are loaded in runs that say ``pattern`` in their notes or as their source: what
    the busiest device gets, over the mean."""

    pattern: str
    load: float
    reason: str


@dataclass(frozen=True)
class NamedModel:
    """The family of models whose names have ``pattern``; None for models that cannot be
    predicted."""

    pattern: str
    family: str | None
    reason: str


@dataclass(frozen=True)
class NamedCluster:
    """The cluster of runs whose network is described with ``pattern``.

    Runs there on so many devices as ``blocking_from`` hung unless the host waited for every kernel.
    """

    pattern: str
    cluster: str
    reason: str
    blocking_from: int | None = None


@dataclass(frozen=True)
class Convention:
    """How published FLOP/s are counted: with what is ``recomputed`` or not, with this part of the
    products of ``attention``."""

    name: FlopsConvention
    says: str
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
    recent_devices: Release
    releases: tuple[Release, ...]
    appeared: tuple[Release, ...]
    published_names: tuple[PublishedName, ...]
    published_plans: tuple[PublishedPlan, ...]
    other_trainings: tuple[Words, ...]
    routing: tuple[Routing, ...]
    not_priced: tuple[Words, ...]
    models: tuple[NamedModel, ...]
    clusters: tuple[NamedCluster, ...]
    conventions: tuple[Convention, ...]
    vocabulary: int
    head_width: int
    parameter_factor: float
    micro_batch_sizes: tuple[int, ...]
    memory_error: float
    memory_margin: float
    rules: dict[str, Rule]

    def framework_of(self, row: PublishedRow, number_format: str | None = None) -> Framework:
        """The framework of a row in this number format, by its own words before guesses.

        Its framework where that is named; but of a general name the particular one that source or
        notes tell, if any. Else by source, then notes, then the model's name.
        """
        possible = self._possible(self.year_of(row), number_format, row.model)
        for each in possible:
            of_model = each.of_model and _is_in(each.pattern, row.model)
            if of_model or _is_in(each.source, row.source) or _is_in(each.notes, row.notes):
                return each
        words = _ONLY_LIKE.sub(" ", row.framework).strip()
        own = first_found(possible, words)
        particular = [each for each in possible if not each.general and not each.title]
        if own is not None:
            return (first_found(particular, row.source, row.notes) if own.general else None) or own
        guessed = first_found(possible, row.source, row.notes, row.url, "" if words else row.model)
        return guessed or self.other_framework

    def framework_with(
        self, software: str | None, year: int | None, number_format: str | None
    ) -> Framework:
        """The framework of a run of which only the software is known."""
        possible = [each for each in self._possible(year, number_format, "") if not each.title]
        named = [each for each in possible if software and each.software == software]
        return named[0] if named else self.other_framework

    def _possible(self, year: int | None, number_format: str | None, model: str) -> list[Framework]:
        # of those below 16 bits frameworks do not differ
        kind = None if number_format is None else Precision(number_format).kind.value

        def is_possible(each: Framework) -> bool:
            if each.until is not None and year is not None and year > each.until:
                return False
            if each.model is not None and not _is_in(each.model, model):
                return False
            if kind is None:
                return not (each.formats and each.stated_format)
            return not each.formats or kind in each.formats

        return [each for each in self.frameworks if is_possible(each)]

    def year_of(self, row: PublishedRow) -> int | None:
        """The year of a run's software.

        That of the version that framework or notes state, as NeMo 24.07; else of a release, as
        MLPerf 4.0; else the latest that source, framework and date name, as 2021, SC'21 or arXiv
        2104.04473. No run is older than its device, model or program.
        """
        versions = [*_VERSION.findall(row.framework), *_NAMED_VERSION.findall(row.notes)]
        years = [int(each) for each in versions]
        words = f"{row.source} {row.framework} {row.date}"
        if not years:
            words_of_run = f"{words} {row.notes}"
            years = [each.year for each in self.releases if _is_in(each.pattern, words_of_run)]
        if not years:
            years = [int(next(filter(None, found))) for found in _YEAR.findall(words)]
            years += [int(each) for each in _VERSION.findall(words)]
        named = f"{row.model}; {row.gpu}; {row.framework}; {row.source}"
        years += [each.year for each in self.appeared if _is_in(each.pattern, named)]
        if _is_in(self.recent_devices.pattern, row.gpu):
            years.append(self.recent_devices.year)
        return max((year + 2000 if year < 100 else year for year in years), default=None)

    def published_name(self, model: str) -> str | None:
        """The name, listed or spelled out, of a model as a table calls it; None where it says no
        model that is known."""
        for each in self.published_names:
            found = re.search(each.pattern, model, re.IGNORECASE)
            if found is not None:
                return each.meant(found)
        return None

    def named_convention(self, name: FlopsConvention) -> Convention:
        """The convention of this name."""
        return next(each for each in self.conventions if each.name is name)

    def used(self, assumptions: Sequence[Sequence[Assumption]]) -> tuple[UsedRule, ...]:
        """The rules that runs needed, given the assumptions of each, with the number of those
        runs."""
        runs = Counter(name for run in assumptions for name in {each.rule for each in run})
        return tuple(
            UsedRule(name, rule.says, rule.reason, runs[name])
            for name, rule in self.rules.items()
            if runs[name]
        )


def load_assumptions() -> Assumptions:
    """Read the rules that ship."""
    return to_record(Assumptions, read_yaml(ASSUMPTIONS), str(ASSUMPTIONS))


def _is_in(pattern: str | None, text: str) -> bool:
    return pattern is not None and re.search(pattern, text, re.IGNORECASE) is not None


def first_found(entries: Sequence[Entry], *texts: str) -> Entry | None:
    """The first entry found in the first of ``texts`` that has any."""
    for text in texts:
        for entry in entries:
            if text and _is_in(entry.pattern, text):
                return entry
    return None


class Notes:
    """Assumptions of one run, in the order in which they were made."""

    def __init__(self) -> None:
        self._made: dict[str, str] = {}

    def assume(self, rule: str, value: str) -> None:
        """Note that ``rule`` filled in ``value``; a later value of the same rule joins it."""
        self._made[rule] = f"{self._made[rule]}; {value}" if rule in self._made else value

    def made(self) -> tuple[Assumption, ...]:
        """All of them."""
        return tuple(Assumption(rule, value) for rule, value in self._made.items())
