"""Collectives as a communication library runs them on several tiers: pipelined rings and trees, two
protocols.

The model of NCCL behind ``perlmutter.yaml``, whose constants ``Estimator.network.calibration``
fits. A group of n devices, g of which share a block of the inner tiers (a node), runs as many rings
as it has ports, each with its part of the tensor:

* **Steps.** A part of the tensor goes n-1 hops around the ring. Each costs its tier's latency, so
  the fixed time of an all-gather grows with the number of devices; an all-reduce takes them twice.
  A ring that leaves a node has fewer channels than one that stays, so that its steps inside take
  longer too.
* **Bytes.** The hops of all parts overlap, so the tier on which the ring is the slowest sets the
  time of a byte: there ``(n-1)/n`` of the tensor passes through the ports of the g members of a
  block. Where hops over a tier follow one another directly (1/g of them do) they stall each other.
  Each device also copies its own part.
* **Passing around a ring** is n-1 sends and receives, between which devices compute: each is
  started by itself.
* **Broadcasts and reductions** are chains of as many hops, through every one of which the whole
  tensor passes (nccl-tests, doc/PERFORMANCE.md: their bus bandwidth is their algorithm bandwidth),
  in place.
* **Tree.** An all-reduce up and down the double binary tree of Sanders, Speck & Träff (2009), as
  NCCL 2.4 has it: a chain in the innermost blocks, then ``ceil(log2)`` levels of two children each;
  every byte passes a port twice.
* **Protocols.** For short messages a step is cheaper and slower, and a tree is not pipelined.
"""

from dataclasses import dataclass

import numpy as np

from Estimator.network.cluster import CollectiveLibrary
from Estimator.network.costs import FROM_ONE_OR_TO_ONE, AlgorithmCosts
from Estimator.network.crossings import Crossings, largest, log2_ceil
from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class _Route:
    """The tiers of N groups under one protocol.

    Seconds of a step over each tier, and of a byte that passes its ports, have shape (tiers, N),
    the latter 0 on tiers that a group does not use; ``start_s`` of shape (N,) is paid once per
    start.
    """

    step_s: FloatArray
    per_byte_s: FloatArray
    start_s: FloatArray

    def fixed_s(self, steps: IntArray, starts: IntArray | int = 1) -> FloatArray:
        """Seconds of ``starts`` and of ``steps`` over each tier, of shape (tiers, N); shape
        (N,)."""
        seconds: FloatArray = starts * self.start_s + (steps * self.step_s).sum(axis=0)
        return seconds


def library_costs(
    kind: CollectiveKind, crossed: Crossings, library: CollectiveLibrary
) -> list[AlgorithmCosts]:
    """Algorithms and protocols of a collective other than an all-to-all over groups of at least 2
    devices."""
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    if kind in FROM_ONE_OR_TO_ONE:
        part = np.ones(len(crossed.group_sizes))
    else:
        part = (crossed.group_sizes - 1) / crossed.group_sizes
    passing = rounds * part
    copy_s = _copy_s(kind, crossed, library)
    long, short = _long(crossed), _short(crossed)
    slowest_s = long.per_byte_s.max(axis=0)
    ring_steps = rounds * crossed.hops
    starts = crossed.group_sizes - 1 if kind is CollectiveKind.PASS else 1
    costs = [
        AlgorithmCosts("ring", long.fixed_s(ring_steps, starts), passing * slowest_s + copy_s),
        AlgorithmCosts(
            "short ring", short.fixed_s(ring_steps, starts), passing * short.per_byte_s.max(axis=0)
        ).where(crossed.have_short),
    ]
    if kind is CollectiveKind.ALL_REDUCE:
        levels = _tree_levels(crossed)
        several, tree_steps = crossed.reached.sum(axis=0) > 1, rounds * levels
        per_byte_s = rounds * (levels * short.per_byte_s).sum(axis=0)
        costs += [
            AlgorithmCosts(
                "tree",
                long.fixed_s(tree_steps),
                rounds * slowest_s / library.tree_efficiency + copy_s,
            ).where(several),
            AlgorithmCosts("short tree", short.fixed_s(tree_steps), per_byte_s).where(
                several & crossed.have_short
            ),
        ]
    return costs


def _copy_s(kind: CollectiveKind, crossed: Crossings, library: CollectiveLibrary) -> FloatArray:
    """Seconds per byte of the tensor for copying a device's own part; hidden behind the network
    where each block holds one."""
    copies = 0 if kind in FROM_ONE_OR_TO_ONE else 2 if kind is CollectiveKind.ALL_GATHER else 1
    copy_s = copies * library.copy_share / crossed.group_sizes / crossed.device_bytes_per_s[0]
    return np.where(crossed.used[0], copy_s, 0.0)


def _long(crossed: Crossings) -> _Route:
    outermost = crossed.reached.sum(axis=0) - 1
    inner_latency_s = crossed.column(lambda tier: tier.inner_latency_s)[outermost, 0]
    outside = np.arange(len(crossed.tiers))[:, None] >= outermost
    step_s = crossed.step_s(lambda tier: tier.latency_s) + np.where(outside, 0.0, inner_latency_s)
    stall = 1 + crossed.column(lambda tier: tier.relay_stall) / crossed.ports
    starts_s = crossed.column(lambda tier: tier.start_s)
    return _route(crossed, starts_s, step_s, stall / (crossed.ports * crossed.device_bytes_per_s))


def _short(crossed: Crossings) -> _Route:
    """As ``_long``, in the protocol for short messages, which means nothing for groups that use a
    tier without one."""
    bandwidth = crossed.device_bytes_per_s * crossed.column(
        lambda tier: tier.for_short.efficiency / tier.efficiency
    )
    starts_s = crossed.column(lambda tier: tier.for_short.start_s)
    step_s = crossed.step_s(lambda tier: tier.for_short.latency_s)
    return _route(crossed, starts_s, step_s, 1 / (crossed.ports * bandwidth))


def _route(
    crossed: Crossings, starts_s: FloatArray, step_s: FloatArray, per_byte_s: FloatArray
) -> _Route:
    return _Route(step_s, np.where(crossed.used, per_byte_s, 0.0), largest(starts_s, crossed.used))


def _tree_levels(crossed: Crossings) -> IntArray:
    """Steps from the leaves of a tree to its root: a chain in the innermost blocks, else levels of
    two children each."""
    levels = 2 * log2_ceil(crossed.widths)
    levels[0] = crossed.widths[0] - 1
    return levels
