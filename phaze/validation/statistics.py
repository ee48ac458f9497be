"""How far predictions are off: mean errors, and rank correlations within a model."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from phaze.validation.fitted import fitted_to
from phaze.validation.records import RunResult, Statistics

FEWEST_RANKED = 3  # runs of a model that make a rank correlation
OVERALL = "overall"


def statistics_of(runs: Sequence[RunResult]) -> tuple[Statistics, tuple[Statistics, ...]]:
    """Statistics over all runs, and for every source in the order in which they appear."""
    words = {name: [getattr(run, name) for run in runs] for name in ("source", "model", "skipped")}
    numbers = {
        name: pd.Series([getattr(run, name) for run in runs], dtype=float)
        for name in ("measured_s", "predicted_s", "error", "memory_error")
    }
    table = pd.DataFrame(words | numbers)
    sources = tuple(
        _statistics(str(source), rows) for source, rows in table.groupby("source", sort=False)
    )
    return _statistics(OVERALL, table), sources


def _statistics(source: str, table: pd.DataFrame) -> Statistics:
    predicted = table[~table["skipped"]]
    return Statistics(
        source=source,
        rows=len(predicted),
        skipped=int(table["skipped"].sum()),
        time_mape=_mean(predicted["error"].abs()),
        time_bias=_mean(predicted["error"]),
        spearman=_spearman(predicted),
        memory_mape=_mean(predicted["memory_error"].abs()),
        fitted="" if source == OVERALL else fitted_to(source),
    )


def _mean(values: pd.Series[float]) -> float | None:
    return None if values.isna().all() else float(values.mean())


def _spearman(predicted: pd.DataFrame) -> float | None:
    """Spearman's rank correlation of times within a model of a source, averaged over models,
    weighted by their runs."""
    total, runs = 0.0, 0
    for _, rows in predicted.groupby(["source", "model"], sort=False):
        times = rows[["predicted_s", "measured_s"]]
        if len(rows) < FEWEST_RANKED or (times.nunique() == 1).any():
            continue
        total += len(rows) * float(times.rank().corr().loc["predicted_s", "measured_s"])
        runs += len(rows)
    return total / runs if runs else None
