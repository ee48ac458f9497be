"""Collectives as the textbook has them (Thakur, Rabenseifner & Gropp 2005).

With bandwidth B per device and direction and latency L per step, a group of n devices and a tensor
of S bytes,

* ring reduce-scatter or all-gather: ``(n-1)/n S/B + (n-1) L``;  * tree reduce or broadcast: ``S/B +
  ceil(log2 n) L``;
* along a torus a tree has no switch to go through: it passes from neighbour to neighbour both ways,
  ``n // 2`` steps along each dimension of n, and every link carries the whole tensor, at half of
  what a device's two links of a dimension move together;
* broadcast or reduction in a chain: ``S/B + (n-1) L``, as its parts follow one another through all
  links at once;
* all-reduce is twice reduce-scatter or tree: reduce-scatter and all-gather, or reduce and
  broadcast;
* passing around a ring has n-1 steps, whatever the tiers, each a message of its own between which
  devices compute.

A group that spans tiers runs the ring on each tier in turn, on what the inner tiers left of the
tensor, where it fills whole inner groups, and on all dimensions of a torus at once; the flat
algorithms at the speed of the slowest tier are always allowed. What one device sends to all is
scattered over the inner groups around it, goes on over the outermost tier from all of them, and is
gathered in every inner group (van de Geijn's broadcast); what it gets from all takes the same way
back.
"""

import numpy as np

from Estimator.network.costs import FROM_ONE_OR_TO_ONE, AlgorithmCosts
from Estimator.network.crossings import Crossings, largest, log2_ceil
from GraphExtractor.graph import CollectiveKind


def textbook_costs(kind: CollectiveKind, crossed: Crossings) -> list[AlgorithmCosts]:
    """Algorithms of a collective other than an all-to-all over groups of at least 2 devices."""
    if kind in FROM_ONE_OR_TO_ONE:
        return _rooted_costs(crossed)
    size, reached, bandwidth = crossed.group_sizes, crossed.reached, crossed.device_bytes_per_s
    latencies_s = crossed.step_s(lambda tier: tier.latency_s)
    start_s = largest(crossed.column(lambda tier: tier.start_s), reached)
    latency_s = largest(latencies_s, reached)
    slowest_s = largest(1 / bandwidth, reached)  # what crosses an outer tier passes the inner ones
    left = (size - 1) / size
    passing = kind is CollectiveKind.PASS
    ring_s = np.where(passing, size - 1, 1) * start_s + (size - 1) * latency_s
    steps_s = ring_s if passing else start_s + ((crossed.widths - 1) * latencies_s).sum(axis=0)
    fills = (crossed.together % crossed.inside == 0).all(axis=0)
    torus = crossed.rings
    costs = [
        AlgorithmCosts("ring", ring_s, left * slowest_s),
        _tree(crossed, one_way=kind is not CollectiveKind.ALL_REDUCE).where(
            np.full(len(size), not passing)
        ),
        AlgorithmCosts(
            "tier by tier",
            steps_s,
            ((crossed.widths - 1) / crossed.together / bandwidth).sum(axis=0),
        ).where(fills),
        AlgorithmCosts("torus", steps_s, left / (bandwidth * crossed.used).sum(axis=0)).where(
            fills & (torus | ~crossed.used).all(axis=0)
        ),
    ]
    return [cost.twice() for cost in costs] if kind is CollectiveKind.ALL_REDUCE else costs


def _tree(crossed: Crossings, *, one_way: bool) -> AlgorithmCosts:
    """A reduction to one device, or a broadcast from it, up or down a tree.

    ``one_way`` it may begin at the end of a part of a ring; what goes to a root and back chooses
    one in the middle.
    """
    torus, reached = crossed.rings, crossed.reached
    latencies_s = crossed.step_s(lambda tier: tier.latency_s)
    start_s = largest(crossed.column(lambda tier: tier.start_s), reached)
    steps_s = log2_ceil(crossed.group_sizes) * largest(latencies_s, reached)
    link = (
        crossed.column(lambda tier: tier.bandwidth_bytes_per_s * tier.efficiency / 2)
        / crossed.spacing
    )
    bandwidth = np.where(
        torus, np.minimum(crossed.device_bytes_per_s, link), crossed.device_bytes_per_s
    )
    line = crossed.widths * crossed.spacing != crossed.positions
    across = np.where(line & one_way, crossed.widths - 1, crossed.widths // 2)
    along = np.where(torus, across, log2_ceil(crossed.widths))
    steps_s = np.where(
        (torus & crossed.used).any(axis=0), (along * latencies_s).sum(axis=0), steps_s
    )
    return AlgorithmCosts("tree", start_s + steps_s, largest(1 / bandwidth, reached))


def _rooted_costs(crossed: Crossings) -> list[AlgorithmCosts]:
    """Algorithms of a broadcast from one device to all, or of a reduction to it, which is the same
    in reverse."""
    size, reached = crossed.group_sizes, crossed.reached
    latencies_s = crossed.step_s(lambda tier: tier.latency_s)
    start_s = largest(crossed.column(lambda tier: tier.start_s), reached)
    latency_s = largest(latencies_s, reached)
    slowest_s = largest(1 / crossed.device_bytes_per_s, reached)
    outermost = np.arange(len(crossed.tiers))[:, None] == reached.sum(axis=0) - 1
    steps_s = (np.where(outermost, 1, 2) * (crossed.widths - 1) * latencies_s).sum(axis=0)
    passing = (
        np.where(outermost, 1 / crossed.inside, 2 * (crossed.widths - 1) / crossed.together)
        * crossed.used
    )
    fills = (crossed.together % crossed.inside == 0).all(axis=0)
    return [
        AlgorithmCosts("chain", start_s + (size - 1) * latency_s, slowest_s),
        _tree(crossed, one_way=True),
        AlgorithmCosts(
            "tier by tier", start_s + steps_s, (passing / crossed.device_bytes_per_s).sum(axis=0)
        ).where(fills),
    ]
