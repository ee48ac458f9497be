"""Area of an accelerator: cores, their local buffers and the global buffer, from the technology's
tables.

Closed form of Phaze's area model (ICML 2024; it counts no DRAM interface, network on chip or
control), exact on its 29,360 chips: ``num_tc (tc_pe w d + L2(16 w d)) + num_vc (vc_lane w_vc +
L2(16 w_vc)) + GLB``, with an L2 of at least 1 KiB.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from Estimator.chips.accelerator import Accelerator, Platform
from phaze_common.array_types import FloatArray, IntArray

UM2_PER_MM2 = 1e6


def l2_bytes(processing_elements: ArrayLike, platform: Platform) -> IntArray:
    """Capacity of a core's local buffer in bytes."""
    return np.maximum(
        platform.l2_minimum_bytes,
        platform.l2_bytes_per_pe * np.asarray(processing_elements, dtype=np.int64),
    )


def area_mm2(
    num_tc: ArrayLike,
    num_vc: ArrayLike,
    width: ArrayLike,
    depth: ArrayLike,
    width_vc: ArrayLike,
    glb_bytes: ArrayLike,
    platform: Platform,
) -> FloatArray:
    """Area of accelerators; the array arguments broadcast against each other."""
    technology = platform.technology
    elements = np.asarray(width, dtype=np.int64) * np.asarray(depth, dtype=np.int64)
    lanes = np.asarray(width_vc, dtype=np.int64)
    tensor_core = technology.tensor_pe_area.value * elements + technology.l2_area.at(
        l2_bytes(elements, platform)
    )
    vector_core = technology.vector_lane_area.value * lanes + technology.l2_area.at(
        l2_bytes(lanes, platform)
    )
    um2: FloatArray = (
        np.asarray(num_tc) * tensor_core
        + np.asarray(num_vc) * vector_core
        + technology.glb_area.at(glb_bytes)
    )
    return um2 / UM2_PER_MM2


@dataclass(frozen=True)
class AreaParts:
    """Square millimetres of one accelerator by part; they add up to its area."""

    tensor_arithmetic_mm2: float
    tensor_buffers_mm2: float
    vector_arithmetic_mm2: float
    vector_buffers_mm2: float
    global_buffer_mm2: float


def area_parts(chip: Accelerator, platform: Platform) -> AreaParts:
    """What the area of ``chip`` goes to: processing elements and lanes, the cores' local buffers,
    the global buffer."""
    technology, elements = platform.technology, chip.width * chip.depth
    um2 = (
        chip.num_tc * technology.tensor_pe_area.value * elements,
        chip.num_tc * float(technology.l2_area.at(l2_bytes(elements, platform))),
        chip.num_vc * technology.vector_lane_area.value * chip.width_vc,
        chip.num_vc * float(technology.l2_area.at(l2_bytes(chip.width_vc, platform))),
        float(technology.glb_area.at(chip.glb_bytes)),
    )
    return AreaParts(*(each / UM2_PER_MM2 for each in um2))
