"""Dies that were built or proposed, described in our terms, and what the model says of their area,
its parts and their power.

There is no factor for a die: each is priced with the technology of its node. Descriptions:
``Estimator/hardware/dies``; tables: ``Estimator.chips.published_tables``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np

from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.area import UM2_PER_MM2
from Estimator.chips.clock import at_frequency
from Estimator.chips.design_space import ChipSize, accelerator_of
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.die import PARTS, DieContents, DieParts, die_parts, die_process, whole_die
from Estimator.chips.memory import MemorySystem
from Estimator.chips.memory_files import load_memory
from Estimator.chips.power import REUSE_AT_PEAK, power_parts
from Estimator.chips.technology import CapacityTable, Technology
from Estimator.chips.tensor_core import JOULES_PER_PJ, REGISTER_ACCESSES_PER_MAC
from Estimator.hardware_files import hardware_names, hardware_path, load_technology
from Estimator.quantity import Quantity, quantity_problems
from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError
from phaze_common.records import read_yaml, to_record

SPACES = {
    "foundry_5nm": "today_5nm",
    "foundry_7nm": "tpu_like_7nm",
    "foundry_16nm": "edge_training",
}
"""The design space that ships for chips of a technology, whose platform they are searched with."""
BASE_FORMAT = "bf16"  # of ``Technology``; others are in ``DieProcess.formats``
BYTES = {"bf16": 2, "int8": 1, "fp8": 1, "fp32": 4}


class Evidence(StrEnum):
    """What a figure of a die is worth beside the model's."""

    CALIBRATION = "calibration"  # constants of the model were chosen with it in view
    PREDICTION = "prediction"  # published, and no constant was chosen with it in view
    ESTIMATE = "estimate"  # of another model, not of silicon
    UNPUBLISHED = "unpublished"  # nothing to compare with


@dataclass(frozen=True)
class PublishedPower:
    """Watts of a device at work that were published, and what it did meanwhile."""

    what: str
    evidence: Evidence
    power: Annotated[Quantity, "W"]
    flops: Annotated[Quantity, "FLOP/s"]
    memory_traffic: Annotated[Quantity, "bytes/s"]
    frequency: Annotated[Quantity, "Hz"]
    stacks: int  # in use


@dataclass(frozen=True)
class FloorPlanPart:
    """A part of a die whose area was published, and the parts of the model (``PARTS``) that hold
    the same."""

    what: str
    area: Annotated[Quantity, "mm2"]
    parts: tuple[str, ...]


@dataclass(frozen=True)
class PublishedDie:
    """A die that was built or proposed: all that is on it, whether or not a product uses it.
    Buffers are per core."""

    name: str
    title: str
    technology: str
    evidence: Evidence  # of the area
    area: Annotated[Quantity | None, "mm2"]
    product_format: str
    products: Annotated[Quantity, "count"]  # multiply-accumulate units
    cores: Annotated[Quantity, "count"]
    tensor_buffer: Annotated[Quantity, "bytes"]
    vector_lanes: Annotated[Quantity, "count"]  # of vector units that run in step
    simt_lanes: Annotated[Quantity, "count"]  # of a GPU, with schedulers
    vector_buffer: Annotated[Quantity, "bytes"]
    global_buffer: Annotated[Quantity, "bytes"]
    cached: bool  # whether the global buffer is a cache
    network: Annotated[Quantity, "bytes/cycle"]
    memory: str
    stacks: int  # that the die has interfaces for
    links: Annotated[Quantity, "bytes/s"]  # each way, host included
    # the same in the words of a search, which has no more: arrays, lanes and one buffer
    chip: ChipSize | None = None
    powers: tuple[PublishedPower, ...] = ()
    floor_plan: tuple[FloorPlanPart, ...] = ()


def load_die(name_or_path: str) -> PublishedDie:
    """Read a published die.

    Raises: InputError: no such file, what is wrong in it, or a number format that its technology
        does not describe.
    """
    path = hardware_path("dies", name_or_path)
    die = to_record(PublishedDie, read_yaml(path), str(path))
    for problem in quantity_problems(die):
        raise InputError(f"{path}: {problem}")
    if die.cores.value < 1:
        raise InputError(f"{path}: cores.value is {die.cores.value:g}; it must be at least 1")
    known = {BASE_FORMAT, *die_process(load_technology(die.technology)).formats} & BYTES.keys()
    if die.product_format not in known:
        raise InputError(
            f"{path}: product_format is {die.product_format!r}; {die.technology} has "
            f"{', '.join(sorted(known))}"
        )
    if (die.area is None) != (die.evidence is Evidence.UNPUBLISHED):
        raise InputError(
            f"{path}: evidence is {die.evidence}; a die without an area is unpublished, and no "
            "other is"
        )
    for unknown in (name for part in die.floor_plan for name in part.parts if name not in PARTS):
        raise InputError(
            f"{path}: floor_plan names the part {unknown!r}; the model has {', '.join(PARTS)}"
        )
    return die


def published_dies() -> tuple[PublishedDie, ...]:
    """All that ship, by name."""
    return tuple(load_die(name) for name in hardware_names("dies"))


def published_parts(published: PublishedDie) -> DieParts:
    """The parts of a published die as the model has them; arrays of shape (1,)."""
    technology = load_technology(published.technology)
    die, cores = die_process(technology), published.cores.value
    lanes_um2 = published.vector_lanes.value * technology.vector_lane_area.value
    simt_um2 = published.simt_lanes.value * die.simt_lane_area.value
    cache = 1 + die.cache_overhead.value if published.cached else 1.0
    contents = DieContents(
        tensor_arithmetic=_mm2(published.products.value * _product(published, technology)[0]),
        tensor_buffers=_mm2(cores * _held(technology.l2_area, published.tensor_buffer.value)),
        vector_arithmetic=_mm2(lanes_um2 + simt_um2),
        vector_buffers=_mm2(cores * _held(technology.l2_area, published.vector_buffer.value)),
        global_buffer=_mm2(cache * _held(technology.glb_area, published.global_buffer.value)),
        cores=np.array([int(cores)]),
        network_bytes_per_cycle=published.network.value,
    )
    memory = MemorySystem(load_memory(published.memory), published.stacks)
    return whole_die(contents, die, memory, published.links.value)


def searched_parts(published: PublishedDie) -> DieParts | None:
    """The parts that a search builds for a chip of the die's sizes; arrays of shape (1,). None
    where it has no word for them."""
    if published.chip is None:
        return None
    platform = load_design_space(SPACES[published.technology]).platform
    memory = MemorySystem(load_memory(published.memory), published.stacks)
    chips = AcceleratorSet.of([accelerator_of(published.chip, platform)])
    return die_parts(chips, platform, memory, published.links.value)


def _mm2(um2: float) -> FloatArray:
    return np.array([um2 / UM2_PER_MM2])


def _held(table: CapacityTable, capacity: float) -> float:
    """The table's value at a capacity, nothing for none."""
    return float(table.at(capacity)) if capacity else 0.0


def _product(published: PublishedDie, technology: Technology) -> tuple[float, float]:
    """Area (um2) and energy (pJ) of a product in the die's format."""
    if published.product_format == BASE_FORMAT:
        return technology.tensor_pe_area.value, technology.mac_energy.value
    chosen = die_process(technology).formats[published.product_format]
    return chosen.pe_area.value, chosen.mac_energy.value


def published_power_w(published: PublishedDie, work: PublishedPower) -> FloatArray:
    """Watts of a published die at its published work; shape (1,)."""
    technology, width = load_technology(published.technology), BYTES[published.product_format]
    die, memory = die_process(technology), MemorySystem(load_memory(published.memory), work.stacks)
    buffer = published.tensor_buffer.value or published.vector_buffer.value
    product_pj = (
        _product(published, technology)[1]
        + REGISTER_ACCESSES_PER_MAC * width * technology.l1_energy.value
    )
    product_pj += 2 * width / REUSE_AT_PEAK * _held(technology.sram_energy, buffer)
    if published.simt_lanes.value:
        product_pj += die.scheduler_energy.value
    byte_pj = (
        2 * _held(technology.sram_energy, published.global_buffer.value or buffer)
        + die.network_energy.value
    )
    on_chip_j = (
        work.flops.value / 2 * product_pj + work.memory_traffic.value * byte_pj
    ) * JOULES_PER_PJ
    off_chip_j = work.memory_traffic.value * memory.memory.energy.value * JOULES_PER_PJ
    clock = at_frequency(die, work.frequency.value)
    parts = published_parts(published)
    return power_parts(on_chip_j, off_chip_j, 1.0, parts, die, clock, memory).total_w
