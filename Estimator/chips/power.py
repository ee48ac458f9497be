"""Watts of a chip: what its operations take, the clock that runs all the time, leakage, and
memories that wait.

    average = dynamic energy x (V/Vn)^2 / seconds + clock tree + leakage + idle memory peak    =
    every product, lane and byte of memory bandwidth busy in every cycle, + the same constant parts

Off-chip bytes are priced by the memory and the links, whose voltages do not follow the chip's:
their joules are given apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from Estimator.chips.accelerator import AcceleratorSet, Platform
from Estimator.chips.area import l2_bytes
from Estimator.chips.clock import Clock, leakage_w_per_mm2
from Estimator.chips.die import DieParts, added, die_process
from Estimator.chips.memory import MemorySystem
from Estimator.chips.process import DieProcess
from Estimator.chips.tensor_core import JOULES_PER_PJ, REGISTER_ACCESSES_PER_MAC
from phaze_common.array_types import FloatArray

# products per element read from a core's buffer when all run: one row or column of a systolic array
REUSE_AT_PEAK = 128


@dataclass(frozen=True, eq=False)
class PowerParts:
    """Watts of N chips by where they go, arrays of shape (N,)."""

    operations: FloatArray
    off_chip: FloatArray
    clock_tree: FloatArray
    leakage: FloatArray
    idle_memory: FloatArray

    @property
    def total_w(self) -> FloatArray:
        """All of them; shape (N,)."""
        return added([*vars(self).values()])


def constant_power(
    parts: DieParts, die: DieProcess, clock: Clock, memory: MemorySystem
) -> PowerParts:
    """What a chip takes while its clock runs and nothing else does."""
    area = parts.total_mm2
    cycle_j = clocked_mm2(parts) * die.clock_energy.value * JOULES_PER_PJ
    tree = cycle_j * clock.dynamic_energy_factor * clock.frequency_hz
    leaked = area * leakage_w_per_mm2(die, clock)
    nothing = np.zeros_like(area)
    return PowerParts(nothing, nothing, tree, leaked, np.full_like(area, memory.idle_power_w))


def clocked_mm2(parts: DieParts) -> FloatArray:
    """Area that the chip's clock drives: all but memories, whose rows rest, and interfaces, which
    have clocks of their own."""
    memories = parts.tensor_buffers + parts.vector_buffers + parts.global_buffer
    still = memories + parts.memory_interfaces + parts.links + parts.die_to_die
    return np.asarray(parts.total_mm2 - still, dtype=np.float64)


def power_parts(
    energy_j: ArrayLike,
    off_chip_j: ArrayLike,
    seconds: ArrayLike,
    parts: DieParts,
    die: DieProcess,
    clock: Clock,
    memory: MemorySystem,
) -> PowerParts:
    """Mean watts while ``energy_j`` (on the chip, at nominal voltage) and ``off_chip_j`` are spent
    in ``seconds``; shape (N,)."""
    constant = constant_power(parts, die, clock, memory)
    time = np.asarray(seconds, dtype=np.float64)
    return PowerParts(
        np.asarray(energy_j, dtype=np.float64) * clock.dynamic_energy_factor / time
        + constant.operations,
        np.asarray(off_chip_j, dtype=np.float64) / time + constant.off_chip,
        constant.clock_tree,
        constant.leakage,
        constant.idle_memory,
    )


def peak_power_parts(
    chips: AcceleratorSet,
    platform: Platform,
    memory: MemorySystem,
    parts: DieParts,
    clock: Clock,
    link_bandwidth_bytes_per_s: float = 0.0,
) -> PowerParts:
    """Watts while all cores, the global buffer's and the memory's bandwidth, joints of dies and
    both ways of links are busy."""
    technology, width = platform.technology, platform.bytes_per_element
    die, elements = die_process(technology), chips.width * chips.depth
    macs, lanes = chips.num_tc * elements, chips.num_vc * chips.width_vc
    product = (
        technology.mac_energy.value + REGISTER_ACCESSES_PER_MAC * width * technology.l1_energy.value
    )
    from_buffer = (
        2 * width / REUSE_AT_PEAK * technology.sram_energy.at(l2_bytes(elements, platform))
    )
    lane = technology.vector_lane_energy.value + width * technology.l1_energy.value
    on_wires = technology.sram_energy.at(chips.glb_bytes) + die.network_energy.value
    moved_pj = platform.glb_bandwidth_bytes_per_cycle * on_wires
    cycle_pj = macs * (product + from_buffer) + lanes * lane + moved_pj
    # of dies in a row
    between = (parts.dies - 1) * memory.bandwidth_bytes_per_s * die.die_to_die_bandwidth.value
    off_chip_pj = (
        memory.bandwidth_bytes_per_s * memory.memory.energy.value
        + between * die.die_to_die_energy.value
    )
    off_chip_pj = off_chip_pj + 2 * link_bandwidth_bytes_per_s * technology.network_energy.value
    second = np.ones(len(chips))
    on_chip_j = cycle_pj * JOULES_PER_PJ * clock.frequency_hz
    return power_parts(
        on_chip_j, off_chip_pj * JOULES_PER_PJ * second, second, parts, die, clock, memory
    )
