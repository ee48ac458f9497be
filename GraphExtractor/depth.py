"""The graph of a deeper or shallower model from that of one with the same blocks."""

from collections.abc import Iterator
from dataclasses import replace

from Common.errors import InputError
from GraphExtractor.graph import LayerTensor, ModelGraph, SharedTensor
from GraphExtractor.replication import summed_shared


def with_layers(graph: ModelGraph, layers: int) -> ModelGraph:
    """The same model with ``layers`` repeated blocks; its key still names the model it was made from.

    Raises:
        InputError: the model is not one chain of a single repeated block between an embedding and a head.
    """
    if layers < 1:
        raise InputError(f"{layers} layers are not possible; give a positive whole number")
    blocks = len(graph.sequence) - 2
    if blocks < 2 or graph.sequence != (0, *[1] * blocks, 2) or not graph.block_parameter_count:
        raise InputError(
            f"the depth of {graph.key.model} cannot be changed: it is not one chain of a single block repeated at least twice; "
            "extract it at the depth wanted"
        )
    return replace(
        graph,
        sequence=(0, *[1] * layers, 2),
        tensors=tuple(_tensors(graph, blocks, layers)),
        shared=summed_shared(_shared(graph, blocks, layers)),
        total_parameter_count=graph.total_parameter_count + (layers - blocks) * graph.block_parameter_count,
    )


def _tensors(graph: ModelGraph, blocks: int, layers: int) -> Iterator[LayerTensor]:
    """Tensors between the layers at another depth, by the layer they come from."""
    every_block = tuple(range(1, blocks + 1))
    links: dict[int, list[LayerTensor]] = {}
    for tensor in graph.tensors:
        if tensor.destinations == (tensor.source + 1,):
            links.setdefault(tensor.source, []).append(tensor)
        elif tensor.source == 0 and tensor.destinations == every_block:  # read by all blocks, as rotary tables are
            links.setdefault(0, []).append(replace(tensor, destinations=tuple(range(1, layers + 1))))
        else:
            raise InputError(
                f"the depth of {graph.key.model} cannot be changed: a tensor goes from layer {tensor.source} to layers "
                f"{', '.join(map(str, tensor.destinations))}; extract it at the depth wanted"
            )
    link = [replace(tensor, source=0, destinations=()) for tensor in links.get(1, ())]
    if any([replace(tensor, source=0, destinations=()) for tensor in links.get(block, ())] != link for block in every_block):
        raise InputError(f"the depth of {graph.key.model} cannot be changed: its blocks send different tensors; extract it at it")
    yield from links.get(0, ())
    for position in range(1, layers + 1):
        yield from (replace(tensor, source=position, destinations=(position + 1,)) for tensor in link)


def _shared(graph: ModelGraph, blocks: int, layers: int) -> Iterator[SharedTensor]:
    """What layers keep together at another depth: neighbours what is between them, all blocks what feeds them all."""
    links: dict[int, list[SharedTensor]] = {}
    for kept in graph.shared:
        ends = kept.layers
        if set(range(1, blocks + 1)) <= set(ends) and blocks > 2:
            yield from _if_several(_with_blocks(kept, blocks, layers))
        elif ends == (ends[0], ends[0] + 1):
            links.setdefault(ends[0], []).append(kept)
        else:
            raise InputError(
                f"the depth of {graph.key.model} cannot be changed: layers {', '.join(map(str, ends))} keep one tensor together; "
                "extract it at the depth wanted"
            )
    every = [[_shifted(kept, -source) for kept in links.get(source, ())] for source in range(blocks + 1)]
    if any(link != every[1] for link in every[1:blocks]):
        raise InputError(f"the depth of {graph.key.model} cannot be changed: its blocks keep different tensors; extract it at it")
    yield from links.get(0, ())
    for source in range(1, layers):
        yield from (_shifted(kept, source) for kept in every[1])
    yield from (_shifted(kept, layers) for kept in every[blocks])


def _if_several(kept: SharedTensor) -> Iterator[SharedTensor]:
    if len(kept.layers) > 1:
        yield kept


def _with_blocks(kept: SharedTensor, blocks: int, layers: int) -> SharedTensor:
    def at(ends: tuple[int, ...]) -> tuple[int, ...]:
        first, inner, last = ({0} & {*ends}), ({*ends} - {0, blocks + 1}), ({blocks + 1} & {*ends})
        return (*first, *(range(1, layers + 1) if inner else ()), *(layers + 1 for _ in last))

    return SharedTensor(kept.bytes, at(kept.none), at(kept.selective), at(kept.full))


def _shifted(kept: SharedTensor, by: int) -> SharedTensor:
    return SharedTensor(kept.bytes, *(tuple(end + by for end in ends) for ends in (kept.none, kept.selective, kept.full)))
