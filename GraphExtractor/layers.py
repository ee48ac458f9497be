"""From traced operators to layer graphs: fused DAGs per layer and pass, tensors between layers,
structural hashes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from GraphExtractor.fusion import Group, Readers, fuse
from GraphExtractor.graph import (
    CollectiveGroup,
    LayerGraph,
    LayerTensor,
    Operator,
    OperatorGraph,
    OperatorKind,
    Phase,
    SparseTable,
    Yields,
)
from GraphExtractor.linking import linked
from GraphExtractor.model_work import model_shares
from GraphExtractor.operators import TracedOperator, readers, traced_operators
from GraphExtractor.saved import (
    Kept,
    Shared,
    keeping,
    less_in_fp8,
    less_joined,
    peak_temporaries,
    shared,
)
from GraphExtractor.segments import LayerPlace
from GraphExtractor.tracing import TracedStep
from GraphExtractor.two_axes import looks_up_tokens_of_all
from GraphExtractor.values import Source, Value, ValueTable, operator_name


@dataclass(frozen=True)
class TracedLayers:
    """All layers of a traced step, in order, the tensors between them and what several keep
    (positions are of the trace)."""

    places: tuple[LayerPlace, ...]
    layers: tuple[LayerGraph, ...]
    tensors: tuple[LayerTensor, ...]
    shared: tuple[Shared, ...]


def layers_of(step: TracedStep) -> TracedLayers:
    """Build the layer graphs of a traced step.

    Raises:
        PhazeError: a backward operator belongs to no forward operator.
    """
    step = linked(step)
    values = ValueTable(step)
    operators = traced_operators(step, values)
    users = readers(operators)
    results = frozenset(values[node] for node in step.gradients.values())
    kept = keeping(operators, users, step.layer_count)
    owners = _parameter_owners(operators, step, values)
    tables = _sparse_tables(step, values)
    hashes = _structural_hashes(step)
    shares = model_shares(step.graph, step.parameters, step.division)
    layers = tuple(
        _layer(
            layer,
            step,
            tuple(traced for traced in operators if traced.layer == layer),
            users,
            results,
            kept[layer],
            owners,
            tables,
            hashes,
            shares,
        )
        for layer in range(step.layer_count)
    )
    return TracedLayers(
        step.places, layers, _tensors(operators, users), shared(operators, users, kept)
    )


def _layer(
    layer: int,
    step: TracedStep,
    operators: tuple[TracedOperator, ...],
    users: Readers,
    results: frozenset[Value],
    kept: Kept,
    owners: Mapping[Value, int],
    tables: Mapping[Value, SparseTable],
    hashes: Mapping[int, str],
    shares: Mapping[Node, float],
) -> LayerGraph:
    passes = [
        fuse(tuple(traced for traced in operators if traced.backward == backward), users)
        for backward in (False, True)
    ]
    single = [
        tuple(Group((traced,)) for traced in operators if traced.backward == backward)
        for backward in (False, True)
    ]
    builder = GraphBuilder(users, results, passes[0], shares)
    forward = builder.graph(passes[0])
    backward = builder.graph(passes[1])
    parameters = {
        use.value
        for traced in operators
        for use in traced.uses
        if use.value.source is Source.PARAMETER
        and step.parameters[use.value.node] in step.gradients
    }
    parameters |= {
        value for value, first in owners.items() if value.elements == 1 and first == layer
    }
    multiplied = {
        use.value
        for traced in operators
        if traced.kind in (OperatorKind.GEMM, OperatorKind.CONV) and not traced.backward
        for use in traced.uses
        if use.value in parameters and len(use.value.shape) > 1
    }
    # a batch of weights, each multiplied with some of the tokens; convolutions have kernels of
    # three axes too
    of_experts = {
        use.value
        for traced in operators
        if traced.kind is OperatorKind.GEMM and not traced.backward
        for use in traced.uses
        if use.value in multiplied and len(use.value.shape) == 3
    }
    twice_divided = {
        use.value
        for traced in operators
        if any(each.group is CollectiveGroup.TENSOR2 for each in traced.streamed)
        or looks_up_tokens_of_all(traced.node)
        for use in traced.uses
        if use.value in parameters
    }
    weight_gradients = {
        value
        for traced in operators
        if traced.yields is Yields.WEIGHT_GRADIENT
        for value in traced.outputs
    }
    weight_gradients |= results
    return LayerGraph(
        name=step.places[layer].name,
        forward=forward,
        backward=backward,
        backward_selective=builder.selective(passes[1], backward, kept.none - kept.selective),
        parameter_count=sum(value.elements for value in parameters),
        matmul_parameter_count=sum(value.elements for value in multiplied - of_experts),
        expert_parameter_count=sum(value.elements for value in of_experts),
        tied_count=sum(value.elements for value in parameters if owners[value] < layer),
        saved=replace(
            kept.bytes(),
            less_in_fp8=less_in_fp8(layer, kept, users),
            less_joined=less_joined(layer, kept, operators, users),
        ),
        workspace_bytes=max(
            peak_temporaries(groups, users, kept.none | weight_gradients) for groups in passes
        ),
        structural_hash=hashes.get(layer, ""),
        twice_divided_count=sum(value.elements for value in twice_divided),
        sparse_tables=tuple(table for value, table in tables.items() if value in parameters),
        single_workspace_bytes=max(
            peak_temporaries(groups, users, kept.none | weight_gradients) for groups in single
        ),
    )


class GraphBuilder:
    """Numbers the groups of one layer, forward first, and turns them into operator graphs."""

    def __init__(
        self,
        users: Readers,
        results: frozenset[Value],
        forward: tuple[Group, ...],
        shares: Mapping[Node, float] = MappingProxyType({}),
    ) -> None:
        self.users = users
        self.shares = shares
        self.results = results
        self.forward = forward
        self.ids: dict[Node, int] = {}
        self.next_id = 0

    def graph(self, groups: tuple[Group, ...]) -> OperatorGraph:
        """Operators and edges of one pass; call for the forward pass first."""
        for group in groups:
            self.ids.update((member.node, self.next_id) for member in group.members)
            self.next_id += 1
        return OperatorGraph(
            tuple(self._operator(group) for group in groups), self._edges(groups, groups)
        )

    def selective(
        self, groups: tuple[Group, ...], backward: OperatorGraph, dropped: frozenset[Value]
    ) -> OperatorGraph:
        """Backward pass preceded by the core-attention operators, feeding the readers of what was
        ``dropped``.

        What they read of what was gathered is the backward pass's own, gathered again. What a
        checkpoint of the model's own runs again anyway is there already.
        """
        made_again = {group.head.forward for group in groups if group.head.yields is Yields.OUTPUT}
        core = tuple(
            group
            for group in self.forward
            if group.head.core_attention and group.head.node not in made_again
        )
        if not core:
            return backward
        again = tuple(self._operator(group) for group in core)
        makers = {member.node: group for group in self.forward for member in group.members}
        gathered = {
            (self.ids[group.head.node], reader)
            for group in groups
            if group.head.yields is Yields.OUTPUT and group.head.forward in makers
            for _, reader in self._edges((makers[group.head.forward],), core)
        }
        edges = (
            *self._edges(core, core),
            *self._edges(core, groups, dropped),
            *sorted(gathered),
            *backward.edges,
        )
        return OperatorGraph((*again, *backward.operators), edges)

    def _operator(self, group: Group) -> Operator:
        head = group.head
        tail = "".join(
            f"+{work.function}"
            for member in group.members
            if member is not head
            for work in member.vector
        )
        forward_id = None
        if head.backward:
            assert head.forward is not None  # a linked step
            forward_id = self.ids[head.forward]
        return Operator(
            id=self.ids[head.node],
            name=head.name + tail,
            kind=head.kind,
            phase=Phase.BACKWARD if head.backward else Phase.FORWARD,
            yields=head.yields,
            gemms=head.gemms,
            vector=tuple(work for member in group.members for work in member.vector),
            reads=group.reads(),
            writes=group.writes(self.users, self.results),
            collective=head.collective,
            forward_id=forward_id,
            core_attention=head.core_attention,
            causal=head.causal,
            window=head.window,
            streamed=head.streamed,
            model_share=self.shares.get(head.node, 1.0)
            if head.yields is Yields.OUTPUT and _multiplies(head)
            else 1.0,
        )

    def _edges(
        self,
        makers: tuple[Group, ...],
        consumers: tuple[Group, ...],
        only: frozenset[Value] | None = None,
    ) -> tuple[tuple[int, int], ...]:
        inside = {member.node for group in consumers for member in group.members}
        found = {
            (self.ids[member.node], self.ids[user.node])
            for group in makers
            for member in group.members
            for value in member.outputs
            if only is None or value in only
            for user in self.users.get(value, ())
            if user.node in inside
        }
        return tuple(sorted(edge for edge in found if edge[0] != edge[1]))


def _multiplies(traced: TracedOperator) -> bool:
    return bool(traced.gemms) or any(work.macs for work in traced.vector)


def _parameter_owners(
    operators: tuple[TracedOperator, ...], step: TracedStep, values: ValueTable
) -> dict[Value, int]:
    """First layer reading each parameter; of one element also where that is too little work to be
    an operator."""
    owners: dict[Value, int] = {}
    for parameter, name in step.parameters.items():
        value = values[parameter]
        layers = [step.origins[user].layer for user in parameter.users if user in step.origins]
        if value.elements == 1 and name in step.gradients and layers:
            owners[value] = min(layers)
    for traced in operators:
        for use in traced.uses:
            if use.value.source is Source.PARAMETER:
                owners[use.value] = min(traced.layer, owners.get(use.value, step.layer_count))
    return owners


def _sparse_tables(step: TracedStep, values: ValueTable) -> dict[Value, SparseTable]:
    """Parameters whose gradient holds the rows that were read, and no others."""
    tables = {}
    for node, name in step.parameters.items():
        gradient = values[step.gradients[name]] if name in step.gradients else None
        if (
            gradient is not None
            and gradient.maker is not None
            and operator_name(gradient.maker) == "rows_gradient"
        ):
            rows, width = values[node].shape
            tables[values[node]] = SparseTable(rows, width, gradient.shape[0])
    return tables


def _tensors(operators: tuple[TracedOperator, ...], users: Readers) -> tuple[LayerTensor, ...]:
    """Activations made in one layer and read in the forward pass of later ones, with the gradients
    flowing back.

    Whatever a trained parameter had a part in has a gradient of its size, however the gradient is
    put together.
    """
    trained: set[Value] = set()
    for traced in operators:
        if not traced.backward and any(
            use.value.source is Source.PARAMETER or use.value in trained for use in traced.uses
        ):
            trained.update(
                value
                for value in traced.outputs
                if value.dtype.startswith(("float", "bfloat", "complex"))
            )
    tensors = []
    for traced in operators:
        for value in traced.outputs if not traced.backward else ():
            layers = sorted(
                {
                    user.layer
                    for user in users.get(value, ())
                    if not user.backward and user.layer > traced.layer
                }
            )
            if layers:
                gradient_bytes = value.bytes if value in trained else 0
                tensors.append(
                    LayerTensor(traced.layer, tuple(layers), value.bytes, gradient_bytes)
                )
    return tuple(tensors)


def _structural_hashes(step: TracedStep) -> dict[int, str]:
    """Hash of each layer's traced nodes: operations, module paths within the layer, wiring, shapes
    and dtypes."""
    nodes: dict[int, list[Node]] = {}
    for node, origin in sorted(step.origins.items()):
        nodes.setdefault(origin.layer, []).append(node)
    hashes = {}
    for layer, members in nodes.items():
        index = {node: position for position, node in enumerate(members)}
        digest = hashlib.blake2b(digest_size=8)
        for node in members:
            origin = step.origins[node]
            path = origin.module.removeprefix(step.places[layer].path)
            wiring = _canonical((node.args, sorted(node.kwargs.items())), index, step)
            digest.update(
                repr(
                    (
                        str(node.target),
                        path,
                        origin.backward,
                        wiring,
                        _canonical(node.meta["val"], index, step),
                    )
                ).encode()
            )
        hashes[layer] = digest.hexdigest()
    return hashes


def _canonical(value: Any, index: Mapping[Node, int], step: TracedStep) -> Any:
    if isinstance(value, Node):
        outside = "parameter" if value in step.parameters else "tensor"
        return index.get(value, (outside, _canonical(value.meta["val"], index, step)))
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), str(value.dtype)
    if isinstance(value, list | tuple):
        return tuple(_canonical(part, index, step) for part in value)
    if isinstance(value, float) and value not in (0.0, 1.0):
        return "fraction"  # a factor or a rate, whose size changes no cost
    return repr(value)
