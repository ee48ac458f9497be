"""Repeated layers: which blocks to trace as representatives, and how the traced layers stand for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from GraphExtractor.graph import LayerGraph, LayerTensor, SharedTensor
from GraphExtractor.layer_modules import structure

if TYPE_CHECKING:
    import torch

    from GraphExtractor.layers import TracedLayers
    from GraphExtractor.saved import Shared

Places = Mapping[int, tuple[int, ...]]  # of each traced layer in the sequence


@dataclass(frozen=True)
class Representatives:
    """Blocks to trace: ``kept`` are their positions, ``copies[i]`` how many consecutive blocks ``kept[i]`` stands for."""

    kept: tuple[int, ...]
    copies: tuple[int, ...]


@dataclass(frozen=True)
class ExpandedLayers:
    """Distinct layers, the sequence of all layers over them, and the tensors between them and that several of them keep."""

    layers: tuple[LayerGraph, ...]
    sequence: tuple[int, ...]
    tensors: tuple[LayerTensor, ...]
    shared: tuple[SharedTensor, ...]


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
        places = _places(tensor.source, tensor.destinations, copies, starts)
        if places is None:
            return None
        tensors += [_moved(tensor, each) for each in places]
    kept: list[SharedTensor] = []
    for found in traced.shared:
        places = _places(found.tensor.source, found.readers, copies, starts)
        if places is None:
            return None
        kept += [_moved_shared(found, each) for each in places]
    in_order = tuple(sorted(tensors, key=lambda tensor: tensor.source))
    return ExpandedLayers(tuple(layers), tuple(sequence), in_order, summed_shared(kept))


def _places(source: int | None, readers: tuple[int, ...], copies: tuple[int, ...], starts: list[int]) -> list[Places] | None:
    """Where the layers of a tensor lie, once for each of its copies: the layer that makes it (None: an input) and its readers."""
    if source is not None and readers == (source + 1,):  # a chain: every copy feeds the next
        first = starts[source]
        return [{source: (first + copy,), source + 1: (first + copy + 1,)} for copy in range(copies[source])]
    layers = readers if source is None else (source, *readers)
    feeds_whole_runs = all(copies[r] == 1 or {r - 1, r + 1} <= set(layers) for r in readers)
    if (source is not None and copies[source] > 1) or not feeds_whole_runs:
        return None
    return [{layer: tuple(starts[layer] + copy for copy in range(copies[layer])) for layer in layers}]


def _moved(tensor: LayerTensor, places: Places) -> LayerTensor:
    ends = tuple(place for layer in tensor.destinations for place in places[layer])
    return replace(tensor, source=places[tensor.source][0], destinations=ends)


def _moved_shared(found: Shared, places: Places) -> SharedTensor:
    kept, source = found.tensor, found.tensor.source
    at = [tuple(place for layer in layers for place in places[layer]) for layers in (kept.none, kept.selective, kept.full)]
    return SharedTensor(None if source is None else places[source][0], kept.bytes, *at)


def summed_shared(kept: Iterable[SharedTensor]) -> tuple[SharedTensor, ...]:
    """The same with one entry for all tensors that the same layer makes and the same keep, in the order of the layers."""
    sizes: dict[SharedTensor, int] = {}
    for tensor in kept:
        alike = replace(tensor, bytes=0)
        sizes[alike] = sizes.get(alike, 0) + tensor.bytes
    found = (replace(alike, bytes=size) for alike, size in sizes.items())
    return tuple(
        sorted(found, key=lambda tensor: (tensor.layers, tensor.none, tensor.selective, tensor.full, tensor.source or 0))
    )
