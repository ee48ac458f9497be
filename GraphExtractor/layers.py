"""From traced operators to layer graphs: fused DAGs, and the tensors between layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType

from torch.fx import Node

from GraphExtractor.fusion import Group, Readers, fuse
from GraphExtractor.graph import (
    CollectiveGroup,
    LayerGraph,
    LayerTensor,
    ModuleAgain,
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
from GraphExtractor.recompute_modules import ModuleValues, less_by, modules_of
from GraphExtractor.saved import (
    SharedValue,
    less_in_fp8,
    less_joined,
    live_temporaries,
    saved_values,
    shared_values,
)
from GraphExtractor.segments import LayerPlace
from GraphExtractor.tracing import TracedStep
from GraphExtractor.two_axes import looks_up_tokens_of_all
from GraphExtractor.values import Source, Value, ValueTable, operator_name


@dataclass(frozen=True)
class TracedLayers:
    """All layers of a traced step, in order, the tensors between them and what several save."""

    places: tuple[LayerPlace, ...]
    layers: tuple[LayerGraph, ...]
    tensors: tuple[LayerTensor, ...]
    shared: tuple[SharedValue, ...]


def layers_of(step: TracedStep) -> TracedLayers:
    """Build the layer graphs of a traced step.

    Raises: PhazeError: a backward operator belongs to no forward operator.
    """
    maker = _LayerMaker(linked(step))
    layers = tuple(map(maker.layer, range(maker.step.layer_count)))
    shared = shared_values(maker.operators, maker.users, maker.saved)
    return TracedLayers(maker.step.places, layers, _tensors(maker.operators, maker.users), shared)


class _LayerMaker:
    """A ``linked`` step, and what all of its layers have to know of it."""

    def __init__(self, step: TracedStep) -> None:
        self.step, values = step, ValueTable(step)
        self.operators = traced_operators(step, values)
        self.users = readers(self.operators)
        self.results = frozenset(values[node] for node in step.gradients.values())
        self.saved = saved_values(self.operators, self.users, step.layer_count)
        self.owners = _parameter_owners(self.operators, step, values)
        self.tables = _sparse_tables(step, values)
        self.shares = model_shares(step.graph, step.parameters, step.division)

    def layer(self, layer: int) -> LayerGraph:
        """The graph of a layer."""
        operators = tuple(traced for traced in self.operators if traced.layer == layer)
        forward, backward = (
            tuple(traced for traced in operators if traced.backward == late)
            for late in (False, True)
        )
        passes = fuse(forward, self.users), fuse(backward, self.users)
        single = [tuple(Group((traced,)) for traced in each) for each in (forward, backward)]
        builder = GraphBuilder(self.users, self.results, passes[0], self.shares)
        graphs = [builder.graph(groups) for groups in passes]
        counts = _ParameterCounts()
        for value, first in self.owners.items():
            if value.elements == 1 and first == layer:
                counts.all.add(value)
        held = self.saved[layer].none | self.results
        for traced in operators:
            if traced.yields is Yields.WEIGHT_GRADIENT:
                held |= frozenset(traced.outputs)
            for use in traced.uses:
                if self.step.parameters.get(use.value.node) in self.step.gradients:
                    counts.add(traced, use.value)
        saved = self.saved[layer]
        dropped = saved.none - saved.selective
        return LayerGraph(
            name=self.step.places[layer].name,
            forward=graphs[0],
            backward=graphs[1],
            backward_selective=builder.selective(passes[1], graphs[1], dropped),
            parameter_count=elements(counts.all),
            matmul_parameter_count=elements(counts.multiplied - counts.of_experts),
            expert_parameter_count=elements(counts.of_experts),
            tied_count=elements(value for value in counts.all if self.owners[value] < layer),
            saved=replace(
                saved.bytes(),
                less_in_fp8=less_in_fp8(layer, saved, self.users),
                less_joined=less_joined(layer, saved, operators, self.users),
            ),
            live_bytes=self._live_bytes(passes, held),
            twice_divided_count=elements(counts.twice_divided),
            sparse_tables=tuple(
                table for value, table in self.tables.items() if value in counts.all
            ),
            single_live_bytes=self._live_bytes(single, held),
            modules=tuple(
                self._module(each, layer, operators, builder)
                for each in modules_of(layer, operators, saved, self.users)
            ),
        )

    def _module(
        self,
        module: ModuleValues,
        layer: int,
        operators: tuple[TracedOperator, ...],
        builder: GraphBuilder,
    ) -> ModuleAgain:
        less = less_by(module, layer, self.saved[layer], operators, self.users)
        groups = fuse(module.operators, self.users)
        restored = sum(value.bytes for value in module.drops)
        return ModuleAgain(module.name, builder.again(groups), *less, restored)

    def _live_bytes(
        self, passes: Iterable[tuple[Group, ...]], held: frozenset[Value]
    ) -> tuple[int, ...]:
        return tuple(
            chain.from_iterable(live_temporaries(each, self.users, held) for each in passes)
        )


@dataclass(frozen=True)
class _ParameterCounts:
    """The parameters of a layer, and those of them that are counted for themselves too."""

    all: set[Value] = field(default_factory=set)
    multiplied: set[Value] = field(default_factory=set)  # by every token
    of_experts: set[Value] = field(default_factory=set)  # a batch of weights, each by some tokens
    twice_divided: set[Value] = field(default_factory=set)  # along both axes of a 2D layout

    def add(self, reader: TracedOperator, parameter: Value) -> None:
        """Count a parameter that an operator reads."""
        self.all.add(parameter)
        rank, product = len(parameter.shape), reader.kind is OperatorKind.GEMM
        if not reader.backward and rank > 1 and (product or reader.kind is OperatorKind.CONV):
            self.multiplied.add(parameter)
            if product and rank == 3:  # kernels of convolutions have three axes too
                self.of_experts.add(parameter)
        along_second = any(each.group is CollectiveGroup.TENSOR2 for each in reader.streamed)
        if along_second or looks_up_tokens_of_all(reader.node):
            self.twice_divided.add(parameter)


def elements(values: Iterable[Value]) -> int:
    """Elements of all the tensors."""
    return sum(value.elements for value in values)


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

    def again(self, groups: tuple[Group, ...]) -> tuple[Operator, ...]:
        """Operators of some of the forward pass that run again, numbered as there."""
        return tuple(self._operator(group) for group in groups)

    def selective(
        self, groups: tuple[Group, ...], backward: OperatorGraph, dropped: frozenset[Value]
    ) -> OperatorGraph:
        """The backward pass behind the core attention again, for readers of what was ``dropped``.

        What attention reads of what was gathered is gathered again by the backward pass. What a
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
        tails = [
            work.function for each in group.members if each is not head for work in each.vector
        ]
        forward_id = None
        if head.backward:
            assert head.forward is not None  # a linked step
            forward_id = self.ids[head.forward]
        multiplies = bool(head.gemms) or any(each.macs for each in head.vector)
        made = multiplies and head.yields is Yields.OUTPUT
        return Operator(
            id=self.ids[head.node],
            name="+".join((head.name, *tails)),
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
            model_share=self.shares.get(head.node, 1.0) if made else 1.0,
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


def _parameter_owners(
    operators: tuple[TracedOperator, ...], step: TracedStep, values: ValueTable
) -> dict[Value, int]:
    """First layer that reads each parameter."""
    owners: dict[Value, int] = {}
    for parameter, name in step.parameters.items():
        value = values[parameter]
        layers = [step.origins[user].layer for user in parameter.users if user in step.origins]
        # reading one element may be too little work to be an operator
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
        maker = gradient.maker if gradient is not None else None
        if gradient is not None and maker is not None and operator_name(maker) == "rows_gradient":
            rows, width = values[node].shape
            tables[values[node]] = SparseTable(rows, width, gradient.shape[0])
    return tables


def _tensors(operators: tuple[TracedOperator, ...], users: Readers) -> tuple[LayerTensor, ...]:
    """Activations made in one layer and read in the forward pass of later ones, with gradients.

    Whatever a trained parameter had a part in has a gradient of its size, however the gradient is
    put together.
    """
    trained: set[Value] = set()
    tensors = []
    for traced in operators:
        if traced.backward:
            continue
        uses = {use.value for use in traced.uses}
        learned = any(each.source is Source.PARAMETER or each in trained for each in uses)
        for value in traced.outputs:
            if learned and value.dtype.startswith(("float", "bfloat", "complex")):
                trained.add(value)
            later = {
                user.layer
                for user in users.get(value, ())
                if not user.backward and user.layer > traced.layer
            }
            if later:
                gradient_bytes = value.bytes if value in trained else 0
                ends = tuple(sorted(later))
                tensors.append(LayerTensor(traced.layer, ends, value.bytes, gradient_bytes))
    return tuple(tensors)
