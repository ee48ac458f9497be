"""Matrix products on tensor cores: by brute force, and in the directions physics says."""

import itertools
from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from Estimator.chips.accelerator import AcceleratorSet, Dataflow, Platform, TensorCores
from Estimator.chips.area import l2_bytes
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.systolic import pipelined_time
from Estimator.chips.tensor_core import CoreEstimate, TensorCoreModel, TensorWork
from Estimator.chips.tiling import ACCUMULATOR_BYTES, tile_traffic
from GraphExtractor.graph import Gemm

PLATFORM = load_design_space("phaze_icml24").platform
EXACTLY = 1 + 1e-9
SIZES = st.integers(1, 3000)
GEMMS = st.builds(Gemm, st.sampled_from([1, 2, 3, 16]), SIZES, SIZES, SIZES)


def operand_bytes(*gemms: Gemm) -> int:
    return sum(
        2 * gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n) for gemm in gemms
    )


def work(*gemms: Gemm, extra_bytes: int = 0, attention: bool = False) -> TensorWork:
    return TensorWork(gemms, operand_bytes(*gemms) + extra_bytes, attention)


def cores(*configurations: tuple[int, int, int, int]) -> TensorCores:
    """Configurations (num, width, depth, GLB MiB)."""
    num, width, depth, mib = np.array(configurations).T
    return TensorCores(num, width, depth, mib << 20, np.zeros_like(num))


def estimate(on: TensorCores, what: TensorWork, platform: Platform = PLATFORM) -> CoreEstimate:
    return TensorCoreModel(on, platform).estimate(what)


LADDERS = cores(
    *((num, 16, 16, 4) for num in (1, 2, 4, 8, 16, 64)),
    *((4, 32, 8, mib) for mib in (2, 4, 8, 16, 64)),
)
NUM_LADDER, GLB_LADDER = slice(0, 6), slice(6, 11)


@settings(max_examples=40, deadline=None)
@given(GEMMS)
def test_more_resources_never_slow_a_product_down(gemm: Gemm) -> None:
    base = estimate(LADDERS, work(gemm))
    assert (base.all_s <= base.single_s * EXACTLY).all()
    for ladder in (NUM_LADDER, GLB_LADDER):
        assert (np.diff(base.all_s[ladder]) <= base.all_s[ladder][:-1] * 1e-9).all()
    assert (np.diff(base.single_s[GLB_LADDER]) <= 1e-15).all()
    for faster in (
        replace(PLATFORM, hbm_bandwidth_bytes_per_s=2 * PLATFORM.hbm_bandwidth_bytes_per_s),
        replace(PLATFORM, glb_bandwidth_bytes_per_cycle=2 * PLATFORM.glb_bandwidth_bytes_per_cycle),
        replace(PLATFORM, dataflows=tuple(Dataflow)),
        replace(PLATFORM, weight_rows_per_cycle=2.0),
    ):
        better = estimate(LADDERS, work(gemm), faster)
        assert (better.all_s <= base.all_s * EXACTLY).all()
        assert (better.single_s <= base.single_s * EXACTLY).all()


HELD_ON_CHIP = replace(PLATFORM, hbm_bandwidth_bytes_per_s=1e15)  # so that what the cores do shows
NUMBERS = st.lists(
    st.one_of(st.integers(1, 40), st.integers(1, 700)), min_size=2, max_size=8, unique=True
)


@settings(max_examples=60, deadline=None)
@given(GEMMS, NUMBERS, st.sampled_from([(16, 16), (64, 256), (8, 128)]))
@example(Gemm(1, 512, 768, 768), [12, 24, 32, 48, 64, 96, 128], (64, 256))
@example(Gemm(1, 1536, 4096, 3072), [96, 97, 127, 128], (64, 256))
@example(Gemm(3, 300, 300, 300), [25, 26, 49, 50], (16, 16))
def test_more_cores_of_any_number_never_slow_a_product_down(
    gemm: Gemm, numbers: list[int], array: tuple[int, int]
) -> None:
    """Numbers that are no powers of two too, each priced beside the others as it is priced
    alone."""
    several = sorted(numbers)
    for platform in (PLATFORM, HELD_ON_CHIP):
        price = estimate(cores(*((num, *array, 16) for num in several)), work(gemm), platform)
        assert (np.diff(price.all_s) <= price.all_s[:-1] * 1e-9).all(), dict(
            zip(several, price.all_s.tolist(), strict=True)
        )
        alone = estimate(cores((several[0], *array, 16)), work(gemm), platform)
        assert (alone.all_s[0], alone.all_j[0]) == (price.all_s[0], price.all_j[0])


@settings(max_examples=30, deadline=None)
@given(st.builds(Gemm, st.integers(1, 5), *[st.integers(1, 200)] * 3), st.integers(1, 14))
def test_no_way_to_split_a_product_is_faster_than_the_one_that_is_priced(
    gemm: Gemm, num: int
) -> None:
    """Every count of parts along every dimension, gone through one by one; with all bandwidth there
    is, and one of them less."""
    for glb in (np.inf, 8.0):
        platform = replace(
            HELD_ON_CHIP,
            startup_s=0.0,
            hbm_bandwidth_bytes_per_s=np.inf,
            glb_bandwidth_bytes_per_cycle=glb,
            frequency_hz=1.0,
        )
        best = np.inf
        for counts in itertools.product(range(1, num + 1), repeat=4):
            if np.prod(counts) <= num:
                best = min(best, cycles_of(gemm, counts, platform))
        assert estimate(cores((num, 8, 8, 16)), work(gemm), platform).all_s[0] == pytest.approx(
            best, rel=1e-12
        )


def cycles_of(gemm: Gemm, counts: tuple[int, ...], platform: Platform) -> float:
    """Cycles of a product cut into so many parts along batch, m, k and n, on arrays of 8 x 8, by
    the fastest dataflow."""
    batch, m, k, n = (
        ceil(size / count)
        for size, count in zip((gemm.batch, gemm.m, gemm.k, gemm.n), counts, strict=True)
    )
    local = float(l2_bytes(np.array([64]), platform)[0])
    parts = gemm.batch * counts[1] * counts[2] * counts[3]
    moved = parts * tile_traffic(m, k, n, local, platform.bytes_per_element).total.min()
    reduced = 2 * ACCUMULATOR_BYTES * gemm.batch * gemm.m * gemm.n * (counts[2] - 1)
    bandwidth = platform.glb_bandwidth_bytes_per_cycle
    return min(
        float(max(time.steady, moved / bandwidth) + reduced / bandwidth + time.fill)
        for time in (
            pipelined_time(dataflow, batch, m, k, n, 8, 8, platform.weight_rows_per_cycle)
            for dataflow in platform.dataflows
        )
    )


@settings(max_examples=40, deadline=None)
@given(GEMMS, st.sampled_from(["batch", "m", "k", "n"]), st.integers(1, 500))
def test_larger_product_is_never_faster(gemm: Gemm, axis: str, more: int) -> None:
    larger = replace(gemm, **{axis: getattr(gemm, axis) + more})
    small, large = estimate(LADDERS, work(gemm)), estimate(LADDERS, work(larger))
    assert (large.all_s * EXACTLY >= small.all_s).all()
    assert (large.single_s * EXACTLY >= small.single_s).all()


@settings(max_examples=40, deadline=None)
@given(GEMMS, st.integers(0, 10**7))
def test_traffic_time_and_energy_respect_their_floors(gemm: Gemm, extra_bytes: int) -> None:
    what = work(gemm, extra_bytes=extra_bytes)
    price = estimate(LADDERS, what)
    for seconds, joules, hbm_bytes in (
        (price.single_s, price.single_j, price.single_hbm_bytes),
        (price.all_s, price.all_j, price.all_hbm_bytes),
    ):
        assert (hbm_bytes >= what.hbm_bytes * (1 - 1e-12)).all()
        assert (seconds >= what.hbm_bytes / PLATFORM.hbm_bandwidth_bytes_per_s).all()
        floor_pj = (
            gemm.macs * PLATFORM.technology.mac_energy.value
            + what.hbm_bytes * PLATFORM.technology.hbm_energy.value
        )
        assert (joules > floor_pj * 1e-12).all()
    peak_macs_per_s = LADDERS.num * LADDERS.width * LADDERS.depth * PLATFORM.frequency_hz
    assert (price.all_s >= gemm.macs / peak_macs_per_s).all()
    assert (price.single_s >= gemm.macs / (peak_macs_per_s / LADDERS.num)).all()


def test_one_array_with_ample_bandwidth_is_the_closed_form() -> None:
    ample = replace(
        PLATFORM,
        startup_s=0.0,
        hbm_bandwidth_bytes_per_s=np.inf,
        glb_bandwidth_bytes_per_cycle=np.inf,
        dataflows=(Dataflow.WEIGHT_STATIONARY,),
    )
    gemm = Gemm(1, 777, 500, 300)
    time = pipelined_time(Dataflow.WEIGHT_STATIONARY, 1, 777, 500, 300, 64, 32)
    price = estimate(cores((1, 32, 64, 2)), work(gemm), ample)
    assert price.all_s[0] * PLATFORM.frequency_hz == pytest.approx(float(time.steady + time.fill))
    assert price.single_s[0] == price.all_s[0]


def test_split_over_cores_is_the_best_of_all_splits() -> None:
    """Brute force over every way to cut a product for 4 cores, compute only."""
    ample = replace(
        PLATFORM,
        startup_s=0.0,
        hbm_bandwidth_bytes_per_s=np.inf,
        glb_bandwidth_bytes_per_cycle=np.inf,
    )
    ample = replace(ample, dataflows=(Dataflow.OUTPUT_STATIONARY,))
    for gemm in (
        Gemm(3, 40, 100, 56),
        Gemm(1, 16, 900, 16),
        Gemm(1, 200, 20, 33),
        Gemm(8, 10, 10, 10),
    ):
        best = np.inf
        for batch, m, k, n in itertools.product((1, 2, 4), repeat=4):
            if batch * m * k * n <= 4:
                rows, columns, stream = ceil(gemm.m / m), ceil(gemm.n / n), ceil(gemm.k / k)
                folds = ceil(gemm.batch / batch) * ceil(rows / 16) * ceil(columns / 16)
                best = min(best, (folds - 1) * max(stream, 16) + stream + 30)
        assert estimate(cores((4, 16, 16, 128)), work(gemm), ample).all_s[
            0
        ] * PLATFORM.frequency_hz == pytest.approx(best)


def test_batch_is_priced() -> None:
    """Four times the micro-batch is four times the work, not the same (as in the original) and not
    a saving."""
    on = cores((8, 64, 64, 64))
    one = estimate(on, work(Gemm(1, 2048, 4096, 4096))).all_s - PLATFORM.startup_s
    four = estimate(on, work(Gemm(1, 4 * 2048, 4096, 4096))).all_s - PLATFORM.startup_s
    assert four / one == pytest.approx(4, rel=0.01)


def test_both_gradients_cost_about_the_forward_product() -> None:
    forward, input_gradient, weight_gradient = (
        Gemm(1, 4096, 1024, 4096),
        Gemm(1, 4096, 4096, 1024),
        Gemm(1, 1024, 4096, 4096),
    )
    on = cores((8, 128, 128, 128))
    prices = [
        estimate(on, work(gemm)).all_s[0] for gemm in (forward, input_gradient, weight_gradient)
    ]
    assert max(prices) < 1.1 * min(prices)


def test_fused_tail_costs_its_bytes() -> None:
    on = cores((8, 128, 128, 128))
    gemm = Gemm(1, 512, 1024, 1024)
    alone, fused = estimate(on, work(gemm)), estimate(on, work(gemm, extra_bytes=50 << 20))
    added_s = (50 << 20) / PLATFORM.hbm_bandwidth_bytes_per_s
    assert 0.8 * added_s < fused.all_s[0] - alone.all_s[0] <= added_s
    assert fused.all_hbm_bytes[0] - alone.all_hbm_bytes[0] == 50 << 20


def test_convolution_moves_its_own_operands_not_its_windows() -> None:
    im2col = Gemm(1, 56 * 56, 9 * 64, 64)
    what = TensorWork((im2col,), operand_bytes(im2col) // 5, False)
    assert estimate(cores((8, 32, 32, 64)), what).all_hbm_bytes[0] == pytest.approx(
        operand_bytes(im2col) // 5
    )


class TestFusedAttention:
    """Scores stay on the chip; what is streamed is read again where it does not fit."""

    SCORES, VALUES = Gemm(64, 2048, 128, 2048), Gemm(64, 2048, 2048, 128)
    OPERAND = 2 * 64 * 2048 * 128

    def price(self, mib: int, backward: bool = False) -> CoreEstimate:
        gemms = (
            (self.SCORES, self.VALUES, self.SCORES, self.VALUES, self.VALUES)
            if backward
            else (self.SCORES, self.VALUES)
        )
        return estimate(
            cores((8, 64, 64, mib)), TensorWork(gemms, (8 if backward else 4) * self.OPERAND, True)
        )

    def test_moves_only_its_operands_when_they_fit(self) -> None:
        assert self.price(128).all_hbm_bytes[0] == 4 * self.OPERAND
        assert self.price(128, backward=True).all_hbm_bytes[0] == 8 * self.OPERAND

    @pytest.mark.parametrize("backward", [False, True])
    def test_streams_again_from_a_small_buffer(self, backward: bool) -> None:
        price = self.price(8, backward)
        compulsory = (8 if backward else 4) * self.OPERAND
        assert price.all_hbm_bytes[0] == compulsory
        assert price.single_hbm_bytes[0] > compulsory
        scores_bytes = 2 * self.SCORES.batch * 2048 * 2048
        assert price.single_hbm_bytes[0] < compulsory + (5 if backward else 1) * scores_bytes

    @pytest.mark.parametrize("backward", [False, True])
    def test_larger_buffer_never_slows_it(self, backward: bool) -> None:
        seconds = [self.price(mib, backward).single_s[0] for mib in (1, 2, 4, 8, 32, 128)]
        assert seconds == sorted(seconds, reverse=True)

    def test_beats_separate_products_with_scores_in_memory(self) -> None:
        on = cores((8, 64, 64, 2))
        separate = estimate(on, work(self.SCORES)).all_s + estimate(on, work(self.VALUES)).all_s
        assert self.price(2).all_s[0] < separate[0]


def rows_of(configurations: TensorCores, *rows: int) -> TensorCores:
    return TensorCores(*(column[list(rows)] for column in vars(configurations).values()))


def same_alone(everyone: TensorCores, what: TensorWork, *rows: int) -> None:
    prices = estimate(everyone, what)
    for row in rows:
        alone = estimate(rows_of(everyone, row), what)
        for name, together in vars(prices).items():
            assert getattr(alone, name)[0] == together[row], name


@pytest.mark.parametrize(
    "gemm", [Gemm(16, 500, 64, 700), Gemm(1, 512, 30528, 768), Gemm(1, 512, 768, 3072)]
)
def test_a_price_does_not_depend_on_who_else_is_priced(
    accelerators: AcceleratorSet, gemm: Gemm
) -> None:
    same_alone(accelerators.tensor_cores, work(gemm), 0, 1000, 2500, 3000, 4000)


CONFIGURATIONS = st.tuples(
    st.sampled_from([1, 2, 3, 5, 6, 8, 12]),
    st.sampled_from([4, 16, 24]),
    st.sampled_from([8, 10]),
    st.sampled_from([1, 2, 4, 64]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(CONFIGURATIONS, min_size=2, max_size=8), GEMMS, GEMMS)
def test_nor_do_prices_of_odd_cores(
    configurations: list[tuple[int, int, int, int]], first: Gemm, second: Gemm
) -> None:
    same_alone(cores(*configurations), work(first, second), 0, len(configurations) - 1)


def test_core_counts_and_arrays_need_not_be_powers_of_two() -> None:
    odd = cores((1, 24, 10, 3), (3, 24, 10, 3), (5, 24, 10, 3), (12, 24, 10, 3))
    price = estimate(odd, work(Gemm(6, 300, 700, 50)))
    assert (np.diff(price.all_s) < 0).all()
    busy_s = price.all_s - PLATFORM.startup_s
    assert busy_s[0] / busy_s[3] > 8


def test_the_smallest_buffer_still_prices() -> None:
    starved = estimate(cores((4096, 2, 2, 1)), work(Gemm(1, 512, 512, 512), Gemm(2, 64, 64, 64)))
    assert np.isfinite(starved.single_s).all() and np.isfinite(starved.single_j).all()
