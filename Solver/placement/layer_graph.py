"""Which layers need which: the order that the tensors between layers leave open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from Common.errors import InputError
from GraphExtractor.graph import LayerTensor
from Solver.placement.problem import FloatArray, LayerTimes, PlacementProblem

Edge = tuple[int, int]  # producer and consumer, by their place in execution order


def edges_between(tensors: Iterable[LayerTensor]) -> tuple[Edge, ...]:
    """The (producer, consumer) pairs of ``tensors``, sorted."""
    return tuple(sorted({(tensor.source, end) for tensor in tensors for end in tensor.destinations}))


def is_chain(layers: int, edges: Iterable[Edge]) -> bool:
    """Whether the edges leave one order of the layers only, whatever else they skip over.

    All edges lead forwards in execution order, so a path from one layer to the next can only be an edge between the two.
    """
    return {(layer, layer + 1) for layer in range(layers - 1)} <= set(edges)


def branches(problem: PlacementProblem) -> tuple[Edge, ...] | None:
    """The edges between the layers of ``problem``; None where its layers form a chain.

    Raises:
        InputError: the variants join different layers, or a tensor leads to its own layer or an earlier one.
    """
    joined = [None if plan.tensors is None else edges_between(plan.tensors) for plan in problem.variants]
    edges = joined[0]
    if any(other != edges for other in joined):
        raise InputError(
            f"the {len(joined)} variants of a placement join different layers; all need tensors between the same ones"
        )
    layers = len(problem.variants[0].parameter_count)
    if edges is None or is_chain(layers, edges):
        return None
    if any(not 0 <= source < end < layers for source, end in edges):
        raise InputError(
            f"the tensors between {layers} layers must lead forwards in execution order, from layer 0 to layer {layers - 1} at "
            "most; give the layers in an order in which each uses only what layers before it have made"
        )
    return edges


def runs(layers: int, edges: Iterable[Edge]) -> list[list[int]]:
    """The layers grouped into unbranched runs: within one, each layer has one direct predecessor and one direct successor.

    Edges that a longer path makes superfluous (skip connections) do not count. The runs partition the layers.
    """
    after = [0] * layers
    for source, end in edges:
        after[source] |= 1 << end
    beyond = [0] * layers  # everything that needs the layer, as bits
    direct = list(after)
    for layer in reversed(range(layers)):
        for end in _bits(after[layer]):
            direct[layer] &= ~beyond[end]
            beyond[layer] |= 1 << end | beyond[end]
    before = [0] * layers
    for layer in range(layers):
        for end in _bits(direct[layer]):
            before[end] += 1
    grouped: dict[int, list[int]] = {}  # by last layer
    for layer in range(layers):
        previous = [last for last in grouped if direct[last] == 1 << layer and before[layer] == 1]
        run = grouped.pop(previous[0]) if previous else []
        grouped[layer] = [*run, layer]
    return sorted(grouped.values())


def edges_between_groups(groups: Sequence[int], edges: Iterable[Edge]) -> list[Edge]:
    """The edges between groups of layers, each given as bits, that ``edges`` between their layers make."""
    home = {layer: group for group, layers in enumerate(groups) for layer in _bits(layers)}
    return sorted({(home[source], home[end]) for source, end in edges} - {(group, group) for group in range(len(groups))})


def copied_bytes(tensors: Iterable[LayerTensor], order: Sequence[int]) -> FloatArray:
    """Bytes, shape (layers,), that several layers read and that cross the cut before each layer of ``order``."""
    place = {layer: position for position, layer in enumerate(order)}
    copied = np.zeros(len(order))
    for tensor in tensors:
        if len(tensor.destinations) > 1:
            copied[place[tensor.source] + 1 : max(place[end] for end in tensor.destinations) + 1] += tensor.bytes
    return copied


def in_order(problem: PlacementProblem, times: LayerTimes, order: Sequence[int]) -> tuple[PlacementProblem, LayerTimes]:
    """The chain that the layers make in ``order``, in which all tensors must lead forwards.

    A tensor that a later stage still needs crosses every link until then.
    """
    place = {layer: position for position, layer in enumerate(order)}
    chosen = list(order)
    variants = []
    for plan in problem.variants:
        cut, gradient = np.zeros(len(order)), np.zeros(len(order))
        for tensor in plan.tensors or ():
            crossed = slice(place[tensor.source] + 1, max(place[end] for end in tensor.destinations) + 1)
            cut[crossed] += tensor.bytes
            gradient[crossed] += tensor.gradient_bytes
        variants.append(
            replace(
                plan,
                parameter_count=plan.parameter_count[chosen],
                saved_bytes=plan.saved_bytes[chosen],
                workspace_bytes=plan.workspace_bytes[chosen],
                cut_bytes=cut,
                cut_gradient_bytes=gradient,
                tensors=None,
                copied_bytes=copied_bytes(plan.tensors or (), order),
            )
        )
    chain_times = LayerTimes(times.forward_s[:, chosen], times.backward_s[:, chosen], times.recompute_s[:, chosen])
    return replace(problem, variants=tuple(variants)), chain_times


def _bits(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
