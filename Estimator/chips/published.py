"""Dies and boards that were built, described in our terms, and what the model says of their area and power.

There is no factor for a die: each is priced with the technology of its node. Descriptions: ``Estimator/hardware/dies``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from Common.errors import InputError
from Common.records import read_yaml, to_record
from Estimator.chips.area import UM2_PER_MM2
from Estimator.chips.clock import at_frequency
from Estimator.chips.die import DieContents, DieParts, die_process, whole_die
from Estimator.chips.memory import MemorySystem
from Estimator.chips.memory_files import load_memory
from Estimator.chips.power import REUSE_AT_PEAK, average_power_w
from Estimator.chips.technology import CapacityTable, FloatArray, Technology
from Estimator.chips.tensor_core import JOULES_PER_PJ, REGISTER_ACCESSES_PER_MAC
from Estimator.hardware_files import hardware_names, hardware_path, load_technology
from Estimator.quantity import Quantity, quantity_problems

BASE_FORMAT = "bf16"  # of ``Technology``; others are in ``DieProcess.formats``
BYTES = {"bf16": 2, "int8": 1, "fp8": 1, "fp32": 4}


@dataclass(frozen=True)
class PublishedPower:
    """Watts of a device at work that were published, and what it did meanwhile."""

    power: Annotated[Quantity, "W"]
    flops: Annotated[Quantity, "FLOP/s"]
    memory_traffic: Annotated[Quantity, "bytes/s"]
    frequency: Annotated[Quantity, "Hz"]
    stacks: int  # in use


@dataclass(frozen=True)
class PublishedDie:
    """A die that was built: all that is on it, whether or not a product uses it. Buffers are per core."""

    name: str
    title: str
    technology: str
    area: Annotated[Quantity, "mm2"]
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
    work: PublishedPower | None = None


@dataclass(frozen=True)
class Compared:
    """A published figure of a chip beside the model's."""

    name: str
    what: str  # "area_mm2" or "power_w"
    published: float
    predicted: float
    source: str

    @property
    def error(self) -> float:
        """Prediction over publication, less one."""
        return self.predicted / self.published - 1


def load_die(name_or_path: str) -> PublishedDie:
    """Read a published die.

    Raises:
        InputError: no such file, what is wrong in it, or a number format that its technology does not describe.
    """
    path = hardware_path("dies", name_or_path)
    die = to_record(PublishedDie, read_yaml(path), str(path))
    for problem in quantity_problems(die):
        raise InputError(f"{path}: {problem}")
    if die.cores.value < 1:
        raise InputError(f"{path}: cores.value is {die.cores.value:g}; it must be at least 1")
    known = {BASE_FORMAT, *die_process(load_technology(die.technology)).formats} & BYTES.keys()
    if die.product_format not in known:
        raise InputError(f"{path}: product_format is {die.product_format!r}; {die.technology} has {', '.join(sorted(known))}")
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
    product_pj = _product(published, technology)[1] + REGISTER_ACCESSES_PER_MAC * width * technology.l1_energy.value
    product_pj += 2 * width / REUSE_AT_PEAK * _held(technology.sram_energy, buffer)
    if published.simt_lanes.value:
        product_pj += die.scheduler_energy.value
    byte_pj = 2 * _held(technology.sram_energy, published.global_buffer.value or buffer) + die.network_energy.value
    on_chip_j = (work.flops.value / 2 * product_pj + work.memory_traffic.value * byte_pj) * JOULES_PER_PJ
    off_chip_j = work.memory_traffic.value * memory.memory.energy.value * JOULES_PER_PJ
    clock = at_frequency(die, work.frequency.value)
    return average_power_w(on_chip_j, 1.0, published_parts(published), die, clock, memory, off_chip_j)


def compare_dies() -> tuple[Compared, ...]:
    """Area of every published die, and power where it is published, beside the model's."""
    return tuple(each for die in published_dies() for each in _compared(die))


def _compared(die: PublishedDie) -> Iterator[Compared]:
    area = float(published_parts(die).total_mm2[0])
    yield Compared(die.title, "area_mm2", die.area.value, area, die.area.source)
    if die.work is not None:
        power = float(published_power_w(die, die.work)[0])
        yield Compared(die.title, "power_w", die.work.power.value, power, die.work.power.source)


def comparison_table() -> str:
    """``compare_dies`` as the table of the manual (Markdown)."""
    rows = ["| chip | what | published | model | error |", "| --- | --- | ---: | ---: | ---: |"]
    units = {"area_mm2": ("area", "mm2"), "power_w": ("power", "W")}
    for each in compare_dies():
        what, unit = units[each.what]
        rows.append(
            f"| {each.name} | {what} | {each.published:.0f} {unit} | {each.predicted:.0f} {unit} | {100 * each.error:+.1f} % |"
        )
    return "\n".join(rows)
