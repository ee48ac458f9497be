"""The graph of a deeper or shallower model from that of one with the same blocks."""

from collections.abc import Iterator
from dataclasses import replace

from GraphExtractor.graph import LayerTensor, ModelGraph, SharedTensor
from GraphExtractor.replication import summed_shared
from phaze_common.errors import InputError


def with_layers(graph: ModelGraph, layers: int) -> ModelGraph:
    """The same model with ``layers`` repeated blocks; its key still names the model it was made
    from.

    Raises: InputError: the model is not one chain of a single repeated block between an embedding
        and a head.
    """
    if layers < 1:
        raise InputError(f"{layers} layers are not possible; give a positive whole number")
    blocks = len(graph.sequence) - 2
    if blocks < 2 or graph.sequence != (0, *[1] * blocks, 2) or not graph.block_parameter_count:
        raise InputError(
            f"the depth of {graph.key.model} cannot be changed: it is not one chain of a single "
            "block repeated at least twice; extract it at the depth wanted"
        )
    return replace(
        graph,
        sequence=(0, *[1] * layers, 2),
        tensors=tuple(_tensors(graph, blocks, layers)),
        shared=summed_shared(_shared(graph, blocks, layers)),
        total_parameter_count=graph.total_parameter_count
        + (layers - blocks) * graph.block_parameter_count,
    )


def _tensors(graph: ModelGraph, blocks: int, layers: int) -> Iterator[LayerTensor]:
    """Tensors between the layers at another depth, by the layer they come from."""
    every_block = tuple(range(1, blocks + 1))
    links: dict[int, list[LayerTensor]] = {}
    for tensor in graph.tensors:
        if tensor.destinations == (tensor.source + 1,):
            links.setdefault(tensor.source, []).append(tensor)
        elif (
            tensor.source == 0 and tensor.destinations == every_block
        ):  # read by all blocks, as rotary tables are
            links.setdefault(0, []).append(
                replace(tensor, destinations=tuple(range(1, layers + 1)))
            )
        else:
            raise InputError(
                f"the depth of {graph.key.model} cannot be changed: a tensor goes from layer "
                f"{tensor.source} to layers "
                f"{', '.join(map(str, tensor.destinations))}; extract it at the depth wanted"
            )
    link = [replace(tensor, source=0, destinations=()) for tensor in links.get(1, ())]
    if any(
        [replace(tensor, source=0, destinations=()) for tensor in links.get(block, ())] != link
        for block in every_block
    ):
        raise InputError(
            f"the depth of {graph.key.model} cannot be changed: its blocks send different "
            "tensors; extract it at it"
        )
    yield from links.get(0, ())
    for position in range(1, layers + 1):
        yield from (
            replace(tensor, source=position, destinations=(position + 1,)) for tensor in link
        )


def _shared(graph: ModelGraph, blocks: int, layers: int) -> Iterator[SharedTensor]:
    """What layers keep together at another depth: neighbours what one of them makes, all blocks
    what feeds them all."""
    links: dict[int, list[SharedTensor]] = {}
    for kept in graph.shared:
        source, others = kept.source, {*kept.layers} - {kept.source}
        if source is not None and others == {source + 1}:
            links.setdefault(source, []).append(_shifted(kept, -source))
        elif source in (None, 0) and {*range(1, blocks + 1)} <= others:
            found = _with_blocks(kept, blocks, layers)
            if len(found.layers) > 1:
                yield found
        else:
            raise InputError(
                f"the depth of {graph.key.model} cannot be changed: its layers "
                f"{', '.join(map(str, kept.layers))} keep a tensor "
                "together; extract it at the depth wanted"
            )
    between = links.get(1, [])
    if any(links.get(block, []) != between for block in range(1, blocks)):
        raise InputError(
            f"the depth of {graph.key.model} cannot be changed: its blocks keep different "
            "tensors; extract it at it"
        )
    yield from links.get(0, ())
    for source in range(1, layers):
        yield from (_shifted(kept, source) for kept in between)
    yield from (_shifted(kept, layers) for kept in links.get(blocks, ()))


def _with_blocks(kept: SharedTensor, blocks: int, layers: int) -> SharedTensor:
    """What all blocks keep, and maybe the ends."""

    def at(places: tuple[int, ...]) -> tuple[int, ...]:
        inner = range(1, layers + 1) if any(1 <= place <= blocks for place in places) else ()
        return (
            *(place for place in places if place == 0),
            *inner,
            *(layers + 1 for place in places if place > blocks),
        )

    return SharedTensor(kept.source, kept.bytes, at(kept.none), at(kept.selective), at(kept.full))


def _shifted(kept: SharedTensor, by: int) -> SharedTensor:
    assert kept.source is not None  # a link
    places = (
        tuple(place + by for place in layers) for layers in (kept.none, kept.selective, kept.full)
    )
    return SharedTensor(kept.source + by, kept.bytes, *places)
