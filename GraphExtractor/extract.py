"""From a model name to its training graph."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from Common.errors import PhazeError
from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.context_parallel import shard_context
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.layer_modules import LayerModules, each_layer_module
from GraphExtractor.layers import layers_of
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.opaque import cross_entropy, register_attention
from GraphExtractor.regather import gather_again
from GraphExtractor.replication import ExpandedLayers, Representatives, every_block, expand, keep, representatives
from GraphExtractor.tensor_parallel import shard
from GraphExtractor.tracing import TracedStep, trace_step
from GraphExtractor.widths import check_key

logger = logging.getLogger(__name__)


def extract_graph(key: GraphKey, family: ModelFamily | None = None) -> ModelGraph:
    """Trace one training step of a model and return its graph per device of the tensor-parallel group.

    ``family`` defaults to the registered one of ``key.model``.

    Raises:
        InputError: unknown model, a size that is not positive, or a width that does not divide the model.
        PhazeError: the traced graph breaks an invariant of every training graph.
    """
    if family is None:
        key = replace(key, model=canonical_name(key.model))
        family = find_model(key.model)
    check_key(key, family)
    if key.cp > 1:
        return shard_context(extract_graph(replace(key, cp=1), family), key.cp)
    graph = _extract(key, family)
    broken = check_structure(graph)
    if broken:
        raise PhazeError(f"the graph of {key.model} is not a training graph: {'; '.join(broken)}")
    for violation in check_invariants(graph):  # holds for transformers; other models may have good reasons
        logger.warning("%s: %s", key.model, violation)
    return graph


def _extract(key: GraphKey, family: ModelFamily) -> ModelGraph:
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    model = build_model(key, family, fake)
    modules = family.layer_modules(model)
    sizes = _published_size(model, family, family.padded_vocabulary(key.tp)), _block_size(model, modules)
    expanded = _expanded(key, family, modules, representatives, model, fake)
    if expanded is None:
        logger.info("the layers of %s differ in more than their position; tracing all of them", key.model)
        expanded = _expanded(key, family, modules, every_block, build_model(key, family, fake), fake)
    if expanded is None:
        raise PhazeError(f"the layers of {key.model} cannot be put in sequence")
    return ModelGraph(key, expanded.layers, expanded.sequence, expanded.tensors, *sizes)


def _expanded(
    key: GraphKey,
    family: ModelFamily,
    modules: LayerModules,
    choose: Callable[[torch.nn.Module], Representatives],
    model: torch.nn.Module,
    fake: FakeTensorMode,
) -> ExpandedLayers | None:
    """All layers from a trace of the chosen blocks, None where they do not prove what the others look like."""
    chosen = {stack: choose(model.get_submodule(stack)) for stack in modules.stacks}
    copies = {f"{stack}.{index}".lstrip("."): count for stack, each in chosen.items() for index, count in enumerate(each.copies)}
    return expand(layers_of(trace_model(key, family, modules, chosen, model, fake)), copies)


def trace_model(
    key: GraphKey,
    family: ModelFamily,
    modules: LayerModules,
    chosen: Mapping[str, Representatives],
    model: torch.nn.Module,
    fake: FakeTensorMode,
) -> TracedStep:
    """Reduce ``model`` in place to the ``chosen`` blocks of every stack of one device and trace a training step of it."""
    for stack, each in chosen.items():
        model.set_submodule(stack, keep(model.get_submodule(stack), each))
    layer_modules = each_layer_module(model, modules)
    with _default_dtype(key.dtype), fake:
        shard(model, model.get_submodule(layer_modules[0].path), family.plan, key)
        inputs = family.inputs(key)

    def loss(traced: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return family.loss(traced, values, lambda logits, labels: cross_entropy(logits, labels, key.tp))

    step = trace_step(model, layer_modules, inputs, loss, fake, key.attention)
    return gather_again(step) if key.sequence_parallel else step


def build_model(key: GraphKey, family: ModelFamily, fake: FakeTensorMode) -> torch.nn.Module:
    """Build a model at full size on fake tensors: no weights, no memory."""
    from transformers.initialization import no_init_weights

    attention = register_attention(key.attention)
    with _default_dtype(key.dtype), fake, no_init_weights():
        model = family.build(key, family.padded_vocabulary(key.tp), attention)
        if hasattr(model, "tie_weights"):
            model.tie_weights()  # skipped by no_init_weights
    return model.train()


@contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def _published_size(model: torch.nn.Module, family: ModelFamily, padded: int) -> int:
    """Parameters of the whole model without the padding of the vocabulary, tied ones once."""
    return sum(
        parameter.numel() // padded * family.vocabulary if padded and padded in parameter.shape else parameter.numel()
        for parameter in model.parameters()
    )


def _block_size(model: torch.nn.Module, modules: LayerModules) -> int:
    """Parameters every block of a model with one stack adds to it, not counting those it shares; 0 where blocks differ."""
    if len(modules.stacks) != 1:
        return 0
    holders = Counter(parameter for module in model.modules() for parameter in set(module.parameters(recurse=False)))
    blocks = model.get_submodule(modules.stacks[0]).children()
    sizes = {sum(parameter.numel() for parameter in block.parameters() if holders[parameter] == 1) for block in blocks}
    return sizes.pop() if len(sizes) == 1 else 0
