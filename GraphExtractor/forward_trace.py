"""The forward pass of a model that is to run: operators on real shapes, each with its layer.

As in ``tracing``, but what stands in the graph can be executed: no weights are shrunk away,
attention, norms and losses are torch's own, and of operators that are shape functions only the two
below are left. Dropout is off.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from operator import getitem
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import Node
from torch.nn import functional

from GraphExtractor import custom_operators
from GraphExtractor.custom_operators import define_collective
from GraphExtractor.extract import default_dtype
from GraphExtractor.graph import GraphKey, StageCuts
from GraphExtractor.layer_modules import each_layer_module
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.recording import Recorder
from GraphExtractor.segments import segments, with_inner_cuts
from GraphExtractor.sources.building import shapes_only
from GraphExtractor.tensor_parallel import shard
from GraphExtractor.torch_internals import (
    DataDependentOutputException,
    FakeTensorMode,
    no_init_weights,
    quiet_transformers,
    traceback,
)
from GraphExtractor.tracing import Stamper, StepLoss
from phaze_common.errors import InputError
from phaze_common.requirements import check_versions

ATTENTION = "sdpa"  # of Hugging Face models: torch's own function
# which extraction puts another one in the place of for a while
_TORCH_ATTENTION = functional.scaled_dot_product_attention

# where the devices that share a layer's products begin to work on parts of it (Megatron's f), and
# where these are added (g)
enter_group, leave_group = map(define_collective, ("enter_group", "leave_group"))


@dataclass(frozen=True)
class ForwardTrace:
    """A traced forward pass up to the loss.

    ``parameters`` and ``inputs`` are placeholders, ``constants`` nodes with values of their own;
    ``layer`` is the place of every operator's layer among the ``layers``, which are named as those
    of plans.
    """

    graph: torch.fx.Graph
    parameters: Mapping[Node, str]
    inputs: Mapping[Node, str]
    constants: Mapping[Node, torch.Tensor]
    layer: Mapping[Node, int]
    layers: tuple[str, ...]
    loss: Node


def real_model(family: ModelFamily, key: GraphKey) -> torch.nn.Module:
    """The model of ``family`` with real buffers; weights take no memory until they are written.

    Raises: InputError: the model cannot be built. PhazeError: torch or transformers are older than
        any that was tested.
    """
    check_versions("torch", "transformers")
    with default_dtype(key.dtype), quiet_transformers(), no_init_weights(), shapes_only():
        model = family.build(replace(key, tp=1), family.padded_vocabulary(1), ATTENTION)
    with no_init_weights():
        if hasattr(model, "tie_weights"):
            model.tie_weights()
    return model.eval().to(getattr(torch, key.dtype))


def input_shapes(family: ModelFamily, key: GraphKey) -> Mapping[str, torch.Tensor]:
    """Inputs of a micro-batch by name: tensors of their shapes and types, without values."""
    with default_dtype(key.dtype), FakeTensorMode(allow_non_fake_inputs=True):
        return family.inputs(replace(key, tp=1))


def trace_forward(model: torch.nn.Module, family: ModelFamily, key: GraphKey) -> ForwardTrace:
    """Trace the loss of ``model``, of ``real_model``; above ``key.tp`` 1 it is shrunk to a part.

    Embedding and head are then whole on every device of the group.

    Raises: InputError: the model's code depends on the value of a tensor, or cannot be divided.
    """
    layer_modules = each_layer_module(model, family.layer_modules(model))
    if key.tp > 1:
        first = model.get_submodule(layer_modules[0].path) if layer_modules else model
        shard(model, first, replace(family.parallel_plan, embedding="", head=""), key)
    inputs = input_shapes(family, key)
    parameters = dict(model.named_parameters())
    stamper = Stamper(model, layer_modules)
    step = StepLoss(model, lambda traced, values: family.loss(traced, values, mean_cross_entropy))

    try:
        with (
            FakeTensorMode(allow_non_fake_inputs=True) as fake,
            default_dtype(key.dtype),
            torch.no_grad(),
            traceback.preserve_node_meta(),
            plain_operators(),
        ):
            weights = {f"model.{name}": fake.from_tensor(each) for name, each in parameters.items()}
            values = [torch.empty(value.shape, dtype=value.dtype) for value in inputs.values()]
            recorder = Recorder([*weights.values(), *values])
            with recorder, stamper.stamping():
                given = dict(zip(inputs, values, strict=True))
                recorder.end([torch.func.functional_call(step, weights, (given,))])
    except DataDependentOutputException as error:
        raise InputError(
            f"{key.model} asks for the value of a tensor in its forward pass and cannot be cut; "
            "give another"
        ) from error
    return _described(recorder, tuple(parameters), tuple(inputs), stamper, key.cuts)


def _described(
    recorder: Recorder,
    parameters: Sequence[str],
    inputs: Sequence[str],
    stamper: Stamper,
    cuts: StageCuts,
) -> ForwardTrace:
    graph = recorder.graph
    graph.eliminate_dead_code()
    placeholders, constants, calls = (
        [node for node in graph.nodes if node.op == op]
        for op in ("placeholder", "get_attr", "call_function")
    )
    weights = dict(zip(placeholders, parameters, strict=False))
    stamps = {node: node.meta["custom"]["stamp"] for node in calls}
    found = segments(stamps, stamper.runs, frozenset(weights))
    if cuts is StageCuts.INSIDE:
        found = with_inner_cuts(found, stamps, frozenset(weights))
    layer = dict(found.layer)
    for node in calls:  # parts of a result stay with the operator that gives it
        if node.target is getitem:
            layer[node] = layer[node.args[0]]
    (loss,) = next(node for node in graph.nodes if node.op == "output").all_input_nodes
    return ForwardTrace(
        graph=graph,
        parameters=weights,
        inputs=dict(zip(placeholders[len(weights) :], inputs, strict=True)),
        constants={node: recorder.constants[node.target] for node in constants},
        layer=layer,
        layers=numbered([place.name for place in found.places]),
        loss=loss,
    )


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The names as plans know them: those that several layers have are numbered from 0."""
    often, numbers = Counter(names), defaultdict[str, Iterator[int]](count)
    return tuple(f"{name}.{next(numbers[name])}" if often[name] > 1 else name for name in names)


def mean_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of logits (..., vocabulary) in their own precision."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


class _Marked:
    """In the place of pairs of communication: operators that whoever runs the graph replaces."""

    @staticmethod
    def apply(tp: int, forward: Callable[..., Any], _: Callable[..., Any], x: torch.Tensor) -> Any:
        """Note where a group of devices is entered or left."""
        return (leave_group if forward is custom_operators.all_reduce else enter_group)(x, tp)


class _PlainNorm:
    """In the place of the fused norm, which is a shape function: torch's own."""

    @staticmethod
    def apply(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Normalise the last dimension."""
        return functional.rms_norm(x, weight.shape, weight, epsilon)


def plain_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Torch's attention without dropout; its steps where a mask of numbers has a gradient."""
    if attn_mask is None or not attn_mask.is_floating_point():
        fused: torch.Tensor = _TORCH_ATTENTION(
            q, k, v, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return fused
    if enable_gqa:
        k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + attn_mask
    if is_causal:
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1) @ v


@contextmanager
def plain_operators() -> Iterator[None]:
    """While active, attention and norms are torch's own, dropout is off, all have gradients."""
    # the kernel for inference, which has no gradient
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            patch.object(functional, "scaled_dot_product_attention", plain_attention),
            patch.object(custom_operators, "_Collective", _Marked),
            patch.object(custom_operators, "_RmsNorm", _PlainNorm),
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
