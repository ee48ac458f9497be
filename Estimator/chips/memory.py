"""Memory as it is sold: generations with the capacity, bandwidth, area, energy and price of a
stack, and how many of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from Estimator.quantity import Quantity, UncertainQuantity
from phaze_common.units import GIB


@dataclass(frozen=True)
class Memory:
    """A generation of memory; every figure is of one stack (a package or channel where the memory
    is not stacked).

    Areas are of the chip that uses it. Controllers scale with the process and PHYs hardly do; both
    are stated at 7 nm.
    """

    name: str
    stack_bytes: int  # capacity
    stack_bandwidth_bytes_per_s: float  # peak
    interposer: bool  # whether it needs one (silicon bridges or CoWoS) in the package
    # physical layer at 7 nm, on the chip that uses it
    phy_area: Annotated[UncertainQuantity, "mm2"]
    controller_area: Annotated[UncertainQuantity, "mm2"]  # at 7 nm, on the chip that uses it
    edge: Annotated[UncertainQuantity, "mm"]  # of the die's edge
    energy: Annotated[UncertainQuantity, "pJ/byte"]  # of a byte read or written
    idle_power: Annotated[UncertainQuantity, "W"]  # refresh and standby
    price_per_gib: Annotated[UncertainQuantity, "USD"]  # of a stack
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
    def access_energy(self) -> Quantity:
        """Of a byte that is read or written."""
        energy = self.memory.energy
        return Quantity(energy.value, energy.unit, energy.source)

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
