"""Traced nodes to operators: what each costs, what it touches, and which nodes are no work at all.

Views are contracted: an operator reading a transposed slice reads from the operator that made the data. Integer and scalar
bookkeeping (position ids, lengths, the initial gradient of the loss) moves no data worth pricing and is no operator either.

Vector functions are a closed vocabulary, priced by the Estimator: add sub mul div neg pow sqrt rsqrt exp log sin cos erf tanh
sigmoid silu gelu relu where compare copy cast dropout softmax log_softmax layer_norm rms_norm sum mean max embedding
scatter_add nll_loss cross_entropy, and ``<name>_backward`` of softmax log_softmax layer_norm rms_norm gelu relu silu tanh
sigmoid dropout nll_loss cross_entropy embedding. An unknown torch operator becomes element-wise work under its own name,
with a warning: nothing is silently free.
"""

from __future__ import annotations

import logging
import math
import operator as python_operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from torch.fx import Node

from GraphExtractor.graph import Collective, CollectiveKind, Gemm, OperatorKind, VectorWork, Yields
from GraphExtractor.tracing import TracedStep
from GraphExtractor.values import Use, Value, ValueTable, is_bookkeeping, is_view, operator_name

logger = logging.getLogger(__name__)


def _functions(kind: OperatorKind, names: str) -> dict[str, tuple[OperatorKind, str]]:
    pairs = (name.split(":") for name in names.split())
    return {pair[0]: (kind, pair[-1]) for pair in pairs}


# torch operator -> kind and vector function, written as torch_name[:function]
VECTOR_FUNCTIONS = MappingProxyType(
    _functions(
        OperatorKind.ELEMENTWISE,
        """add sub rsub:sub mul square:mul div reciprocal:div neg pow sqrt rsqrt exp log sin cos erf tanh sigmoid silu gelu relu
        where masked_fill:where tril:where triu:where clamp:where eq:compare ne:compare lt:compare le:compare gt:compare
        ge:compare logical_and:compare logical_or:compare logical_not:compare bitwise_and:compare maximum:compare
        minimum:compare _to_copy:cast native_dropout:dropout native_dropout_backward:dropout_backward gelu_backward
        silu_backward tanh_backward sigmoid_backward threshold_backward:relu_backward""",
    )
    | _functions(
        OperatorKind.MOVE,
        """clone:copy copy cat:copy stack:copy repeat:copy constant_pad_nd:copy slice_backward:copy select_backward:copy
        fill:copy zero:copy full:copy zeros:copy ones:copy full_like:copy zeros_like:copy ones_like:copy new_zeros:copy
        new_full:copy new_ones:copy""",
    )
    | _functions(
        OperatorKind.REDUCTION,
        """_softmax:softmax _safe_softmax:softmax _softmax_backward_data:softmax_backward _log_softmax:log_softmax
        _log_softmax_backward_data:log_softmax_backward native_layer_norm:layer_norm
        native_layer_norm_backward:layer_norm_backward rms_norm rms_norm_backward sum mean amax:max max cumsum:sum
        nll_loss_forward:nll_loss nll_loss_backward cross_entropy cross_entropy_backward""",
    )
    | _functions(
        OperatorKind.GATHER,
        """embedding index:embedding gather:embedding index_select:embedding embedding_dense_backward:embedding_backward
        index_put:scatter_add scatter_add index_add:scatter_add scatter:scatter_add""",
    )
)
_COLLECTIVES = MappingProxyType({kind.value: kind for kind in CollectiveKind})


@dataclass(frozen=True)
class TracedOperator:
    """One operator before fusion."""

    node: Node
    name: str
    layer: int
    backward: bool
    core_attention: bool
    kind: OperatorKind
    yields: Yields
    gemms: tuple[Gemm, ...]
    vector: tuple[VectorWork, ...]
    collective: Collective | None
    causal: bool
    uses: tuple[Use, ...]
    outputs: tuple[Value, ...]
    forward: Node | None  # node of the forward operator it differentiates


@dataclass(frozen=True)
class _Work:
    kind: OperatorKind
    gemms: tuple[Gemm, ...] = ()
    vector: tuple[VectorWork, ...] = ()
    collective: Collective | None = None
    causal: bool = False


def traced_operators(step: TracedStep, values: ValueTable) -> tuple[TracedOperator, ...]:
    """All operators of a traced step in execution order; names leave out the path of their layer's module."""
    nodes = [
        node
        for node in step.graph.nodes
        if node.op == "call_function"
        and node.target is not python_operator.getitem
        and not is_view(node)
        and not is_bookkeeping(node)
    ]
    real = frozenset(nodes)
    weight_gradients = _weight_gradient_makers(step, values, nodes)
    return tuple(_traced(node, step, values, real, weight_gradients) for node in nodes)


def _traced(
    node: Node, step: TracedStep, values: ValueTable, real: frozenset[Node], weight_gradients: frozenset[Node]
) -> TracedOperator:
    origin = step.origins[node]
    uses, outputs = values.uses(node), values.outputs(node)
    name = operator_name(node)
    if name in {"embedding", "index", "gather", "index_select", "nll_loss_forward"}:  # touches some rows of its first operand
        touched = outputs[0].shape if name != "nll_loss_forward" else uses[-1].shape
        uses = (replace(uses[0], shape=touched), *uses[1:])
    yields = Yields.OUTPUT
    if origin.backward and not origin.again:
        yields = Yields.WEIGHT_GRADIENT if node in weight_gradients else Yields.INPUT_GRADIENT
    work = _work(node, name, uses, outputs)
    return TracedOperator(
        node=node,
        name=_label(origin.module.removeprefix(step.places[origin.layer].path).removeprefix("."), name, work.kind, yields),
        layer=origin.layer,
        backward=origin.backward,
        core_attention=origin.core_attention,
        kind=work.kind,
        yields=yields,
        gemms=work.gemms,
        vector=work.vector,
        collective=work.collective,
        causal=work.causal or origin.causal,
        uses=uses,
        outputs=outputs,
        forward=_forward_operator(origin.forward, step, values, real) if origin.forward else None,
    )


def _label(module: str, name: str, kind: OperatorKind, yields: Yields) -> str:
    """Module path and torch operator, the two gradients of a product told apart."""
    gradient = {Yields.INPUT_GRADIENT: ".dx", Yields.WEIGHT_GRADIENT: ".dw", Yields.OUTPUT: ""}[yields]
    return (f"{module}." if module else "") + name + (gradient if kind is OperatorKind.GEMM else "")


def _work(node: Node, name: str, uses: tuple[Use, ...], outputs: tuple[Value, ...]) -> _Work:
    shapes = [tuple(argument.meta["val"].shape) for argument in node.args if isinstance(argument, Node)]
    if name in {"mm", "bmm"}:
        return _Work(OperatorKind.GEMM, (_gemm(shapes[0], node.meta["val"].shape),))
    if name in {"addmm", "baddbmm"}:
        return _Work(OperatorKind.GEMM, (_gemm(shapes[1], node.meta["val"].shape),), (VectorWork("add", outputs[0].elements),))
    if name == "attention":
        q, k, v, *bias = shapes
        return _attention(q, k, v, node.args[3], node.args[4], biased=bool(bias))
    if name == "attention_backward":
        _, q, k, v, _, _, *bias = shapes
        return _attention_backward(q, k, v, node.args[6], node.args[7], biased=bool(bias))
    if name in {"convolution", "convolution_backward"}:
        return _convolution(node, name, outputs)
    if name in _COLLECTIVES:
        full = max((*(use.value for use in uses), *outputs), key=lambda value: value.bytes)
        return _Work(OperatorKind.COLLECTIVE, collective=Collective(_COLLECTIVES[name], full.bytes, node.args[1]))
    elements = max([value.elements for value in outputs] + [use.elements for use in uses])
    if name == "embedding_dense_backward":  # zero-fills the table's gradient, then adds the rows
        gradient = uses[0].elements
        return _Work(
            OperatorKind.GATHER, (), (VectorWork("copy", outputs[0].elements), VectorWork("embedding_backward", gradient))
        )
    if name not in VECTOR_FUNCTIONS:
        logger.warning("torch operator %s is not known; priced as element-wise work on %d elements", name, elements)
    kind, function = VECTOR_FUNCTIONS.get(name, (OperatorKind.ELEMENTWISE, name))
    return _Work(kind, (), (VectorWork(function, elements),))


def _gemm(left: tuple[int, ...], result: tuple[int, ...]) -> Gemm:
    return Gemm(math.prod(result[:-2]), result[-2], left[-1], result[-1])


def _attention(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], causal: bool, dropout: float, *, biased: bool
) -> _Work:
    """Full s x s products even when causal, as Phaze's graphs and the FLOP formula of Korthikanti et al. 2022 have them."""
    batch, rows, columns, width, value_width = q[0] * q[1], q[2], k[2], q[3], v[3]
    scores = batch * rows * columns
    bias = (VectorWork("add", scores),) if biased else ()
    drop = (VectorWork("dropout", scores),) if dropout else ()
    gemms = (Gemm(batch, rows, width, columns), Gemm(batch, rows, columns, value_width))
    return _Work(OperatorKind.ATTENTION, gemms, (*bias, VectorWork("softmax", scores), *drop), causal=causal)


def _attention_backward(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], causal: bool, dropout: float, *, biased: bool
) -> _Work:
    """Five products: the scores again, dV, dP, dQ and dK (Dao et al. 2022, algorithm 4)."""
    batch, rows, columns, width, value_width = q[0] * q[1], q[2], k[2], q[3], v[3]
    scores, out = batch * rows * columns, batch * rows * value_width
    drop = (VectorWork("dropout", scores), VectorWork("dropout_backward", scores)) if dropout else ()
    gemms = (
        Gemm(batch, rows, width, columns),
        Gemm(batch, columns, rows, value_width),
        Gemm(batch, rows, value_width, columns),
        Gemm(batch, rows, columns, width),
        Gemm(batch, columns, rows, width),
    )
    row_sums = (VectorWork("mul", out), VectorWork("sum", out))
    bias = (VectorWork("add", scores),) if biased else ()
    softmax = (VectorWork("exp", scores), VectorWork("softmax_backward", scores))
    return _Work(OperatorKind.ATTENTION, gemms, (*row_sums, *bias, *softmax, *drop), causal=causal)


def _convolution(node: Node, name: str, outputs: tuple[Value, ...]) -> _Work:
    """GEMM of the im2col form; backward computes both gradients in one operator."""
    forward = name == "convolution"
    weight = node.args[1 if forward else 2].meta["val"].shape
    result = node.meta["val"].shape if forward else node.args[0].meta["val"].shape
    groups = node.args[8 if forward else 9]
    rows, inner, columns = result[0] * math.prod(result[2:]), math.prod(weight[1:]), weight[0] // groups
    if forward:
        bias = (VectorWork("add", outputs[0].elements),) if node.args[2] is not None else ()
        return _Work(OperatorKind.CONV, (Gemm(groups, rows, inner, columns),), bias)
    wanted = node.args[10]
    gemms = (Gemm(groups, rows, columns, inner),) * wanted[0] + (Gemm(groups, columns, rows, inner),) * wanted[1]
    bias = (VectorWork("sum", math.prod(result)),) if wanted[2] else ()
    return _Work(OperatorKind.CONV, gemms, bias)


def _weight_gradient_makers(step: TracedStep, values: ValueTable, nodes: list[Node]) -> frozenset[Node]:
    """Operators whose result is a parameter's gradient, or a summand of one."""
    gradients = {values[node] for node in step.gradients.values()}
    makers: set[Node] = set()
    for node in reversed(nodes):
        outputs = values.outputs(node)
        if step.origins[node].backward and outputs and all(value in gradients for value in outputs):
            makers.add(node)
            if operator_name(node) in {"add", "_to_copy", "clone"}:
                gradients.update(use.value for use in values.uses(node))
    return frozenset(makers)


def _forward_operator(node: Node, step: TracedStep, values: ValueTable, real: frozenset[Node]) -> Node | None:
    """Operator standing for a forward node: itself, the maker of what it views, or else the first reader of the view."""
    if node in real:
        return node
    layer = step.origins[node].layer
    maker = values[node].maker
    if maker in real and step.origins[maker].layer == layer:
        return maker
    pending = list(node.users)
    while pending:
        user = pending.pop(0)
        if user in real and not step.origins[user].backward and step.origins[user].layer == layer:
            return user
        if user.op == "call_function" and user not in real:
            pending.extend(user.users)
    return None


def readers(operators: tuple[TracedOperator, ...]) -> Mapping[Value, tuple[TracedOperator, ...]]:
    """Operators reading each value, in execution order."""
    found: dict[Value, list[TracedOperator]] = {}
    for traced in operators:
        for value in dict.fromkeys(use.value for use in traced.uses):
            found.setdefault(value, []).append(traced)
    return {value: tuple(users) for value, users in found.items()}
