"""Memory as it is sold: generations with the capacity, bandwidth, area, energy and price of a stack, and how many of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from Common.errors import InputError
from Common.records import read_yaml, to_record
from Common.units import GIB
from Estimator.hardware_files import hardware_path
from Estimator.quantity import UncertainQuantity, quantity_problems

MOST_STACKS = 64


@dataclass(frozen=True)
class Memory:
    """A generation of memory; every figure is of one stack (a package or channel where the memory is not stacked).

    Areas are of the chip that uses it. Controllers scale with the process and PHYs hardly do; both are stated at 7 nm.
    """

    name: str
    stack_bytes: int
    stack_bandwidth_bytes_per_s: float
    interposer: bool  # whether it needs one (silicon bridges or CoWoS) in the package
    phy_area: Annotated[UncertainQuantity, "mm2"]
    controller_area: Annotated[UncertainQuantity, "mm2"]
    edge: Annotated[UncertainQuantity, "mm"]  # of the die's edge
    energy: Annotated[UncertainQuantity, "pJ/byte"]
    idle_power: Annotated[UncertainQuantity, "W"]
    price_per_gib: Annotated[UncertainQuantity, "USD"]
    carbon_per_gib: Annotated[UncertainQuantity, "kg"]  # CO2 equivalents of its making


@dataclass(frozen=True)
class MemorySystem:
    """So many stacks of a memory on one device."""

    memory: Memory
    stacks: int

    @property
    def capacity_bytes(self) -> int:
        """Of all stacks."""
        return self.stacks * self.memory.stack_bytes

    @property
    def capacity_gib(self) -> float:
        """Of all stacks."""
        return self.capacity_bytes / GIB

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Of all stacks."""
        return self.stacks * self.memory.stack_bandwidth_bytes_per_s

    @property
    def idle_power_w(self) -> float:
        """Refresh and standby of all stacks and their PHYs."""
        return self.stacks * self.memory.idle_power.value

    @property
    def edge_mm(self) -> float:
        """Of the die's edge that the stacks take."""
        return self.stacks * self.memory.edge.value

    @property
    def label(self) -> str:
        """``hbm3e:4``."""
        return f"{self.memory.name}:{self.stacks}"


def load_memory(name_or_path: str, relative_to: Path | None = None) -> Memory:
    """Read a memory generation.

    Raises:
        InputError: no such file, or what is wrong in it.
    """
    path = hardware_path("memories", name_or_path, relative_to)
    memory = to_record(Memory, read_yaml(path), str(path))
    for problem in quantity_problems(memory):
        raise InputError(f"{path}: {problem}")
    for key in ("stack_bytes", "stack_bandwidth_bytes_per_s"):
        if getattr(memory, key) <= 0:
            raise InputError(f"{path}: {key} is {getattr(memory, key)}; it must be positive")
    return memory


def memory_system(text: str, relative_to: Path | None = None) -> MemorySystem:
    """Read ``hbm3e:4``: a memory (name or path) and a number of stacks.

    Raises:
        InputError: another form, an unknown memory, or a number of stacks that is none.
    """
    name, separator, count = text.rpartition(":")
    if not separator or not name or not (count.isascii() and count.isdigit()) or not 1 <= int(count[:9]) <= MOST_STACKS:
        raise InputError(f"memory is {text!r}; give a generation and 1 to {MOST_STACKS} stacks of it, such as hbm3e:4")
    return MemorySystem(load_memory(name, relative_to), int(count))
