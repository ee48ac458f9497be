"""Seconds, joules and off-chip bytes of element-wise work and reductions on every vector-core
configuration at once.

    cycles = max(sum of ceil(elements / lanes) x cycles per element, bytes / GLB bandwidth, bytes /
    HBM bandwidth) seconds = cycles / frequency + start-ups (none of the tail of a product)

The elements of a recurrence are rounded up to lanes in every step of it, since the next step waits
for them. An operator on one core has that core's lanes and its part of the bandwidth; on all cores
it has the whole chip.
"""

from dataclasses import dataclass

import numpy as np

from Estimator.chips.accelerator import Platform, VectorCores
from Estimator.chips.area import l2_bytes
from Estimator.chips.core_rates import CoreRates
from Estimator.chips.systolic import divide_up
from Estimator.chips.tensor_core import JOULES_PER_PJ, CoreEstimate
from GraphExtractor.graph import VectorWork
from phaze_common.array_types import FloatArray


@dataclass(frozen=True)
class ElementWork:
    """What pricing depends on: the functions applied and the bytes moved for them (0 where a matrix
    product moves them)."""

    vector: tuple[VectorWork, ...]
    hbm_bytes: int
    starts: int  # how often it pays for a start-up, 0 as the tail of a product


class VectorCoreModel:
    """Prices work on the given configurations."""

    def __init__(
        self, cores: VectorCores, platform: Platform, rates: CoreRates | None = None
    ) -> None:
        """Of ``cores`` on ``platform``; ``rates`` where they differ in memory and clock."""
        self.platform, self.rates = platform, rates or CoreRates.of(platform, len(cores))
        self._num = cores.num.astype(np.float64)
        self._lanes = cores.width.astype(np.float64)
        self._l2_pj = self.rates.sram_pj(l2_bytes(cores.width, platform))
        self._glb_pj = self.rates.global_buffer_pj(cores.glb_bytes)

    def estimate(self, work: ElementWork) -> CoreEstimate:
        """Price ``work`` on all configurations, on a single core and on all cores."""
        platform, rates = self.platform, self.rates
        core_share = (1 - platform.concurrent_tc_share) / self._num
        single_arithmetic_s = self._arithmetic_s(work, self._lanes)
        all_arithmetic_s = self._arithmetic_s(work, self._lanes * self._num)
        startup_s = work.starts * platform.startup_s
        lane_cycles = sum(
            piece.elements * self.cycles_per_element(piece.function) for piece in work.vector
        )
        energy_pj = (
            lane_cycles * (rates.lane_pj + platform.bytes_per_element * rates.l1_pj)
            + work.hbm_bytes
            * (self._l2_pj + 2 * self._glb_pj + rates.hbm_pj)  # in and out of the GLB
        )
        joules = energy_pj * JOULES_PER_PJ
        hbm_bytes = np.full_like(self._num, work.hbm_bytes)
        return CoreEstimate(
            single_s=np.maximum(single_arithmetic_s, self._memory_s(work, core_share)) + startup_s,
            all_s=np.maximum(all_arithmetic_s, self._memory_s(work, np.ones(1))) + startup_s,
            single_j=joules,
            all_j=joules,
            single_hbm_bytes=hbm_bytes,
            all_hbm_bytes=hbm_bytes,
            single_arithmetic_s=single_arithmetic_s,
            all_arithmetic_s=all_arithmetic_s,
        )

    def _arithmetic_s(self, work: ElementWork, lanes: FloatArray) -> FloatArray:
        cycles: FloatArray = np.zeros_like(lanes)
        for piece in work.vector:
            of_a_step = divide_up(piece.elements / piece.steps, lanes)
            cycles = cycles + piece.steps * of_a_step * self.cycles_per_element(piece.function)
        return cycles / self.rates.frequency_hz

    def _memory_s(self, work: ElementWork, share: FloatArray) -> FloatArray:
        platform, rates = self.platform, self.rates
        glb_cycles = work.hbm_bytes / (platform.glb_bandwidth_bytes_per_cycle * share)
        hbm_cycles = work.hbm_bytes * rates.frequency_hz / (rates.hbm_bytes_per_s * share)
        longer: FloatArray = np.maximum(glb_cycles, hbm_cycles)
        return longer / rates.frequency_hz

    def cycles_per_element(self, function: str) -> float:
        """Cost of a vector function; one without an entry costs as much as ``add`` (``coverage``
        says so)."""
        costs = self.platform.vector_functions.cycles_per_element
        return costs.get(function, costs["add"])
