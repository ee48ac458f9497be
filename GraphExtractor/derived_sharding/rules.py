"""Which split the results of an operator have, given those of its operands: a proof.

Every rule keeps the value: put together (or summed, where the result is partial), the parts of the
results are what the operator gives on whole operands. An operator without a rule needs whole
operands. A rule sees a partial operand as whole: it will be summed before, unless ``waiting_sum``
says that the sum may wait.
"""

import operator as python_operator
from collections.abc import Callable
from types import MappingProxyType

import torch
from torch.fx import Node

from GraphExtractor.derived_sharding.layout_rules import LAYOUT_RULES, Seen, slice_backward
from GraphExtractor.derived_sharding.product_rules import (
    Context,
    attention,
    attention_backward,
    biased_product,
    grouped_product,
    plain_product,
    require,
    whole,
)
from GraphExtractor.derived_sharding.specs import (
    MIXED,
    PARTIAL,
    REPLICATED,
    Obstacle,
    Result,
    Shard,
    Spec,
    shape_of,
)
from GraphExtractor.values import argument, operator_name


def names_in(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# element by element although torch does not tag them so (dropout draws another mask, with the same
# odds)
_POINTWISE = names_in(
    """_to_copy clone copy detach alias lift_fresh_copy native_dropout native_dropout_backward
    masked_fill where fill zero zeros_like ones_like full_like empty_like rand_like bernoulli
    gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward hardtanh_backward
    hardswish_backward elu_backward leaky_relu_backward softplus_backward mish_backward"""
)
REARRANGING = names_in("view _unsafe_view t transpose permute unsqueeze squeeze clone detach alias")
_ALONG = names_in(
    "_softmax _log_softmax _safe_softmax cumsum _softmax_backward_data _log_softmax_backward_data"
)
_REDUCTIONS = names_in(
    "sum mean amax amin max min argmax argmin var var_mean std all any prod logsumexp "
    "linalg_vector_norm"
)


def result_of(node: Node, context: Context) -> Result:
    """Split of an operator's results.

    Raises: Demand: an operand would have to be split, too. Obstacle: the operator cannot run on the
        parts it is given.
    """
    if node.target is python_operator.getitem:
        raise TypeError("an item of several results has no rule of its own")
    if not any(isinstance(context.seen(operand), Shard) for operand in node.all_input_nodes):
        return REPLICATED
    name = operator_name(node)
    if name == "slice_backward":
        return slice_backward(node, context.seen, context.sliced)
    if name in LAYOUT_RULES:
        return LAYOUT_RULES[name](node, context.seen)
    if name in _RULES:
        return _RULES[name](node, context)
    if name in _ALONG:
        return _along(node, context)
    if name in _REDUCTIONS:
        return _reduction(node, context)
    if name in _POINTWISE or torch.Tag.pointwise in node.target.tags:
        return _pointwise(node, context)
    raise Obstacle("has no rule for parts of its operands")


def waiting_sum(node: Node, spec_of: Callable[[Node], Spec]) -> Spec | None:
    """Result of an operator that rearranges or adds to a sum still to be taken, else None."""
    operands = node.all_input_nodes
    if node.target is python_operator.getitem or node.target._schema.is_mutable:
        return None
    name, specs = operator_name(node), {spec_of(operand) for operand in operands}
    if name in REARRANGING and specs == {PARTIAL}:
        return PARTIAL
    if name != "add" or len(operands) != 2 or argument(node, "alpha") != 1:
        return None
    shapes = {shape_of(each) for each in (node, *operands)}
    if len(shapes) > 1 or not specs & {PARTIAL, MIXED}:
        return None
    if any(isinstance(spec, Shard) for spec in specs):
        return None
    return PARTIAL if specs == {PARTIAL} else MIXED


def splits_product_from_bias(node: Node, seen: Seen) -> bool:
    """Whether the bias of an ``addmm`` may only be added once its product is summed."""
    if node.op != "call_function" or node.target is not torch.ops.aten.addmm.default:
        return False
    spec = seen(node.args[1])
    return isinstance(spec, Shard) and spec.dim == 1


def _aligned(context: Context, operands: list[Node], rank: int) -> Shard | None:
    """Common split of operands broadcast against each other, in a result of ``rank``."""
    found: Shard | None = None
    for operand in operands:
        spec = context.seen(operand)
        if not isinstance(spec, Shard):
            continue
        aligned = spec.at(spec.dim + rank - len(shape_of(operand)))
        if found is not None and aligned.dim != found.dim:
            raise Obstacle("combines operands that are split along different dimensions")
        if found is None or len(aligned.parts) > len(found.parts):
            found = aligned
    return found


def _pointwise(node: Node, context: Context) -> Result:
    shape = shape_of(node)
    operands = [operand for operand in node.all_input_nodes if shape_of(operand)]
    shard = _aligned(context, operands, len(shape))
    if shard is None:
        return REPLICATED
    for operand in operands:
        dim = shard.dim - len(shape) + len(shape_of(operand))
        if dim >= 0 and shape_of(operand)[dim] != 1:
            require(context, operand, shard.at(dim))
    results = node.meta["val"]
    return (shard,) * len(results) if isinstance(results, list | tuple) else shard


def _along(node: Node, context: Context) -> Result:
    result = _pointwise(node, context)
    shard = result[0] if isinstance(result, tuple) else result
    if isinstance(shard, Shard) and shard.dim == argument(node, "dim") % len(shape_of(node)):
        raise Obstacle("works along the split dimension")
    return result


def _triangle(node: Node, context: Context) -> Result:
    result = _pointwise(node, context)
    if isinstance(result, Shard) and result.dim >= len(shape_of(node)) - 2:
        raise Obstacle("masks positions of the split dimension")
    return result


def _reduction(node: Node, context: Context) -> Result:
    shard, shape = context.seen(node.args[0]), shape_of(node.args[0])
    whole(context, *node.all_input_nodes[1:])
    if not isinstance(shard, Shard):
        return REPLICATED
    declared = {each.name for each in node.target._schema.arguments}
    chosen = argument(node, "dim") if "dim" in declared else None
    chosen = [chosen] if isinstance(chosen, int) else chosen or range(len(shape))
    dims = {dim % len(shape) for dim in chosen}
    if shard.dim in dims:
        if operator_name(node) == "sum" and context.backward:
            return PARTIAL
        raise Obstacle("reduces the split dimension")
    keeps = "keepdim" in declared and argument(node, "keepdim")
    result = shard if keeps else shard.at(shard.dim - sum(dim < shard.dim for dim in dims))
    results = node.meta["val"]
    return (result,) * len(results) if isinstance(results, list | tuple) else result


def _norm(node: Node, context: Context) -> Result:
    """Normalises the last dimensions; weights are whole."""
    x = node.args[0]
    whole(context, *node.all_input_nodes[1:])
    shard = context.seen(x)
    if isinstance(shard, Shard) and shard.dim >= len(shape_of(x)) - _normalised(node):
        raise Obstacle("normalises the split dimension")
    assert not isinstance(shard, tuple)
    return (shard,) * len(node.meta["val"])


def _norm_backward(node: Node, context: Context) -> Result:
    named = {each.name: argument(node, each.name) for each in node.target._schema.arguments}
    gradient, x = node.args[:2]
    rank = len(shape_of(x))
    whole(context, *(named[name] for name in ("weight", "bias") if named.get(name) is not None))
    shard = _aligned(context, [gradient, x], rank)
    if shard is None or shard.dim >= rank - _normalised(node):
        raise Obstacle("normalises the split dimension")
    statistics = (named[name] for name in ("mean", "rstd", "statistic") if name in named)
    for operand in (gradient, x, *statistics):
        require(context, operand, shard)
    return shard, *((PARTIAL,) * (len(node.meta["val"]) - 1))


def _normalised(node: Node) -> int:
    """Number of dimensions a normalisation works over."""
    declared = {each.name for each in node.target._schema.arguments}
    return len(argument(node, "normalized_shape")) if "normalized_shape" in declared else 1


def _embedding(node: Node, context: Context) -> Result:
    whole(context, node.args[1])
    shard = context.seen(node.args[0])
    if not isinstance(shard, Shard) or shard.dim != 1:
        raise Obstacle("looks up rows of a table whose rows are split")
    return shard.at(len(shape_of(node)) - 1)


def _embedding_backward(node: Node, context: Context) -> Result:
    whole(context, node.args[1])
    shard = context.seen(node.args[0])
    if not isinstance(shard, Shard) or shard.dim != len(shape_of(node.args[0])) - 1:
        raise Obstacle("adds up rows that are split")
    return shard.at(1)


_RULES: MappingProxyType[str, Callable[[Node, Context], Result]] = MappingProxyType(
    {
        name: rule
        for names, rule in {
            "mm bmm": plain_product,
            "addmm baddbmm": biased_product,
            "tril triu": _triangle,
            "native_layer_norm rms_norm _fused_rms_norm": _norm,
            "native_layer_norm_backward rms_norm_backward _fused_rms_norm_backward": _norm_backward,
            "new_zeros new_full new_ones": lambda node, context: REPLICATED,
            "_grouped_mm": grouped_product,
            "attention": attention,
            "attention_backward": attention_backward,
            "embedding": _embedding,
            "embedding_dense_backward": _embedding_backward,
        }.items()
        for name in names.split()
    }
)
