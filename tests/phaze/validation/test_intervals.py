"""Intervals of predictions: they cover sources that were held out, widen beyond what was measured,
and rest on what ships."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from phaze.validation.intervals import (
    FEWEST_SOURCES,
    Predicted,
    Residuals,
    SourceResiduals,
    interval,
    load_residuals,
    residuals_of,
    without,
)
from phaze.validation.run import validate
from phaze.validation.student import student_half_width
from phaze_common.progress import SilentProgress

WIDENING = load_residuals().widening
KNOWN = Predicted("a100", "megatron", 64, measured=True)


def source(name: str, logs: np.ndarray) -> SourceResiduals:
    variance = float(logs.var(ddof=1)) if len(logs) > 1 else 0.0
    return SourceResiduals(
        name, len(logs), float(logs.mean()), variance, ("a100",), ("megatron",), 128
    )


def drawn(
    random: np.random.Generator, sources: int, between: float, within: float
) -> list[np.ndarray]:
    """Logarithms of measured over predicted of several sources, each with a mean of its own."""
    return [
        random.normal(random.normal(0.05, between), within, size=int(random.integers(1, 12)))
        for _ in range(sources)
    ]


@pytest.mark.parametrize("nominal", [0.8, 0.9])
@pytest.mark.parametrize(("between", "within"), [(0.1, 0.03), (0.03, 0.1), (0.08, 0.08)])
def test_a_run_of_a_source_that_nobody_saw_is_covered_as_often_as_is_said(
    nominal: float, between: float, within: float
) -> None:
    random, covered = np.random.default_rng(5), []
    for _ in range(600):
        *seen, unseen = drawn(random, 9, between, within)
        found = interval(
            Residuals(tuple(source(str(n), each) for n, each in enumerate(seen)), 0.0, WIDENING),
            KNOWN,
            nominal,
        )
        assert found is not None
        covered.append(found.low <= np.exp(unseen[0]) <= found.high)
    assert (
        nominal - 0.05 <= np.mean(covered) <= nominal + 0.09
    )  # means of few rows are noisier than many, which is on the safe side


def test_intervals_widen_with_distance_from_what_was_measured() -> None:
    logs = drawn(np.random.default_rng(1), 8, 0.05, 0.05)
    residuals = Residuals(tuple(source(str(n), each) for n, each in enumerate(logs)), 0.0, WIDENING)
    far = [
        KNOWN,
        replace(KNOWN, devices=256),
        replace(KNOWN, devices=4096),
        replace(KNOWN, devices=4096, software="new"),
        replace(KNOWN, devices=4096, software="new", device="new"),
        Predicted("new", "new", 4096, measured=False),
    ]
    found = [interval(residuals, each, 0.8) for each in far]
    widths = [each.width for each in found if each is not None]
    assert len(widths) == len(far) and widths == sorted(widths) and len(set(widths)) == len(widths)
    reasons = [len(each.reasons) for each in found if each is not None]
    assert reasons == [1, 2, 2, 3, 4, 5]
    narrow, wide = interval(residuals, KNOWN, 0.8), interval(residuals, KNOWN, 0.9)
    assert (
        narrow is not None and wide is not None and wide.low < narrow.low < narrow.high < wide.high
    )
    assert (
        interval(replace(residuals, sources=residuals.sources[: FEWEST_SOURCES - 1]), KNOWN, 0.8)
        is None
    )


@pytest.mark.some(1)
def test_what_ships_is_what_the_runs_that_ship_give(graphs: Path) -> None:
    """``scripts/residuals.py`` writes it."""
    report = validate(None, None, None, None, graphs, SilentProgress(), None)  # type: ignore[arg-type]  # no row has a plan file
    now, shipped = residuals_of(report.runs, WIDENING), load_residuals()
    assert {each.source for each in now.sources} == {each.source for each in shipped.sources}
    for mine, theirs in zip(now.sources, shipped.sources, strict=True):
        assert (mine.rows, mine.devices, mine.software, mine.most_devices) == (
            theirs.rows,
            theirs.devices,
            theirs.software,
            theirs.most_devices,
        )
        assert mine.mean == pytest.approx(theirs.mean, abs=2e-4) and mine.variance == pytest.approx(
            theirs.variance, abs=2e-5
        )
    assert now.within_model == pytest.approx(shipped.within_model, abs=2e-4)


def test_mixtures_have_residuals_of_their_own() -> None:
    known = Predicted("b200", "megatron_core", 64, measured=True)
    plain, mixture = (interval(load_residuals(experts=each), known, 0.8) for each in (False, True))
    assert plain is not None and mixture is not None and mixture.width > plain.width
    assert mixture.high / mixture.low < 2.5


def test_a_source_is_left_out_with_all_its_releases() -> None:
    residuals = load_residuals(experts=True)
    whole, left = (
        {each.source for each in found.sources}
        for found in (residuals, without(residuals, "Megatron-Bridge 26.99 performance summary"))
    )
    assert whole - left == {"Megatron-Bridge performance summary"}


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 8, 60])
@pytest.mark.parametrize("probability", [0.01, 0.8, 0.9, 0.999])
def test_quantiles_of_student_are_those_of_scipy(degrees: int, probability: float) -> None:
    expected = stats.t.ppf((1.0 + probability) / 2.0, degrees)
    assert student_half_width(probability, degrees) == pytest.approx(expected, rel=1e-11)


def test_one_source_of_mixtures_that_is_far_off_says_little_of_others() -> None:
    mixtures = load_residuals(experts=True)
    far = replace(mixtures.sources[0], source="far off", mean=2.0)

    def widened(residuals: Residuals) -> float:
        one, two = (
            interval(replace(residuals, sources=each), None, 0.8)
            for each in (residuals.sources, (*residuals.sources, far))
        )
        assert one is not None and two is not None
        return math.log(two.high / two.low) / math.log(one.high / one.low)

    assert 1.0 < widened(mixtures) < 1.5 < widened(replace(mixtures, models=""))
