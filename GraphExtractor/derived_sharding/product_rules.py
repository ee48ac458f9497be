"""Which split the results of matrix products and of attention have."""

from dataclasses import dataclass

import torch
from torch.fx import Node

from GraphExtractor.derived_sharding.layout_rules import Seen
from GraphExtractor.derived_sharding.specs import (
    PARTIAL,
    REPLICATED,
    Demand,
    Obstacle,
    Result,
    Shard,
    Spec,
    shape_of,
)
from GraphExtractor.values import argument


@dataclass(frozen=True)
class Context:
    """What a rule knows besides the operator.

    ``seen`` is how the operator sees an operand; ``sliced`` the split of the tensor whose slice it
    differentiates, if it does; ``weights`` are nothing but parameters looked at, cast or copied.
    """

    seen: Seen
    backward: bool
    sliced: Result
    weights: frozenset[Node]


def whole(context: Context, *operands: Node) -> None:
    """Refuse split operands."""
    if any(isinstance(context.seen(operand), Shard) for operand in operands):
        raise Obstacle("needs a whole operand that is split")


def require(context: Context, operand: Node, shard: Shard) -> None:
    """Ask for ``operand`` to be split as ``shard`` unless it is."""
    if context.seen(operand) != shard:
        raise Demand(operand, shard)


def _contracted(node: Node, left: Node, right: Node, context: Context) -> Spec:
    """Sum over devices, in the forward pass only of products with a weight: Megatron's pairs."""
    if not context.backward and not {left, right} & context.weights:
        raise Obstacle("multiplies two activations over the split dimension")
    return PARTIAL


def _product(node: Node, left: Node, right: Node, context: Context) -> Spec:
    """(.., m, k) by (.., k, n)."""
    a, b = context.seen(left), context.seen(right)
    rank = len(shape_of(left))
    if isinstance(a, Shard) and a.dim == rank - 1:
        require(context, right, a.at(rank - 2))
        return _contracted(node, left, right, context)
    if isinstance(b, Shard) and b.dim == rank - 2:
        require(context, left, b.at(rank - 1))
        return _contracted(node, left, right, context)
    if rank == 3:
        for one, other in ((a, right), (b, left)):
            if isinstance(one, Shard) and one.dim == 0:
                require(context, other, one)
                return one
    if isinstance(a, Shard) and isinstance(b, Shard):
        raise Obstacle("multiplies operands that are split along different dimensions")
    return a if isinstance(a, Shard) else b


def plain_product(node: Node, context: Context) -> Result:
    """Mm and bmm."""
    return _product(node, node.args[0], node.args[1], context)


def grouped_product(node: Node, context: Context) -> Result:
    """Rows (row, k) by their group's (k, n), or in backward (k, row) by (row, n) of each group."""
    left, right = node.args[:2]
    a, b = context.seen(left), context.seen(right)
    ranks = len(shape_of(left)), len(shape_of(right))
    if ranks == (2, 3):
        if isinstance(a, Shard) and a.dim == 1:
            require(context, right, a.at(1))
            return _contracted(node, left, right, context)
        if isinstance(b, Shard) and b.dim == 1:
            require(context, left, b.at(1))
            return _contracted(node, left, right, context)
        if isinstance(b, Shard) and b.dim == 2 and not isinstance(a, Shard):
            return b.at(1)
    if ranks == (2, 2):
        if isinstance(a, Shard) and a.dim == 0 and not isinstance(b, Shard):
            return a.at(1)
        if isinstance(b, Shard) and b.dim == 1 and not isinstance(a, Shard):
            return b.at(2)
    raise Obstacle("splits the rows or the experts of a grouped product")


def biased_product(node: Node, context: Context) -> Result:
    """Addmm and baddbmm; of an addmm the product may be summed before the bias is added."""
    bias, left, right = node.args[:3]
    result = _product(node, left, right, context)
    if isinstance(result, Shard):
        dim = result.dim - len(shape_of(node)) + len(shape_of(bias))
        if dim >= 0 and shape_of(bias)[dim] != 1:
            require(context, bias, result.at(dim))
            return result
    late_bias = node.target is torch.ops.aten.addmm.default and not node.kwargs
    if result is PARTIAL and (context.backward or not late_bias):
        raise Obstacle("adds to a product over the split dimension")
    whole(context, bias)
    return REPLICATED if result is PARTIAL else result


def _heads(context: Context, q: Node, k: Node, v: Node) -> tuple[Shard, Spec]:
    """Split of the heads of queries and of keys and values; a single head serves all devices."""
    queries, keys = shape_of(q)[1], shape_of(k)[1]
    for operand, own, other in ((q, queries, keys), (k, keys, queries), (v, keys, queries)):
        spec = context.seen(operand)
        if not isinstance(spec, Shard):
            continue
        if spec.dim != 1:
            raise Obstacle("is split along something else than attention heads")
        if any(part * other % own for part in spec.parts):
            raise Obstacle("has heads that do not fall into groups")
        heads, shared = (
            Shard(1, tuple(part * count // own for part in spec.parts)) for count in (queries, keys)
        )
        require(context, q, heads)
        if keys == 1 < queries:
            return heads, REPLICATED
        require(context, k, shared)
        require(context, v, shared)
        return heads, shared
    raise Obstacle("is split along something else than attention heads")


def _of_heads(context: Context, given: Node | None, dim: int, heads: Shard) -> Spec:
    """Split of biases or sinks, which heads have along ``dim``; whole where they share them."""
    dim = len(shape_of(given)) + dim if given is not None and dim < 0 else dim
    if given is None or dim < 0 or (len(shape_of(given)) > 1 and shape_of(given)[dim] == 1):
        return REPLICATED
    require(context, given, heads.at(dim))
    return heads.at(dim)


def attention(node: Node, context: Context) -> Result:
    """Fused attention on (batch, head, sequence, width): heads are independent of each other."""
    heads, _ = _heads(context, *node.args[:3])
    _of_heads(context, argument(node, "bias"), -3, heads)
    _of_heads(context, argument(node, "sinks"), 0, heads)
    return heads.at(2), heads


def attention_backward(node: Node, context: Context) -> Result:
    """Gradients of queries, keys, values, bias and sinks; of what devices share partial ones."""
    gradient, q, k, v, out, statistic = node.args[:6]
    gradient_heads = context.seen(gradient)
    if isinstance(gradient_heads, Shard) and gradient_heads.dim == 2:
        require(context, q, gradient_heads.at(1))
    heads, shared = _heads(context, q, k, v)
    for operand, dim in ((gradient, 2), (out, 2), (statistic, 1)):
        require(context, operand, heads.at(dim))
    bias, sinks = argument(node, "bias"), argument(node, "sinks")
    of_bias = _of_heads(context, bias, -3, heads)
    of_bias = of_bias if bias is None or isinstance(of_bias, Shard) else PARTIAL
    keys = PARTIAL if shared is REPLICATED else shared
    return heads, keys, keys, of_bias, _of_heads(context, sinks, 0, heads)
