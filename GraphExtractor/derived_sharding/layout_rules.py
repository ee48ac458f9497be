"""Which split the results of operators have that only look at, cut or join their operands."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import MappingProxyType

from torch.fx import Node

from GraphExtractor.derived_sharding.specs import (
    REPLICATED,
    Demand,
    Obstacle,
    Result,
    Shard,
    Spec,
    between,
    cut,
    reshaped,
    shape_of,
)
from GraphExtractor.values import argument, operator_name

Seen = Callable[[Node], Spec]  # how an operator sees an operand: split, or whole


Split = Callable[[Node, Shard, tuple[int, ...]], Result]  # of a node, its operand's split and shape


def _of_operand(rule: Split) -> Callable[[Node, Seen], Result]:
    """A rule of an operator with one operand, whose result is whole where the operand is."""

    def split(node: Node, seen: Seen) -> Result:
        shard = seen(node.args[0])
        return rule(node, shard, shape_of(node.args[0])) if isinstance(shard, Shard) else REPLICATED

    return split


def _reshape(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    after = reshaped(shard, shape, shape_of(node))
    if after is None:
        raise Obstacle(
            f"reshapes {shape} to {shape_of(node)}, which mixes the parts of dimension {shard.dim}"
        )
    return after


def _permutation(node: Node) -> list[int]:
    """Dimensions of the operand in the order in which the result has them."""
    rank, name = len(shape_of(node)), operator_name(node)
    order = list(range(rank))
    if name == "permute":
        return [dim % rank for dim in node.args[1]]
    first, second = (0, 1) if name == "t" else (node.args[1] % rank, node.args[2] % rank)
    if rank > 1:
        order[first], order[second] = order[second], order[first]
    return order


def _permute(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    return shard.at(_permutation(node).index(shard.dim))


def _unsqueeze(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    return shard.at(shard.dim + (node.args[1] % (len(shape) + 1) <= shard.dim))


def _squeeze(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    if len(node.args) == 1:
        raise Obstacle("squeezes every dimension of size one, which a part may have more of")
    given = [node.args[1]] if isinstance(node.args[1], int) else node.args[1]
    dims = {dim % len(shape) for dim in given}
    return shard.at(shard.dim - sum(dim in dims and shape[dim] == 1 for dim in range(shard.dim)))


def _widen(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    """Expand and repeat: new dimensions in front, the split one as it was."""
    dim = shard.dim + len(shape_of(node)) - len(shape)
    if shape_of(node)[dim] != shape[shard.dim]:
        raise Obstacle("repeats the split dimension")
    return shard.at(dim)


def _select(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    dim = (node.args[1] if len(node.args) > 1 else 0) % len(shape)
    if dim == shard.dim:
        raise Obstacle("picks single positions of the split dimension", pieces=shape[dim])
    result = shard.at(shard.dim - (dim < shard.dim))
    return (result,) * shape[dim] if operator_name(node) == "unbind" else result


def _cut_operand(node: Node, shard: Shard, positions: Sequence[int]) -> None:
    """See that the operand's parts are cut where the operator cuts."""
    finer = Shard(shard.dim, cut(shard.parts, tuple(positions)))
    if finer.granularity == 1:
        raise Obstacle(
            f"cuts the split dimension at {', '.join(map(str, positions))}", pieces=len(positions)
        )
    if finer != shard:
        raise Demand(node.args[0], finer)


def slice_range(node: Node, size: int) -> tuple[int, int]:
    """Positions from and to which a slice (or its gradient) goes, of a dimension of ``size``."""
    start, end = argument(node, "start") or 0, argument(node, "end")
    start = max(start + size, 0) if start < 0 else min(start, size)
    end = size if end is None else max(end + size, 0) if end < 0 else min(end, size)
    return start, max(start, end)


def _slice(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    if argument(node, "dim") % len(shape) != shard.dim:
        return shard
    start, end = slice_range(node, shape[shard.dim])
    if argument(node, "step") != 1:
        raise Obstacle("steps over positions of the split dimension")
    _cut_operand(node, shard, (start, end))
    return Shard(shard.dim, between(shard.parts, start, end))


def piece_sizes(node: Node) -> list[int]:
    """Sizes of the pieces a split makes, along the dimension it cuts."""
    shape = shape_of(node.args[0])
    size = shape[argument(node, "dim") % len(shape)]
    if operator_name(node) == "split_with_sizes":
        return list(node.args[1])
    return [min(node.args[1], size - start) for start in range(0, size, node.args[1])]


def _split(node: Node, seen: Seen) -> Result:
    shard, shape = seen(node.args[0]), shape_of(node.args[0])
    sizes = piece_sizes(node)
    if not isinstance(shard, Shard):
        return (REPLICATED,) * len(sizes)
    if argument(node, "dim") % len(shape) != shard.dim:
        return (shard,) * len(sizes)
    ends = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
    _cut_operand(node, shard, ends[:-1])
    return tuple(Shard(shard.dim, between(shard.parts, a, b)) for a, b in pairwise(ends))


def _join(node: Node, seen: Seen) -> Result:
    """Concatenate and stack."""
    operands = node.args[0]
    splits = [spec for spec in map(seen, operands) if isinstance(spec, Shard)]
    if not splits:
        return REPLICATED
    rank = len(shape_of(operands[0]))
    along = splits[0].dim
    stacked = operator_name(node) == "stack"
    dim = (node.args[1] if len(node.args) > 1 else 0) % (rank + stacked)
    joined: list[int] = []
    for operand in operands:
        required, current = splits[0], seen(operand)
        if not stacked and dim == along:
            required = Shard(along, (shape_of(operand)[along],))
            if isinstance(current, Shard) and current.dim == along:
                required = current
            joined += required.parts
        if current != required:
            raise Demand(operand, required)
    if stacked:
        return splits[0].at(along + (dim <= along))
    return Shard(along, tuple(joined)) if dim == along else splits[0]


def _pad(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    if shape_of(node)[shard.dim] != shape[shard.dim]:
        raise Obstacle("pads the split dimension")
    return shard


def _along_dims(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    """Flip and roll: positions change along some dimensions."""
    dims = argument(node, "dims") or range(len(shape))
    if shard.dim in {dim % len(shape) for dim in ([dims] if isinstance(dims, int) else dims)}:
        raise Obstacle("moves positions of the split dimension")
    return shard


def _empty(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    """Memory like an operand's is split like it; what else is made beside an operand is whole."""
    return REPLICATED if shape_of(node) != shape else shard


def _select_backward(node: Node, shard: Shard, shape: tuple[int, ...]) -> Result:
    return shard.at(shard.dim + (argument(node, "dim") % len(shape_of(node)) <= shard.dim))


def slice_backward(node: Node, seen: Seen, sliced: Result) -> Result:
    """The gradient of a slice; along the split dimension it is split as the tensor ``sliced``."""
    shard, shape = seen(node.args[0]), shape_of(node)
    if not isinstance(shard, Shard) or argument(node, "dim") % len(shape) != shard.dim:
        return shard if isinstance(shard, Shard) else REPLICATED
    start, end = slice_range(node, shape[shard.dim])
    parts = cut(sliced.parts, (start, end)) if isinstance(sliced, Shard) else ()
    if between(parts, start, end) != shard.parts:
        raise Obstacle("puts a split gradient into a tensor that is not split alike")
    return sliced


LAYOUT_RULES = MappingProxyType(
    {
        name: _of_operand(rule)
        for names, rule in {
            "view _unsafe_view reshape _reshape_alias": _reshape,
            "t transpose permute": _permute,
            "expand repeat": _widen,
            "select unbind": _select,
            "flip roll": _along_dims,
            "new_empty new_empty_strided": _empty,
            "unsqueeze": _unsqueeze,
            "squeeze": _squeeze,
            "slice": _slice,
            "constant_pad_nd": _pad,
            "select_backward": _select_backward,
        }.items()
        for name in names.split()
    }
    | dict.fromkeys(("split", "split_with_sizes"), _split)
    | dict.fromkeys(("cat", "stack"), _join)
)
