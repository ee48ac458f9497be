"""Context parallelism: the graph of one of ``cp`` devices that share the tokens of every sequence.

Each device works on s/cp tokens: an early and a late part of the sequence, so that causal attention gives all of them equal
work. What treats every token alike shrinks by cp; attention's queries shrink, while it still meets all keys and values, which
are gathered before it (again in backward, where their gradients are reduced and scattered behind it). A ring that passes keys
and values on (Liu et al. 2023) moves the same bytes; a gather is what Llama 3 was trained with (Grattafiori et al. 2024).
Eager attention repeats the keys and values of grouped queries before it exchanges them, flash attention does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from Common.errors import InputError
from GraphExtractor.graph import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Gemm,
    GraphKey,
    LayerGraph,
    LayerTensor,
    ModelGraph,
    Operand,
    OperandRole,
    Operator,
    OperatorGraph,
    OperatorKind,
    Phase,
    SavedBytes,
    VectorWork,
    Yields,
)
from GraphExtractor.token_parts import TokenParts, added_to
from GraphExtractor.widths import check_context


def shard_context(graph: ModelGraph, cp: int) -> ModelGraph:
    """One device's graph when ``cp`` devices share each sequence; ``graph`` is that of a device with whole sequences.

    Raises:
        InputError: ``cp`` does not divide the tokens, the graph is cut already, or its model does not treat tokens alike
            outside attention.
    """
    if graph.key.cp > 1:
        raise InputError(f"the graph of {graph.key.model} is cut into {graph.key.cp} contexts already; give the whole one")
    check_context(graph.key, cp)
    if cp == 1:
        return graph
    cutter = _Cutter(graph.key, cp)
    return replace(
        graph,
        key=replace(graph.key, cp=cp),
        layers=tuple(map(cutter.layer, graph.layers)),
        tensors=tuple(map(cutter.tensor, graph.tensors)),
    )


@dataclass(frozen=True)
class _Exchange:
    """Communication around one attention product of the forward pass: keys and values (or one of both), their gradients.

    ``others`` are the parts of the other devices, each of shape (batch · heads, tokens, width).
    """

    product: Gemm
    others: tuple[Operand, ...]
    gather: Operator
    gather_again: Operator
    scatter: Operator


@dataclass(frozen=True)
class _Cut:
    """How an attention product is cut: its products on one device, and whether it meets keys or makes gradients of them."""

    gemms: tuple[Gemm, ...]
    reads_keys: bool
    writes_keys: bool


class _Cutter:
    """Cuts the layers of a model and the tensors between them."""

    def __init__(self, key: GraphKey, cp: int) -> None:
        self.key, self.cp = key, cp
        self.parts = TokenParts(key, cp)

    def tensor(self, tensor: LayerTensor) -> LayerTensor:
        """One device's part of a tensor between layers."""
        return replace(tensor, bytes=self.parts.share(tensor.bytes), gradient_bytes=self.parts.share(tensor.gradient_bytes))

    def layer(self, layer: LayerGraph) -> LayerGraph:
        """One device's part of a layer."""
        ids = count(max(each.id for each in (*layer.forward.operators, *layer.backward.operators)) + 1)
        core = [each for each in layer.forward.operators if each.core_attention]
        exchanges = {each.id: self._exchange(each, ids) for each in core if each.gemms}
        others = sum(operand.bytes for exchange in exchanges.values() for operand in exchange.others)
        whole = sum(operand.bytes for each in layer.backward.operators for operand in added_to(each))
        return replace(
            layer,
            forward=self._pass(layer.forward, exchanges),
            backward=self._pass(layer.backward, exchanges),
            backward_selective=self._pass(layer.backward_selective, exchanges),
            saved=SavedBytes(*(self.parts.share(kept) for kept in (layer.saved.none, layer.saved.selective, layer.saved.full))),
            # at most: beside the cut temporaries, weight gradients and the others' keys and values with their gradients
            workspace_bytes=self.parts.share(max(0, layer.workspace_bytes - whole)) + whole + 2 * others,
            structural_hash=f"{layer.structural_hash}-cp{self.cp}",
        )

    def _exchange(self, attention: Operator, ids: Iterator[int]) -> _Exchange:
        whole = tuple(self._keys(attention))
        length, part = self.key.sequence_length, self.key.sequence_length // self.cp
        own = tuple(replace(operand, shape=(operand.shape[0], part, operand.shape[2])) for operand in whole)
        others = tuple(replace(operand, shape=(operand.shape[0], length - part, operand.shape[2])) for operand in whole)
        payload = sum(operand.bytes for operand in whole)
        label = attention.name.partition("+")[0].rpartition(".")[0]

        def collective(kind: CollectiveKind, phase: Phase, yields: Yields, differentiates: int | None) -> Operator:
            reads, writes = (own, whole) if kind is CollectiveKind.ALL_GATHER else (whole, own)
            role = OperandRole.GRADIENT if yields is Yields.INPUT_GRADIENT else OperandRole.ACTIVATION
            return Operator(
                id=next(ids),
                name=f"{label}.context.{kind}".lstrip("."),
                kind=OperatorKind.COLLECTIVE,
                phase=phase,
                yields=yields,
                reads=tuple(replace(operand, role=role) for operand in reads),
                writes=tuple(replace(operand, role=role) for operand in writes),
                collective=Collective(kind, payload, self.cp, CollectiveGroup.CONTEXT),
                forward_id=differentiates,
            )

        gather = collective(CollectiveKind.ALL_GATHER, Phase.FORWARD, Yields.OUTPUT, None)
        return _Exchange(
            attention.gemms[0],
            others,
            gather,
            collective(CollectiveKind.ALL_GATHER, Phase.BACKWARD, Yields.OUTPUT, gather.id),
            collective(CollectiveKind.REDUCE_SCATTER, Phase.BACKWARD, Yields.INPUT_GRADIENT, gather.id),
        )

    def _keys(self, attention: Operator) -> Iterator[Operand]:
        """Keys and values an attention product reads, each of shape (batch · key/value heads, tokens, width)."""
        length, first = self.key.sequence_length, attention.gemms[0]
        read = [operand for operand in attention.reads if operand.role is OperandRole.ACTIVATION]
        if first.m != length or length not in (first.k, first.n):
            raise InputError(
                f"{attention.name} of {self.key.model} is not self-attention over the whole sequence; "
                "use context parallel degree 1"
            )
        if attention.kind is OperatorKind.ATTENTION:  # what it reads beyond the queries, however they are packed
            widths: tuple[int, ...] = (first.k, attention.gemms[1].n)
            elements = sum(math.prod(operand.shape) for operand in read) - first.batch * first.m * first.k
            heads = elements // (length * sum(widths))
        else:
            widths, heads = (first.k * first.n // length,), first.batch
        for width in widths:
            yield Operand((heads, length, width), read[0].dtype, OperandRole.ACTIVATION)

    def _pass(self, graph: OperatorGraph, exchanges: Mapping[int, _Exchange]) -> OperatorGraph:
        """One device's part of a pass, with the exchanges before and behind its attention products."""
        backward = any(each.phase is Phase.BACKWARD for each in graph.operators)
        core = {each.id for each in graph.operators if each.core_attention}
        operators: list[Operator] = []
        edges = set(graph.edges)
        scattering: set[int] = set()
        for operator in graph.operators:
            forward_id = operator.id if operator.phase is Phase.FORWARD else operator.forward_id
            exchange = exchanges.get(forward_id) if operator.gemms and forward_id is not None else None
            if exchange is None:
                operators.append(self.parts.operator(operator))
                continue
            cut = self._attention(operator, exchange.product, first=forward_id not in scattering)
            if cut.reads_keys:
                gather = exchange.gather_again if backward else exchange.gather
                operators += [] if gather in operators else [gather]
                edges.add((gather.id, operator.id))
                if not backward:  # in backward the kept keys and values are there from the start
                    edges.update((a, gather.id) for a, b in graph.edges if b == operator.id and a not in core)
            reads = exchange.others if cut.reads_keys else ()
            writes = tuple(replace(each, role=OperandRole.GRADIENT) for each in exchange.others) if cut.writes_keys else ()
            operators.append(
                replace(
                    operator,
                    gemms=cut.gemms,
                    vector=tuple(VectorWork(work.function, self.parts.share(work.elements)) for work in operator.vector),
                    reads=(*map(self.parts.operand, operator.reads), *reads),
                    writes=(*map(self.parts.operand, operator.writes), *writes),
                )
            )
            if cut.writes_keys and forward_id is not None:
                scattering.add(forward_id)
                operators.append(exchange.scatter)
                edges.add((operator.id, exchange.scatter.id))
                edges.update((exchange.scatter.id, b) for a, b in graph.edges if a == operator.id)
        return OperatorGraph(tuple(operators), tuple(sorted(edges)))

    def _attention(self, operator: Operator, product: Gemm, *, first: bool) -> _Cut:
        """Cut the queries of an attention product (its rows, or what gradients of keys and values are summed over)."""

        def rows(gemm: Gemm) -> Gemm:
            return replace(gemm, m=gemm.m // self.cp)

        def inner(gemm: Gemm) -> Gemm:
            return replace(gemm, k=gemm.k // self.cp)

        if operator.phase is Phase.FORWARD:
            return _Cut(tuple(map(rows, operator.gemms)), reads_keys=True, writes_keys=False)
        if operator.kind is OperatorKind.ATTENTION:
            scores, d_v, d_p, d_q, d_k = operator.gemms
            return _Cut((rows(scores), inner(d_v), rows(d_p), rows(d_q), inner(d_k)), reads_keys=True, writes_keys=True)
        (gemm,) = operator.gemms
        of_keys = (gemm.m, gemm.k, gemm.n) == (product.k, product.m, product.n)
        if of_keys and (first or gemm.m != gemm.k):  # square products look alike; that of the keys comes first
            return _Cut((inner(gemm),), reads_keys=False, writes_keys=True)
        return _Cut((rows(gemm),), reads_keys=True, writes_keys=False)
