"""All-to-all: every device of a group sends an equal part of what it holds to each of the others.

With S bytes on each of n devices, S/n go to every peer. Peers behind an outer tier are reached over
that tier, so that of a group of whole nodes with g members each (n-g)/n of the bytes leave through
the ports of the network, one per device, and only (g-1)/n stay inside; nothing is combined on the
way.

* **Textbook** (Thakur, Rabenseifner & Gropp 2005, section 5): pairwise exchange, one peer after
  another, each a latency and S/n.
* **Library**: NCCL posts sends and receives to all peers at once, of which ``IN_FLIGHT`` at a time
  pay their latency together (``NCCL_MAX_DEV_WORK_P2P_PER_BATCH`` of NCCL's sources); the tiers work
  side by side and the slowest of them decides, which over N nodes makes a bus bandwidth of N/(N-1)
  ports (S. Jeaugey, nccl-tests issue 130). In two protocols, as the other collectives.

On rails a message to another place of another block first goes to the device of its own block in
that place, then over that one's rail (PXN of NCCL 2.12; the forwarding of all-to-alls in Wang et
al., Rail-only, arXiv 2307.12169). So with g members in each of N blocks ``(g-1)/g`` of S pass the
tier within instead of ``(g-1)/(g N)``, and as many bytes as elsewhere, ``(N-1)/N`` of S, pass the
rails.

In a torus bytes pass through other devices, a quarter of a ring on average, and in a hypercube over
half of its dimensions.
"""

from collections.abc import Callable

import numpy as np

from Estimator.network.cluster import ShortProtocol, Tier, Topology
from Estimator.network.costs import AlgorithmCosts
from Estimator.network.crossings import Crossings, largest
from phaze_common.array_types import BoolArray, FloatArray, IntArray

IN_FLIGHT = 8


def textbook_exchange_costs(crossed: Crossings) -> list[AlgorithmCosts]:
    """Pairwise exchange in groups of at least 2 devices; bytes are those a device holds."""
    used = _used(crossed)
    latencies_s = np.where(
        used, _messages(crossed) * crossed.column(lambda tier: tier.latency_s), 0.0
    )
    per_byte_s = np.where(used, _passing(crossed) / crossed.device_bytes_per_s, 0.0)
    start_s = largest(crossed.column(lambda tier: tier.start_s), used)
    return [AlgorithmCosts("pairwise", start_s + latencies_s.sum(axis=0), per_byte_s.sum(axis=0))]


def library_exchange_costs(crossed: Crossings) -> list[AlgorithmCosts]:
    """Grouped sends and receives in groups of at least 2 devices; bytes are those a device
    holds."""
    return [
        _posted("exchange", crossed, lambda tier: tier),
        _posted("short exchange", crossed, lambda tier: tier.for_short).where(
            crossed.short_on(_used(crossed))
        ),
    ]


def _posted(
    algorithm: str, crossed: Crossings, protocol: Callable[[Tier], Tier | ShortProtocol]
) -> AlgorithmCosts:
    used = _used(crossed)
    rounds_s = -(-_messages(crossed) // IN_FLIGHT) * crossed.column(
        lambda tier: protocol(tier).latency_s
    )
    bandwidth = crossed.device_bytes_per_s * crossed.column(
        lambda tier: protocol(tier).efficiency / tier.efficiency
    )
    start_s = largest(crossed.column(lambda tier: protocol(tier).start_s), used)
    return AlgorithmCosts(
        algorithm,
        start_s + np.where(used, rounds_s, 0.0).sum(axis=0),
        largest(_passing(crossed) / bandwidth, used),
    )


def _peers(crossed: Crossings) -> IntArray:
    """Devices that a member of the emptiest inner block reaches over each tier; shape (tiers,
    N)."""
    return crossed.together - crossed.ports


def _changing(crossed: Crossings) -> IntArray:
    """Of ``_peers`` those on another rail, as seen from the tier within, which their messages pass
    first; shape (tiers, N)."""
    rails = np.array([[tier.topology is Topology.RAIL] for tier in crossed.tiers])
    on_own_rail = np.where(crossed.off_rails, 0, crossed.widths - 1)
    changing = np.where(rails, _peers(crossed) - on_own_rail, 0)
    return np.concatenate([changing[1:], np.zeros_like(changing[:1])])


def _messages(crossed: Crossings) -> IntArray:
    """Messages of a member that pass each tier; shape (tiers, N)."""
    return _peers(crossed) + _changing(crossed) if crossed.has_rails else _peers(crossed)


def _used(crossed: Crossings) -> BoolArray:
    """Tiers that messages pass; shape (tiers, N)."""
    return crossed.used | (_changing(crossed) > 0) if crossed.has_rails else crossed.used


def _passing(crossed: Crossings) -> FloatArray:
    """Bytes that pass a device's links of each tier it uses, as a part of the bytes it holds; shape
    (tiers, N)."""
    passing: FloatArray = _messages(crossed) / crossed.group_sizes
    for row, (tier, width) in enumerate(zip(crossed.tiers, crossed.widths, strict=True)):
        # all that changes its place along this dimension, whatever it does along the others
        if tier.topology is Topology.TORUS:
            passing[row] = width**2 // 4 / width
        elif tier.topology is Topology.HYPERCUBE:
            passing[row] *= np.log2(width) / 2 * width / np.maximum(width - 1, 1)
    return passing
