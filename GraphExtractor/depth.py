"""The graph of a deeper or shallower model from that of one with the same blocks."""

from collections.abc import Iterator
from dataclasses import replace

from GraphExtractor.graph import LayerTensor, ModelGraph, SharedTensor
from GraphExtractor.replication import summed_shared
from phaze_common.errors import InputError


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
    """What layers save together at another depth: neighbours what one of them makes, all blocks
    what feeds them all."""
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

    modes = (at(saved.none), at(saved.selective), at(saved.full))
    return SharedTensor(saved.source, saved.bytes, *modes)


def _shifted(saved: SharedTensor, by: int) -> SharedTensor:
    assert saved.source is not None  # a link
    places = (
        tuple(place + by for place in mode) for mode in (saved.none, saved.selective, saved.full)
    )
    return SharedTensor(saved.source + by, saved.bytes, *places)
