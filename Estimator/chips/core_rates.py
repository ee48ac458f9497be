"""Rates and energies of core configurations that differ in memory and clock, as arrays: all
variants are priced together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.chips.accelerator import Platform, Variant
from Estimator.chips.technology import CapacityTable
from phaze_common.array_types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class CoreRates:
    """Clock and bandwidth of the memory, picojoules per operation and byte; arrays of shape
    (configurations,).

    ``sram`` has the energy of buffers by variant, ``wires`` that of a byte on the network on the
    chip, ``variant`` the place of each configuration's.
    """

    frequency_hz: FloatArray
    hbm_bytes_per_s: FloatArray
    mac_pj: FloatArray
    lane_pj: FloatArray
    l1_pj: FloatArray
    hbm_pj: FloatArray
    sram: tuple[CapacityTable, ...]
    wires: tuple[float, ...]
    variant: IntArray

    @classmethod
    def of(cls, platform: Platform, count: int) -> CoreRates:
        """Of so many configurations on ``platform`` as it is."""
        return cls._of_platforms([platform], np.zeros(count, dtype=np.int64))

    @classmethod
    def of_variants(
        cls, platform: Platform, variants: Sequence[Variant], variant: IntArray
    ) -> CoreRates:
        """Of configurations with the memory and clock of ``variants[variant]``."""
        return cls._of_platforms([platform.at(each) for each in variants], variant)

    @classmethod
    def _of_platforms(cls, platforms: Sequence[Platform], variant: IntArray) -> CoreRates:
        technologies = [each.technology for each in platforms]
        columns = (
            [each.frequency_hz for each in platforms],
            [each.hbm_bandwidth_bytes_per_s for each in platforms],
            [each.mac_energy.value for each in technologies],
            [each.vector_lane_energy.value for each in technologies],
            [each.l1_energy.value for each in technologies],
            [each.hbm_energy.value for each in technologies],
        )
        frequency_hz, hbm_bytes_per_s, mac, lane, l1, hbm = (
            np.array(column, dtype=np.float64)[variant] for column in columns
        )
        sram = tuple(each.sram_energy for each in technologies)
        wires = tuple(
            0.0 if each.die is None else each.die.network_energy.value for each in technologies
        )
        return cls(frequency_hz, hbm_bytes_per_s, mac, lane, l1, hbm, sram, wires, variant)

    def global_buffer_pj(self, capacity_bytes: IntArray) -> FloatArray:
        """Picojoules per byte of the global buffer and, of whole dies, of the network between it,
        cores and memory."""
        wires_pj: FloatArray = np.array(self.wires, dtype=np.float64)[self.variant]
        return self.sram_pj(capacity_bytes) + wires_pj

    def sram_pj(self, capacity_bytes: IntArray) -> FloatArray:
        """Picojoules per byte of a buffer of each configuration, of ``capacity_bytes``
        (configurations,)."""
        found = np.empty(len(capacity_bytes))
        for place, table in enumerate(self.sram):
            mine = self.variant == place
            found[mine] = table.at(capacity_bytes[mine])
        return found
