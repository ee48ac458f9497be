"""What a group of devices crosses on a cluster, and the cost of an algorithm as a line in the bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from Estimator.network.cluster import Cluster, Tier


@dataclass(frozen=True)
class CollectiveLine:
    """Cost of a collective by one algorithm: ``fixed_s + per_byte_s * bytes of the whole tensor``."""

    algorithm: str
    fixed_s: float
    per_byte_s: float

    def seconds(self, payload_bytes: float) -> float:
        """Seconds for ``payload_bytes`` bytes, which must not be 0 (nothing is sent then)."""
        return self.fixed_s + self.per_byte_s * payload_bytes

    def twice(self) -> CollectiveLine:
        """The same algorithm run twice."""
        return CollectiveLine(self.algorithm, 2 * self.fixed_s, 2 * self.per_byte_s)


@dataclass(frozen=True)
class Crossing:
    """A group on one tier: ``inside`` members in each full block of the tier within it, ``together`` in each of this one.

    A ring through all members takes ``hops`` of its steps over this tier; ``ports`` is the number of members in the emptiest
    inner block, whose ports carry what enters and leaves that block. ``device_bytes_per_s`` is the peak a member can use in a
    collective times the tier's efficiency.
    """

    tier: Tier
    inside: int
    together: int
    hops: int
    ports: int
    device_bytes_per_s: float


def crossings(group_size: int, stride: int, cluster: Cluster, first: int = 0) -> tuple[Crossing, ...]:
    """The tiers of ``cluster`` as a group sees them whose first member is device ``first``, up to the one that joins them all."""
    if any(first % tier.group_size for tier in cluster.tiers[:-1]):
        return _crossings_of([first + index * stride for index in range(group_size)], cluster)
    crossed, inside, within = [], 1, 1
    for tier in cluster.tiers:
        outermost = tier is cluster.tiers[-1]  # joins all, also where a last stride reaches beyond its end
        together = group_size if outermost else min(group_size, max(1, tier.group_size // stride))
        share = tier.share(-(-together // inside), tier.group_size // within)
        crossed.append(
            Crossing(
                tier=tier,
                inside=inside,
                together=together,
                hops=-(-group_size // inside) - -(-group_size // together),
                ports=group_size % inside or inside,
                device_bytes_per_s=tier.bandwidth_bytes_per_s * tier.efficiency * share,
            )
        )
        inside, within = together, tier.group_size
        if together == group_size:
            break
    return tuple(crossed)


def _crossings_of(members: list[int], cluster: Cluster) -> tuple[Crossing, ...]:
    """The same for any devices, by counting how many of them share each block."""
    crossed, within = [], 1
    counts = Counter(members)
    for tier in cluster.tiers:
        outermost = tier is cluster.tiers[-1]
        blocks = Counter(0 if outermost else member // tier.group_size for member in members)
        inside, together = max(counts.values()), max(blocks.values())
        crossed.append(
            Crossing(
                tier=tier,
                inside=inside,
                together=together,
                hops=len(counts) - len(blocks),
                ports=min(counts.values()),
                device_bytes_per_s=tier.bandwidth_bytes_per_s
                * tier.efficiency
                * tier.share(-(-together // inside), tier.group_size // within),
            )
        )
        counts, within = blocks, tier.group_size
        if len(blocks) == 1:
            break
    return tuple(crossed)
