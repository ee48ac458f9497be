"""What limits operators on designed chips: arithmetic, memories, start-up."""

from dataclasses import replace

import numpy as np
import pytest

from Estimator.chips.accelerator import Accelerator, AcceleratorSet, Dataflow, Platform
from Estimator.chips.latency_table import populate_estimates
from Estimator.cost_model import OperatorCosts, PricedOperators
from GraphExtractor.graph import Gemm, Operator, OperatorGraph, VectorWork
from tests.builders.operators_by_hand import gemm_operator, model_graph, vector_operator

CHIP = Accelerator(
    num_tc=4, num_vc=8, width=64, depth=64, width_vc=32, glb_bytes=8 << 20, area_mm2=0.0
)
GRAPH = model_graph()
LARGE = Gemm(1, 4096, 4096, 4096)


def price(platform: Platform, *operators: Operator) -> PricedOperators:
    numbered = tuple(replace(operator, id=index) for index, operator in enumerate(operators))
    graph = OperatorGraph(numbered, ())
    layer = replace(GRAPH.layers[0], forward=graph)
    return populate_estimates(
        [replace(GRAPH, layers=(layer,))], AcceleratorSet.of([CHIP]), platform
    ).price(graph)


def modes(priced: PricedOperators) -> tuple[OperatorCosts, OperatorCosts]:
    assert priced.on_one_core is not None
    return priced.on_one_core, priced.alone


def test_every_operator_starts_once(platform: Platform) -> None:
    fused = gemm_operator(0, LARGE, (VectorWork("gelu", 4096 * 4096),))
    every = gemm_operator(0, LARGE), fused, vector_operator(0, "gelu", 512, 512)
    for costs in modes(price(platform, *every)):
        assert (costs.launch_s == platform.startup_s).all()


def test_ample_memories_leave_only_arithmetic(platform: Platform) -> None:
    ample = replace(platform, hbm_bandwidth_bytes_per_s=1e21, glb_bandwidth_bytes_per_cycle=1e15)
    for costs in modes(
        price(ample, gemm_operator(0, LARGE), vector_operator(0, "gelu", 4096, 4096))
    ):
        assert (costs.memory_s < 1e-6 * costs.arithmetic_s).all()


def test_a_product_on_one_array_computes_its_folds_and_fills_it_once(platform: Platform) -> None:
    """Outputs stay in place: (m / rows) (n / columns) folds of k cycles, and rows + columns - 2 of
    skew."""
    one = price(
        replace(platform, dataflows=(Dataflow.OUTPUT_STATIONARY,)), gemm_operator(0, LARGE)
    ).on_one_core
    assert one is not None
    assert one.arithmetic_s[0, 0] * platform.frequency_hz == pytest.approx(
        64 * 64 * 4096 + 126, rel=1e-12
    )


def test_what_a_slow_memory_adds_is_memory(platform: Platform) -> None:
    weak = replace(platform, hbm_bandwidth_bytes_per_s=platform.hbm_bandwidth_bytes_per_s / 1000)
    one_dataflow = [
        replace(each, dataflows=(Dataflow.WEIGHT_STATIONARY,)) for each in (platform, weak)
    ]
    for fast, slow in zip(
        *(modes(price(each, gemm_operator(0, LARGE))) for each in one_dataflow), strict=True
    ):
        assert slow.arithmetic_s == pytest.approx(fast.arithmetic_s, rel=1e-12)
        assert (slow.memory_s > 5 * slow.arithmetic_s).all()
        moved = slow.memory_s + slow.arithmetic_s
        assert (moved >= 3 * 2 * 4096**2 / weak.hbm_bandwidth_bytes_per_s).all()


def test_vector_work_by_hand(platform: Platform) -> None:
    """65,536 elements on 256 lanes, 128 KiB in and out; the rest of the time is memory's."""
    slow = replace(platform, hbm_bandwidth_bytes_per_s=1e11)
    costs = price(slow, vector_operator(0, "add", 65_536)).alone
    cycles = 256 * platform.vector_functions.cycles_per_element["add"]
    assert costs.arithmetic_s[0, 0] == pytest.approx(cycles / platform.frequency_hz, rel=1e-12)
    assert costs.memory_s[0, 0] == pytest.approx(
        2 * 2 * 65_536 / 1e11 - cycles / platform.frequency_hz, rel=1e-12
    )


def test_the_slower_half_of_a_fused_operator_tells_its_parts(platform: Platform) -> None:
    plain, light, heavy = (
        gemm_operator(0, LARGE, tail)
        for tail in ((), (VectorWork("add", 1),), (VectorWork("tanh", 10**10),))
    )
    for costs in modes(price(platform, plain, light, heavy)):
        parts = np.stack([costs.arithmetic_s, costs.memory_s, costs.launch_s])[:, 0]
        assert (parts[:, 0] == parts[:, 1]).all()
        assert parts[0, 2] == costs.seconds[0, 2] > costs.seconds[0, 0]


def test_what_a_narrow_buffer_adds_is_memory_too(platform: Platform) -> None:
    narrow = replace(platform, glb_bandwidth_bytes_per_cycle=8.0, hbm_bandwidth_bytes_per_s=1e21)
    on_one, alone = modes(price(narrow, gemm_operator(0, LARGE)))
    for costs in (on_one, alone):
        assert (costs.memory_s > 2 * costs.arithmetic_s).all()
    assert (alone.arithmetic_s <= on_one.arithmetic_s).all()
