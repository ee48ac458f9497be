"""Seconds, joules and off-chip bytes of matrix products on every tensor-core configuration at once.

For one product the model takes the best of all dataflows, splits over cores and buffer tilings:

    cycles = load + max(compute, GLB bytes / GLB bandwidth, other HBM bytes / HBM bandwidth) + fill
    seconds = cycles / frequency + start-up of the operator (of every piece of attention around a
    ring)

``compute`` is the slowest core's double-buffered systolic time (``systolic``); GLB bytes are what
all cores exchange with the global buffer given their local ones, HBM bytes what the chip exchanges
with memory given its global one (``tiling``). One streamed operand (A; B under input stationarity;
either under output stationarity) is single-buffered in the global buffer, so its ``load`` is not
hidden, while the other operand and the result move behind the computation: what ZigZag's schedules
show. ``fill`` is array loading, skew and drain, once. Everything is a minimum over choices that
more cores, larger buffers and higher bandwidths only extend or cheapen, so none of them ever slows
an operator down.

The products of a recurrence follow each other: each is spread over the cores by itself and pays for
its own fill, and the matrix that all of them multiply with is read again, every time, as far as the
global buffer does not hold it (Diamos et al. 2016).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from Estimator.chips.accelerator import Dataflow, Platform, TensorCores
from Estimator.chips.area import l2_bytes
from Estimator.chips.attention import attention_traffic
from Estimator.chips.core_rates import CoreRates
from Estimator.chips.fastest_splits import Arrays, Ways, fill_faster, fill_least_traffic
from Estimator.chips.on_chip import OnChip, OnChipMemo, OnChipPrices, decisive, on_chip_memo
from Estimator.chips.score_tiles import BACKWARD, FORWARD, Executed, ScoreAxes, executed
from Estimator.chips.splits import Splits, enumerate_splits
from Estimator.chips.systolic import SystolicTime, divide_up, pipelined_time
from Estimator.chips.tiling import ACCUMULATOR_BYTES, tile_traffic
from GraphExtractor.graph import Gemm
from GraphExtractor.score_mask import ScoreMask
from phaze_common.array_types import FloatArray, IntArray, fieldwise
from phaze_common.arrays import unique_rows

JOULES_PER_PJ = 1e-12
REGISTER_ACCESSES_PER_MAC = 3  # both operands and the accumulator
# The operand that arrays hold, as ``fill_faster`` names it
STATIONARY = {
    Dataflow.WEIGHT_STATIONARY: 0,
    Dataflow.INPUT_STATIONARY: 1,
    Dataflow.OUTPUT_STATIONARY: 2,
}


@dataclass(frozen=True)
class TensorWork:
    """What pricing depends on: the products, all bytes the operator reads and writes, whether it is
    fused attention, its mask.

    Attention runs in so many equal ``pieces``, of which the products and bytes are those of one,
    the mask that of all together.
    """

    gemms: tuple[Gemm, ...]
    hbm_bytes: int
    fused_attention: bool
    mask: ScoreMask | None = None
    pieces: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates, of all pieces."""
        return self.pieces * sum(gemm.macs for gemm in self.gemms)


@dataclass(frozen=True, eq=False)
class CorePrices:
    """Prices on one kind of core, on one core and on all: seconds and joules, shape (distinct work,
    core configurations).

    ``arithmetic_s`` is the part of the seconds that is left where all operands are at hand: what
    the arrays or lanes compute, with filling and draining them.
    """

    single_s: FloatArray
    all_s: FloatArray
    single_j: FloatArray
    all_j: FloatArray
    single_arithmetic_s: FloatArray
    all_arithmetic_s: FloatArray


@dataclass(frozen=True, eq=False)
class CoreEstimate(CorePrices):
    """Prices of one piece of work, and the HBM bytes it moves; arrays of shape
    (configurations,)."""

    single_hbm_bytes: FloatArray
    all_hbm_bytes: FloatArray


@dataclass(frozen=True, eq=False)
class _Spread:
    """The S ways to spread a product.

    ``doubling`` are the places of those whose counts are powers of two, ``doubling_bytes`` what
    they exchange with the GLB, (doubling, arrays)."""

    splits: Splits
    ways: Ways
    doubling: IntArray
    doubling_bytes: FloatArray


@dataclass(frozen=True, eq=False)
class _Price:
    """Seconds, those of arithmetic alone, joules and HBM bytes; arrays of shape
    (configurations,)."""

    seconds: FloatArray
    arithmetic_s: FloatArray
    joules: FloatArray
    hbm_bytes: FloatArray


class TensorCoreModel:
    """Prices work on the given configurations; what depends on these alone is computed once."""

    def __init__(
        self,
        cores: TensorCores,
        platform: Platform,
        rates: CoreRates | None = None,
        known: OnChipMemo | None = None,
    ) -> None:
        """Of ``cores`` on ``platform``; ``rates`` where they differ in memory and clock. ``known``
        are products that were priced before."""
        self.platform, self.rates = platform, rates or CoreRates.of(platform, len(cores))
        arrays, array_of = np.unique(
            np.stack([cores.depth, cores.width], axis=1), axis=0, return_inverse=True
        )
        self._rows, self._columns = arrays.T
        self._array_of: IntArray = array_of.reshape(-1)
        self._l2_capacities, self._l2_of = np.unique(
            l2_bytes(self._rows * self._columns, platform), return_inverse=True
        )
        self._nums, self._num_of = np.unique(cores.num, return_inverse=True)
        self._core_share: FloatArray = platform.concurrent_tc_share / cores.num
        single_capacity = np.floor(self._core_share * cores.glb_bytes)
        self._capacities, capacity_of = np.unique(
            np.concatenate([single_capacity, cores.glb_bytes]), return_inverse=True
        )
        self._single_capacity, self._all_capacity = capacity_of.reshape(2, -1)
        self._hbm_bytes_per_cycle = self.rates.hbm_bytes_per_s / self.rates.frequency_hz
        self._glb_pj = self.rates.global_buffer_pj(cores.glb_bytes)
        self._l2_pj = self.rates.sram_pj(self._l2_capacities[self._l2_of][self._array_of])
        self._known = on_chip_memo() if known is None else known
        self._decisive = decisive(cores, platform)

    def estimate(self, work: TensorWork) -> CoreEstimate:
        """Price ``work`` on all configurations: on one core with its share of the chip, and on all
        cores with all of it."""
        products, steps = work.gemms, work.pieces
        if any(gemm.dependent for gemm in work.gemms):  # one step stands for all
            (whole,) = work.gemms
            products, steps = (replace(whole, batch=1, dependent=False),), whole.batch
        single, spread = [], []
        on_chip = [
            self._on_chip(gemm, work.mask, axes)
            for gemm, axes in zip(products, _score_axes(work), strict=True)
        ]
        for place, dataflow in enumerate(self.platform.dataflows):
            load, behind = self._hbm_traffic(work, dataflow)
            fill = steps * len(products) * self._time(dataflow, 1, 1, 1, 1).fill[self._array_of]
            on_one = [each[place].single.times(steps) for each in on_chip]
            on_all = [each[place].spread.times(steps) for each in on_chip]
            tilings = load[:, self._single_capacity], behind[:, self._single_capacity]
            single.append(self._price(work, on_one, fill, *tilings, self._core_share))
            tilings = load[:, self._all_capacity], behind[:, self._all_capacity]
            spread.append(self._price(work, on_all, fill, *tilings, np.ones(1)))
        one, every = _fastest(single), _fastest(spread)
        return CoreEstimate(
            single_s=one.seconds,
            all_s=every.seconds,
            single_j=one.joules,
            all_j=every.joules,
            single_hbm_bytes=one.hbm_bytes,
            all_hbm_bytes=every.hbm_bytes,
            single_arithmetic_s=one.arithmetic_s,
            all_arithmetic_s=every.arithmetic_s,
        )

    def _on_chip(
        self, gemm: Gemm, mask: ScoreMask | None, axes: ScoreAxes
    ) -> tuple[OnChipPrices, ...]:
        """One product under every dataflow; a mask on its ``axes`` leaves a part of it."""

        def priced() -> tuple[OnChipPrices, ...]:
            move = divide_up(self._rows, self.platform.weight_rows_per_cycle)
            spread = self._spread(gemm)
            found = []
            for dataflow in self.platform.dataflows:
                part = executed(mask, axes, dataflow, self._rows, self._columns, move)
                what = gemm, spread, dataflow, part
                found.append(OnChipPrices(self._on_one_core(*what), self._on_all_cores(*what)))
            return tuple(found)

        return self._known.value((self._decisive, gemm, mask, axes), priced)

    def _spread(self, gemm: Gemm) -> _Spread:
        splits = enumerate_splits(gemm, int(self._nums[-1]))
        batch, m, k, n = (
            divide_up(getattr(gemm, name), getattr(splits, name))
            for name in ("batch", "m", "k", "n")
        )
        products = (gemm.batch * splits.m * splits.k * splits.n).astype(np.float64)
        least = products * (m * k + k * n + m * n) * self.platform.bytes_per_element
        # each further part of a split reduction has its partial sums written to the GLB and read
        # again, after the others
        results_bytes = 2 * ACCUMULATOR_BYTES * gemm.batch * gemm.m * gemm.n
        reduction: FloatArray = results_bytes * (splits.k.astype(np.float64) - 1)
        ways = Ways(splits.parts, batch, m, k, n, products, reduction, least)
        doubling = np.flatnonzero(splits.doubling)
        # the batch never changes what a single product of it moves: price each (m, k, n) once
        once, index = unique_rows(np.stack([m, k, n], axis=1)[doubling])
        moved = np.empty((len(once), len(self._l2_capacities)))
        sizes, element = (
            (each[doubling[once]] for each in (m, k, n)),
            self.platform.bytes_per_element,
        )
        fill_least_traffic(*sizes, self._l2_capacities.astype(np.float64), element, moved)
        exchanged = products[doubling, None] * moved[index]
        return _Spread(splits, ways, doubling, exchanged[:, self._l2_of])

    def _time(
        self, dataflow: Dataflow, batch: ArrayLike, m: ArrayLike, k: ArrayLike, n: ArrayLike
    ) -> SystolicTime:
        """Systolic time of a part per distinct array (last axis)."""
        return pipelined_time(
            dataflow, batch, m, k, n, self._rows, self._columns, self.platform.weight_rows_per_cycle
        )

    def _l2_traffic(self, gemm: Gemm, dataflow: Dataflow) -> FloatArray:
        """Bytes the arrays exchange with the local buffers: every fold streams its operand past the
        stationary one."""
        element = self.platform.bytes_per_element
        m, k, n = float(gemm.m), float(gemm.k), float(gemm.n)
        row_folds = divide_up(m if dataflow is Dataflow.OUTPUT_STATIONARY else k, self._rows)
        column_folds = divide_up(m if dataflow is Dataflow.INPUT_STATIONARY else n, self._columns)
        if dataflow is Dataflow.OUTPUT_STATIONARY:
            traffic = (
                m * k * column_folds + k * n * row_folds
            ) * element + m * n * ACCUMULATOR_BYTES
        else:
            streamed, stationary = (
                (m * k, k * n) if dataflow is Dataflow.WEIGHT_STATIONARY else (k * n, m * k)
            )
            traffic = (
                streamed * column_folds + stationary
            ) * element + 2 * m * n * row_folds * ACCUMULATOR_BYTES
        return gemm.batch * traffic[self._array_of]

    def _on_one_core(
        self, gemm: Gemm, spread: _Spread, dataflow: Dataflow, part: Executed
    ) -> OnChip:
        """Undivided, on one core with its share of the GLB bandwidth."""
        steady = (self._time(dataflow, gemm.batch, gemm.m, gemm.k, gemm.n).steady * part.cycles)[
            self._array_of
        ]
        done = part.work[self._array_of]
        glb_bytes = spread.doubling_bytes[0, self._array_of] * done
        glb_cycles = glb_bytes / (self.platform.glb_bandwidth_bytes_per_cycle * self._core_share)
        cycles = np.maximum(steady, glb_cycles)
        return OnChip(
            cycles, steady, glb_bytes, self._l2_traffic(gemm, dataflow) * done, gemm.macs * done
        )

    def _on_all_cores(
        self, gemm: Gemm, spread: _Spread, dataflow: Dataflow, part: Executed
    ) -> OnChip:
        """The fastest split over at most all cores, with all of the GLB bandwidth.

        Splits into powers of two come first; of the others those alone are priced in full that may
        be faster by a bound.
        """
        bandwidth, some = self.platform.glb_bandwidth_bytes_per_cycle, spread.doubling
        ways, splits = spread.ways, spread.splits
        sizes = (each[some, None] for each in (ways.batch, ways.m, ways.k, ways.n))
        steady = self._time(dataflow, *sizes).steady * part.cycles
        moved, reduction = spread.doubling_bytes * part.work, ways.reduction_bytes[some, None]
        cycles = np.maximum(steady, moved / bandwidth) + reduction / bandwidth
        of_doubling = np.stack([cycles, steady, moved + reduction])
        found = np.empty((3, len(self._num_of)))
        # cycles, those of the arrays alone, bytes of the GLB
        best, begun = np.full((3, len(self._rows)), np.inf), 0
        arrays = self._arrays(part)
        # ascending: more cores can do all that fewer can
        for place, num in enumerate(self._nums.tolist()):
            end = splits.ending(num)
            _take_faster(best, of_doubling[:, slice(*np.searchsorted(some, (begun, end)))])
            others = np.flatnonzero(~splits.doubling[begun:end]) + begun
            fill_faster(
                ways,
                others,
                arrays,
                np.unique(self._array_of[self._num_of >= place]),
                STATIONARY[dataflow],
                float(gemm.macs),
                bandwidth,
                self.platform.bytes_per_element,
                np.empty((2, len(others))),
                np.empty((len(others), len(self._l2_capacities))),
                best,
            )
            configurations = self._num_of == place
            found[:, configurations] = best[:, self._array_of[configurations]]
            begun = end
        done = part.work[self._array_of]
        chosen_cycles, compute_cycles, chosen_bytes = found
        l2_traffic = self._l2_traffic(gemm, dataflow) * done
        return OnChip(chosen_cycles, compute_cycles, chosen_bytes, l2_traffic, gemm.macs * done)

    def _arrays(self, part: Executed) -> Arrays:
        """All distinct arrays, of which each executes a ``part`` of a product."""
        move = divide_up(self._rows, self.platform.weight_rows_per_cycle)
        sizes = self._rows.astype(np.float64), self._columns.astype(np.float64)
        capacities = self._l2_capacities.astype(np.float64)
        return Arrays(*sizes, move, part.cycles, part.work, self._l2_of, capacities)

    def _hbm_traffic(self, work: TensorWork, dataflow: Dataflow) -> tuple[FloatArray, FloatArray]:
        """HBM bytes loaded before the arrays start, and those moved behind them: (candidate
        tilings, GLB capacities).

        What the operator moves beyond its products' operands (fused tails) is added; an operator
        that moves less (the overlapping windows of a convolution) has its traffic scaled down.
        """
        element, capacities = self.platform.bytes_per_element, self._capacities
        if work.fused_attention:
            load, behind = attention_traffic(
                work.gemms, work.hbm_bytes, capacities, element, work.mask, work.pieces
            )
            return load[None], behind[None]
        if any(gemm.dependent for gemm in work.gemms):
            return _recurrent_traffic(work, capacities, element)
        loads: FloatArray = np.zeros(len(capacities))
        behinds: FloatArray = np.zeros(len(capacities))
        for gemm in work.gemms:
            traffic = tile_traffic(gemm.m, gemm.k, gemm.n, capacities, element)
            either = {
                Dataflow.WEIGHT_STATIONARY: [(traffic.a, traffic.b)],
                Dataflow.INPUT_STATIONARY: [(traffic.b, traffic.a)],
                Dataflow.OUTPUT_STATIONARY: [(traffic.a, traffic.b), (traffic.b, traffic.a)],
            }[dataflow]
            first, second = (np.concatenate(operands) for operands in zip(*either, strict=True))
            useful = _not_dominated(first, second)
            loads = loads[..., None, :] + gemm.batch * first[useful]
            behinds = behinds[..., None, :] + gemm.batch * (second[useful] + traffic.c[0])
        loads, behinds = loads.reshape(-1, len(capacities)), behinds.reshape(-1, len(capacities))
        operands = sum(
            gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n) * element
            for gemm in work.gemms
        )
        if work.hbm_bytes < operands:
            return loads * (work.hbm_bytes / operands), behinds * (work.hbm_bytes / operands)
        return loads, behinds + (work.hbm_bytes - operands)

    def _price(
        self,
        work: TensorWork,
        on_chip: list[OnChip],
        fill: FloatArray,
        load: FloatArray,
        behind: FloatArray,
        share: FloatArray,
    ) -> _Price:
        """Join what happens on the chip with the best off-chip tiling; ``load`` and ``behind`` are
        (tilings, configurations)."""
        hbm_bytes_per_cycle = self._hbm_bytes_per_cycle * share
        working = sum(part.cycles for part in on_chip)
        cycles = load / hbm_bytes_per_cycle + np.maximum(working, behind / hbm_bytes_per_cycle)
        fastest = cycles.min(axis=0)
        # Of equally fast tilings the one that moves least: there are more of them where more
        # buffers are priced together.
        hbm_bytes = np.where(cycles == fastest, load + behind, np.inf).min(axis=0)
        rates = self.rates
        seconds = (fastest + fill) / rates.frequency_hz + work.pieces * self.platform.startup_s
        arithmetic_s = (sum(part.compute_cycles for part in on_chip) + fill) / rates.frequency_hz
        macs = sum(part.macs for part in on_chip)
        glb_bytes = sum(part.glb_bytes for part in on_chip)
        registers = macs * REGISTER_ACCESSES_PER_MAC * self.platform.bytes_per_element
        energy_pj = (
            macs * rates.mac_pj
            + registers * rates.l1_pj
            + (glb_bytes + sum(part.l2_bytes for part in on_chip)) * self._l2_pj
            + (glb_bytes + hbm_bytes) * self._glb_pj
            + hbm_bytes * rates.hbm_pj
        )
        return _Price(seconds, arithmetic_s, energy_pj * JOULES_PER_PJ, hbm_bytes)


def _take_faster(best: FloatArray, found: FloatArray) -> None:
    """Where the fastest of ``found`` (3, ways, arrays), of equally fast ones the first, is faster
    than ``best`` (3, arrays), put it there."""
    if not found.shape[1]:
        return
    fastest = found[:, found[0].argmin(axis=0), np.arange(found.shape[2])]
    faster = fastest[0] < best[0]
    best[:, faster] = fastest[:, faster]


def _score_axes(work: TensorWork) -> tuple[ScoreAxes, ...]:
    """Where each product has the scores that a mask is on; alike where there is none.

    What is left of a product is so however its cores split it: parts are dealt out evenly."""
    axes = FORWARD if len(work.gemms) == len(FORWARD) else BACKWARD
    return axes if work.mask is not None else axes[:1] * len(work.gemms)


def _recurrent_traffic(
    work: TensorWork, capacities: FloatArray, element: int
) -> tuple[FloatArray, FloatArray]:
    """HBM bytes of a recurrence: the matrix of its steps first, then everything else, and what of
    the matrix no buffer holds."""
    (gemm,) = work.gemms
    matrix = min(gemm.k * gemm.n * element, work.hbm_bytes)
    state = gemm.m * (gemm.k + gemm.n) * ACCUMULATOR_BYTES
    again = (gemm.batch - 1) * np.clip(matrix - np.maximum(capacities - state, 0), 0, None)
    return np.full((1, len(capacities)), float(matrix)), (work.hbm_bytes - matrix + again)[None]


def _not_dominated(a: FloatArray, b: FloatArray) -> NDArray[np.bool_]:
    """Candidates (first axis) that, for some capacity (second axis), no better and no earlier equal
    one makes pointless."""
    at_most = (a[:, None] <= a[None]) & (b[:, None] <= b[None])
    better = at_most & ((a[:, None] < a[None]) | (b[:, None] < b[None]))
    earlier = np.arange(len(a))[:, None, None] < np.arange(len(a))[None, :, None]
    dominated: NDArray[np.bool_] = np.any(better | (at_most & earlier), axis=0)
    needed: NDArray[np.bool_] = np.logical_not(np.all(dominated, axis=1))
    return needed


def _fastest(prices: list[_Price]) -> _Price:
    """For every configuration the price of the fastest dataflow, of equally fast ones that of the
    least energy."""
    best = prices[0]
    for price in prices[1:]:
        better = (price.seconds < best.seconds) | (
            (price.seconds == best.seconds) & (price.joules < best.joules)
        )
        best = fieldwise(partial(np.where, better), price, best)
    return best
