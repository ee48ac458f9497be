"""How many devices an amount of money buys, and what a cluster of so many costs.

A cluster of n devices costs n times what one device costs and its share of the switches that join
n. The share never falls with n, so a cluster of more devices costs more, and what a plan can be run
on is a number of devices, the cap of a configuration.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.cost import Prices, clos_sizes, switches_usd
from Estimator.network.cluster import SWITCHED, Cluster, Topology, with_devices

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROUNDING = 1e-12  # relative: what costs so little more than there is can be bought


@dataclass(frozen=True)
class Purchase:
    """``usd`` for a cluster of at most ``most_devices``.

    ``sizes`` ascend to ``most_devices``; a device's share of the switches of up to ``sizes[i]``
    devices is ``switches_usd[i]``.
    """

    usd: float
    sizes: tuple[int, ...]
    switches_usd: tuple[float, ...]

    @classmethod
    def of(cls, usd: float, cluster: Cluster, prices: Prices) -> Purchase:
        """Of parts of ``cluster``: switches join devices as soon as they are more than its
        innermost tier does."""
        most, rails = cluster.num_devices, _rails(cluster)
        joined = (rails * size for size in clos_sizes(-(-most // rails), prices))
        ends = {1, most, *(tier.group_size for tier in cluster.tiers), *joined}
        sizes = tuple(sorted(end for end in ends if end <= most))
        shares = [cluster_switches_usd(with_devices(cluster, size), size, prices) for size in sizes]
        return cls(usd, sizes, tuple(accumulate(shares, max)))

    @property
    def most_devices(self) -> int:
        """Devices that there are to be bought."""
        return self.sizes[-1]

    def share_usd(self, devices: IntArray) -> FloatArray:
        """A device's share of switches in clusters of so many ``devices``; same shape."""
        return np.array(self.switches_usd)[np.searchsorted(self.sizes, devices)]

    def affordable(self, device_usd: FloatArray) -> IntArray:
        """Most devices that the money buys, of one that costs so much by itself; same shape."""
        found = np.zeros(len(device_usd), np.int64)
        fewer = 0
        for size, share in zip(self.sizes, self.switches_usd, strict=True):
            with np.errstate(divide="ignore"):
                bought = np.floor(self.usd * (1.0 + ROUNDING) / (device_usd + share))
            most = np.minimum(bought, size).astype(np.int64)
            found = np.where(most > fewer, most, found)
            fewer = size
        return found

    def cluster_usd(self, device_usd: float, devices: int) -> float:
        """What ``devices`` cost with their switches."""
        return devices * (device_usd + self.switches_usd[bisect.bisect_left(self.sizes, devices)])


def cluster_switches_usd(cluster: Cluster, devices: int, prices: Prices) -> float:
    """A device's share of the switches of its cluster, at the bandwidth of its outermost tier.

    Links of devices to each other (mesh, hypercube, torus) need none, and of rails each joins one
    device of every block.
    """
    *inner, last = cluster.tiers
    if not inner or last.topology not in SWITCHED:  # a single tier is that of the chips' own links
        return 0.0
    return switches_usd(last.bandwidth_bytes_per_s, -(-devices // _rails(cluster)), prices)


def _rails(cluster: Cluster) -> int:
    """How many rails the outermost tier has, each with switches of its own; 1 where it has none."""
    *inner, last = cluster.tiers
    return inner[-1].group_size if inner and last.topology is Topology.RAIL else 1
