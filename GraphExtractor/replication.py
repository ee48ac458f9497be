"""Repeated layers: which blocks to trace, how these stand for all of them, and other depths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from GraphExtractor.graph import LayerGraph, LayerTensor, ModelGraph, SharedTensor
from GraphExtractor.layer_modules import structure
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch

    from GraphExtractor.layers import TracedLayers
    from GraphExtractor.segments import LayerPlace

Places = Mapping[int, tuple[int, ...]]  # of each traced layer in the sequence


@dataclass(frozen=True)
class Representatives:
    """Blocks to trace, by position, and how many consecutive blocks each of them stands for."""

    chosen: tuple[int, ...]
    copies: tuple[int, ...]


@dataclass(frozen=True)
class ExpandedLayers:
    """Distinct layers, the sequence of all layers over them, and their tensors."""

    layers: tuple[LayerGraph, ...]
    sequence: tuple[int, ...]
    tensors: tuple[LayerTensor, ...]
    shared: tuple[SharedTensor, ...]


def representatives(blocks: torch.nn.Module, ahead: int = 2, left_out: int = 0) -> Representatives:
    """Of every run of equally built blocks the first ``ahead`` ones, the next (for all in between)
    and the last; so many that are built as all others are were ``left_out``.

    None ahead does where the first block is like the last; one where it is like the next. Of a
    model whose first block differs (by what it need not give a gradient for, say) the second is.
    """
    structures = [structure(block) for block in blocks.children()]
    chosen: list[int] = []
    copies: list[int] = []
    start = 0
    while start < len(structures):
        end = start
        while end < len(structures) and structures[end] == structures[start]:
            end += 1
        run = end - start + left_out
        shortened = run > ahead + 2
        chosen += [*range(start, start + ahead + 1), end - 1] if shortened else range(start, end)
        copies += [*[1] * ahead, run - ahead - 1, 1] if shortened else [1] * run
        start = end
    return Representatives(tuple(chosen), tuple(copies))


def reduced_to(blocks: torch.nn.Module, chosen: Representatives) -> torch.nn.Module:
    """The list of the chosen blocks alone."""
    from torch import nn

    children = list(blocks.children())
    some = [children[index] for index in chosen.chosen]
    return nn.Sequential(*some) if isinstance(blocks, nn.Sequential) else nn.ModuleList(some)


def expand(
    traced: TracedLayers, copies_of: Mapping[str, int], *, as_before: bool = True
) -> ExpandedLayers | None:
    """All layers from the traced ones, or None where these do not prove what the others are.

    ``copies_of`` says for how many blocks the module at a path stands (default 1), with all its
    parts where they are cut inside. A representative of several blocks must equal the traced block
    before it (in a run of alternating blocks it does not), or the one behind it unless
    ``as_before``, and its tensors may only stay in it, go to the next block or come from a layer
    that feeds the whole run.
    """
    runs = _runs(traced.places, copies_of)
    run_of = [run for run in runs for _ in range(run.parts)]
    traced_beside = (-1, 1) if as_before else (1,)
    layers: list[LayerGraph] = []
    for position, layer in enumerate(traced.layers):
        run = run_of[position]
        other = position + traced_beside[0] * run.parts
        if run.copies > 1 and (
            not 0 <= other < len(run_of)
            or run_of[other].parts != run.parts
            or layer != traced.layers[other]
        ):
            return None
        if layer not in layers:
            layers.append(layer)
    sequence: list[int] = []
    for run in runs:
        parts = traced.layers[run.first : run.first + run.parts]
        sequence += [layers.index(layer) for layer in parts] * run.copies
    tensors: list[LayerTensor] = []
    for tensor in traced.tensors:
        places = _places(tensor.source, tensor.destinations, run_of, traced_beside)
        if places is None:
            return None
        for each in places:
            ends = tuple(place for layer in tensor.destinations for place in each[layer])
            tensors.append(replace(tensor, source=each[tensor.source][0], destinations=ends))
    saved: list[SharedTensor] = []
    for shared in traced.shared:
        places = _places(shared.tensor.source, shared.readers, run_of, traced_beside)
        if places is None:
            return None
        saved += [_moved_shared(shared.tensor, each) for each in places]
    # models that iterate over sets make them in any order
    tensors.sort(key=lambda tensor: (tensor.source, tensor.destinations))
    return ExpandedLayers(tuple(layers), tuple(sequence), tuple(tensors), summed_shared(saved))


@dataclass(frozen=True)
class _Run:
    """Parts of a block that stands for ``copies``: the ``first`` of them, and its place."""

    first: int
    parts: int
    copies: int
    start: int

    def place(self, layer: int, copy: int) -> int:
        """Where the traced ``layer`` of a copy lies in the sequence."""
        return self.start + copy * self.parts + layer - self.first


def _runs(places: tuple[LayerPlace, ...], copies_of: Mapping[str, int]) -> list[_Run]:
    firsts = [position for position, place in enumerate(places) if place.part == 0]
    runs: list[_Run] = []
    start = 0
    for first, end in zip(firsts, [*firsts[1:], len(places)], strict=True):
        runs.append(_Run(first, end - first, copies_of.get(places[first].path, 1), start))
        start += runs[-1].parts * runs[-1].copies
    return runs


def _places(
    source: int | None, readers: tuple[int, ...], run_of: list[_Run], beside: tuple[int, ...]
) -> list[Places] | None:
    """Where the maker of a tensor (None: an input) and its readers lie, for each of its copies;
    blocks so many places ``beside`` a representative were traced too."""
    if source is not None:
        run = run_of[source]
        behind = run_of[run.first + run.parts] if run.first + run.parts < len(run_of) else None
        end = run.first + run.parts + (0 if behind is None else behind.parts)
        if all(source < reader < end for reader in readers):  # a chain: every copy feeds the next
            return [_in_chain(source, readers, copy, run, behind) for copy in range(run.copies)]
    layers = readers if source is None else (source, *readers)
    feeds_whole_runs = all(
        run_of[r].copies == 1 or {r + step * run_of[r].parts for step in beside} <= {*layers}
        for r in readers
    )
    if (source is not None and run_of[source].copies > 1) or not feeds_whole_runs:
        return None
    found: dict[int, tuple[int, ...]] = {}
    for layer in layers:
        run = run_of[layer]
        found[layer] = tuple(run.place(layer, copy) for copy in range(run.copies))
    return [found]


def _in_chain(
    source: int, readers: tuple[int, ...], copy: int, run: _Run, behind: _Run | None
) -> Places:
    """Readers in the copy that makes it, or in the next: another copy, or the run behind."""
    found = {source: (run.place(source, copy),)}
    for reader in readers:
        if reader < run.first + run.parts:
            found[reader] = (run.place(reader, copy),)
            continue
        assert behind is not None
        if copy + 1 < run.copies:
            found[reader] = (run.place(reader - behind.first + run.first, copy + 1),)
        else:
            found[reader] = (behind.place(reader, 0),)
    return found


def _moved_shared(saved: SharedTensor, places: Places) -> SharedTensor:
    source = None if saved.source is None else places[saved.source][0]
    return saved.moved(source, lambda layers: tuple(at for each in layers for at in places[each]))


def summed_shared(saved: Iterable[SharedTensor]) -> tuple[SharedTensor, ...]:
    """One entry for all tensors that the same layers make and save, in the order of the layers."""
    sizes: Counter[SharedTensor] = Counter()
    for tensor in saved:
        sizes[replace(tensor, bytes=0)] += tensor.bytes

    def order(tensor: SharedTensor) -> tuple[object, ...]:
        modes = tensor.none, tensor.selective, tensor.full
        return tensor.layers, *modes, tensor.source or 0

    found = (replace(alike, bytes=size) for alike, size in sizes.items())
    return tuple(sorted(found, key=order))


def with_layers(graph: ModelGraph, layers: int) -> ModelGraph:
    """The same model with ``layers`` repeated blocks; its key still names the first one.

    Raises: InputError: the model is not one chain of a single repeated block between two ends.
    """
    if layers < 1:
        raise InputError(f"{layers} layers are not possible; give a positive whole number")
    blocks = len(graph.sequence) - 2
    if blocks < 2 or graph.sequence != (0, *[1] * blocks, 2) or not graph.block_parameter_count:
        raise _fixed_depth(
            graph,
            "it is not one chain of a single block repeated at least twice; extract it at the "
            "depth wanted",
        )
    return replace(
        graph,
        sequence=(0, *[1] * layers, 2),
        tensors=tuple(_tensors(graph, blocks, layers)),
        shared=summed_shared(_shared(graph, blocks, layers)),
        total_parameter_count=graph.total_parameter_count
        + (layers - blocks) * graph.block_parameter_count,
    )


def _fixed_depth(graph: ModelGraph, why: str) -> InputError:
    return InputError(f"the depth of {graph.key.model} cannot be changed: {why}")


def _tensors(graph: ModelGraph, blocks: int, layers: int) -> Iterator[LayerTensor]:
    """Tensors between the layers at another depth, by the layer they come from."""
    every_block = tuple(range(1, blocks + 1))
    links: dict[int, list[LayerTensor]] = {}
    for tensor in graph.tensors:
        source, ends = tensor.source, tensor.destinations
        if ends == (source + 1,):
            links.setdefault(source, []).append(tensor)
        elif source == 0 and ends == every_block:  # read by all blocks, as rotary tables are
            everywhere = replace(tensor, destinations=tuple(range(1, layers + 1)))
            links.setdefault(0, []).append(everywhere)
        else:
            raise _fixed_depth(
                graph,
                f"a tensor goes from layer {source} to layers {', '.join(map(str, ends))}; "
                "extract it at the depth wanted",
            )

    def leaving(block: int) -> list[LayerTensor]:
        return [replace(tensor, source=0, destinations=()) for tensor in links.get(block, ())]

    link = leaving(1)
    if any(leaving(block) != link for block in every_block):
        raise _fixed_depth(graph, "its blocks send different tensors; extract it at it")
    yield from links.get(0, ())
    for position in range(1, layers + 1):
        yield from (
            replace(tensor, source=position, destinations=(position + 1,)) for tensor in link
        )


def _shared(graph: ModelGraph, blocks: int, layers: int) -> Iterator[SharedTensor]:
    """What layers save together at another depth: neighbours theirs, all blocks what feeds all."""
    links: dict[int, list[SharedTensor]] = {}
    for saved in graph.shared:
        source, others = saved.source, {*saved.layers} - {saved.source}
        if source is not None and others == {source + 1}:
            links.setdefault(source, []).append(_shifted(saved, -source))
        elif source in (None, 0) and {*range(1, blocks + 1)} <= others:
            found = _with_blocks(saved, blocks, layers)
            if len(found.layers) > 1:
                yield found
        else:
            raise _fixed_depth(
                graph,
                f"its layers {', '.join(map(str, saved.layers))} keep a tensor together; extract "
                "it at the depth wanted",
            )
    between = links.get(1, [])
    if any(links.get(block, []) != between for block in range(1, blocks)):
        raise _fixed_depth(graph, "its blocks keep different tensors; extract it at it")
    yield from links.get(0, ())
    for source in range(1, layers):
        yield from (_shifted(saved, source) for saved in between)
    yield from (_shifted(saved, layers) for saved in links.get(blocks, ()))


def _with_blocks(saved: SharedTensor, blocks: int, layers: int) -> SharedTensor:
    """What all blocks save, and maybe the ends."""

    def at(places: tuple[int, ...]) -> tuple[int, ...]:
        inner = range(1, layers + 1) if any(1 <= place <= blocks for place in places) else ()
        ends = (layers + 1 for place in places if place > blocks)
        return (*(place for place in places if place == 0), *inner, *ends)

    return saved.moved(saved.source, at)


def _shifted(saved: SharedTensor, by: int) -> SharedTensor:
    assert saved.source is not None  # a link
    return saved.moved(saved.source + by, lambda layers: tuple(place + by for place in layers))
