"""From a model name to its training graph."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from GraphExtractor.attention import register_attention
from GraphExtractor.check import check_structure
from GraphExtractor.context_parallel import SharedTokens, check_tokens_apart
from GraphExtractor.custom_operators import cross_entropy
from GraphExtractor.fake_mode import FakeMode
from GraphExtractor.graph import GraphKey, ModelGraph, StageCuts, TensorLayout
from GraphExtractor.known_values import KnownValues
from GraphExtractor.layer_modules import LayerModules, each_layer_module
from GraphExtractor.layers import layers_of
from GraphExtractor.model_work import division_of, padded_tables
from GraphExtractor.models.base import ModelFamily, TransformerFamily
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.part_writes import with_whole_writes
from GraphExtractor.regather import gather_again
from GraphExtractor.replication import (
    ExpandedLayers,
    Representatives,
    expand,
    keep,
    representatives,
)
from GraphExtractor.run_again import with_parts_again
from GraphExtractor.sources.recorded_forward import RecordedForward, recorded_forward, stands_for
from GraphExtractor.sources.step_check import check_step
from GraphExtractor.tensor_parallel import shard
from GraphExtractor.torch_internals import no_init_weights, quiet_transformers
from GraphExtractor.tracing import TracedStep, substituted_operators, trace_step
from GraphExtractor.two_axes import shard_twice
from GraphExtractor.widths import check_key
from phaze_common.errors import InputError, PhazeError
from phaze_common.requirements import check_versions

logger = logging.getLogger(__name__)


def extract_graph(key: GraphKey, family: ModelFamily | None = None) -> ModelGraph:
    """Trace one training step of a model and return its graph per device of the tensor-parallel
    group.

    ``family`` defaults to the registered one of ``key.model``. What is unusual about the graph is
    for whoever asked for the model to say (``check.warn_of``): this one may stand for another.

    Raises: InputError: unknown model, a size that is not positive, or a width that does not divide
        the model. PhazeError: the traced graph breaks an invariant of every training graph.
    """
    if family is None:
        key = replace(key, model=canonical_name(key.model))
        family = find_model(key.model)
    check_key(key, family)
    graph = _extracted(key, family)
    check_tokens_apart(graph)
    broken = check_structure(graph)
    if broken:
        raise PhazeError(f"the graph of {key.model} is not a training graph: {'; '.join(broken)}")
    return graph


def _extracted(key: GraphKey, family: ModelFamily) -> ModelGraph:
    """The graph of the first form of the model that can be traced; where there is none, what is
    said is of the last one."""
    while True:
        try:
            with family.failures():
                return _extract(key, family)
        except InputError as error:
            if not family.tried_otherwise(error):
                raise


def _extract(key: GraphKey, family: ModelFamily) -> ModelGraph:
    fake = FakeMode()
    model = build_model(key, family, fake)
    modules = family.layer_modules(model)
    sizes = (
        _published_size(model, family, family.padded_vocabulary(key.tp)),
        _block_size(model, modules),
    )
    tries = [
        _representatives(model, modules, ahead) for ahead in ((1, 2) if family.described else (2,))
    ]
    expanded = None
    for chosen in [*tries, {}]:
        expanded = _expanded(key, family, modules, chosen, model, fake)
        if expanded is not None:
            break
        logger.info(
            "the layers of %s differ in more than their position; tracing more of them", key.model
        )
        model = build_model(key, family, fake)
    if expanded is None:
        raise PhazeError(f"the layers of {key.model} cannot be put in sequence")
    return ModelGraph(
        key, expanded.layers, expanded.sequence, expanded.tensors, *sizes, expanded.shared
    )


def _representatives(
    model: torch.nn.Module, modules: LayerModules, ahead: int = 2
) -> dict[str, Representatives]:
    return {stack: representatives(model.get_submodule(stack), ahead) for stack in modules.stacks}


def _expanded(
    key: GraphKey,
    family: ModelFamily,
    modules: LayerModules,
    chosen: Mapping[str, Representatives],
    model: torch.nn.Module,
    fake: FakeMode,
) -> ExpandedLayers | None:
    """All layers from a trace of the chosen blocks, or of all; None where the chosen do not prove
    what the others look like."""
    copies = {
        f"{stack}.{index}".lstrip("."): count
        for stack, each in chosen.items()
        for index, count in enumerate(each.copies)
    }
    shortened = any(count > 1 for count in copies.values())
    if not shortened or family.described:
        return expand(layers_of(trace_model(key, family, modules, chosen, model, fake)), copies)
    forward = partial(_forward_of, key, family, modules, model, fake)
    whole = forward()
    _reduce(model, chosen)
    try:  # code that nobody described may not run on fewer blocks
        if stands_for(forward(), whole, chosen):
            return expand(layers_of(trace_model(key, family, modules, {}, model, fake)), copies)
    except PhazeError as error:  # what it says is of the shortened model
        logger.debug("%s cannot be traced with fewer blocks: %s", key.model, error)
    return None


def _forward_of(
    key: GraphKey,
    family: ModelFamily,
    modules: LayerModules,
    model: torch.nn.Module,
    fake: FakeMode,
) -> RecordedForward:
    with default_dtype(key.dtype), fake, substituted_operators(key.attention), KnownValues():
        inputs = family.inputs(key)
        return recorded_forward(
            model,
            each_layer_module(model, modules),
            lambda: family.loss(model, inputs, partial(cross_entropy, tp=1)),
            key.label,
        )


def _reduce(model: torch.nn.Module, chosen: Mapping[str, Representatives]) -> None:
    for stack, each in chosen.items():
        model.set_submodule(stack, keep(model.get_submodule(stack), each))


def trace_model(
    key: GraphKey,
    family: ModelFamily,
    modules: LayerModules,
    chosen: Mapping[str, Representatives],
    model: torch.nn.Module,
    fake: FakeMode,
) -> TracedStep:
    """Reduce ``model`` in place to the ``chosen`` blocks of every stack of one device and trace a
    training step of it."""
    padded = family.padded_vocabulary(key.tp)
    derived = key.tp > 1 and not family.described and not family.divided_sizes
    if not derived:
        return with_parts_again(_trace_model(key, family, modules, chosen, model, fake, padded))
    from GraphExtractor.derived_sharding import shard_traced

    whole = _trace_model(replace(key, tp=1), family, modules, chosen, model, fake, padded)
    return with_parts_again(shard_traced(whole, key.tp))


def _trace_model(
    key: GraphKey,
    family: ModelFamily,
    modules: LayerModules,
    chosen: Mapping[str, Representatives],
    model: torch.nn.Module,
    fake: FakeMode,
    padded: int,
) -> TracedStep:
    """``trace_model`` where the model is whole, or divided before it is traced; what it checkpoints
    runs once.

    ``padded`` is the vocabulary that it was built with.
    """
    _reduce(model, chosen)
    layer_modules = each_layer_module(model, modules)
    tables = padded_tables(model.named_parameters(), family.parallel_plan, padded)
    whole = {name: parameter.numel() for name, parameter in model.named_parameters()}
    with default_dtype(key.dtype), fake:
        first = model.get_submodule(layer_modules[0].path) if layer_modules else model
        if key.layout is TensorLayout.TWO_D:
            assert isinstance(family, TransformerFamily)  # others are refused
            shard_twice(model, family.parallel_plan, family.hidden, key)
        else:
            shard(model, first, family.parallel_plan, key)
        inputs = family.inputs(
            replace(key, sequence_length=key.sequence_length // key.sequence_devices)
        )

    def loss(traced: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return family.loss(
            traced, values, lambda logits, labels: cross_entropy(logits, labels, key.tp)
        )

    step = trace_step(
        model,
        layer_modules,
        inputs,
        loss,
        fake,
        key.attention,
        SharedTokens.of(key),
        drop_unused=family.drops_unused,
        undescribed=not family.described,
        inner_cuts=key.cuts is StageCuts.INSIDE,
        name=key.label,
    )
    words = family.vocabulary / padded if tables else 1.0
    step = replace(
        step, division=division_of(whole, model.named_parameters(), key.tp, tables, words)
    )
    if not family.described:
        step = with_whole_writes(step)
        check_step(step, key.model)
    return gather_again(step) if key.sequence_parallel or key.sequence_devices > 1 else step


def traced_blocks(key: GraphKey, family: ModelFamily) -> TracedStep:
    """The trace that the graph of ``key`` is made from: of one block of each kind where the others
    are like it.

    Raises:
        InputError: as ``extract_graph``.
    """
    check_key(key, family)
    fake = FakeMode()
    with family.failures():
        model = build_model(key, family, fake)
        modules = family.layer_modules(model)
        chosen = _representatives(model, modules) if family.described else {}
        return trace_model(key, family, modules, chosen, model, fake)


def reduced(model: torch.nn.Module, family: ModelFamily) -> torch.nn.Module:
    """``model`` with the blocks of ``traced_blocks`` alone, in place."""
    if family.described:
        _reduce(model, _representatives(model, family.layer_modules(model)))
    return model


def build_model(key: GraphKey, family: ModelFamily, fake: FakeMode) -> torch.nn.Module:
    """Build a model at full size on fake tensors: no weights, no memory.

    Raises:
        PhazeError: torch or transformers are older than any that was tested.
    """
    check_versions("torch", "transformers")
    attention = register_attention(key.attention, SharedTokens.of(key))
    with default_dtype(key.dtype), quiet_transformers(), fake, no_init_weights():
        model = family.build(key, family.padded_vocabulary(key.tp), attention)
        if hasattr(model, "tie_weights"):
            model.tie_weights()  # skipped by no_init_weights
    return model.train()


@contextmanager
def default_dtype(name: str) -> Iterator[None]:
    """While active, tensors are of this type unless it is said otherwise."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def _published_size(model: torch.nn.Module, family: ModelFamily, padded: int) -> int:
    """Parameters of the whole model without the padding of the vocabulary, tied ones once."""
    tables = padded_tables(model.named_parameters(), family.parallel_plan, padded)
    return sum(
        parameter.numel() // padded * family.vocabulary if name in tables else parameter.numel()
        for name, parameter in model.named_parameters()
    )


def _block_size(model: torch.nn.Module, modules: LayerModules) -> int:
    """Parameters every block of a model with one stack adds to it, not counting those it shares; 0
    where blocks differ."""
    if len(modules.stacks) != 1:
        return 0
    holders = Counter(
        parameter
        for module in model.modules()
        for parameter in set(module.parameters(recurse=False))
    )
    blocks = model.get_submodule(modules.stacks[0]).children()
    sizes = {
        sum(parameter.numel() for parameter in block.parameters() if holders[parameter] == 1)
        for block in blocks
    }
    return sizes.pop() if len(sizes) == 1 else 0
