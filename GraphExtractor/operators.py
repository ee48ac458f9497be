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

from GraphExtractor.divided_norms import norm_work
from GraphExtractor.graph import (
    DTYPE_BYTES,
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Gemm,
    OperatorKind,
    VectorWork,
    Yields,
)
from GraphExtractor.linear_algebra import algebra_work
from GraphExtractor.linking import operator_nodes
from GraphExtractor.products import Work, product_work, received
from GraphExtractor.scan_work import scan_work
from GraphExtractor.sparse_rows import rows_read
from GraphExtractor.summa import received_panels, summa_work
from GraphExtractor.tracing import TracedStep
from GraphExtractor.values import Use, Value, ValueTable, operator_name
from GraphExtractor.vocabulary import VECTOR_FUNCTIONS

_COLLECTIVES = MappingProxyType(
    {kind.value: (kind, CollectiveGroup.TENSOR) for kind in CollectiveKind}
    | {
        f"{kind}_keys": (kind, CollectiveGroup.CONTEXT)
        for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
    }
    | {
        f"{kind}_rows": (kind, CollectiveGroup.TENSOR)
        for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
    }
    | {"all_to_all": (CollectiveKind.ALL_TO_ALL, CollectiveGroup.EXPERT)}
    | {
        f"{kind}_columns": (kind, CollectiveGroup.TENSOR)
        for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
    }
    | {
        f"all_to_all_{what}": (CollectiveKind.ALL_TO_ALL, CollectiveGroup.TENSOR2)
        for what in ("columns", "tokens")
    }
    | {
        f"all_to_all_{what}": (CollectiveKind.ALL_TO_ALL, CollectiveGroup.CONTEXT)
        for what in ("heads", "head_gradients", "outputs", "output_gradients")
    }
)


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
    window: int | None
    streamed: tuple[Collective, ...]
    uses: tuple[Use, ...]
    received: tuple[
        Use, ...
    ]  # of what it uses the parts that come from other devices while it runs
    outputs: tuple[Value, ...]
    forward: Node | None  # node of the forward operator it differentiates

    @property
    def adds_up_pieces(self) -> bool:
        """Whether its results are sums over devices that come about piece by piece, so that no
        epilogue sees them whole."""
        passing = self.backward and any(each.kind is CollectiveKind.PASS for each in self.streamed)
        return passing or any(each.kind is CollectiveKind.REDUCE for each in self.streamed)


def traced_operators(step: TracedStep, values: ValueTable) -> tuple[TracedOperator, ...]:
    """All operators of a ``linked`` step in execution order; names leave out the path of their
    layer's module."""
    nodes = operator_nodes(step)
    weight_gradients = _weight_gradient_makers(step, values, nodes)
    return tuple(_traced(node, step, values, weight_gradients) for node in nodes)


def _traced(
    node: Node, step: TracedStep, values: ValueTable, weight_gradients: frozenset[Node]
) -> TracedOperator:
    origin = step.origins[node]
    uses, outputs = values.uses(node), values.outputs(node)
    name = operator_name(node)
    if name in {
        "embedding",
        "index",
        "gather",
        "index_select",
        "gather_rows",
        "nll_loss_forward",
    }:  # touches some rows of its first operand
        touched = outputs[0].shape if name != "nll_loss_forward" else uses[-1].shape
        uses = (replace(uses[0], shape=touched), *uses[1:])
    if name == "bag":
        read = rows_read(uses[0].shape[0], node.args[1].meta["val"].numel())
        uses = (replace(uses[0], shape=(read, outputs[0].shape[-1])), *uses[1:])
    yields = Yields.OUTPUT
    if origin.backward and not origin.again:
        yields = Yields.WEIGHT_GRADIENT if node in weight_gradients else Yields.INPUT_GRADIENT
    work = _work(node, name, uses, outputs)
    return TracedOperator(
        node=node,
        name=_label(
            origin.module.removeprefix(step.places[origin.layer].path).removeprefix("."),
            name,
            work.kind,
            yields,
        ),
        layer=origin.layer,
        backward=origin.backward,
        core_attention=origin.core_attention,
        kind=work.kind,
        yields=yields,
        gemms=work.gemms,
        vector=work.vector,
        collective=work.collective,
        causal=work.causal or origin.causal,
        window=work.window,
        streamed=work.streamed,
        uses=uses,
        received=(*received(node, name, uses), *received_panels(node, name, uses)),
        outputs=outputs,
        forward=origin.forward,
    )


def _label(module: str, name: str, kind: OperatorKind, yields: Yields) -> str:
    """Module path and torch operator, the two gradients of a product told apart."""
    gradient = {Yields.INPUT_GRADIENT: ".dx", Yields.WEIGHT_GRADIENT: ".dw", Yields.OUTPUT: ""}[
        yields
    ]
    return (f"{module}." if module else "") + name + (gradient if kind is OperatorKind.GEMM else "")


def _work(node: Node, name: str, uses: tuple[Use, ...], outputs: tuple[Value, ...]) -> Work:
    product = (
        product_work(node, name, outputs)
        or scan_work(node, name)
        or summa_work(node, name)
        or norm_work(node, name)
    )
    product = product or algebra_work(node, name)
    if product is not None:
        return product
    if name in _COLLECTIVES:
        collective, group = _COLLECTIVES[name]
        sent = sum(use.elements * DTYPE_BYTES[use.value.dtype] for use in uses)
        devices = next(argument for argument in node.args if isinstance(argument, int))
        payload = max(sent, sum(value.bytes for value in outputs))
        return Work(
            OperatorKind.COLLECTIVE, collective=Collective(collective, payload, devices, group)
        )
    elements = max([value.elements for value in outputs] + [use.elements for use in uses])
    if name == "embedding_dense_backward":  # zero-fills the table's gradient, then adds the rows
        gradient = uses[0].elements
        return Work(
            OperatorKind.GATHER,
            (),
            (VectorWork("copy", outputs[0].elements), VectorWork("embedding_backward", gradient)),
        )
    if name in ("bag", "rows_gradient"):  # every lookup is added, however often its row is read
        added = node.args[1].meta["val"].numel() * outputs[0].shape[-1]
        return Work(
            OperatorKind.GATHER,
            (),
            (VectorWork("embedding" if name == "bag" else "embedding_backward", added),),
        )
    if name in VECTOR_FUNCTIONS:
        kind, function = VECTOR_FUNCTIONS[name]
        return Work(kind, (), (VectorWork(function, elements),))
    return _by_bytes(node, elements)


def _by_bytes(node: Node, elements: int) -> Work:
    """What nothing is known of besides its operands: it reads and writes them once, in a kernel of
    its own.

    Only what torch says works on each element by itself, draws or makes it, can be joined with
    others.
    """
    tags = node.target.tags
    pointwise = (
        torch.Tag.pointwise in tags
        or torch.Tag.nondeterministic_seeded in tags
        or not node.all_input_nodes
    )
    namespace, function = node.target._schema.name.split("::")
    function = operator_name(node) if namespace == "aten" else f"{namespace}.{function}"
    return Work(
        OperatorKind.ELEMENTWISE if pointwise else OperatorKind.REDUCTION,
        (),
        (VectorWork(function, elements),),
    )


def _weight_gradient_makers(
    step: TracedStep, values: ValueTable, nodes: Sequence[Node]
) -> frozenset[Node]:
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


def readers(operators: tuple[TracedOperator, ...]) -> Mapping[Value, tuple[TracedOperator, ...]]:
    """Operators reading each value, in execution order."""
    found: dict[Value, list[TracedOperator]] = {}
    for traced in operators:
        for value in dict.fromkeys(use.value for use in traced.uses):
            found.setdefault(value, []).append(traced)
    return {value: tuple(users) for value, users in found.items()}
