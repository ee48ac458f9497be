"""Several models: what their objectives come to, by hand and against every design."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_study import small_study, solved

from phaze.settings.resolve import resolve
from phaze_common.choices import Combine
from phaze_common.errors import InputError
from Solver.combination import Combination

SETTINGS = {"micro_batch_size": [1], "hbm_size": [16]}
WEIGHTS, OWN = {"small": 1.0, "large": 3.0}, {"small": 100.0, "large": 2.0}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Combine.MEAN, [(50 + 3 * 2) / 4, (100 + 3 * 1) / 4]),
        (Combine.RELATIVE, [(0.5 * 1.0**3) ** 0.25, (1.0 * 0.5**3) ** 0.25]),
        (Combine.WORST, [0.5, 0.5]),
        (Combine.TIME_SHARED, [(0.5 + 3 * 1.0) / 4, (1.0 + 3 * 0.5) / 4]),
    ],
)
def test_by_hand(how: Combine, expected: list[float]) -> None:
    values = {"small": np.array([50.0, 100.0]), "large": np.array([2.0, 1.0])}
    assert Combination(how, WEIGHTS, OWN).of(values) == pytest.approx(expected)


@pytest.mark.parametrize("how", list(Combine))
def test_one_model_is_what_it_reaches_and_nothing_stays_nothing(how: Combine) -> None:
    alone = np.array([3.0, -np.inf])
    assert Combination(how, {"small": 2.0}, {}).of({"small": alone}) is alone
    found = Combination(how, WEIGHTS, OWN).of({"small": alone, "large": np.array([-np.inf, 1.0])})
    assert np.isneginf(found).all()


POSITIVE = st.floats(1e-6, 1e6)


@given(
    how=st.sampled_from(list(Combine)),
    values=st.tuples(POSITIVE, POSITIVE),
    factors=st.tuples(*[st.floats(1, 10)] * 2),
)
def test_more_of_any_model_is_never_less(
    how: Combine, values: tuple[float, float], factors: tuple[float, float]
) -> None:
    combination = Combination(how, WEIGHTS, OWN)
    both = [
        dict(zip(WEIGHTS, map(np.array, each), strict=True))
        for each in (values, np.multiply(values, factors))
    ]
    low, high = (float(combination.of(each)) for each in both)
    assert low <= high * (1 + 1e-12)


def test_samples_of_another_size_change_nothing_but_the_mean() -> None:
    """A model whose samples are a thousand times smaller has a thousand times the throughput, here
    and alone."""
    values = {"small": np.array([50.0, 100.0]), "large": np.array([2.0, 1.0])}
    scaled = values | {"small": 1000 * values["small"]}
    for how in Combine:
        before, after = (
            Combination(how, WEIGHTS, OWN | {"small": float(each["small"].max())}).of(each)
            for each in (values, scaled)
        )
        assert (before == pytest.approx(after)) == (how is not Combine.MEAN)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The best of each model by itself."""
    folder = tmp_path_factory.mktemp("alone")
    alone = (
        solved(small_study(folder / name, model=[name], **SETTINGS)).best
        for name in ("bertbase", "opt")
    )
    return [best.value for best in alone if best is not None]


@pytest.mark.parametrize("how", list(Combine))
def test_two_models_get_the_chip_that_is_best_for_both(
    how: Combine, own: list[float], tmp_path: Path
) -> None:
    result = solved(
        small_study(tmp_path, model=["bertbase=1", "opt=3"], combine=how.value, **SETTINGS)
    )
    both = result.best
    assert list(result.own_best.values()) == pytest.approx(own, rel=1e-12)
    assert both.optimal and both.combine is how and set(both.models) == {"bertbase", "opt"}
    reached = [both.models[name].throughput_samples_per_s for name in ("bertbase", "opt")]
    shares = [each / most for each, most in zip(reached, own, strict=True)]
    assert [plan.share_of_own_best for plan in both.models.values()] == pytest.approx(shares)
    assert max(shares) <= 1 + 1e-12
    expected = {
        Combine.MEAN: (reached[0] + 3 * reached[1]) / 4,
        Combine.RELATIVE: (shares[0] * shares[1] ** 3) ** 0.25,
        Combine.WORST: min(shares),
        Combine.TIME_SHARED: (shares[0] + 3 * shares[1]) / 4,
    }
    assert both.value == pytest.approx(expected[how])


def test_one_model_has_nothing_to_combine() -> None:
    assert resolve({}, {"model": "bertbase"}).search.combine is None
    assert resolve({}, {"model": ["bertbase", "gpt2"]}).search.combine is Combine.RELATIVE
    with pytest.raises(
        InputError, match="--combine worst is about several models, and one is given"
    ):
        resolve({}, {"model": "bertbase", "combine": "worst"})
