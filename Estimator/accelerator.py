"""Records of hardware: technology, platform, accelerators, clusters. Numbers come from ``Estimator/hardware/*/*.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Dataflow(StrEnum):
    """What a systolic array keeps in place: weights, outputs or inputs."""

    WEIGHT_STATIONARY = "ws"
    OUTPUT_STATIONARY = "os"
    INPUT_STATIONARY = "is"


@dataclass(frozen=True)
class Quantity:
    """A constant with its unit and where it comes from."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class CapacityTable:
    """A property of memories by capacity: ``value[i]`` at ``capacity_bytes[i]``, ascending."""

    unit: str
    source: str
    capacity_bytes: tuple[int, ...]
    value: tuple[float, ...]

    def at(self, capacity_bytes: ArrayLike) -> FloatArray:
        """Values at the given capacities: exact at the table's points, log-log between and beyond them."""
        wanted = np.asarray(capacity_bytes, dtype=np.float64)
        known, values = np.array(self.capacity_bytes, dtype=np.float64), np.array(self.value)
        right = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
        position = np.log(wanted / known[right - 1]) / np.log(known[right] / known[right - 1])
        interpolated: FloatArray = values[right - 1] * (values[right] / values[right - 1]) ** position
        exact = np.clip(np.searchsorted(known, wanted), 0, len(known) - 1)
        return np.where(known[exact] == wanted, values[exact], interpolated)


@dataclass(frozen=True)
class Technology:
    """Area and energy of a silicon process: um2 and pJ (per operation) or pJ/byte (per access)."""

    name: str
    node_nm: float
    tensor_pe_area: Quantity  # one processing element of a tensor core: MAC and L1
    vector_lane_area: Quantity
    l2_area: CapacityTable
    glb_area: CapacityTable
    mac_energy: Quantity
    vector_lane_energy: Quantity  # per lane and cycle
    l1_energy: Quantity
    sram_energy: CapacityTable  # L2 and GLB
    hbm_energy: Quantity
    network_energy: Quantity


@dataclass(frozen=True)
class Platform:
    """What all accelerators of a design space share.

    ``concurrent_tc_share`` is the part of GLB and HBM (capacity and bandwidth) that the tensor cores get while operators run on
    single cores; the vector cores get the rest. Each core of a type gets an equal part of its type's share, so no schedule
    can exceed the chip. An operator spread over all cores of its type runs alone and has everything.
    """

    frequency_hz: float
    hbm_bandwidth_bytes_per_s: float
    glb_bandwidth_bytes_per_cycle: float
    dataflows: tuple[Dataflow, ...]
    startup_s: float  # fixed cost of starting an operator
    concurrent_tc_share: float
    weight_rows_per_cycle: float  # how fast a systolic array takes a new stationary tile
    l2_bytes_per_pe: int  # core-local buffer, bytes per processing element
    l2_minimum_bytes: int
    bytes_per_element: int


@dataclass(frozen=True)
class Accelerator:
    """One chip: ``num_tc`` tensor cores (``depth`` rows x ``width`` columns), ``num_vc`` vector cores of ``width_vc`` lanes."""

    num_tc: int
    num_vc: int
    width: int
    depth: int
    width_vc: int
    glb_bytes: int
    area_mm2: float


@dataclass(frozen=True)
class VectorFunctions:
    """Cycles per element and lane of every known vector function; unknown ones cost as much as ``add``."""

    cycles_per_element: dict[str, float]


@dataclass(frozen=True)
class Tier:
    """A level of the network: groups of ``group_size`` devices (cumulative, innermost first) joined at this speed."""

    name: str
    group_size: int
    bandwidth_bytes_per_s: float  # per device, one direction
    latency_s: float


@dataclass(frozen=True)
class Cluster:
    """``num_devices`` devices on a network of tiers, innermost first; the last tier spans the cluster."""

    name: str
    num_devices: int
    tiers: tuple[Tier, ...]
