"""What must hold of every training graph, as lists of violations in words."""

import logging
import math
from collections import Counter
from dataclasses import dataclass

from GraphExtractor.graph import (
    LayerGraph,
    ModelGraph,
    OperandRole,
    OperatorGraph,
    OperatorKind,
    Recompute,
    Yields,
)
from GraphExtractor.models.base import ModelFamily
from phaze_common.numbers import number

logger = logging.getLogger(__name__)

TOLERANCE = 0.01


def check_structure(graph: ModelGraph) -> list[str]:
    """Violations of what any training graph satisfies: ids, acyclic passes, links, positions."""
    positions = range(len(graph.sequence))
    found = [violation for layer in graph.layers for violation in _layer_violations(layer)]
    if not graph.layers or set(graph.sequence) != set(range(len(graph.layers))):
        found.append("the sequence does not run over exactly the layers given")
    for tensor in graph.tensors:
        ends = tensor.destinations
        if not ends or not 0 <= tensor.source < min(ends) <= max(ends) < len(positions):
            found.append(f"tensor from layer {tensor.source} to {ends} does not run forward")
    return found or _shared_violations(graph)


def _shared_violations(graph: ModelGraph) -> list[str]:
    """What several layers save is part of what each of them saves."""
    found = []
    positions = set(range(len(graph.sequence)))
    for mode in Recompute:
        bytes_of: Counter[int] = Counter()
        for tensor in graph.shared:
            layers = tensor.kept_by(mode)
            if tensor.bytes < 0 or len(set(layers)) < len(layers) or not set(layers) <= positions:
                found.append(f"{tensor.bytes} shared bytes are kept by layers {layers}")
            bytes_of.update(dict.fromkeys(layers, tensor.bytes))
        for layer, index in enumerate(graph.sequence):
            saved, bytes_ = graph.layers[index].saved.under(mode), bytes_of[layer]
            if bytes_ > saved:
                found.append(f"layer {layer} shares {bytes_} bytes of the {saved} it keeps")
    return found


def warn_of(graph: ModelGraph, family: ModelFamily) -> None:
    """Say which invariants a graph breaks, and what ``family`` knows that it leaves out."""
    # a model that nobody described may have good reasons
    for violation in check_invariants(graph) if family.described else ():
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
    """Violations of what graphs of listed models satisfy besides their structure, within 1 %.

    Forward products are 2·N·tokens FLOPs, N the parameters in matrix products that every token
    meets: left out are attention's score products, convolutions, experts, a pooler, which sees one
    token per sequence, and what sequence parallelism has work on a part of the tokens. Backward
    products are twice the forward ones, where the scores that flash attention computes again are
    left out; those that run several times count as often; products in layers that no gradient
    leaves, such as a convolution of the image, count
    once where they have no input gradient.
    """
    layers = [graph.layers[index] for index in graph.sequence]
    tokens = graph.key.micro_batch_size * graph.key.sequence_length // graph.key.cp
    parts = {graph.key.micro_batch_size} | (
        {tokens // graph.key.tp} if graph.key.sequence_parallel else set()
    )
    parameters = all_tokens_flops = forward = backward = score_forward = score_backward = 0
    for layer in layers:
        part, flops = _partial(layer, frozenset(parts - {tokens})), product_flops(layer)
        parameters += layer.matmul_parameter_count + _read_again(layer) - part.parameters
        all_tokens_flops += flops.forward - part.flops
        forward += flops.forward
        backward += flops.backward
        score_forward += flops.score_forward
        score_backward += flops.score_backward
    backward += _unneeded_backward(graph)
    found = []
    if not _close(all_tokens_flops, 2 * parameters * tokens):
        found.append(
            f"forward matrix products take {all_tokens_flops:,} FLOPs instead of 2·N·tokens = "
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
    """FLOPs of products whose parameters do not meet each token once, and these parameters."""

    flops: int
    parameters: int


def _partial(layer: LayerGraph, parts: frozenset[int]) -> _PartialProducts:
    """Convolutions, experts, and products with so many of the tokens as one of ``parts``."""
    flops = parameters = 0
    for operator in layer.forward.operators:
        shapes = [
            read.shape
            for read in operator.reads
            if read.role is OperandRole.PARAMETER and len(read.shape) > 1
        ]
        product = operator.kind is OperatorKind.GEMM
        if operator.kind is OperatorKind.CONV:
            flops += operator.flops
            parameters += sum(math.prod(shape) for shape in shapes if len(shape) > 2)
        elif product and any(len(shape) > 2 for shape in shapes):
            flops += operator.flops  # of experts, which are counted apart
        elif product and shapes and operator.gemms[0].m in parts:
            flops += operator.flops
            parameters += sum(math.prod(shape) for shape in shapes)
    return _PartialProducts(flops, parameters)


def _read_again(layer: LayerGraph) -> int:
    """Parameters of modules that a layer runs several times (a head that predicts further tokens),
    but for the first."""
    seen, again = set[str](), 0
    for operator in layer.forward.operators:
        if operator.kind is not OperatorKind.GEMM or operator.grouped:
            continue
        if operator.name in seen:
            again += sum(
                math.prod(operand.shape)
                for operand in operator.reads
                if operand.role is OperandRole.PARAMETER and len(operand.shape) == 2
            )
        seen.add(operator.name)
    return again


def _unneeded_backward(graph: ModelGraph) -> int:
    """FLOPs of the input gradients that products in layers without such an input do without."""
    fed = {place for each in graph.tensors if each.gradient_bytes for place in each.destinations}
    missing = 0
    for place, index in enumerate(graph.sequence):
        if place in fed:
            continue
        layer = graph.layers[index]
        backward: Counter[int | None] = Counter()
        for operator in layer.backward.operators:
            backward[operator.forward_id] += operator.flops
        missing += sum(
            each.flops
            for each in layer.forward.operators
            if each.gemms and not each.core_attention and backward[each.id] == each.flops
        )
    return missing


def _close(given: int, expected: int) -> bool:
    return abs(given - expected) <= TOLERANCE * expected


@dataclass(frozen=True)
class ProductFlops:
    """FLOPs of a layer's products: those with parameters, and attention's of activations.

    ``score_backward`` leaves out the scores that flash attention computes again.
    """

    forward: int
    backward: int
    score_forward: int
    score_backward: int


def product_flops(layer: LayerGraph) -> ProductFlops:
    """Split a layer's FLOPs."""
    core = {operator.id for operator in layer.forward.operators if operator.core_attention}
    score_forward = sum(each.flops for each in layer.forward.operators if each.core_attention)
    scores = [operator for operator in layer.backward.operators if operator.forward_id in core]
    again = sum(
        2 * each.gemms[0].macs
        for each in scores
        if each.kind is OperatorKind.ATTENTION and each.yields is not Yields.OUTPUT
    )
    score_total = sum(operator.flops for operator in scores)
    return ProductFlops(
        forward=layer.forward.flops - score_forward,
        backward=layer.backward.flops - score_total,
        score_forward=score_forward,
        score_backward=score_total - again,
    )


def _is_acyclic(graph: OperatorGraph) -> bool:
    """Whether edges are between operators of the graph, and make no circle."""
    place = {operator.id: number for number, operator in enumerate(graph.operators)}
    if not all(first in place and second in place for first, second in graph.edges):
        return False
    if all(place[first] < place[second] for first, second in graph.edges):  # as they ran
        return True
    import networkx as nx

    return bool(nx.is_directed_acyclic_graph(graph.dag))


def _layer_violations(layer: LayerGraph) -> list[str]:
    found = []
    operators = (*layer.forward.operators, *layer.backward.operators)
    forward = {operator.id for operator in layer.forward.operators}
    if len({operator.id for operator in operators}) < len(operators):
        found.append(f"layer {layer.name} has operators of equal id")
    for name, graph in (
        ("forward", layer.forward),
        ("backward", layer.backward),
        ("selective backward", layer.backward_selective),
    ):
        if not _is_acyclic(graph):
            found.append(f"the {name} operators of layer {layer.name} are not an acyclic graph")
    for operator in layer.backward.operators:
        if operator.forward_id not in forward:
            found.append(
                f"backward operator {operator.name} of layer {layer.name} differentiates no "
                "forward operator"
            )
    for operator in operators:
        kind, multiplies = operator.kind, bool(operator.gemms)
        needed = kind in (OperatorKind.GEMM, OperatorKind.CONV, OperatorKind.ATTENTION)
        if kind is OperatorKind.SCAN:  # its steps may multiply
            needed = multiplies
        collective = operator.collective is not None
        broken = {
            "does not have the fields of its kind": needed != multiplies
            or (kind is OperatorKind.COLLECTIVE) != collective,
            "streams, but multiplies nothing meanwhile": operator.streamed and not multiplies,
            "passes around a ring what is no attention's": operator.ring > 1
            and kind is not OperatorKind.ATTENTION,
            "costs nothing": not multiplies and not operator.vector and not collective,
        }
        place = f"operator {operator.name} of layer {layer.name}"
        found += [f"{place} {words}" for words, holds in broken.items() if holds]
    return found
