"""How a value lies on the devices of a tensor-parallel group, and what a reshape does to that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

import torch
from torch.fx import Node


class Whole(Enum):
    """A value of full shape on every device.

    Of a ``PARTIAL`` one the sum over the devices is still to be taken, of a ``MIXED`` one that of
    one of its two summands.
    """

    REPLICATED = auto()
    PARTIAL = auto()
    MIXED = auto()


@dataclass(frozen=True)
class Shard:
    """A value split along ``dim``: of each of the consecutive ``parts`` of that dimension a device
    holds an equal run.

    ``parts`` are sizes that add up to the dimension. Query, key and value packed in one product are
    three parts; so are, for n samples, the n times ``heads`` rows of a (samples · heads) dimension.
    """

    dim: int
    parts: tuple[int, ...]

    @property
    def granularity(self) -> int:
        """Number of devices the value can be split over is a divisor of this."""
        return math.gcd(*self.parts)

    def at(self, dim: int) -> Shard:
        """The same split of another dimension of equal size."""
        return Shard(dim, self.parts)


Spec = Shard | Whole
Result = Spec | tuple[Spec, ...]  # of an operator with one result, with several
REPLICATED, PARTIAL, MIXED = Whole


class Demand(Exception):  # noqa: N818 - a request, not an error
    """An operator could run on parts if ``operand`` were split as ``shard``."""

    def __init__(self, operand: Node, shard: Shard) -> None:
        super().__init__(operand, shard)
        self.operand, self.shard = operand, shard


class Obstacle(Exception):  # noqa: N818 - an answer, not an error
    """An operator cannot run on parts; it could if the dimension were packed of ``pieces`` > 1."""

    def __init__(self, reason: str, pieces: int = 1) -> None:
        super().__init__(reason)
        self.reason, self.pieces = reason, pieces


def shape_of(node: Node) -> tuple[int, ...]:
    """Shape of a node's tensor, of its first one if there are several; () for what is no tensor."""
    value = node.meta.get("val")
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def local_shape(shape: tuple[int, ...], spec: Spec, tp: int) -> list[int]:
    """Shape of one device's part of a value."""
    return [
        size // tp if isinstance(spec, Shard) and dim == spec.dim else size
        for dim, size in enumerate(shape)
    ]


def cut(parts: tuple[int, ...], positions: tuple[int, ...]) -> tuple[int, ...]:
    """The parts, cut further at the given positions of the dimension."""
    ends = {sum(parts[:index]) for index in range(len(parts) + 1)} | set(positions)
    return tuple(end - start for start, end in pairwise(sorted(ends)))


def between(parts: tuple[int, ...], start: int, end: int) -> tuple[int, ...]:
    """The parts that lie between two positions of the dimension; both must be borders of parts."""
    found, position = [], 0
    for part in parts:
        if start <= position < end:
            found.append(part)
        position += part
    return tuple(found)


def reshaped(shard: Shard, before: tuple[int, ...], after: tuple[int, ...]) -> Shard | None:
    """Split of a value after a reshape, None where no dimension of the new shape is split evenly.

    Dimensions that the reshape merges or splits are one flat run of elements, over which the parts
    repeat once for every step of the dimensions outside the split one. A new dimension is split if
    the parts repeat over it likewise; of several such the one that can be split most finely.
    """
    group = _regrouped(shard.dim, before, after)
    if group is None:
        return None
    old, new = group
    inner = math.prod(before[shard.dim + 1 : old.stop])
    flat = tuple(part * inner for part in shard.parts) * math.prod(before[old.start : shard.dim])
    found: list[Shard] = []
    for dim in new:
        repeats, rest = math.prod(after[new.start : dim]), math.prod(after[dim + 1 : new.stop])
        if len(flat) % repeats:
            continue
        once = flat[: len(flat) // repeats]
        fits = sum(once) == after[dim] * rest and once * repeats == flat
        if fits and all(part % rest == 0 for part in once):
            found.append(Shard(dim, tuple(part // rest for part in once)))
    return max(found, key=lambda each: each.granularity, default=None)


def _regrouped(
    dim: int, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[range, range] | None:
    """Smallest runs of old and new dimensions of equal size, the old one with ``dim`` in it."""
    old = new = 0
    while old < len(before) and new < len(after):
        old_end, new_end = old + 1, new + 1
        while (left := math.prod(before[old:old_end])) != (right := math.prod(after[new:new_end])):
            if left < right:
                old_end += 1
            else:
                new_end += 1
            if old_end > len(before) or new_end > len(after):
                return None
        if old <= dim < old_end:
            return range(old, old_end), range(new, new_end)
        old, new = old_end, new_end
    return None
