"""Exchanges in which a token goes once to every node that has experts it meets, and is handed on
within: DeepEP, HybridEP.

A device's tokens take T bytes and meet k experts each, which lie anywhere among B blocks of a tier:
``v(B) = B (1 - (1 - 1/B)^k)`` blocks see a token on average, or at most as many as routing allows.
Where C blocks of the next tier hold these, a token comes to ``v(B) / B`` of the blocks that are not
the one where it arrives, so that ``v(B) (1 - C/B)`` copies pass the tier: over a network of N nodes
``(N - 1) (1 - (1 - 1/N)^k)`` copies instead of the ``k (N - 1) / N`` of a plain all-to-all, and
what nodes hand on passes their own links at the same time. The slowest of the tiers decides, or the
processors of the device that run the exchange: they work on every token, on each of its copies
within nodes and on each that leaves one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np

from Estimator.network.costs import AlgorithmCosts
from Estimator.network.crossings import Crossings, largest
from Estimator.quantity import Quantity
from phaze_common.choices import Dispatcher
from phaze_common.records import read_yaml, to_record


@dataclass(frozen=True)
class DispatcherRates:
    """What a library reaches: fractions of the bandwidth within and beyond the first tier, and
    seconds to start an exchange there.

    It takes so many ``processors`` of a device, of which one needs ``token`` seconds for a byte of
    a token, ``device`` for one of each of its copies to devices, ``node`` for one of each to other
    nodes.
    """

    near: Annotated[Quantity, "fraction"]
    beyond: Annotated[Quantity, "fraction"]
    near_start: Annotated[Quantity, "s"]
    beyond_start: Annotated[Quantity, "s"]
    processors: Annotated[Quantity, "count"]
    token: Annotated[Quantity, "s"]  # per byte
    device: Annotated[Quantity, "s"]  # per byte
    node: Annotated[Quantity, "s"]  # per byte


@dataclass(frozen=True)
class Routing:
    """How tokens are routed: to ``chosen`` experts each, in at most ``most_nodes`` nodes (0: in
    any)."""

    chosen: float = 1.0
    most_nodes: int = 0


@dataclass(frozen=True)
class TokenExchange:
    """How tokens get to their experts: by which ``dispatcher``, in fp8 or not, beside experts that
    all tokens meet or not. None: as the framework does."""

    dispatcher: Dispatcher | None = None
    in_fp8: bool = False
    beside_shared: bool | None = None


AS_FRAMEWORK = TokenExchange()


@dataclass(frozen=True)
class PerNode:
    """An exchange of routed tokens by a dispatcher that sends one copy to a node."""

    dispatcher: Dispatcher
    routing: Routing


@cache  # of the file that ships
def dispatcher_rates(dispatcher: Dispatcher) -> DispatcherRates:
    """What a dispatcher that sends one copy to a node reaches."""
    path = Path(__file__).with_name("dispatchers.yaml")
    return to_record(DispatcherRates, read_yaml(path)[dispatcher.value], f"{path} ({dispatcher})")


def per_node_costs(crossed: Crossings, exchange: PerNode) -> list[AlgorithmCosts]:
    """An exchange in groups of at least 2 devices; bytes are those of a copy for every expert, as a
    plain all-to-all has them."""
    rates, chosen = dispatcher_rates(exchange.dispatcher), exchange.routing.chosen
    blocks = crossed.blocks.astype(np.float64)
    seen = blocks * (1.0 - (1.0 - 1.0 / blocks) ** chosen)
    if exchange.routing.most_nodes:
        seen[1:] = np.minimum(seen[1:], exchange.routing.most_nodes)
    copies = seen[:-1] * (1.0 - blocks[1:] / blocks[:-1])
    inner = np.arange(len(crossed.tiers))[:, None] == 0
    reached = np.where(inner, rates.near.value, rates.beyond.value)
    bandwidth = crossed.device_bytes_per_s * reached / crossed.column(lambda tier: tier.efficiency)
    links_s = largest(copies / bandwidth, crossed.used)
    leaving = copies[1:].sum(axis=0)
    worked = rates.token.value + rates.device.value * seen[0] + rates.node.value * leaving
    per_byte_s = np.maximum(links_s, worked / rates.processors.value) / chosen
    far = crossed.used[1:].any(axis=0)
    start_s = np.where(far, rates.beyond_start.value, rates.near_start.value)
    return [AlgorithmCosts(exchange.dispatcher.value, start_s, per_byte_s)]
