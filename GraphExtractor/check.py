"""What must hold of every training graph, as lists of violations in words."""

import logging
import math
from collections import Counter
from dataclasses import dataclass

import networkx as nx

from GraphExtractor.graph import (
    LayerGraph,
    ModelGraph,
    OperandRole,
    OperatorKind,
    Recompute,
    Yields,
)
from GraphExtractor.models.base import ModelFamily
from phaze_common.numbers import number

logger = logging.getLogger(__name__)

TOLERANCE = 0.01


def check_structure(graph: ModelGraph) -> list[str]:
    """Violations of what any training graph satisfies: sound ids, acyclic passes, linked backward
    operators, valid positions."""
    found = [violation for layer in graph.layers for violation in _layer_violations(layer)]
    if not graph.layers or set(graph.sequence) != set(range(len(graph.layers))):
        found.append("the sequence does not run over exactly the layers given")
    for tensor in graph.tensors:
        if not tensor.destinations or not 0 <= tensor.source < min(tensor.destinations) <= max(
            tensor.destinations
        ) < len(graph.sequence):
            found.append(
                f"tensor from layer {tensor.source} to {tensor.destinations} does not run forward"
            )
    return found or _shared_violations(graph)


def _shared_violations(graph: ModelGraph) -> list[str]:
    """What several layers keep is part of what each of them keeps."""
    found = []
    for mode in Recompute:
        kept: Counter[int] = Counter()
        for tensor in graph.shared:
            layers = tensor.kept_by(mode)
            if (
                tensor.bytes < 0
                or len(set(layers)) < len(layers)
                or not set(layers) <= set(range(len(graph.sequence)))
            ):
                found.append(f"{tensor.bytes} shared bytes are kept by layers {layers}")
            kept.update(dict.fromkeys(layers, tensor.bytes))
        found += [
            f"layer {layer} shares {kept[layer]} bytes of the "
            f"{graph.layers[graph.sequence[layer]].saved.under(mode)} it keeps"
            for layer in range(len(graph.sequence))
            if kept[layer] > graph.layers[graph.sequence[layer]].saved.under(mode)
        ]
    return found


def warn_of(graph: ModelGraph, family: ModelFamily) -> None:
    """Say which invariants the graph of a model breaks, and what ``family`` knows that it leaves
    out."""
    for violation in (
        check_invariants(graph) if family.described else ()
    ):  # what nobody described may have good reasons
        logger.warning("%s: %s", graph.key.model, violation)
    for sentence in (*family.left_out(graph), *_checkpointed(graph)):
        logger.warning("%s", sentence)


def _checkpointed(graph: ModelGraph) -> tuple[str, ...]:
    """What the model's own code recomputes, in words."""
    layers = [graph.layers[index] for index in graph.sequence]
    passes = [layer.backward.operators for layer in layers]
    again = [
        [each for each in operators if each.yields is Yields.OUTPUT and not each.collective]
        for operators in passes
    ]
    if not any(again):
        return ()
    flops = sum(operator.flops for operators in again for operator in operators)
    return (
        f"{graph.key.model}: its code checkpoints {sum(map(bool, again))} of {len(layers)} layers, "
        f"which keep their inputs and make {number(flops / 1e9)} GFLOP of their forward pass again "
        "in backward; recomputation full runs them once more, selective nothing more of these",
    )


def check_invariants(graph: ModelGraph) -> list[str]:
    """Violations of what the graph of every listed model satisfies besides its structure, within 1
    %.

    Forward products are 2·N·tokens FLOPs, N the parameters in matrix products that every token
    meets: left out are attention's score products, convolutions, experts, a pooler, which sees one
    token per sequence, and what sequence parallelism has work on a part of the tokens. Backward
    products are twice the forward ones, where the scores that flash attention computes again are
    left out; products in layers that no gradient leaves, such as a convolution of the image, count
    once where they have no input gradient.
    """
    layers = [graph.layers[index] for index in graph.sequence]
    tokens = graph.key.micro_batch_size * graph.key.sequence_length // graph.key.cp
    parts = {graph.key.micro_batch_size} | (
        {tokens // graph.key.tp} if graph.key.sequence_parallel else set()
    )
    partial = [_partial(layer, frozenset(parts - {tokens})) for layer in layers]
    parameters = sum(
        layer.matmul_parameter_count - part.parameters
        for layer, part in zip(layers, partial, strict=True)
    )
    with_all_tokens = sum(
        product_flops(layer).forward - part.flops
        for layer, part in zip(layers, partial, strict=True)
    )
    products = [product_flops(layer) for layer in layers]
    forward = sum(flops.forward for flops in products)
    backward = sum(flops.backward for flops in products) + _unneeded_backward(graph)
    score_forward = sum(flops.score_forward for flops in products)
    score_backward = sum(flops.score_backward for flops in products)
    found = []
    if not _close(with_all_tokens, 2 * parameters * tokens):
        found.append(
            f"forward matrix products take {with_all_tokens:,} FLOPs instead of 2·N·tokens = "
            f"{2 * parameters * tokens:,}"
        )
    if not _close(backward, 2 * forward):
        found.append(
            f"backward matrix products take {number(backward / max(forward, 1))} times the "
            "forward ones instead of 2"
        )
    if not _close(score_backward, 2 * score_forward):
        found.append(
            f"attention's backward products take {score_backward:,} FLOPs instead of twice "
            f"{score_forward:,}"
        )
    return found


@dataclass(frozen=True)
class _PartialProducts:
    """Forward products whose parameters do not meet each token once: their FLOPs, and their part of
    the parameters counted."""

    flops: int
    parameters: int


def _partial(layer: LayerGraph, parts: frozenset[int]) -> _PartialProducts:
    """Convolutions, experts, and products with so many of the tokens as one of ``parts``."""
    flops = parameters = 0
    for operator in layer.forward.operators:
        weights = [
            read
            for read in operator.reads
            if read.role is OperandRole.PARAMETER and len(read.shape) > 1
        ]
        if operator.kind is OperatorKind.CONV:
            flops += operator.flops
            parameters += sum(
                math.prod(weight.shape) for weight in weights if len(weight.shape) > 2
            )
        elif operator.kind is OperatorKind.GEMM and any(
            len(weight.shape) > 2 for weight in weights
        ):
            flops += operator.flops  # of experts, which are counted apart
        elif operator.kind is OperatorKind.GEMM and weights and operator.gemms[0].m in parts:
            flops += operator.flops
            parameters += sum(math.prod(weight.shape) for weight in weights)
    return _PartialProducts(flops, parameters)


def _unneeded_backward(graph: ModelGraph) -> int:
    """FLOPs of the input gradients that products in layers without an input to differentiate do
    without."""
    behind = {
        place for tensor in graph.tensors if tensor.gradient_bytes for place in tensor.destinations
    }
    missing = 0
    for place, index in enumerate(graph.sequence):
        if place in behind:
            continue
        layer = graph.layers[index]
        backward: dict[int | None, int] = {}
        for operator in layer.backward.operators:
            backward[operator.forward_id] = backward.get(operator.forward_id, 0) + operator.flops
        products = (
            each for each in layer.forward.operators if each.gemms and not each.core_attention
        )
        missing += sum(each.flops for each in products if backward.get(each.id) == each.flops)
    return missing


def _close(given: int, expected: int) -> bool:
    return abs(given - expected) <= TOLERANCE * expected


@dataclass(frozen=True)
class ProductFlops:
    """FLOPs of a layer's matrix products: those with parameters, and attention's products of
    activations.

    ``score_backward`` leaves out the scores that flash attention computes again (the first product
    of its backward).
    """

    forward: int
    backward: int
    score_forward: int
    score_backward: int


def product_flops(layer: LayerGraph) -> ProductFlops:
    """Split a layer's FLOPs."""
    core = {operator.id for operator in layer.forward.operators if operator.core_attention}
    score_forward = sum(
        operator.flops for operator in layer.forward.operators if operator.id in core
    )
    scores = [operator for operator in layer.backward.operators if operator.forward_id in core]
    fused = [
        each
        for each in scores
        if each.kind is OperatorKind.ATTENTION and each.yields is not Yields.OUTPUT
    ]
    again = sum(2 * operator.gemms[0].macs for operator in fused)
    score_total = sum(operator.flops for operator in scores)
    return ProductFlops(
        forward=layer.forward.flops - score_forward,
        backward=layer.backward.flops - score_total,
        score_forward=score_forward,
        score_backward=score_total - again,
    )


def _layer_violations(layer: LayerGraph) -> list[str]:
    found = []
    forward = {operator.id for operator in layer.forward.operators}
    backward = {operator.id for operator in layer.backward.operators}
    if forward & backward or len(forward) + len(backward) < len(layer.forward.operators) + len(
        layer.backward.operators
    ):
        found.append(f"layer {layer.name} has operators of equal id")
    for name, graph in (
        ("forward", layer.forward),
        ("backward", layer.backward),
        ("selective backward", layer.backward_selective),
    ):
        known = {operator.id for operator in graph.operators}
        if not all(
            a in known and b in known for a, b in graph.edges
        ) or not nx.is_directed_acyclic_graph(graph.dag):
            found.append(f"the {name} operators of layer {layer.name} are not an acyclic graph")
    for operator in layer.backward.operators:
        if operator.forward_id not in forward:
            found.append(
                f"backward operator {operator.name} of layer {layer.name} differentiates no "
                "forward operator"
            )
    for operator in (*layer.forward.operators, *layer.backward.operators):
        products = operator.kind in (OperatorKind.GEMM, OperatorKind.CONV, OperatorKind.ATTENTION)
        if operator.kind is OperatorKind.SCAN:
            products = bool(operator.gemms)  # of its steps, if they have any
        if products != bool(operator.gemms) or (operator.kind is OperatorKind.COLLECTIVE) != (
            operator.collective is not None
        ):
            found.append(
                f"operator {operator.name} of layer {layer.name} does not have the fields of its "
                "kind"
            )
        if operator.streamed and not operator.gemms:
            found.append(
                f"operator {operator.name} of layer {layer.name} streams, but multiplies nothing "
                "meanwhile"
            )
        if operator.ring > 1 and operator.kind is not OperatorKind.ATTENTION:
            found.append(
                f"operator {operator.name} of layer {layer.name} passes around a ring what is no "
                "attention's"
            )
        if not operator.gemms and not operator.vector and operator.collective is None:
            found.append(f"operator {operator.name} of layer {layer.name} costs nothing")
    return found
