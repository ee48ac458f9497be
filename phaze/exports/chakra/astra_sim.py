"""The files beside execution traces with which ASTRA-sim runs them: system, network, memory,
communicators.

Keys as in ASTRA-sim's ``examples`` (system/native_collectives/HGX-H100-validated.json,
network/analytical, remote_memory), whose values for what no plan says are taken over.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from Estimator.network.cluster import Cluster, Tier, Topology
from Estimator.plans.assignment import Assignment, tier_capacities
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.rates import Machine
from phaze.exports.chakra.ranks import Communicators
from phaze.exports.words import commented

GIB = 2**30  # what ASTRA-sim's analytical network calls a GB (bw_GBps_to_Bpns)
TERA, GIGA = 1e12, 1e9
_BLOCKS = {  # its building blocks; a hypercube's own links are as many as a switch's ports
    Topology.SWITCH: "Switch",
    Topology.RAIL: "Switch",
    Topology.HYPERCUBE: "Switch",
    Topology.MESH: "FullyConnected",
    Topology.TORUS: "Ring",
}


@dataclass(frozen=True)
class Dimension:
    """A dimension of ASTRA-sim's network: ``count`` neighbours, and what each of their links
    does."""

    tier: Tier
    count: int
    links: int

    @property
    def block(self) -> str:
        """Its building block."""
        return _BLOCKS[self.tier.topology]

    @property
    def bandwidth(self) -> float:
        """Of a link, as ASTRA-sim counts GB/s: what long messages reach of the device's bandwidth,
        divided over its links."""
        return self.tier.bandwidth_bytes_per_s * self.tier.efficiency / self.links / GIB

    @property
    def latency_ns(self) -> float:
        """Of a step."""
        return self.tier.latency_s * GIGA


def dimensions(plan: UniformPlan, cluster: Cluster) -> tuple[Dimension, ...]:
    """The tiers over which the ranks of ``plan`` lie, innermost first.

    Where their number is no whole number of blocks, ASTRA-sim has no such network: then all lie on
    the outermost tier they need.
    """
    positions = [
        outer.group_size // inner
        for outer, inner in zip(cluster.tiers, cluster.block_sizes, strict=True)
    ]
    order = plan.group_order
    if isinstance(order, Assignment):
        counts = list(order.over(len(cluster.tiers)).occupied)
    else:
        counts, left = [], plan.devices
        for capacity in tier_capacities(cluster):
            counts.append(min(capacity, left))
            left = -(-left // counts[-1])
    if math.prod(counts) != plan.devices:
        outermost = max(place for place, count in enumerate(counts) if count > 1)
        counts = [plan.devices if place == outermost else 1 for place in range(len(counts))]
    found = list[Dimension]()
    for tier, count, joined in zip(cluster.tiers, counts, positions, strict=True):
        if count > 1:
            ports = tier.topology is Topology.HYPERCUBE
            found.append(Dimension(tier, count, 1 if ports else tier.directions(joined)))
    return tuple(found)


def network_file(of: tuple[Dimension, ...]) -> str:
    """The analytical network of the plan, YAML."""

    def row(values: list[str]) -> str:
        return f"[ {', '.join(values)} ]"

    return "\n".join(
        (
            commented(f"# Tiers, innermost first: {', '.join(each.tier.name for each in of)}."),
            f"topology: {row([each.block for each in of])}",
            f"npus_count: {row([str(each.count) for each in of])}",
            "# Of one link; ASTRA-sim counts 2^30 bytes as a GB. What long messages reach of the "
            "peak (efficiency) is in it.",
            f"bandwidth: {row([f'{each.bandwidth:.6g}' for each in of])}  # GB/s",
            f"latency: {row([f'{each.latency_ns:.6g}' for each in of])}  # ns",
            "",
        )
    )


def system_file(machine: Machine, of: tuple[Dimension, ...]) -> str:
    """The system, JSON: collectives as rings over every dimension, durations of computation as
    predicted (no roofline)."""
    rings = ["ring"] * len(of)
    system = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 2,
        "preferred-dataset-splits": 4,
        "all-reduce-implementation": rings,
        "all-gather-implementation": rings,
        "reduce-scatter-implementation": rings,
        "all-to-all-implementation": ["direct"] * len(of),
        "collective-optimization": "localBWAware",
        "local-mem-bw": round(machine.stream_bytes_per_s / GIGA, 3),
        "peak-perf": round(machine.peak_flops / TERA, 3),
        "roofline-enabled": 0,
        "boost-mode": 0,
    }
    return json.dumps(system, indent=2) + "\n"


def memory_file() -> str:
    """The remote memory, JSON: there is none."""
    return json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}, indent=2) + "\n"


def groups_file(communicators: Communicators) -> str:
    """The groups of ranks by their names, JSON, one a line."""
    lines = (f'  "{name}": {json.dumps(ranks)}' for name, ranks in communicators.groups)
    return "{\n" + ",\n".join(lines) + "\n}\n"
