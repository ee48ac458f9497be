"""From a model name to its training graph."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch

from GraphExtractor.attention import register_attention
from GraphExtractor.check import check_structure
from GraphExtractor.context_parallel import SharedTokens, check_tokens_apart
from GraphExtractor.custom_operators import cross_entropy
from GraphExtractor.fake_mode import FakeMode
from GraphExtractor.graph import GraphKey, ModelGraph, StageCuts, TensorLayout
from GraphExtractor.known_values import KnownValues
from GraphExtractor.layer_modules import LayerModules, each_layer_module, structure
from GraphExtractor.layers import layers_of
from GraphExtractor.meta_mode import MetaMode
from GraphExtractor.model_work import division_of, padded_tables
from GraphExtractor.models.base import ModelFamily, TransformerFamily
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.part_writes import check_step, with_whole_writes
from GraphExtractor.replication import (
    ExpandedLayers,
    Representatives,
    expand,
    reduced_to,
    representatives,
)
from GraphExtractor.run_again import gather_again, with_parts_again
from GraphExtractor.sources.recorded_forward import RecordedForward, recorded_forward, stands_for
from GraphExtractor.tensor_parallel import shard
from GraphExtractor.torch_internals import no_init_weights, quiet_transformers
from GraphExtractor.tracing import TracedStep, substituted_operators, trace_step
from GraphExtractor.two_axes import shard_twice
from GraphExtractor.widths import check_key
from phaze_common.errors import InputError, PhazeError
from phaze_common.requirements import check_versions

logger = logging.getLogger(__name__)


def extract_graph(key: GraphKey, family: ModelFamily | None = None) -> ModelGraph:
    """Trace one training step of a model and return its graph per device of the group.

    ``family`` defaults to the registered one of ``key.model``. What is unusual about the graph is
    for whoever wants the model to say (``check.warn_of``): this one may stand for another.

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
    """The graph of the first form of the model that can be traced; errors are of the last one."""
    while True:
        try:
            with family.failures():
                return _extract(key, family)
        except InputError as error:
            if not family.tried_otherwise(error):
                raise


def _extract(key: GraphKey, family: ModelFamily) -> ModelGraph:
    alike = family.described and _blocks_are_alike(family, replace(key, micro_batch_size=1, tp=1))
    built = BuiltModel.of(key, family, 2 if alike else None)
    sizes = built.published_size(), built.block_size()
    for ahead in _tried_ahead(built):
        chosen = {} if ahead is None else built.representatives(ahead)
        found = built.expanded(chosen, as_before=ahead != 0)
        if found is not None:
            shared = found.shared
            parts = found.layers, found.sequence, found.tensors
            return ModelGraph(key, *parts, *sizes, shared, family.chosen_groups)
        logger.info(
            "the layers of %s differ in more than their position; tracing more of them", key.model
        )
        more = ahead + 3 if alike and ahead is not None and ahead < 2 else None
        built = BuiltModel.of(key, family, more)
    raise PhazeError(f"the layers of {key.model} cannot be put in sequence")


@lru_cache(maxsize=64)
def _blocks_are_alike(family: ModelFamily, key: GraphKey) -> bool:
    """Whether the layers of a model are blocks that are all built alike, so that some of them show
    all; ``key`` is but that of the first graph of many."""
    built = BuiltModel.of(key, family)
    if len(built.modules.stacks) != 1 or built.modules.alone:
        return False
    blocks = list(built.model.get_submodule(built.modules.stacks[0]).children())
    first = structure(blocks[0])
    return len(blocks) == family.layers and all(structure(each) == first for each in blocks[1:])


def _tried_ahead(built: "BuiltModel") -> tuple[int | None, ...]:
    """Blocks ahead of those that stand for others, in the order in which they are tried (None: all
    blocks are traced). A first block feeds two stacks otherwise than a later one."""
    if not built.family.described:
        return 2, None
    return (0, 1, 2, None) if len(built.modules.stacks) == 1 else (1, 2, None)


@dataclass(frozen=True)
class BuiltModel:
    """A model of ``family`` on tensors of ``mode``, with its layers; tracing changes it.

    So many blocks of its one stack, which are as the others, are ``left_out``.
    """

    key: GraphKey
    family: ModelFamily
    mode: FakeMode | MetaMode
    model: torch.nn.Module
    modules: LayerModules
    left_out: int = 0

    @staticmethod
    def of(key: GraphKey, family: ModelFamily, blocks: int | None = None) -> "BuiltModel":
        """Build it, with so many ``blocks`` of those that are alike (None: all).

        Raises: PhazeError: as ``build_model``.
        """
        on_meta = family.described and not family.asks_values
        mode = MetaMode() if on_meta else FakeMode()
        fewer = family if blocks is None else replace(family, layers=min(family.layers, blocks))
        model = build_model(key, fewer, mode)
        left_out = family.layers - fewer.layers
        return BuiltModel(key, family, mode, model, family.layer_modules(model), left_out)

    def representatives(self, ahead: int = 2) -> dict[str, Representatives]:
        """Blocks to trace of every stack."""
        return {
            each: representatives(self.model.get_submodule(each), ahead, self.left_out)
            for each in self.modules.stacks
        }

    def reduce(self, chosen: Mapping[str, Representatives]) -> None:
        """Leave the ``chosen`` blocks of every stack alone."""
        for stack, each in chosen.items():
            self.model.set_submodule(stack, reduced_to(self.model.get_submodule(stack), each))

    def expanded(
        self, chosen: Mapping[str, Representatives], *, as_before: bool = True
    ) -> ExpandedLayers | None:
        """All layers from a trace of chosen blocks; None where these do not prove the others."""
        copies = {
            f"{stack}.{index}".lstrip("."): count
            for stack, each in chosen.items()
            for index, count in enumerate(each.copies)
        }
        if self.family.described or all(count == 1 for count in copies.values()):
            return expand(layers_of(self.trace(chosen)), copies, as_before=as_before)
        whole = self._forward()
        self.reduce(chosen)
        try:  # code that nobody described may not run on fewer blocks
            if stands_for(self._forward(), whole, chosen):
                return expand(layers_of(self.trace({})), copies)
        except PhazeError as error:  # what it says is of the shortened model
            logger.debug("%s cannot be traced with fewer blocks: %s", self.key.model, error)
        return None

    def _forward(self) -> RecordedForward:
        key, model = self.key, self.model
        with (
            default_dtype(key.dtype),
            self.mode,
            substituted_operators(key.attention),
            KnownValues(),
        ):
            inputs = self.family.inputs(key)
            return recorded_forward(
                model,
                each_layer_module(model, self.modules),
                lambda: self.family.loss(model, inputs, partial(cross_entropy, tp=1)),
                key.label,
            )

    def trace(self, chosen: Mapping[str, Representatives]) -> TracedStep:
        """Reduce the model to the ``chosen`` blocks of one device and trace a step of it."""
        key, family = self.key, self.family
        self.reduce(chosen)
        if key.tp == 1 or family.described or family.divided_sizes:
            return with_parts_again(self._trace(key))
        from GraphExtractor.derived_sharding import shard_traced

        return with_parts_again(shard_traced(self._trace(replace(key, tp=1)), key.tp))

    def _trace(self, key: GraphKey) -> TracedStep:
        """A whole or already divided model; what it checkpoints runs once."""
        family, model, plan = self.family, self.model, self.family.parallel_plan
        layer_modules = each_layer_module(model, self.modules)
        tables = self._tables()
        whole = {name: parameter.numel() for name, parameter in model.named_parameters()}
        with default_dtype(key.dtype), self.mode:
            first = model.get_submodule(layer_modules[0].path) if layer_modules else model
            if key.layout is TensorLayout.TWO_D:
                assert isinstance(family, TransformerFamily)  # others are refused
                shard_twice(model, plan, family.hidden, key)
            else:
                shard(model, first, plan, key)
            own_tokens = key.sequence_length // key.sequence_devices
            inputs = family.inputs(replace(key, sequence_length=own_tokens))
        entropy = partial(cross_entropy, tp=key.tp)
        step = trace_step(
            model,
            layer_modules,
            inputs,
            lambda traced, values: family.loss(traced, values, entropy),
            self.mode,
            key.attention,
            SharedTokens.of(key),
            drop_unused=family.drops_unused,
            undescribed=not family.described,
            inner_cuts=key.cuts is StageCuts.INSIDE,
            name=key.label,
        )
        words = family.vocabulary / self._padded() if tables else 1.0
        division = division_of(whole, model.named_parameters(), key.tp, tables, words)
        step = replace(step, division=division)
        if not family.described:
            step = with_whole_writes(step)
            check_step(step, key.model)
        return gather_again(step) if key.sequence_parallel or key.sequence_devices > 1 else step

    def _padded(self) -> int:
        return self.family.padded_vocabulary(self.key.tp)

    def _tables(self) -> frozenset[str]:
        plan = self.family.parallel_plan
        return padded_tables(self.model.named_parameters(), plan, self._padded())

    def published_size(self) -> int:
        """Parameters of the whole model without the padding of the vocabulary, tied ones once."""
        tables, padded = self._tables(), self._padded()
        stack = self.modules.stacks[0] if self.left_out else ""
        last = f"{stack}.{len(self.model.get_submodule(stack)) - 1}." if self.left_out else ""
        return sum(
            (each.numel() // padded * self.family.vocabulary if name in tables else each.numel())
            * (1 + self.left_out * (bool(last) and name.startswith(last)))
            for name, each in self.model.named_parameters()
        )

    def block_size(self) -> int:
        """Parameters that every block of the one stack adds, shared ones left out; else 0."""
        if len(self.modules.stacks) != 1:
            return 0
        parts = [set(module.parameters(recurse=False)) for module in self.model.modules()]
        holders = Counter(parameter for part in parts for parameter in part)
        sizes = {
            sum(parameter.numel() for parameter in block.parameters() if holders[parameter] == 1)
            for block in self.model.get_submodule(self.modules.stacks[0]).children()
        }
        return sizes.pop() if len(sizes) == 1 else 0


def traced_blocks(key: GraphKey, family: ModelFamily) -> TracedStep:
    """The trace that the graph of ``key`` is made from: one block of each kind.

    Raises: InputError: as ``extract_graph``.
    """
    check_key(key, family)
    with family.failures():
        built = BuiltModel.of(key, family)
        return built.trace(built.representatives() if family.described else {})


def reduced(model: torch.nn.Module, family: ModelFamily) -> torch.nn.Module:
    """``model`` with the blocks of ``traced_blocks`` alone, in place."""
    for stack in family.layer_modules(model).stacks if family.described else ():
        blocks = model.get_submodule(stack)
        model.set_submodule(stack, reduced_to(blocks, representatives(blocks)))
    return model


def build_model(
    key: GraphKey, family: ModelFamily, mode: AbstractContextManager[Any]
) -> torch.nn.Module:
    """Build a model at full size on the tensors of ``mode``: no weights, no memory.

    Raises: PhazeError: torch or transformers are older than any that was tested.
    """
    check_versions("torch", "transformers")
    attention = register_attention(key.attention, SharedTokens.of(key))
    with default_dtype(key.dtype), quiet_transformers(), mode, no_init_weights():
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
