"""A system as a device and a cluster of ours: its own numbers wherever it has them, those of one of
our devices for the rest.

Of the system are peak, bandwidth and capacity of the memory, bandwidths, efficiencies and latencies
of both tiers of the network, and the size of a fast domain. Of the device are what operators reach
of peak and bandwidth, launches, and what the framework reserves; of its usual cluster what starting
a collective takes and how the library runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from Estimator.devices.files import load_device
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Tier, Topology
from phaze_common.errors import InputError
from phaze_common.units import GIB, GIGA
from phaze_common.yaml_files import read_yaml

from .configurations import Training
from .systems import System, published_systems

ELEMENT_GB, TFLOP = 2e-9, 1e-12  # of what our 16-bit formats can answer


@dataclass(frozen=True)
class OwnHardware:
    """Settings of a request that say the device, by name with other sizes, and the cluster by
    value."""

    device: str
    memory_size_gib: float
    memory_bandwidth_gb_per_s: float
    peak_tflop_per_s: float
    software: str
    cluster: Cluster


@cache
def stands_for() -> dict[str, Any]:
    """What of ours stands for published models and systems, by kind and name."""
    document: dict[str, Any] = read_yaml(Path(__file__).with_name("own.yaml"))
    return document


def own_hardware(training: Training, device: str | None = None) -> OwnHardware:
    """The hardware of a question; ``device`` is that of ours whose efficiencies it shall have.
    Raises InputError: the system counts in other units than ours, or none of our devices stands for
    it and none was given."""
    system = training.system
    if (system.element_gb, system.tflop) != (ELEMENT_GB, TFLOP):
        raise InputError(
            f"element_size is {system.element_gb:g} and flops_units {system.tflop:g}; under our "
            "own physics numbers have two "
            f"bytes and operations are counted one by one: give {ELEMENT_GB:g} and {TFLOP:g}"
        )
    name = device or own_device(system)
    if name is None:
        raise InputError(
            "none of our devices stands for this system, whose numbers do not say what operators "
            "reach of the peak; name one that does with --device, such as a100_80gb, h200 or b200"
        )
    base = load_device(name)
    return OwnHardware(
        device=name,
        memory_size_gib=system.hbm_capacity_gb * GIGA / GIB,
        memory_bandwidth_gb_per_s=system.hbm_gb_per_s,
        peak_tflop_per_s=system.matrix_tflop_per_s,
        software=str(stands_for()["software"]),
        cluster=_cluster(training, load_cluster(base.cluster)),
    )


def own_device(system: System) -> str | None:
    """Our device of the generation of a published system; None for any other."""
    alike = replace(system, nvlink_size=None)
    names = [
        name
        for name, each in published_systems().items()
        if replace(each, nvlink_size=None) == alike
    ]
    return str(stands_for()["devices"][names[0]]) if names else None


def _cluster(training: Training, base: Cluster) -> Cluster:
    """Two tiers with the numbers of the system, or one where that joins all GPUs; what it does not
    say is of ``base``."""
    if len(base.tiers) != 2 or any(tier.topology is not Topology.SWITCH for tier in base.tiers):
        raise InputError(
            f"the cluster {base.name} is not one of fast domains under a switch; name a device "
            "that lives in such a one with --device, such as a100_80gb, h200 or b200"
        )
    system, gpus = training.system, training.gpus
    fast, slow = base.tiers
    inner = replace(
        fast,
        group_size=training.nvlink_size,
        bandwidth_bytes_per_s=system.nvlink_gb_per_s * GIGA,
        efficiency=system.nvlink_efficiency,
        latency_s=system.nvlink_latency_s,
    )
    outer = replace(
        slow,
        group_size=max(gpus, 2),
        bandwidth_bytes_per_s=system.ib_gb_per_s * system.nics_per_gpu * GIGA,
        efficiency=system.ib_efficiency,
        latency_s=system.ib_latency_s,
    )
    tiers: tuple[Tier, ...]
    if gpus <= training.nvlink_size:
        tiers = (replace(inner, group_size=max(gpus, 2)),)
    elif training.nvlink_size == 1:
        tiers = (outer,)
    elif gpus % training.nvlink_size:
        raise InputError(
            f"n_gpus is {gpus}, no whole number of fast domains of {training.nvlink_size}; give a "
            "multiple of it, or an nvlink_size that divides n_gpus"
        )
    else:
        tiers = (inner, outer)
    return replace(
        base,
        name=f"{training.nvlink_size} GPUs in a fast domain",
        num_devices=max(gpus, 2),
        tiers=tiers,
    )
