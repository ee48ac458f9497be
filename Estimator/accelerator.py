"""Records of hardware: core configurations, accelerators, technology, clusters. Numbers come from ``Estimator/hardware/*.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Dataflow(StrEnum):
    """What a systolic array keeps in place: weights, outputs or inputs."""

    WEIGHT_STATIONARY = "ws"
    OUTPUT_STATIONARY = "os"
    INPUT_STATIONARY = "is"


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
    l2_bytes_per_pe: int  # core-local buffer, bytes per processing element
    l2_minimum_bytes: int
    bytes_per_element: int


@dataclass(frozen=True)
class Accelerator:
    """One chip design: ``num_tc`` systolic tensor cores of ``depth`` x ``width`` MACs, ``num_vc`` vector cores of ``width_vc`` lanes."""

    num_tc: int
    num_vc: int
    width: int
    depth: int
    width_vc: int
    glb_bytes: int
    area_mm2: float


@dataclass(frozen=True)
class Tier:
    """A level of the network: groups of ``group_size`` devices (cumulative, innermost first) joined at this bandwidth and latency."""

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
