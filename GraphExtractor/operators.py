"""Traced nodes to operators: what each costs, what it touches, and which nodes are no work at all.

Views are contracted: an operator reading a transposed slice reads from the operator that made the
data. Integer and scalar bookkeeping (position ids, lengths, the initial gradient of the loss) moves
no data worth pricing and is no operator either.

Matrix products are described in ``products``, decompositions and solvers in ``linear_algebra``,
vector work in ``vocabulary``. An unknown operator is priced by its bytes, under its own name, which
whoever prices it says: nothing is silently free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch.fx import Node

from GraphExtractor.divided_operators import norm_work, received_panels, summa_work
from GraphExtractor.graph import (
    DTYPE_BYTES,
    Collective,
    CollectiveGroup,
    CollectiveKind,
    OperatorKind,
    VectorWork,
    Yields,
)
from GraphExtractor.linear_algebra import algebra_work
from GraphExtractor.linking import operator_nodes
from GraphExtractor.products import Work, product_work, received, scan_work
from GraphExtractor.sparse_rows import rows_read
from GraphExtractor.tracing import TracedStep
from GraphExtractor.values import Use, Value, ValueTable, operator_name


def _functions(kind: OperatorKind, names: str) -> dict[str, tuple[OperatorKind, str]]:
    pairs = (name.split(":") for name in names.split())
    return {pair[0]: (kind, pair[-1]) for pair in pairs}


# torch operator -> kind and vector function, written as torch_name[:function]; what has no count of
# its own is priced as the function that does as much to an element
VECTOR_FUNCTIONS = MappingProxyType(
    _functions(
        OperatorKind.ELEMENTWISE,
        """add addcmul:mul addcdiv:div sub rsub:sub lerp:mul mul square:mul div reciprocal:div
        true_divide:div neg abs:neg sign:compare floor:cast ceil:cast round:cast trunc:cast pow sqrt
        rsqrt exp exp2:exp expm1:exp log log2:log log1p:log sin cos erf tanh sigmoid logit:sigmoid
        silu mish:tanh softplus:sigmoid log_sigmoid_forward:sigmoid elu:exp gelu relu
        leaky_relu:relu prelu:relu _prelu_kernel:relu hardtanh:relu hardsigmoid:relu hardswish:relu
        glu:sigmoid threshold:relu where masked_fill:where tril:where triu:where clamp:where
        clamp_min:where clamp_max:where eq:compare ne:compare lt:compare le:compare gt:compare
        ge:compare logical_and:compare logical_or:compare logical_not:compare logical_xor:compare
        bitwise_and:compare bitwise_or:compare bitwise_not:compare maximum:compare minimum:compare
        _to_copy:cast native_dropout:dropout bernoulli:dropout
        native_dropout_backward:dropout_backward gelu_backward silu_backward tanh_backward
        sigmoid_backward mish_backward:silu_backward softplus_backward:silu_backward
        log_sigmoid_backward:silu_backward elu_backward:exp glu_backward:silu_backward
        threshold_backward:relu_backward leaky_relu_backward:relu_backward
        _prelu_kernel_backward:relu_backward hardtanh_backward:relu_backward
        hardsigmoid_backward:relu_backward hardswish_backward:relu_backward mse_loss:mul
        mse_loss_backward:mul smooth_l1_loss:mul smooth_l1_loss_backward:mul huber_loss:mul
        huber_loss_backward:mul binary_cross_entropy:log binary_cross_entropy_backward:div
        binary_cross_entropy_with_logits:cross_entropy swiglu:silu swiglu_backward:silu_backward
        weighted_swiglu:silu weighted_swiglu_backward:silu_backward weighted_relu2:relu
        weighted_relu2_backward:relu_backward""",
    )
    | _functions(
        OperatorKind.MOVE,
        """clone:copy copy cat:copy stack:copy repeat:copy roll:copy flip:copy constant_pad_nd:copy
        reflection_pad2d:copy replication_pad2d:copy slice_backward:copy select_backward:copy
        slice_scatter:copy select_scatter:copy as_strided_scatter:copy fill:copy zero:copy full:copy
        zeros:copy ones:copy full_like:copy zeros_like:copy ones_like:copy new_zeros:copy
        new_full:copy new_ones:copy pixel_shuffle:copy pixel_unshuffle:copy upsample_nearest1d:copy
        upsample_nearest2d:copy im2col:copy unfold_backward:scatter_add col2im:scatter_add""",
    )
    | _functions(
        OperatorKind.REDUCTION,
        """_softmax:softmax _safe_softmax:softmax _softmax_backward_data:softmax_backward
        _log_softmax:log_softmax _log_softmax_backward_data:log_softmax_backward
        native_layer_norm:layer_norm native_layer_norm_backward:layer_norm_backward
        native_batch_norm:layer_norm _native_batch_norm_legit:layer_norm
        native_batch_norm_backward:layer_norm_backward native_group_norm:layer_norm
        native_group_norm_backward:layer_norm_backward rms_norm rms_norm_backward sum mean prod:mul
        amax:max amin:max max min:max topk:max sort:max cumsum:sum logsumexp:log_softmax
        var:layer_norm var_mean:layer_norm std:layer_norm linalg_vector_norm:mul norm:mul
        nll_loss_forward:nll_loss nll_loss_backward nll_loss2d_forward:nll_loss
        nll_loss2d_backward:nll_loss_backward cross_entropy cross_entropy_backward route:softmax
        route_backward:softmax_backward max_pool2d_with_indices:max avg_pool1d:sum avg_pool2d:sum
        avg_pool3d:sum _adaptive_avg_pool2d:sum avg_pool2d_backward:copy
        _adaptive_avg_pool2d_backward:copy upsample_nearest1d_backward:sum
        upsample_nearest2d_backward:sum upsample_bilinear2d:sum clamped_halves
        clamped_halves_backward expert_bias expert_bias_backward causal_conv causal_conv_backward
        chunk_scan chunk_scan_backward
        upsample_bilinear2d_backward:scatter_add""",
    )
    | _functions(
        OperatorKind.GATHER,
        """embedding index:embedding gather:embedding index_select:embedding
        embedding_dense_backward:embedding_backward index_put:scatter_add scatter_add
        index_add:scatter_add scatter:scatter_add gather_rows:embedding sum_rows:scatter_add
        sum_rows_backward:embedding histc:scatter_add
        max_pool2d_with_indices_backward:scatter_add""",
    )
)


_COLLECTIVES = MappingProxyType(
    {kind.value: (kind, CollectiveGroup.TENSOR) for kind in CollectiveKind}
    | {
        f"{kind}_{what}": (kind, group)
        for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
        for what, group in (
            ("keys", CollectiveGroup.CONTEXT),
            ("rows", CollectiveGroup.TENSOR),
            ("columns", CollectiveGroup.TENSOR),
        )
    }
    | {"all_to_all": (CollectiveKind.ALL_TO_ALL, CollectiveGroup.EXPERT)}
    | {
        f"all_to_all_{what}": (CollectiveKind.ALL_TO_ALL, group)
        for group, names in (
            (CollectiveGroup.TENSOR2, ("columns", "tokens")),
            (CollectiveGroup.CONTEXT, ("heads", "head_gradients", "outputs", "output_gradients")),
        )
        for what in names
    }
)
# operators that touch some rows of their first operand, as many as they make
_READS_ROWS = ("embedding", "index", "gather", "index_select", "gather_rows")


@dataclass(frozen=True, kw_only=True)
class TracedOperator(Work):
    """One operator before fusion; ``received`` are the parts of ``uses`` of other devices."""

    node: Node
    name: str
    layer: int
    backward: bool
    core_attention: bool
    yields: Yields
    uses: tuple[Use, ...]
    received: tuple[Use, ...]
    outputs: tuple[Value, ...]
    forward: Node | None  # node of the forward operator it differentiates

    @property
    def adds_up_pieces(self) -> bool:
        """Whether its results are summed over devices in pieces: no epilogue sees them whole."""
        kinds = {each.kind for each in self.streamed}
        return CollectiveKind.REDUCE in kinds or (self.backward and CollectiveKind.PASS in kinds)


def traced_operators(step: TracedStep, values: ValueTable) -> tuple[TracedOperator, ...]:
    """All operators of a ``linked`` step in execution order, named within their layer's module."""
    nodes = operator_nodes(step)
    weight_gradients = _weight_gradient_makers(step, values, nodes)
    return tuple(_traced(node, step, values, weight_gradients) for node in nodes)


def _traced(
    node: Node, step: TracedStep, values: ValueTable, weight_gradients: frozenset[Node]
) -> TracedOperator:
    origin = step.origins[node]
    uses, outputs = values.uses(node), values.outputs(node)
    name = operator_name(node)
    if name in _READS_ROWS:
        uses = (replace(uses[0], shape=outputs[0].shape), *uses[1:])
    elif name == "nll_loss_forward":
        uses = (replace(uses[0], shape=uses[-1].shape), *uses[1:])
    elif name == "bag":
        read = rows_read(uses[0].shape[0], node.args[1].meta["val"].numel())
        uses = (replace(uses[0], shape=(read, outputs[0].shape[-1])), *uses[1:])
    yields = Yields.OUTPUT
    if origin.backward and not origin.again:
        yields = Yields.WEIGHT_GRADIENT if node in weight_gradients else Yields.INPUT_GRADIENT
    work = _work(node, name, uses, outputs)
    module = origin.module.removeprefix(step.places[origin.layer].path).removeprefix(".")
    # the two gradients of a product are told apart
    suffix = _GRADIENTS.get(yields, "") if work.kind is OperatorKind.GEMM else ""
    return TracedOperator(
        **(vars(work) | {"causal": work.causal or origin.causal}),
        node=node,
        name=(f"{module}." if module else "") + name + suffix,
        layer=origin.layer,
        backward=origin.backward,
        core_attention=origin.core_attention,
        yields=yields,
        uses=uses,
        received=(*received(node, name, uses), *received_panels(node, name, uses)),
        outputs=outputs,
        forward=origin.forward,
    )


_GRADIENTS = {Yields.INPUT_GRADIENT: ".dx", Yields.WEIGHT_GRADIENT: ".dw"}


def _work(node: Node, name: str, uses: tuple[Use, ...], outputs: tuple[Value, ...]) -> Work:
    known = (
        product_work(node, name, outputs)
        or scan_work(node, name)
        or summa_work(node, name)
        or norm_work(node, name)
        or algebra_work(node, name)
    )
    if known is not None:
        return known
    if name in _COLLECTIVES:
        kind, group = _COLLECTIVES[name]
        sent = sum(use.elements * DTYPE_BYTES[use.value.dtype] for use in uses)
        devices = next(argument for argument in node.args if isinstance(argument, int))
        payload = max(sent, sum(value.bytes for value in outputs))
        collective = Collective(kind, payload, devices, group)
        return Work(OperatorKind.COLLECTIVE, collective=collective)
    elements = max([value.elements for value in outputs] + [use.elements for use in uses])
    if name == "embedding_dense_backward":  # zero-fills the table's gradient, then adds the rows
        zeros = VectorWork("copy", outputs[0].elements)
        added = VectorWork("embedding_backward", uses[0].elements)
        return Work(OperatorKind.GATHER, (), (zeros, added))
    if name in ("bag", "rows_gradient"):  # every lookup is added, however often its row is read
        numbers = node.args[1].meta["val"].numel() * outputs[0].shape[-1]
        function = "embedding" if name == "bag" else "embedding_backward"
        return Work(OperatorKind.GATHER, (), (VectorWork(function, numbers),))
    if name in VECTOR_FUNCTIONS:
        vector_kind, function = VECTOR_FUNCTIONS[name]
        return Work(vector_kind, (), (VectorWork(function, elements),))
    return _by_bytes(node, elements)


def _by_bytes(node: Node, elements: int) -> Work:
    """An unknown operator reads and writes its operands once, in a kernel of its own.

    Only what torch says works on each element by itself, draws or makes it, can be joined with
    others.
    """
    alone = {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded} & set(node.target.tags)
    kind = OperatorKind.ELEMENTWISE if alone or not node.all_input_nodes else OperatorKind.REDUCTION
    namespace, function = node.target._schema.name.split("::")
    function = operator_name(node) if namespace == "aten" else f"{namespace}.{function}"
    return Work(kind, (), (VectorWork(function, elements),))


def _weight_gradient_makers(
    step: TracedStep, values: ValueTable, nodes: Sequence[Node]
) -> frozenset[Node]:
    """Operators whose result is a parameter's gradient, or a summand of one."""
    gradients = {values[node] for node in step.gradients.values()}
    makers: set[Node] = set()
    for node in reversed(nodes):
        outputs = values.outputs(node) if step.origins[node].backward else ()
        if outputs and all(value in gradients for value in outputs):
            makers.add(node)
            if operator_name(node) in {"add", "_to_copy", "clone"}:
                gradients.update(use.value for use in values.uses(node))
    return frozenset(makers)


def readers(operators: tuple[TracedOperator, ...]) -> Mapping[Value, tuple[TracedOperator, ...]]:
    """Operators reading each value, in execution order."""
    found: dict[Value, list[TracedOperator]] = {}
    for traced in operators:
        for value in dict.fromkeys(use.value for use in traced.uses):
            found.setdefault(value, []).append(traced)
    return {value: tuple(users) for value, users in found.items()}
