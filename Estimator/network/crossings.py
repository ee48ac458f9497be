"""What groups of devices cross on a cluster, tier by tier, for many groups at once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from Estimator.network.cluster import BoolArray, Cluster, FloatArray, IntArray, Tier


@dataclass(frozen=True, eq=False)
class Crossings:
    """N groups of devices on the blocks of a cluster's tiers.

    ``group_sizes`` have shape (N,). The other arrays have shape (tiers + 1, N): row 0 is about devices, each a block by itself,
    row t + 1 about the blocks of tier t. ``blocks`` counts those that hold members of the group; the fullest of them holds
    ``most`` members, the emptiest ``fewest``.
    """

    tiers: tuple[Tier, ...]
    group_sizes: IntArray
    blocks: IntArray
    most: IntArray
    fewest: IntArray

    @property
    def inside(self) -> IntArray:
        """Members in the fullest block within each tier; shape (tiers, N)."""
        return self.most[:-1]

    @property
    def together(self) -> IntArray:
        """Members in the fullest block of each tier; shape (tiers, N)."""
        return self.most[1:]

    @property
    def ports(self) -> IntArray:
        """Members in the emptiest block within each tier, whose ports carry what enters and leaves it; shape (tiers, N)."""
        return self.fewest[:-1]

    @cached_property
    def hops(self) -> IntArray:
        """Steps over each tier of a ring through all members; shape (tiers, N)."""
        return self.blocks[:-1] - self.blocks[1:]

    @cached_property
    def widths(self) -> IntArray:
        """Blocks that each tier joins where the group is fullest; shape (tiers, N)."""
        return -(-self.together // self.inside)

    @cached_property
    def reached(self) -> BoolArray:
        """Whether a tier is one of those from the innermost to the one that joins all members; shape (tiers, N)."""
        reached: BoolArray = self.blocks[:-1] > 1
        return reached

    @cached_property
    def used(self) -> BoolArray:
        """Whether members are joined by a tier, and not only pass it on their way out; shape (tiers, N)."""
        used: BoolArray = self.hops != 0
        return used

    @cached_property
    def have_short(self) -> BoolArray:
        """Whether all tiers that a group uses have a protocol for short messages; shape (N,)."""
        without = np.array([[tier.short is None] for tier in self.tiers])
        have: BoolArray = ~(self.used & without).any(axis=0)
        return have

    @cached_property
    def device_bytes_per_s(self) -> FloatArray:
        """Bandwidth of each tier that a member can use in a collective, when messages are long; shape (tiers, N)."""
        positions = (tier.group_size // within for tier, within in zip(self.tiers, _inner_sizes(self.tiers), strict=True))
        shares = [tier.share(width, blocks) for tier, width, blocks in zip(self.tiers, self.widths, positions, strict=True)]
        return self.column(lambda tier: tier.bandwidth_bytes_per_s * tier.efficiency) * np.array(shares)

    def column(self, value: Callable[[Tier], float]) -> FloatArray:
        """A number of every tier; shape (tiers, 1)."""
        return np.array([[value(tier)] for tier in self.tiers])


def crossings(group_sizes: IntArray, strides: IntArray, cluster: Cluster, first: IntArray) -> Crossings:
    """The tiers of ``cluster`` as groups see them, of which group n has the devices ``first[n] + k * strides[n]``.

    All arrays have shape (N,). A group that starts where blocks of all inner tiers start, and whose stride divides those it
    shares, fills them evenly; of others the members in every block are counted.
    """
    fitting = [np.maximum(1, tier.group_size // strides) for tier in cluster.tiers[:-1]]
    # the outermost tier joins all, also where a last stride reaches beyond its end
    most = np.minimum(group_sizes, np.array([np.ones_like(group_sizes), *fitting, group_sizes]))
    blocks, left = -(-group_sizes // most), group_sizes % most
    fewest = np.where(left, left, most)
    sizes = np.array([tier.group_size for tier in cluster.tiers[:-1]], dtype=np.int64)[:, None]
    uneven = ((first % sizes != 0) | ((strides < sizes) & (sizes % strides != 0))).any(axis=0) & (group_sizes > 1)
    if uneven.any():
        at = np.flatnonzero(uneven)
        counted = _counted(group_sizes[at], strides[at], cluster, first[at])
        blocks[:, at], most[:, at], fewest[:, at] = counted.blocks, counted.most, counted.fewest
    return Crossings(cluster.tiers, group_sizes, blocks, most, fewest)


def _counted(group_sizes: IntArray, strides: IntArray, cluster: Cluster, first: IntArray) -> Crossings:
    """The same for groups that start anywhere, by counting how many of their devices share each block."""
    groups = np.arange(len(group_sizes))
    group = np.repeat(groups, group_sizes)  # of every member of every group
    position = np.arange(len(group)) - np.repeat(np.cumsum(group_sizes) - group_sizes, group_sizes)
    device = first[group] + position * strides[group]
    shape = (len(cluster.tiers) + 1, len(group_sizes))
    blocks, most, fewest = (np.empty(shape, dtype=np.int64) for _ in range(3))
    for row, size in enumerate(_inner_sizes(cluster.tiers)):
        block = device // size
        starts = np.flatnonzero((np.diff(block, prepend=-1) != 0) | (np.diff(group, prepend=-1) != 0))
        members, first_block = np.diff(starts, append=len(group)), np.searchsorted(group[starts], groups)
        blocks[row] = np.diff(first_block, append=len(starts))
        most[row], fewest[row] = np.maximum.reduceat(members, first_block), np.minimum.reduceat(members, first_block)
    blocks[-1], most[-1], fewest[-1] = 1, group_sizes, group_sizes
    return Crossings(cluster.tiers, group_sizes, blocks, most, fewest)


def _inner_sizes(tiers: tuple[Tier, ...]) -> list[int]:
    return [1, *(tier.group_size for tier in tiers[:-1])]


def largest(values: FloatArray, among: BoolArray) -> FloatArray:
    """Largest over the tiers that ``among`` marks, at least one for each group; (tiers, N) or (tiers, 1) becomes (N,)."""
    most: FloatArray = np.where(among, values, 0.0).max(axis=0)
    return most


def log2_ceil(numbers: IntArray) -> IntArray:
    """Base-2 logarithms of positive numbers, rounded up, without the rounding of floating point; any shape."""
    exponents: IntArray = np.frexp(numbers - 1)[1].astype(np.int64)
    return exponents
