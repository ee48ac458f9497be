"""What no tensor cores price a product below, whatever their dataflow, tiling and split: peak rates
and compulsory traffic.

    seconds >= start-up + max(MACs / (processing elements x clock), bytes / HBM bandwidth) + skew of
    the arrays

``TensorCoreModel.estimate`` never goes below, since a fold streams at most one useful row a cycle,
parts of a split are rounded up, and tilings read every operand at least once. It costs a few
arithmetic operations per configuration where the model compares thousands of tilings, and so tells
which of a million chips are worth the model (``Solver.designs.pruning_bounds``).
"""

from __future__ import annotations

import numpy as np

from Estimator.chips.accelerator import AcceleratorSet, Platform, TensorCores
from Estimator.chips.area import l2_bytes
from Estimator.chips.core_rates import CoreRates
from Estimator.chips.latency_table import LatencyTable, priced_parts
from Estimator.chips.signatures import distinct_work
from Estimator.chips.tensor_core import (
    JOULES_PER_PJ,
    REGISTER_ACCESSES_PER_MAC,
    CoreEstimate,
    TensorWork,
)
from GraphExtractor.graph import ModelGraph
from phaze_common.array_types import FloatArray


def least_table(
    graph: ModelGraph, accelerators: AcceleratorSet, platform: Platform
) -> LatencyTable:
    """Prices of the operators of ``graph`` that those of ``populate_estimates`` are never below; of
    vector work the same."""
    return priced_parts(distinct_work((graph,)), accelerators, platform, LeastTensorPrices)


class LeastTensorPrices:
    """Least prices of work on the given tensor cores, in place of ``TensorCoreModel``."""

    def __init__(
        self, cores: TensorCores, platform: Platform, rates: CoreRates | None = None
    ) -> None:
        """Of ``cores`` on ``platform``; ``rates`` where they differ in memory and clock."""
        self._platform, self._rates = platform, rates or CoreRates.of(platform, len(cores))
        elements = cores.width * cores.depth
        self._num = cores.num.astype(np.float64)
        self._elements = elements.astype(np.float64)
        self._skew = (cores.width + cores.depth - 2).astype(np.float64)
        self._share: FloatArray = platform.concurrent_tc_share / self._num
        self._l2_pj = self._rates.sram_pj(l2_bytes(elements, platform))
        self._glb_pj = self._rates.global_buffer_pj(cores.glb_bytes)

    def estimate(self, work: TensorWork) -> CoreEstimate:
        """Least seconds and joules of ``work`` on one core with its share of the chip, and on all
        cores with all of it."""
        platform, rates = self._platform, self._rates
        macs, operands = work.macs * _left(work), self._operand_bytes(work)
        hbm_bytes = np.full_like(self._num, work.pieces * work.hbm_bytes)
        every = self._seconds(work, macs / (self._num * self._elements), operands, 1.0)
        single = self._seconds(work, macs / self._elements, operands, self._share)
        energy_pj = (
            macs
            * (rates.mac_pj + REGISTER_ACCESSES_PER_MAC * platform.bytes_per_element * rates.l1_pj)
            + operands * (self._l2_pj + self._glb_pj)
            + hbm_bytes * (self._glb_pj + rates.hbm_pj)
        )
        joules = energy_pj * JOULES_PER_PJ
        return CoreEstimate(single, every, joules, joules, single, every, hbm_bytes, hbm_bytes)

    def _seconds(
        self, work: TensorWork, cycles: FloatArray, operands: float, share: FloatArray | float
    ) -> FloatArray:
        platform, rates = self._platform, self._rates
        glb_cycles = operands / (platform.glb_bandwidth_bytes_per_cycle * share)
        fill = _steps(work) * self._skew
        on_chip_s = np.maximum(cycles, glb_cycles) / rates.frequency_hz
        hbm_s = work.pieces * work.hbm_bytes / (rates.hbm_bytes_per_s * share)
        seconds: FloatArray = (
            np.maximum(on_chip_s, hbm_s)
            + fill / rates.frequency_hz
            + work.pieces * platform.startup_s
        )
        return seconds

    def _operand_bytes(self, work: TensorWork) -> float:
        """What the products exchange with the global buffer at least."""
        elements = sum(
            each.batch * (each.m * each.k + each.k * each.n + each.m * each.n)
            for each in work.gemms
        )
        return float(work.pieces * elements * self._platform.bytes_per_element) * _left(work)


def _left(work: TensorWork) -> float:
    """The part of scores that the mask of ``work`` leaves; all without one."""
    mask = work.mask
    return 1.0 if mask is None else mask.left / (mask.rows * mask.columns)


def _steps(work: TensorWork) -> int:
    """Products one after another, each of which fills the arrays and drains them."""
    dependent = next((each.batch for each in work.gemms if each.dependent), None)
    return work.pieces * len(work.gemms) if dependent is None else dependent
