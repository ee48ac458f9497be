"""The whole die of a chip: square millimetres by part, how many dies hold it, and which dies have
edge enough for the memory.

    network   = cores x area of a router + GLB bytes per cycle x area of its wires memory    =
    stacks x (PHY + controller), links = GB/s each way x area of their PHY control   = a share of
    all of these: sequencing, test, clock distribution, padding and what stays empty beyond the
    reticle: as few equal dies as fit, joined by links that carry a share of the memory's bandwidth
    to each neighbour

Constants: ``DieProcess`` of the technology, ``Memory``; checked against published dies by
``Estimator.chips.published``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from Estimator.chips.accelerator import AcceleratorSet, Platform
from Estimator.chips.area import UM2_PER_MM2, l2_bytes
from Estimator.chips.memory import MemorySystem
from Estimator.chips.process import DieProcess
from Estimator.chips.technology import Technology
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.errors import InputError
from phaze_common.units import GB

# long over short side of a die: the field of a scanner, which the largest dies fill (26 mm x 33 mm)
ASPECT = 33 / 26
MOST_DIES = 64


@dataclass(frozen=True, eq=False)
class DieParts:
    """Square millimetres of N chips by part, arrays of shape (N,); all dies of a chip together."""

    tensor_arithmetic: FloatArray
    tensor_buffers: FloatArray
    vector_arithmetic: FloatArray
    vector_buffers: FloatArray
    global_buffer: FloatArray
    on_chip_network: FloatArray
    memory_interfaces: FloatArray
    links: FloatArray
    control: FloatArray
    die_to_die: FloatArray
    # 1, or how many chiplets the chip is made of; MOST_DIES + 1 where none will do (``too_large``)
    dies: IntArray

    @property
    def total_mm2(self) -> FloatArray:
        """Of all dies; shape (N,)."""
        return added([getattr(self, name) for name in PARTS])

    def __len__(self) -> int:
        return len(self.dies)


def added(parts: Sequence[ArrayLike]) -> FloatArray:
    """The sum of arrays of one shape."""
    total: FloatArray = np.sum(np.asarray(parts, dtype=np.float64), axis=0)
    return total


PARTS = tuple(entry.name for entry in fields(DieParts) if entry.name != "dies")
"""Names of the parts, in the order of a table."""


def die_process(technology: Technology) -> DieProcess:
    """What ``technology`` says of whole dies.

    Raises:
        InputError: it describes cores and buffers only.
    """
    if technology.die is None:
        raise InputError(
            f"technology {technology.name} describes cores and buffers but no whole die;"
            " choose one with a section 'die', such as foundry_7nm"
        )
    return technology.die


def die_parts(
    chips: AcceleratorSet,
    platform: Platform,
    memory: MemorySystem,
    link_bandwidth_bytes_per_s: float,
) -> DieParts:
    """Area of every chip by part, each with this memory and links of so many bytes/s each way in
    all; arrays of shape (N,).

    Of a chip that needs more than ``MOST_DIES`` dies one more is told, and it cannot be built.

    Raises:
        InputError: the technology describes no dies.
    """
    technology = platform.technology
    die, elements = die_process(technology), chips.width * chips.depth
    lanes = chips.num_vc * chips.width_vc
    tensor_l2 = technology.l2_area.at(l2_bytes(elements, platform))
    vector_l2 = technology.l2_area.at(l2_bytes(chips.width_vc, platform))
    contents = DieContents(
        tensor_arithmetic=chips.num_tc * technology.tensor_pe_area.value * elements / UM2_PER_MM2,
        tensor_buffers=chips.num_tc * tensor_l2 / UM2_PER_MM2,
        vector_arithmetic=np.asarray(lanes * (technology.vector_lane_area.value / UM2_PER_MM2)),
        vector_buffers=chips.num_vc * vector_l2 / UM2_PER_MM2,
        global_buffer=technology.glb_area.at(chips.glb_bytes) / UM2_PER_MM2,
        cores=chips.num_tc + chips.num_vc,
        network_bytes_per_cycle=platform.glb_bandwidth_bytes_per_cycle,
    )
    return whole_die(contents, die, memory, link_bandwidth_bytes_per_s)


@dataclass(frozen=True, eq=False)
class DieContents:
    """What the inside of N chips holds: mm2 of cores and buffers, and what the network on chip
    joins; arrays of shape (N,)."""

    tensor_arithmetic: FloatArray
    tensor_buffers: FloatArray
    vector_arithmetic: FloatArray
    vector_buffers: FloatArray
    global_buffer: FloatArray
    cores: IntArray
    network_bytes_per_cycle: float


def whole_die(
    contents: DieContents, die: DieProcess, memory: MemorySystem, link_bandwidth_bytes_per_s: float
) -> DieParts:
    """The parts of dies around ``contents``."""
    inside = (
        contents.tensor_arithmetic,
        contents.tensor_buffers,
        contents.vector_arithmetic,
        contents.vector_buffers,
        contents.global_buffer,
    )
    wires = contents.network_bytes_per_cycle * die.network_bandwidth_area.value
    network = np.asarray(contents.cores * die.network_core_area.value + wires, dtype=np.float64)
    stack_mm2 = (
        memory.memory.phy_area.value * die.phy_scale.value
        + memory.memory.controller_area.value * die.controller_scale.value
    )
    interfaces = np.full_like(network, memory.stacks * stack_mm2)
    links = np.full_like(network, link_bandwidth_bytes_per_s / GB * die.link_area.value)
    control: FloatArray = die.control_share.value * added([*inside, network, interfaces, links])
    alone = added([*inside, network, interfaces, links, control])
    joint_gb_per_s = memory.bandwidth_bytes_per_s / GB * die.die_to_die_bandwidth.value
    neighbour_mm2 = joint_gb_per_s * die.die_to_die_area.value
    dies = _dies(alone, neighbour_mm2, die.reticle.value)
    # dies in a row; both ends of every joint
    die_to_die = np.asarray(2.0 * (dies - 1) * neighbour_mm2, dtype=np.float64)
    return DieParts(*inside, network, interfaces, links, control, die_to_die, dies)


def _dies(alone_mm2: FloatArray, neighbour_mm2: float, reticle_mm2: float) -> IntArray:
    """Fewest equal dies of at most the reticle: n with ``alone + 2 (n - 1) neighbour <= n
    reticle``; see ``too_large``."""
    spare = reticle_mm2 - 2 * neighbour_mm2
    if spare > 0:
        dies = np.maximum(1, np.ceil((alone_mm2 - 2 * neighbour_mm2) / spare - 1e-9))
        dies = np.where(alone_mm2 <= reticle_mm2, 1, np.maximum(2, dies))
    else:
        dies = np.where(alone_mm2 <= reticle_mm2, 1.0, np.inf)
    return np.minimum(dies, MOST_DIES + 1).astype(np.int64)


def too_large(parts: DieParts) -> NDArray[np.bool_]:
    """Which chips more than ``MOST_DIES`` dies would have to hold; shape (N,)."""
    large: NDArray[np.bool_] = parts.dies > MOST_DIES
    return large


def usable_edge_mm(total_mm2: ArrayLike, dies: ArrayLike = 1) -> FloatArray:
    """Edge that memories can lie along: two long sides of a die; of dies in a row, which join at
    these, two short sides each.

    As built: V100, A100 and H100 have two or three stacks along both long sides; B200, of two dies,
    two along every short side.
    """
    count = np.asarray(dies, dtype=np.float64)
    short = np.sqrt(np.asarray(total_mm2, dtype=np.float64) / count / ASPECT)
    edge: FloatArray = np.where(count > 1, 2 * count * short, 2 * ASPECT * short)
    return edge


def edge_problem(
    total_mm2: ArrayLike, memory: MemorySystem, dies: ArrayLike = 1
) -> NDArray[np.bool_]:
    """Which dies cannot carry so many stacks; shape of ``total_mm2``."""
    problem: NDArray[np.bool_] = memory.edge_mm > usable_edge_mm(total_mm2, dies)
    return problem


def check_edge(total_mm2: float, memory: MemorySystem, dies: int = 1) -> None:
    """Refuse stacks for which a die has no room.

    Raises:
        InputError: says how many stacks the die carries.
    """
    if bool(edge_problem(total_mm2, memory, dies)):
        edge = float(usable_edge_mm(total_mm2, dies))
        fits = int(edge // memory.memory.edge.value)
        raise InputError(
            f"{memory.label} needs {memory.edge_mm:.1f} mm of the die's edge, and a chip of "
            f"{total_mm2:.0f} mm2 has {edge:.1f} mm"
            f" for memory: at most {fits} stack{'s' * (fits != 1)}; give fewer, or a larger chip"
        )
