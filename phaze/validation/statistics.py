"""How far predictions are off: mean errors, and rank correlations within a model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from phaze.validation.fitted import fitted_to
from phaze.validation.records import RunResult, Statistics
from phaze_common.array_types import FloatArray

FEWEST_RANKED = 3  # runs of a model that make a rank correlation
OVERALL = "overall"


def statistics_of(runs: Sequence[RunResult]) -> tuple[Statistics, tuple[Statistics, ...]]:
    """Statistics over all runs, and for every source in the order in which they appear."""
    sources = defaultdict[str, list[RunResult]](list)
    for run in runs:
        sources[run.source].append(run)
    return _statistics(OVERALL, runs), tuple(map(_statistics, sources, sources.values()))


def _statistics(source: str, runs: Sequence[RunResult]) -> Statistics:
    predicted = [run for run in runs if not run.skipped]
    errors = [run.error for run in predicted]
    return Statistics(
        source=source,
        rows=len(predicted),
        skipped=len(runs) - len(predicted),
        time_mape=_mean(None if each is None else abs(each) for each in errors),
        time_bias=_mean(errors),
        spearman=_spearman(predicted),
        memory_mape=_mean(
            None if run.memory_error is None else abs(run.memory_error) for run in predicted
        ),
        fitted="" if source == OVERALL else fitted_to(source),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(np.mean(known)) if known else None


def _spearman(predicted: Sequence[RunResult]) -> float | None:
    """Spearman's rank correlation of times within a model of a source, averaged over models,
    weighted by their runs."""
    alike = defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    for run in predicted:
        assert run.predicted_s is not None and run.measured_s is not None
        alike[run.source, run.model].append((run.predicted_s, run.measured_s))
    total, runs = 0.0, 0
    for times in alike.values():
        predictions, measurements = (_ranks(each) for each in zip(*times, strict=True))
        spread = math.sqrt((predictions @ predictions) * (measurements @ measurements))
        if len(times) < FEWEST_RANKED or spread == 0.0:
            continue
        total += len(times) * float(predictions @ measurements) / spread
        runs += len(times)
    return total / runs if runs else None


def _ranks(values: Sequence[float]) -> FloatArray:
    """Places in ascending order from their mean on, equal values at the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(count) - (count - 1) / 2.0
    centred: FloatArray = ranks[place] - (len(values) + 1) / 2.0
    return centred
