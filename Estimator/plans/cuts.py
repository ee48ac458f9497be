"""Cuts of a model's layers into the chunks of a pipeline, and what crosses them."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.degrees import UniformPlan
from GraphExtractor.graph import LayerTensor, ModelGraph
from phaze_common.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Crossing:
    """Bytes of activations and gradients that cross before sets of layers, shape (sets,)."""

    activation_bytes: FloatArray
    gradient_bytes: FloatArray


def crossing(tensors: Iterable[LayerTensor], members: NDArray[np.bool_]) -> Crossing:
    """What crosses into each of ``members`` (sets, layers), closed under what they feed."""
    activations, gradients = np.zeros((2, len(members)))
    for tensor in tensors:
        crosses = ~members[:, tensor.source] & members[:, list(tensor.destinations)].any(axis=1)
        activations[crosses] += tensor.bytes
        gradients[crosses] += tensor.gradient_bytes
    return Crossing(activations, gradients)


def boundary_crossing(
    tensors: Iterable[LayerTensor], layers: int, order: Sequence[int] | None = None
) -> Crossing:
    """What crosses the boundary before each of ``layers`` layers that follow one another in
    ``order`` (or that of execution).

    Arrays of shape (layers,). A tensor crosses from the place behind its source to the last that
    needs it.
    """
    place = range(layers) if order is None else np.argsort(order).tolist()
    steps = np.zeros((2, layers + 1))
    for tensor in tensors:
        first = place[tensor.source] + 1
        stop = max((place[end] for end in tensor.destinations), default=0) + 1
        if first < stop:
            for row, each in enumerate((tensor.bytes, tensor.gradient_bytes)):
                steps[row, first] += each
                steps[row, stop] -= each
    return Crossing(*np.cumsum(steps, axis=1)[:, :-1])


def balanced_cuts(layers: int, pp: int) -> tuple[int, ...]:
    """First layers of stages 2..pp as Megatron-LM balances them: blocks as evenly as possible,
    embedding and head at the ends.

    Layer 0 is the embedding and the last one the head; where blocks do not divide evenly the
    earlier stages take one more.

    Raises:
        InputError: there are more stages than blocks.
    """
    blocks = layers - 2
    if pp == 1:
        return ()
    if not 1 <= pp <= blocks:
        raise InputError(
            f"pp x interleave is {pp}, for {blocks} blocks; give at most {max(blocks, 1)}, or "
            "--stage-layers"
        )
    stage = np.arange(1, pp)
    firsts: list[int] = (1 + stage * (blocks // pp) + np.minimum(stage, blocks % pp)).tolist()
    return tuple(firsts)


def chunk_layers(plan: UniformPlan, graph: ModelGraph) -> tuple[tuple[int, ...], ...]:
    """Layers of every chunk, by place in execution order: as the plan says, or blocks as evenly as
    possible.

    Raises: InputError: the plan's stages do not add up to the model's layers, there are more of
        them than blocks, or a chunk needs
            what a later one makes.
    """
    layers = len(graph.sequence)
    order = tuple(range(layers)) if plan.layer_order is None else plan.layer_order
    if sorted(order) != list(range(layers)):
        raise InputError(
            f"layer_order names {len(order)} layers; it must name each of the model's {layers} "
            "layers once"
        )
    if plan.stage_layers is None:
        bounds = [0, *balanced_cuts(layers, plan.chunks), layers]
    elif sum(plan.stage_layers) != layers:
        raise InputError(
            f"stage_layers adds up to {sum(plan.stage_layers)} layers, but the model has {layers} "
            "(embedding and head included)"
        )
    else:
        bounds = [0, *itertools.accumulate(plan.stage_layers)]
    chunks = tuple(order[first:stop] for first, stop in itertools.pairwise(bounds))
    if plan.layer_order is not None:
        check_order(chunks, graph.tensors, "chunk")
    return chunks


def check_order(parts: Sequence[Sequence[int]], tensors: Iterable[LayerTensor], what: str) -> None:
    """Refuse layers of a pipeline's ``parts``, stages or chunks, that need what a later part makes.

    Raises:
        InputError: the first such parts by number.
    """
    home = {layer: number for number, layers in enumerate(parts) for layer in layers}
    for tensor in tensors:
        for end in tensor.destinations:
            if home[end] < home[tensor.source]:
                raise InputError(
                    f"{what} {home[end] + 1} holds a layer that needs what {what} "
                    f"{home[tensor.source] + 1} makes; give the layers in an order in which each "
                    "uses only what is made before it"
                )
