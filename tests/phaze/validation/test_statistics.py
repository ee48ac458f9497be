"""Statistics of errors, on runs made up by hand."""

from dataclasses import replace

import pytest

from phaze.validation.records import RunResult
from phaze.validation.statistics import statistics_of


def result(source, model, measured, predicted, memory_error=None):
    return RunResult(
        line=1,
        source=source,
        model=model,
        devices=8,
        measured_s=measured,
        predicted_s=predicted,
        error=predicted / measured - 1,
        measured_memory_bytes=None,
        predicted_memory_bytes=None,
        memory_error=memory_error,
        fits=True,
        plan=None,
        breakdown_s=None,
        assumptions=(),
    )


def skipped(source):
    return replace(result(source, "m", 1.0, 1.0), predicted_s=None, error=None, reason="no batch")


def test_errors_are_means_over_runs():
    overall, (first, second) = statistics_of(
        [
            result("a", "m", 10, 11, 0.2),
            result("a", "m", 10, 8, -0.4),
            result("b", "m", 2, 2),
            skipped("b"),
        ]
    )
    assert (first.source, first.rows, first.skipped) == ("a", 2, 0)
    assert first.time_mape == pytest.approx(0.15)
    assert first.time_bias == pytest.approx(-0.05)
    assert first.memory_mape == pytest.approx(0.3)
    assert (second.source, second.rows, second.skipped) == ("b", 1, 1)
    assert second.time_mape == second.time_bias == 0
    assert second.memory_mape is None
    assert (overall.rows, overall.skipped) == (3, 1)
    assert overall.time_mape == pytest.approx(0.1)
    assert overall.memory_mape == pytest.approx(0.3)


def test_a_source_without_predictions_has_no_figures():
    overall, (only,) = statistics_of([skipped("a"), skipped("a")])
    assert (only.rows, only.skipped) == (0, 2)
    assert only.time_mape is only.time_bias is only.spearman is only.memory_mape is None
    assert replace(only, source="overall") == overall


def test_sources_stay_in_order():
    _, sources = statistics_of([result(name, "m", 1, 1) for name in ("z", "a", "z", "k")])
    assert [each.source for each in sources] == ["z", "a", "k"]


def test_rank_correlation_is_within_models_weighted_by_runs():
    rising = [result("a", "one", float(time), float(time) ** 2) for time in (1, 2, 3, 4, 5, 6)]
    falling = [result("a", "two", float(time), 10.0 - time) for time in (1, 2, 3)]
    two_runs = [result("a", "three", 1.0, 5.0), result("a", "three", 2.0, 4.0)]
    other = [result("b", "one", float(time), float(time)) for time in (1, 2, 3)]
    overall, (first, second) = statistics_of(rising + falling + two_runs + other)
    assert first.spearman == pytest.approx((6 * 1 + 3 * -1) / 9)
    assert second.spearman == pytest.approx(1)
    assert overall.spearman == pytest.approx((9 * 1 + 3 * -1) / 12)


def test_rank_correlation_needs_different_times():
    equal = [result("a", "m", 1.0, time) for time in (1.0, 2.0, 3.0)]
    assert statistics_of(equal)[0].spearman is None
    assert (
        statistics_of(
            [replace(each, predicted_s=1.0, measured_s=float(n)) for n, each in enumerate(equal, 1)]
        )[0].spearman
        is None
    )
    ties = [
        result("a", "m", measured, predicted)
        for measured, predicted in ((1, 1), (2, 2), (2, 3), (3, 4))
    ]
    assert statistics_of(ties)[0].spearman == pytest.approx(0.9487, abs=1e-4)
