"""Model graphs and makespans as the arrays placement takes: a variant per tensor parallel width and recomputation mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from GraphExtractor.graph import LayerGraph, ModelGraph, Recompute
from Solver.placement.layer_graph import copied_bytes
from Solver.placement.problem import BatchTimes, FloatArray, PlanVariant
from Solver.search.layer_times import GraphTimes


def plan_variant(graph: ModelGraph, recompute: Recompute) -> PlanVariant:
    """Memory and traffic of every layer, per device, under ``recompute``, and what joins the layers."""
    layers = [graph.layers[index] for index in graph.sequence]
    cuts = [(0, 0), *(graph.cut_bytes(position) for position in range(1, len(layers)))]
    return PlanVariant(
        tp=graph.key.tp,
        recompute=recompute,
        parameter_count=np.array([layer.parameter_count for layer in layers], dtype=float),
        saved_bytes=np.array([layer.saved.under(recompute) for layer in layers], dtype=float),
        workspace_bytes=np.array([workspace_bytes(layer, recompute) for layer in layers], dtype=float),
        cut_bytes=np.array([activations for activations, _ in cuts], dtype=float),
        cut_gradient_bytes=np.array([gradients for _, gradients in cuts], dtype=float),
        tied_parameter_count=float(sum(layer.tied_count for layer in layers)),
        tensors=graph.tensors,
        copied_bytes=copied_bytes(graph.tensors, range(len(layers))),
    )


def workspace_bytes(layer: LayerGraph, recompute: Recompute) -> int:
    """Temporaries of the layer plus the activations it restores before its backward pass, which live only that long."""
    restored = layer.saved.none - layer.saved.under(recompute)
    return layer.workspace_bytes + max(restored, 0)


def batch_times(graph_times: Sequence[GraphTimes], recomputes: Sequence[Recompute], sequence: tuple[int, ...]) -> BatchTimes:
    """Stack the times of (width x recomputation) variants, widths outermost: (accelerators, variants, distinct layers)."""
    forward, backward, again = [], [], []
    for times in graph_times:
        for recompute in recomputes:
            forward.append(times.forward_s)
            backward.append(times.backward_selective_s if recompute is Recompute.SELECTIVE else times.backward_s)
            again.append(times.forward_s if recompute is Recompute.FULL else np.zeros_like(times.forward_s))
    return BatchTimes(np.stack(forward, axis=1), np.stack(backward, axis=1), np.stack(again, axis=1), sequence)


def energy_per_sample_j(graph: ModelGraph, times: GraphTimes, recompute: Recompute) -> FloatArray:
    """Joules per training sample of all devices of one tensor-parallel group together, shape (accelerators,)."""
    backward_j = times.backward_selective_j if recompute is Recompute.SELECTIVE else times.backward_j
    per_layer_j = times.forward_j + backward_j
    if recompute is Recompute.FULL:
        per_layer_j = per_layer_j + times.forward_j
    repeats = np.bincount(np.array(graph.sequence), minlength=len(graph.layers)).astype(float)
    energy: FloatArray = per_layer_j @ repeats * graph.key.tp / graph.key.micro_batch_size
    return energy
