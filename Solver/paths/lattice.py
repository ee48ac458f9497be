"""The sets of layers that the last stages of a pipeline can hold where the layer graph branches,
and the stages between them.

A plan is a chain of sets, each closed under successors and within the one before it; a stage is
what one set has and the next one lacks. n layers in a chain have n + 1 such sets, parallel branches
multiply their numbers. While the stages are few, all are kept and the placement is exact. Beyond
that only some sets are: those after which every branch is cut between runs of ``length`` layers,
and the suffixes of the execution order. Any plan made of them is a plan of the whole problem, so
what is lost is optimality alone; ``relaxation`` bounds by how much.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from Estimator.compiled import borrowing_outer
from phaze_common.array_types import BoolArray, IntArray
from Solver.paths.layer_graph import Edge, edges_between_groups, is_chain, runs

MOST_SETS = 4_000
MOST_STAGES = 60_000  # 0.4 ms for the bound of each accelerator and recomputation mode


@dataclass(frozen=True, eq=False)
class Lattice:
    """Sets of layers, small to large: set 0 is empty, the last one holds all layers.

    ``members`` (sets, layers) says what is in each. ``part[first[s] : first[s + 1]]`` are the
    smaller sets within set s: what they leave of it is a stage. ``omitted`` tells which sets were
    left out and is empty where none was.
    """

    members: BoolArray
    first: IntArray
    part: IntArray
    omitted: str
    chain: bool = False  # whether every set holds the ones before it

    @property
    def whole(self) -> IntArray:
        """The larger set of every stage, as ``part`` is the smaller one."""
        return np.repeat(np.arange(len(self.members)), np.diff(self.first))


@lru_cache(maxsize=16)  # a search asks for the same few models again and again
def lattice_of(layers: int, edges: tuple[Edge, ...]) -> Lattice:
    """All sets of the layers joined by these (producer, consumer) ``edges``, or as many as are
    dealt with."""
    if is_chain(layers, edges):
        return _chain(layers)
    every = _within_limits(layers, [1 << layer for layer in range(layers)], edges)
    if every is not None:
        return every
    too_many = f"the {layers} layers branch into more than {MOST_STAGES:,} possible stages"
    suffixes = [(1 << layers) - (1 << start) for start in range(layers + 1)]
    found = runs(layers, edges)
    for length in range(2, max(map(len, found)) + 1):
        parts = [run[at : at + length] for run in found for at in range(0, len(run), length)]
        groups = [sum(1 << layer for layer in part) for part in parts]
        omitted = (
            f"{too_many}; considered were those that cut the execution order anywhere or the "
            f"branches between runs of {length} layers"
        )
        between = edges_between_groups(groups, edges)
        some = _within_limits(layers, groups, between, suffixes, omitted)
        if some is not None:
            return some
    step = 1
    while True:  # ends: with one step over all layers there is one stage
        where = "anywhere" if step == 1 else f"after every {step} layers"
        omitted = f"{too_many}; considered were those that cut the execution order {where}"
        few = _with_stages(_as_members([0, *reversed(suffixes[:-1:step])], layers), omitted)
        if few is not None:
            return few
        step += 1


def _chain(layers: int) -> Lattice:
    """The suffixes of a chain: set s holds the last s layers, and every smaller one is within
    it."""
    members = np.arange(layers)[None, :] >= layers - np.arange(layers + 1)[:, None]
    sizes = np.arange(layers + 1)
    first = np.concatenate([[0], np.cumsum(sizes)])
    part = np.concatenate([np.arange(size) for size in sizes]) if layers else np.empty(0, np.int64)
    return Lattice(members, first, part, "", chain=True)


def _within_limits(
    layers: int,
    groups: Sequence[int],
    edges: Sequence[Edge],
    besides: Sequence[int] = (),
    omitted: str = "",
) -> Lattice | None:
    """The sets that ``groups`` of layers (as bits, joined by ``edges``) form, and ``besides``; None
    if they are too many."""
    sets = set(besides)
    for found in _closed_sets(groups, edges):
        sets.add(found)
        if len(sets) > MOST_SETS:
            return None
    by_size = sorted(sets, key=lambda each: (each.bit_count(), each))
    return _with_stages(_as_members(by_size, layers), omitted)


def _closed_sets(groups: Sequence[int], edges: Sequence[Edge]) -> Iterator[int]:
    """Unions of groups closed under successors, as bits of layers."""
    following = [0] * len(groups)
    for source, destination in edges:
        following[source] |= 1 << destination
    seen, queue = {0}, [(0, 0)]
    for of_groups, of_layers in queue:  # grows while it is read
        yield of_layers
        for group, layers in enumerate(groups):
            grown = of_groups | 1 << group
            if grown not in seen and following[group] & ~of_groups == 0:
                seen.add(grown)
                queue.append((grown, of_layers | layers))


def _as_members(sets: Sequence[int], layers: int) -> BoolArray:
    return np.array([[bool(each >> layer & 1) for layer in range(layers)] for each in sets])


def _with_stages(members: BoolArray, omitted: str) -> Lattice | None:
    """Find the pairs of sets within each other; None if they are too many. The sets grow in
    size."""
    packed = np.packbits(members, axis=1, bitorder="little")
    padded = np.zeros((len(members), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    words = padded.view(np.uint64)
    first, part = np.zeros(len(members) + 1, np.int64), np.empty(MOST_STAGES, np.int64)
    count = _pairs_within(words, first, part)
    return Lattice(members, first, part[:count].copy(), omitted) if count <= MOST_STAGES else None


@borrowing_outer
def _pairs_within(words: NDArray[np.uint64], first: IntArray, part: IntArray) -> int:
    """Fill ``first`` and ``part`` as of a ``Lattice`` and return the number of pairs; one too many
    as soon as there are."""
    count = 0
    for whole in range(len(words)):
        for smaller in range(whole):
            within = True
            for word in range(words.shape[1]):
                if words[smaller, word] & ~words[whole, word]:
                    within = False
                    break
            if within:
                if count == len(part):
                    return count + 1
                part[count] = smaller
                count += 1
        first[whole + 1] = count
    return count
