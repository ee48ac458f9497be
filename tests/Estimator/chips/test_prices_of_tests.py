"""Prices that tests share are those of the same product on the same cores, platform and rates
alone."""

import os
from dataclasses import replace

import numpy as np
import pytest

from Estimator.chips.accelerator import TensorCores
from Estimator.chips.core_rates import CoreRates
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.tensor_core import CoreEstimate, TensorCoreModel, TensorWork
from GraphExtractor.graph import Gemm
from tests.builders.prices import PricedOnce

PLATFORM = load_design_space("phaze_icml24").platform
WORK = TensorWork((Gemm(1, 64, 32, 16),), 2 * (64 * 32 + 32 * 16 + 64 * 16), False)


def model(num: int = 4, frequency: float = 1.0, startup_s: float = 1e-6) -> TensorCoreModel:
    size = np.array([16, 32])
    cores = TensorCores(np.array([num, 8]), size, size, np.array([2**22] * 2), np.zeros(2, int))
    platform = replace(PLATFORM, startup_s=startup_s)
    rates = CoreRates.of(platform, 2)
    return TensorCoreModel(
        cores, platform, replace(rates, frequency_hz=frequency * rates.frequency_hz)
    )


def test_what_differs_in_anything_is_priced_and_what_does_not_once() -> None:
    asked = list[TensorCoreModel]()

    def estimate(model: TensorCoreModel, work: TensorWork) -> CoreEstimate:
        asked.append(model)
        return TensorCoreModel.estimate(model, work)

    priced = PricedOnce(estimate)
    first = priced(model(), WORK)
    assert priced(model(), WORK) is first and len(asked) == 1
    others = [(model(num=2), WORK), (model(frequency=2.0), WORK), (model(startup_s=1e-3), WORK)]
    for each, work in [*others, (model(), replace(WORK, hbm_bytes=2**20))]:
        found = priced(each, work)
        alone = estimate(each, work)
        assert all(
            np.array_equal(column, getattr(alone, name)) for name, column in vars(found).items()
        )
        assert asked[-2] is each
    with pytest.raises(ValueError, match="read-only"):
        first.all_s[0] = 0.0


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="this is no worker of several")
def test_workers_take_one_thread_each() -> None:
    assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "1"
