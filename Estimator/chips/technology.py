"""Constants of a silicon process with their units and sources: area and energy. Numbers come from
``hardware/technologies``."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from Estimator.chips.process import DieProcess
from Estimator.quantity import Quantity as Quantity
from Estimator.quantity import units_of as units_of
from phaze_common.array_types import FloatArray


@dataclass(frozen=True)
class CapacityTable:
    """A property of memories by capacity: ``value[i]`` at ``capacity_bytes[i]``, ascending."""

    unit: str  # of each value
    source: str  # where the values are from
    capacity_bytes: tuple[int, ...]
    value: tuple[float, ...]

    def at(self, capacity_bytes: ArrayLike) -> FloatArray:
        """Values at the given capacities: exact at the table's points, log-log between and beyond
        them."""
        wanted = np.asarray(capacity_bytes, dtype=np.float64)
        known, values = np.array(self.capacity_bytes, dtype=np.float64), np.array(self.value)
        if not values.any():  # which has no logarithm
            return np.zeros(wanted.shape)
        right = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
        position = np.log(wanted / known[right - 1]) / np.log(known[right] / known[right - 1])
        interpolated: FloatArray = (
            values[right - 1] * (values[right] / values[right - 1]) ** position
        )
        exact = np.clip(np.searchsorted(known, wanted), 0, len(known) - 1)
        return np.where(known[exact] == wanted, values[exact], interpolated)


@dataclass(frozen=True)
class Technology:
    """Area and energy of a silicon process: um2 and pJ (per operation) or pJ/byte (per access)."""

    name: str
    node_nm: float  # name of the process in nanometres
    # one processing element of a tensor core: MAC and L1
    tensor_pe_area: Annotated[Quantity, "um2"]
    vector_lane_area: Annotated[Quantity, "um2"]  # one lane of a vector core
    l2_area: Annotated[CapacityTable, "um2"]  # buffer of a core
    glb_area: Annotated[CapacityTable, "um2"]  # global buffer
    mac_energy: Annotated[Quantity, "pJ"]  # one multiply-accumulate in 16 bits
    vector_lane_energy: Annotated[Quantity, "pJ"]  # per lane and cycle
    l1_energy: Annotated[Quantity, "pJ/byte"]  # registers of a processing element
    sram_energy: Annotated[CapacityTable, "pJ/byte"]  # L2 and GLB
    # memory of the device; a named kind of memory has its own
    hbm_energy: Annotated[Quantity, "pJ/byte"]
    network_energy: Annotated[Quantity, "pJ/byte"]  # links between devices
    # what a whole die needs; None where only cores and buffers are described
    die: DieProcess | None = None

    def scaled(self, factor: float) -> "Technology":
        """The same with ``factor`` times the energy of what runs at the chip's own voltage, which
        memories and links do not."""
        times: dict[str, Any] = {}
        for name in ("mac_energy", "vector_lane_energy", "l1_energy"):
            energy: Quantity = getattr(self, name)
            times[name] = replace(energy, value=factor * energy.value)
        values = tuple(factor * value for value in self.sram_energy.value)
        sram, die = replace(self.sram_energy, value=values), self.die
        if die is not None:
            wires = replace(die.network_energy, value=factor * die.network_energy.value)
            die = replace(die, network_energy=wires)
        return replace(self, sram_energy=sram, die=die, **times)
