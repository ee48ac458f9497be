"""Products that were priced before, on other chips and platforms, are priced as if they were not."""

from dataclasses import fields, replace

import numpy as np
import pytest

from Estimator.chips.accelerator import Dataflow, Platform, TensorCores
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.on_chip import on_chip_memo
from Estimator.chips.tensor_core import TensorCoreModel, TensorWork
from GraphExtractor.graph import Gemm
from GraphExtractor.score_mask import ScoreMask

PLATFORM = load_design_space("phaze_icml24").platform
PRODUCTS = TensorWork((Gemm(3, 200, 640, 96),), 3 * 2 * (200 * 640 + 640 * 96 + 200 * 96), False)
ATTENTION = replace(
    PRODUCTS, gemms=(Gemm(4, 256, 64, 256), Gemm(4, 256, 256, 64)), fused_attention=True
)
WORK = (PRODUCTS, ATTENTION, replace(ATTENTION, mask=ScoreMask(256, 256, causal=True, window=None)))


def changed(name: str) -> Platform:
    """The platform with another value of one field."""
    value = getattr(PLATFORM, name)
    if name == "dataflows":
        return replace(PLATFORM, dataflows=(Dataflow.INPUT_STATIONARY,))
    if name in ("technology", "vector_functions", "memories", "supply_v"):
        return PLATFORM  # what they change is no number of the platform
    return replace(PLATFORM, **{name: value * 2 if name != "concurrent_tc_share" else value / 2})


@pytest.mark.parametrize("name", [field.name for field in fields(Platform)])
@pytest.mark.parametrize("other_cores", [False, True])
def test_what_is_known_changes_no_price(name: str, other_cores: bool) -> None:
    columns = np.array([(4, 128, 64, 8 << 20), (16, 32, 256, 2 << 20), (1, 256, 256, 1 << 20)]).T
    cores = TensorCores(*columns, np.zeros(3, np.int64))
    known = on_chip_memo()
    for work in WORK:
        TensorCoreModel(cores, PLATFORM, known=known).estimate(work)
    asked = replace(cores, num=cores.num * 2, depth=cores.depth[::-1]) if other_cores else cores
    for work in WORK:
        alone = TensorCoreModel(asked, changed(name)).estimate(work)
        informed = TensorCoreModel(asked, changed(name), known=known).estimate(work)
        for column, values in vars(alone).items():
            assert np.array_equal(values, getattr(informed, column)), (work, column)


def test_memory_and_clock_price_no_product_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = TensorCores(*np.array([[4, 128, 64, 8 << 20]]).T, np.zeros(1, np.int64))
    known = on_chip_memo()
    TensorCoreModel(cores, PLATFORM, known=known).estimate(PRODUCTS)
    monkeypatch.setattr(TensorCoreModel, "_spread", None)
    for name in ("frequency_hz", "hbm_bandwidth_bytes_per_s", "startup_s"):
        TensorCoreModel(cores, changed(name), known=known).estimate(
            replace(PRODUCTS, hbm_bytes=PRODUCTS.hbm_bytes + 1000)
        )
