"""All-to-all: every device of a group sends an equal part of what it holds to each of the others.

With S bytes on each of n devices, S/n go to every peer. Peers behind an outer tier are reached over that tier, so that of a group
of whole nodes with g members each (n-g)/n of the bytes leave through the ports of the network, one per device, and only (g-1)/n
stay inside; nothing is combined on the way.

* **Textbook** (Thakur, Rabenseifner & Gropp 2005, section 5): pairwise exchange, one peer after another, each a latency and S/n.
* **Library**: NCCL posts sends and receives to all peers at once, of which ``IN_FLIGHT`` at a time pay their latency together
  (``NCCL_MAX_DEV_WORK_P2P_PER_BATCH`` of NCCL's sources); the tiers work side by side and the slowest of them decides, which over
  N nodes makes a bus bandwidth of N/(N-1) ports (S. Jeaugey, nccl-tests issue 130). In two protocols, as the other collectives.

In a torus bytes pass through other devices, a quarter of a ring on average, and in a hypercube over half of its dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from Estimator.network.algorithms import CollectiveLine, Crossing
from Estimator.network.cluster import ShortProtocol, Tier, Topology

IN_FLIGHT = 8


def textbook_exchange_lines(group_size: int, crossed: Sequence[Crossing]) -> tuple[CollectiveLine, ...]:
    """Pairwise exchange among ``group_size`` devices, at least 2; bytes are those a device holds."""
    used = [each for each in crossed if each.hops]
    fixed_s = max(each.tier.start_s for each in used) + sum(_peers(each) * each.tier.latency_s for each in used)
    per_byte_s = sum(_passing(each, group_size) / each.device_bytes_per_s for each in used)
    return (CollectiveLine("pairwise", fixed_s, per_byte_s),)


def library_exchange_lines(group_size: int, crossed: Sequence[Crossing]) -> tuple[CollectiveLine, ...]:
    """Grouped sends and receives among ``group_size`` devices, at least 2; bytes are those a device holds."""
    used = [each for each in crossed if each.hops]
    lines = [_posted("exchange", used, group_size, lambda tier: tier)]
    if all(each.tier.short for each in used):
        lines.append(_posted("short exchange", used, group_size, lambda tier: tier.short or tier))
    return tuple(lines)


def _posted(
    name: str, used: Sequence[Crossing], group_size: int, protocol: Callable[[Tier], Tier | ShortProtocol]
) -> CollectiveLine:
    fixed_s = max(protocol(each.tier).start_s for each in used)
    fixed_s += sum(math.ceil(_peers(each) / IN_FLIGHT) * protocol(each.tier).latency_s for each in used)
    slowest_s = max(
        _passing(each, group_size) / (each.device_bytes_per_s / each.tier.efficiency * protocol(each.tier).efficiency)
        for each in used
    )
    return CollectiveLine(name, fixed_s, slowest_s)


def _peers(crossing: Crossing) -> int:
    """Devices that a member of the emptiest inner block reaches over this tier."""
    return crossing.together - crossing.ports


def _passing(crossing: Crossing, group_size: int) -> float:
    """Bytes that pass a device's links of this tier, as a part of the bytes it holds."""
    width = -(-crossing.together // crossing.inside)
    direct = _peers(crossing) / group_size
    match crossing.tier.topology:
        case Topology.TORUS:  # all that changes its place along this dimension, whatever it does along the others
            return width**2 // 4 / width
        case Topology.HYPERCUBE:
            return direct * math.log2(width) / 2 * width / (width - 1)
        case _:
            return direct
