"""Element-wise work on vector cores."""

from dataclasses import replace

import numpy as np
import pytest

from Estimator.chips.accelerator import Platform, VectorCores
from Estimator.chips.vector_core import ElementWork, VectorCoreModel
from GraphExtractor.graph import VectorWork

CORES = VectorCores(
    np.array([1, 2, 4, 64]), np.array([32, 32, 32, 32]), np.full(4, 2 << 20), np.zeros(4, np.int64)
)


def model(platform: Platform) -> VectorCoreModel:
    return VectorCoreModel(CORES, platform)


def test_compute_bound_work_is_lanes_times_cycles(platform: Platform) -> None:
    price = model(platform).estimate(ElementWork((VectorWork("softmax", 10_000),), 0, starts=False))
    assert price.all_s * platform.frequency_hz == pytest.approx([3130, 1570, 790, 50])
    assert price.single_s * platform.frequency_hz == pytest.approx([3130] * 4)


def test_memory_bound_work_is_bytes_over_bandwidth(platform: Platform) -> None:
    megabyte = 10**6
    price = model(platform).estimate(
        ElementWork((VectorWork("add", 10),), 100 * megabyte, starts=True)
    )
    assert price.all_s == pytest.approx(1e8 / 1.2e12 + platform.startup_s)
    assert price.single_s == pytest.approx(1e8 / (0.5 * 1.2e12 / CORES.num) + platform.startup_s)
    assert (price.all_hbm_bytes == 1e8).all()
    assert (price.all_j >= 1e8 * platform.technology.hbm_energy.value * 1e-12).all()


def test_a_narrow_global_buffer_bounds_it_too(platform: Platform) -> None:
    narrow = replace(platform, glb_bandwidth_bytes_per_cycle=64.0)
    price = VectorCoreModel(CORES, narrow).estimate(
        ElementWork((VectorWork("add", 10),), 64_000, starts=False)
    )
    assert price.all_s * platform.frequency_hz == pytest.approx(1000)


def test_all_cores_never_slower_and_more_never_slower(platform: Platform) -> None:
    for elements in (1, 31, 33, 10_001):
        price = model(platform).estimate(
            ElementWork((VectorWork("gelu", elements),), 4 * elements, starts=True)
        )
        assert (price.all_s <= price.single_s).all()
        assert (np.diff(price.all_s) <= 0).all()


def test_unknown_function_costs_as_much_as_add(platform: Platform) -> None:
    priced = model(platform)
    unknown = priced.estimate(ElementWork((VectorWork("frobnicate", 777),), 0, starts=True))
    add = priced.estimate(ElementWork((VectorWork("add", 777),), 0, starts=True))
    assert (unknown.all_s == add.all_s).all()


def test_every_backward_function_has_its_own_cost(platform: Platform) -> None:
    costs = platform.vector_functions.cycles_per_element
    names = (
        "softmax log_softmax layer_norm rms_norm gelu relu silu tanh sigmoid dropout nll_loss "
        "cross_entropy embedding"
    )
    assert {f"{name}_backward" for name in names.split()} <= costs.keys()
