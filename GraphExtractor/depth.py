"""The graph of a deeper or shallower model from that of one with the same blocks."""

from collections.abc import Iterator
from dataclasses import replace

from Common.errors import InputError
from GraphExtractor.graph import LayerTensor, ModelGraph


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
    if layers == 1 and any(len(tensor.destinations) > 1 for tensor in graph.tensors):
        raise InputError(f"a single block of {graph.key.model} would keep what its blocks share; extract it at depth 1")
    return replace(
        graph,
        sequence=(0, *[1] * layers, 2),
        tensors=tuple(_tensors(graph, blocks, layers)),
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
