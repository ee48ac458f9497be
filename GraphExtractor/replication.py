"""Repeated layers: which blocks to trace as representatives, and how the traced layers stand for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from GraphExtractor.graph import LayerGraph, LayerTensor
from GraphExtractor.layer_modules import structure

if TYPE_CHECKING:
    import torch

    from GraphExtractor.layers import TracedLayers


@dataclass(frozen=True)
class Representatives:
    """Blocks to trace: ``kept`` are their positions, ``copies[i]`` how many consecutive blocks ``kept[i]`` stands for."""

    kept: tuple[int, ...]
    copies: tuple[int, ...]


@dataclass(frozen=True)
class ExpandedLayers:
    """Distinct layers, the sequence of all layers over them, and the tensors between the layers of the sequence."""

    layers: tuple[LayerGraph, ...]
    sequence: tuple[int, ...]
    tensors: tuple[LayerTensor, ...]


def representatives(blocks: torch.nn.Module) -> Representatives:
    """Of every run of equally built blocks of a list the first two, the third (for all in between) and the last."""
    structures = [structure(block) for block in blocks.children()]
    kept: list[int] = []
    copies: list[int] = []
    start = 0
    while start < len(structures):
        end = start
        while end < len(structures) and structures[end] == structures[start]:
            end += 1
        run = end - start
        kept += [start, start + 1, start + 2, end - 1] if run > 4 else range(start, end)
        copies += [1, 1, run - 3, 1] if run > 4 else [1] * run
        start = end
    return Representatives(tuple(kept), tuple(copies))


def keep(blocks: torch.nn.Module, chosen: Representatives) -> torch.nn.Module:
    """The list of the chosen blocks alone."""
    from torch import nn

    children = list(blocks.children())
    kept = [children[index] for index in chosen.kept]
    return nn.Sequential(*kept) if isinstance(blocks, nn.Sequential) else nn.ModuleList(kept)


def expand(traced: TracedLayers, copies_of: Mapping[str, int]) -> ExpandedLayers | None:
    """All layers from the traced ones, or None where the representatives do not prove what the others look like.

    ``copies_of`` says for how many blocks the module at a path stands (default 1). A representative of several blocks must
    equal the traced block before it (in a run of alternating blocks it does not), and its tensors may only go to the next layer
    or come from a layer that feeds the whole run.
    """
    copies = tuple(copies_of.get(place.path, 1) for place in traced.places)
    starts = [sum(copies[:position]) for position in range(len(copies))]
    layers: list[LayerGraph] = []
    sequence: list[int] = []
    for position, layer in enumerate(traced.layers):
        if copies[position] > 1 and (position == 0 or layer != traced.layers[position - 1]):
            return None
        if layer not in layers:
            layers.append(layer)
        sequence += [layers.index(layer)] * copies[position]
    tensors: list[LayerTensor] = []
    for tensor in traced.tensors:
        expanded = _expand_tensor(tensor, copies, starts)
        if expanded is None:
            return None
        tensors += expanded
    return ExpandedLayers(tuple(layers), tuple(sequence), tuple(sorted(tensors, key=lambda tensor: tensor.source)))


def _expand_tensor(tensor: LayerTensor, copies: tuple[int, ...], starts: list[int]) -> list[LayerTensor] | None:
    source, readers = tensor.source, tensor.destinations

    def at(first: int, destinations: tuple[int, ...]) -> LayerTensor:
        return LayerTensor(first, destinations, tensor.bytes, tensor.gradient_bytes)

    if readers == (source + 1,):  # a chain: every copy feeds the next
        return [at(starts[source] + copy, (starts[source] + copy + 1,)) for copy in range(copies[source])]
    feeds_whole_runs = all(copies[r] == 1 or {r - 1, r + 1} <= {source, *readers} for r in readers)
    if copies[source] > 1 or not feeds_whole_runs:
        return None
    return [at(starts[source], tuple(starts[r] + copy for r in readers for copy in range(copies[r])))]
