"""How sure a predicted time is: intervals from what was measured beside predictions, grouped by
source.

Runs of one source are alike (one cluster, one software, one way of measuring), so they are no
independent samples; sources are. Logarithms of measured over predicted are taken to be normal
around a mean of their source, and these means around one of all sources. A run of a source that
nobody has seen has the variance of the means, of their mean and of a run within its source, with as
many degrees of freedom as sources less one (Student). Beyond what was measured it is wider.
Mixtures of experts have residuals of their own: errors of dense models say little of theirs. Of
their sources, as of the runs of each, the middle four fifths say how far they differ.
Releases of one table are relatives, so a source is left out with all of its releases.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.results import TimeInterval
from phaze.validation.records import RunResult, Unstated
from phaze.validation.student import student_half_width
from phaze_common import file_formats
from phaze_common.records import read_yaml, to_record

FloatArray = NDArray[np.float64]
RESIDUALS = Path(__file__).with_name("residuals.yaml")
RESIDUALS_OF_EXPERTS = Path(__file__).with_name("residuals_of_experts.yaml")
NOMINAL = (0.8, 0.9)
FEWEST_SOURCES = 3
ENOUGH_FOR_MIDDLE = 8  # runs of a source, of which one lies beyond either end of the middle
FIFTHS = 1.2816  # standard deviations within which four fifths of a normal distribution lie
_RELEASE = re.compile(r"\s*\bv?\d+(?:\.\d+)+\b")


@dataclass(frozen=True)
class SourceResiduals:
    """Runs of one source: logarithms of measured over predicted seconds, and what they ran on."""

    source: str
    rows: int
    mean: float
    variance: float  # of rows around the mean, 0 of a single one
    devices: tuple[str, ...]
    software: tuple[str, ...]
    most_devices: int


@dataclass(frozen=True)
class Widening:
    """Standard deviations of a logarithm by which an interval widens beyond what was measured (in
    quadrature).

    ``scale`` is for every doubling of the devices of the largest run.
    """

    device: float
    data_sheet: float
    software: float
    scale: float
    source: str


@dataclass(frozen=True)
class Residuals:
    """What is known of the errors of predictions. ``within_model`` is the standard deviation
    between plans of one model; ``models`` says of which they are, where not of all."""

    sources: tuple[SourceResiduals, ...]
    within_model: float
    widening: Widening
    models: str = ""


@dataclass(frozen=True)
class Predicted:
    """What decides how sure a prediction is.

    ``measured``: the constants of the device come from measurements of it. ``sites`` is the
    standard deviation of what products on the device sustain, among sites that have it; ``choice``
    that of the logarithm of time among plans of which one had to be chosen.
    """

    device: str
    software: str
    devices: int
    measured: bool
    sites: float = 0.0
    choice: float = 0.0
    choice_reason: str = ""


@dataclass(frozen=True)
class Interval:
    """Factors of a predicted time between which the true one lies with probability ``nominal``, and
    what makes it so wide."""

    nominal: float
    low: float
    high: float
    reasons: tuple[str, ...]

    @property
    def width(self) -> float:
        """Of the interval, over the prediction."""
        return self.high - self.low


@cache
def load_residuals(*, experts: bool = False) -> Residuals:
    """The residuals that ship: of the runs that ship, or of published runs of mixtures of
    ``experts``."""
    path = RESIDUALS_OF_EXPERTS if experts else RESIDUALS
    current = file_formats.RESIDUALS.current(read_yaml(path), str(path))
    return to_record(Residuals, current, str(path))


def family_of(source: str) -> str:
    """A source without the numbers of its release."""
    return _RELEASE.sub("", source)


def interval(residuals: Residuals, predicted: Predicted | None, nominal: float) -> Interval | None:
    """Where a run of another source lies; without ``predicted`` one like those that were measured.
    None: too few sources."""
    sources = residuals.sources
    if len(sources) < FEWEST_SOURCES:
        return None
    means = np.array([each.mean for each in sources])
    several = [each for each in sources if each.rows > 1]
    rows = sum(each.rows - 1 for each in several)
    within = sum((each.rows - 1) * each.variance for each in several) / rows if rows else 0.0
    between = _variance(means, of_middle=bool(residuals.models))
    variance = between * (1.0 + 1.0 / len(means)) + within
    reasons, more = _beyond(residuals, predicted)
    half = student_half_width(nominal, len(means) - 1) * math.sqrt(variance + more)
    centre = float(means.mean())
    whose = f" of {residuals.models}," if residuals.models else ""
    rows = sum(each.rows for each in sources)
    own = f"errors of {rows} published runs{whose} of {len(sources)} sources"
    return Interval(nominal, math.exp(centre - half), math.exp(centre + half), (own, *reasons))


def intervals_of_time(
    residuals: Residuals, predicted: Predicted, seconds: float
) -> tuple[TimeInterval, ...]:
    """Where an iteration predicted to take so many ``seconds`` lies, by probability; empty where
    there are too few sources."""
    found = (interval(residuals, predicted, nominal) for nominal in NOMINAL)
    return tuple(
        TimeInterval(each.nominal, each.low * seconds, each.high * seconds, each.reasons)
        for each in found
        if each is not None
    )


def _beyond(residuals: Residuals, predicted: Predicted | None) -> tuple[list[str], float]:
    """Why a prediction is less sure than those that were measured, and the variance that this
    adds."""
    if predicted is None:
        return [], 0.0
    widening, reasons, more = residuals.widening, list[str](), 0.0
    if predicted.device not in {name for each in residuals.sources for name in each.devices}:
        reasons.append(f"no such run on {predicted.device}")
        more += widening.device**2
        if not predicted.measured:
            reasons.append(f"constants of {predicted.device} from its data sheet")
            more += widening.data_sheet**2
    if predicted.software not in {name for each in residuals.sources for name in each.software}:
        reasons.append(f"no such run under {predicted.software}")
        more += widening.software**2
    most = max(each.most_devices for each in residuals.sources)
    if predicted.devices > most:
        reasons.append(f"{predicted.devices:,} devices, the largest run has {most:,}")
        more += (widening.scale * math.log2(predicted.devices / most)) ** 2
    if predicted.sites:
        reasons.append(f"sites with {predicted.device} differ by {predicted.sites:.0%}")
        more += predicted.sites**2
    if predicted.choice:
        reasons.append(predicted.choice_reason)
        more += predicted.choice**2
    return reasons, more


@dataclass(frozen=True)
class Coverage:
    """How often intervals of ``nominal`` probability hold what was measured, each from the errors
    of the other sources alone.

    A source is held where the geometric mean of its measured over predicted times is. ``width`` is
    the mean width of the intervals, over the prediction.
    """

    nominal: float
    sources: int
    sources_held: int
    runs: int
    runs_held: int
    width: float


def coverage(runs: Sequence[RunResult]) -> tuple[Coverage, ...]:
    """Coverage of sources and of runs with each source left out in turn, with all its releases;
    nothing where there are too few."""
    runs = [replace(each, source=family_of(each.source)) for each in runs]
    every = residuals_of(runs, load_residuals().widening)
    known, found = _known(runs), []
    for nominal in NOMINAL if len(every.sources) > FEWEST_SOURCES else ():
        held, runs_held, widths = 0, 0, list[float]()
        for source in every.sources:
            between = interval(without(every, source.source), None, nominal)
            assert between is not None  # there are enough others
            held += between.low <= math.exp(source.mean) <= between.high
            mine = [each for each in known if each.source == source.source]
            runs_held += sum(between.low <= math.exp(_log(each)) <= between.high for each in mine)
            widths.append(between.width)
        sources, width = len(every.sources), float(np.mean(widths))
        found.append(Coverage(nominal, sources, held, len(known), runs_held, width))
    return tuple(found)


def run_intervals(
    residuals: Residuals,
    source: str,
    predicted: Predicted,
    seconds: float,
    unstated: Unstated | None = None,
) -> tuple[TimeInterval, ...]:
    """Seconds between which a run of ``source`` is measured, by the errors of published runs of
    other sources.

    What a run leaves open widens them by the spread of the plans that it may have had: of equally
    likely logarithms of time.
    """
    others = without(residuals, source)
    if unstated is None or unstated.slowest <= unstated.fastest:
        return intervals_of_time(others, predicted, seconds)
    # of a uniform distribution
    deviation = math.log(unstated.slowest / unstated.fastest) / math.sqrt(12.0)
    words = " and ".join(unstated.settings).replace("_", "-").replace("recompute", "recomputation")
    reason = (
        f"{words} not stated: {unstated.plans} plans are possible, which take "
        f"{unstated.fastest:.2f} to {unstated.slowest:.2f} times as long"
    )
    wider = replace(predicted, choice=deviation, choice_reason=reason)
    return intervals_of_time(others, wider, seconds)


def without(residuals: Residuals, source: str) -> Residuals:
    """``residuals`` of the other sources, of which no release of ``source`` is one."""
    family = family_of(source)
    others = tuple(each for each in residuals.sources if family_of(each.source) != family)
    return replace(residuals, sources=others)


def residuals_of(
    runs: Sequence[RunResult], widening: Widening, *, of_middle: bool = False
) -> Residuals:
    """Residuals of runs that were measured and predicted.

    Variances are those of all runs of a source, or, ``of_middle`` four fifths where there are
    enough, of the normal distribution with as wide ones: a few runs that are far off say little of
    where most are.
    """
    found, of_models = list[SourceResiduals](), list[FloatArray]()
    alike: dict[str, list[RunResult]] = {}
    for run in sorted(_known(runs), key=lambda each: each.source):
        alike.setdefault(run.source, []).append(run)
    for source, rows in alike.items():
        logs = np.array([_log(each) for each in rows])
        plans = [each.plan for each in rows if each.plan]
        found.append(
            SourceResiduals(
                source=source,
                rows=len(rows),
                mean=round(float(logs.mean()), 4),
                variance=round(_variance(logs, of_middle=of_middle), 6),
                devices=tuple(sorted({plan.device for plan in plans})),
                software=tuple(sorted({plan.software for plan in plans})),
                most_devices=max(each.devices or 1 for each in rows),
            )
        )
        models = [(each.model, each.devices or 0) for each in rows]
        for model in sorted(set(models)):
            of_model = logs[[each == model for each in models]]
            if len(of_model) > 1:
                of_models.append(of_model - of_model.mean())
    count = sum(len(each) - 1 for each in of_models)
    squares = sum(float((each**2).sum()) for each in of_models)
    return Residuals(tuple(found), round(math.sqrt(squares / count), 4) if count else 0.0, widening)


def _variance(logs: FloatArray, *, of_middle: bool) -> float:
    if of_middle and len(logs) >= ENOUGH_FOR_MIDDLE:
        low, high = np.quantile(logs, (0.1, 0.9))
        return float((high - low) / 2.0 / FIFTHS) ** 2
    return float(logs.var(ddof=1)) if len(logs) > 1 else 0.0


def _known(runs: Sequence[RunResult]) -> list[RunResult]:
    return [run for run in runs if run.predicted_s and run.measured_s and run.plan is not None]


def _log(run: RunResult) -> float:
    assert run.measured_s and run.predicted_s
    return math.log(run.measured_s / run.predicted_s)
