"""What groups of devices cross on a cluster, tier by tier, for many groups at once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from Estimator.network.cluster import Cluster, Tier, Topology
from phaze_common.array_types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Crossings:
    """N groups of devices on the blocks of a cluster's tiers.

    ``group_sizes`` have shape (N,). The other arrays have shape (tiers + 1, N): row 0 is about
    devices, each a block by itself, row t + 1 about the blocks of tier t. ``blocks`` counts those
    that hold members of the group; the fullest of them holds ``most`` members, the emptiest
    ``fewest``; ``aligned`` says that all of them hold members in the same places. Along the
    dimensions of a torus members lie ``spacing`` (tiers, N) blocks apart, elsewhere it is 1.
    """

    tiers: tuple[Tier, ...]
    group_sizes: IntArray
    blocks: IntArray
    most: IntArray
    fewest: IntArray
    aligned: BoolArray
    spacing: IntArray

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
        """Members in the emptiest block within each tier, whose ports carry what enters and leaves
        it; shape (tiers, N)."""
        return self.fewest[:-1]

    @property
    def rings(self) -> BoolArray:
        """Which tiers are dimensions of a torus; shape (tiers, 1)."""
        return np.array([[tier.topology is Topology.TORUS] for tier in self.tiers])

    @property
    def positions(self) -> IntArray:
        """Blocks that each tier joins, members or not; shape (tiers, 1)."""
        inner = _inner_sizes(self.tiers)
        return np.array(
            [[tier.group_size // within] for tier, within in zip(self.tiers, inner, strict=True)]
        )

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
        """Whether a tier is one of those from the innermost to the one that joins all members;
        shape (tiers, N)."""
        reached: BoolArray = self.blocks[:-1] > 1
        return reached

    @cached_property
    def used(self) -> BoolArray:
        """Whether members are joined by a tier, and not only pass it on their way out; shape
        (tiers, N)."""
        used: BoolArray = self.hops != 0
        return used

    @cached_property
    def have_short(self) -> BoolArray:
        """Whether all tiers that a group uses have a protocol for short messages; shape (N,)."""
        return self.short_on(self.used)

    def short_on(self, used: BoolArray) -> BoolArray:
        """Whether all of the tiers that are ``used`` (tiers, N) have one; shape (N,)."""
        without = np.array([[tier.short is None] for tier in self.tiers])
        have: BoolArray = ~(used & without).any(axis=0)
        return have

    @cached_property
    def device_bytes_per_s(self) -> FloatArray:
        """Bandwidth of each tier that a member can use in a collective, when messages are long;
        shape (tiers, N)."""
        each = zip(
            self.tiers, self.widths, self.positions[:, 0].tolist(), self.spacing, strict=True
        )
        shares = [tier.share(width, blocks, spacing) for tier, width, blocks, spacing in each]
        alone = self.column(lambda tier: tier.bandwidth_bytes_per_s * tier.efficiency)
        if self.has_rails:  # on their way to another rail bytes pass the tier within
            alone = np.where(
                self.off_rails, np.minimum(alone, np.concatenate([alone[:1], alone[:-1]])), alone
            )
        return alone * np.array(shares)

    @cached_property
    def has_rails(self) -> bool:
        """Whether some tier joins the same places of its blocks alone."""
        return any(tier.topology is Topology.RAIL for tier in self.tiers)

    @cached_property
    def off_rails(self) -> BoolArray:
        """Whether a tier of rails joins members in different places of its blocks; shape (tiers,
        N)."""
        rails = np.array([[tier.topology is Topology.RAIL] for tier in self.tiers])
        off: BoolArray = rails & self.used & ~self.aligned[:-1]
        return off

    def step_s(self, latency_s: Callable[[Tier], float]) -> FloatArray:
        """Seconds of a step over each tier, shape (tiers, N): who changes rails passes the tier
        within first.

        Along a torus it passes the devices between, hop by hop.
        """
        steps_s = self.column(latency_s) * self.spacing
        if not self.has_rails:
            return steps_s
        within_s = np.concatenate([np.zeros_like(steps_s[:1]), steps_s[:-1]])
        return steps_s + np.where(self.off_rails, within_s, 0.0)

    def column(self, value: Callable[[Tier], float]) -> FloatArray:
        """A number of every tier; shape (tiers, 1)."""
        return np.array([[value(tier)] for tier in self.tiers])


def crossings(
    group_sizes: IntArray, strides: IntArray, cluster: Cluster, first: IntArray
) -> Crossings:
    """The tiers of ``cluster`` as groups see them, of which group n has the devices ``first[n] + k
    * strides[n]``.

    All arrays have shape (N,).
    """
    each = [_members(group_sizes, strides, first, size) for size in cluster.block_sizes]
    # the outermost tier joins all, also where a last stride reaches beyond its end
    blocks, most, fewest = (
        np.stack(rows)
        for rows in zip(*each, (np.ones_like(group_sizes), group_sizes, group_sizes), strict=True)
    )
    sizes = np.array(cluster.block_sizes)[:, None]
    # one member in each block, or in all the same places, of which the emptiest block has as many
    # as there are
    aligned = (strides % sizes == 0) | ((sizes % strides == 0) & (fewest[:-1] * strides == sizes))
    along = np.array(cluster.rings)[:, None] & (blocks[:-1] != blocks[1:])
    spacing = np.where(along, np.maximum(-(-strides // sizes), 1), 1)
    aligned = np.concatenate([aligned, aligned[-1:]])
    return Crossings(cluster.tiers, group_sizes, blocks, most, fewest, aligned, spacing)


def rectangle_crossings(parts: IntArray, cluster: Cluster) -> Crossings:
    """The same of groups with as many members in every block that holds any: ``parts`` (tiers, N)
    of each block per tier.

    A group has ``parts[0]`` devices in a block of the innermost tier, in ``parts[1]`` such blocks
    of the next one, and so on. Along a torus they are neighbours.
    """
    together = np.cumprod(parts, axis=0)
    sizes, ones = together[-1], np.ones_like(parts[:1])
    most = np.concatenate([ones, together])
    aligned, spacing = np.ones(most.shape, np.bool_), np.ones_like(parts)
    return Crossings(cluster.tiers, sizes, sizes // most, most, most, aligned, spacing)


def parts_of(
    sizes: IntArray,
    strides: IntArray,
    devices: IntArray,
    block_sizes: tuple[int, ...],
    rings: tuple[bool, ...] | None = None,
) -> IntArray:
    """``parts`` of groups of devices one stride apart, shape (tiers, N); 0 for those that blocks of
    some tier cut unevenly.

    So it is for those that are no neighbours along a dimension of a torus. ``block_sizes`` and
    ``rings`` are those of a cluster.

    Such groups start where other axes of a contiguous numbering of so many ``devices`` (N,) put
    them: at multiples of their size and stride, and as many devices behind as one stride has.
    """
    spans = sizes * strides
    before, parts = np.ones_like(sizes), np.empty((len(block_sizes), len(sizes)), np.int64)
    even = np.ones(sizes.shape, np.bool_)
    for row, block in enumerate(block_sizes[1:]):
        alone, whole = strides % block == 0, (block % spans == 0) | (devices <= block)
        filled = (block % strides == 0) & (spans % block == 0)
        even &= alone | whole | filled | (sizes == 1)
        inside = np.where(whole, sizes, np.where(alone, 1, np.maximum(block // strides, 1)))
        inside = np.where(sizes == 1, 1, inside)
        parts[row] = inside // before
        before = inside
    parts[-1] = sizes // before
    for row, ring in enumerate(rings or ()):
        if ring:
            even &= (parts[row] <= 1) | (strides <= block_sizes[row])
    return np.where(even, parts, 0)


def _members(
    group_sizes: IntArray, strides: IntArray, first: IntArray, size: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Of blocks of ``size`` devices: how many hold members of each group, the most and the fewest
    that one of them holds.

    Between the first and the last block of a group the numbers of members repeat after as many
    blocks as ``strides`` measures in greatest common divisors with ``size``.
    """
    within = first % size
    last = within + (group_sizes - 1) * strides
    blocks = np.where(strides >= size, group_sizes, last // size + 1)
    head = np.minimum(group_sizes, -(-(size - within) // strides))
    tail = np.minimum(group_sizes, last % size // strides + 1)
    most, fewest = np.maximum(head, tail), np.minimum(head, tail)
    between = np.where(strides >= size, 0, np.minimum(blocks - 2, strides // np.gcd(strides, size)))
    for block in range(1, int(between.max(initial=0)) + 1):
        seen = between >= block
        members = -((within - size * (block + 1)) // strides) + (within - size * block) // strides
        most = np.where(seen, np.maximum(most, members), most)
        fewest = np.where(seen, np.minimum(fewest, members), fewest)
    return blocks, most, fewest


def _inner_sizes(tiers: tuple[Tier, ...]) -> list[int]:
    return [1, *(tier.group_size for tier in tiers[:-1])]


def largest(values: FloatArray, among: BoolArray) -> FloatArray:
    """Largest over the tiers that ``among`` marks, at least one for each group; (tiers, N) or
    (tiers, 1) becomes (N,)."""
    most: FloatArray = np.where(among, values, 0.0).max(axis=0)
    return most


def log2_ceil(numbers: IntArray) -> IntArray:
    """Base-2 logarithms of positive numbers, rounded up, without the rounding of floating point;
    any shape."""
    exponents: IntArray = np.frexp(numbers - 1)[1].astype(np.int64)
    return exponents
