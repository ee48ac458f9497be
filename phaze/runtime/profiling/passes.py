"""Whole passes through the blocks of a model as torch runs them: modules, the graph of gradients
and all.

Beside the seconds of their operators alone they say what a framework adds
(``Estimator.profiled.overhead``).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from Estimator.profiled.machine import Clock
from Estimator.profiled.rows import Timing
from GraphExtractor.attention import register_attention
from GraphExtractor.custom_operators import FusedRmsNorm, cross_entropy
from GraphExtractor.extract import default_dtype, reduced
from GraphExtractor.graph import Attention, GraphKey, Phase
from GraphExtractor.models.base import ModelFamily
from phaze.runtime.profiling.kernels import real_inputs
from phaze.runtime.profiling.real_operators import register_torch_attention
from phaze.runtime.profiling.timing import Repeats, now, timing_of


def real_model(key: GraphKey, family: ModelFamily, device: str) -> torch.nn.Module:
    """The blocks that are traced for ``key``, on one device, with weights of ``device``; of one of
    several equal blocks one."""
    if key.attention is Attention.FLASH:
        attention = register_torch_attention()
    else:
        attention = register_attention(key.attention)
    with default_dtype(key.dtype):
        model = reduced(family.build(key, family.padded_vocabulary(1), attention), family)
    for path, module in list(model.named_modules()):
        if isinstance(module, FusedRmsNorm):  # which is traced, and has no kernel
            norm = torch.nn.RMSNorm(module.weight.shape, module.epsilon, dtype=module.weight.dtype)
            norm.weight = module.weight
            model.set_submodule(path, norm)
        elif isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.to(device).train()


def measured_passes(
    key: GraphKey,
    family: ModelFamily,
    device: str,
    clock: Clock,
    repeats: Repeats,
    blocks: Sequence[str] = (),
) -> Mapping[tuple[Phase, str], Timing]:
    """Seconds of both passes of a micro-batch through the ``blocks`` of ``real_model``, by phase
    and path; of the whole, with the loss, under "" where none is seen in every step.

    What a model does around its blocks (masks, checks of arguments) is no part of them, and not of
    a stage of a pipeline either.
    """
    model = real_model(key, family, device)
    watches = [_Watch(model.get_submodule(path), clock) for path in blocks]
    inputs = {name: value.to(device) for name, value in real_inputs(key, family).items()}
    seconds: dict[Phase, list[float]] = {phase: [] for phase in Phase}
    started = time.monotonic()
    for index in range(repeats.warm_up + repeats.most):
        forward_s, backward_s = _step(model, family, inputs, clock)
        if index < repeats.warm_up:
            continue
        seconds[Phase.FORWARD].append(forward_s)
        seconds[Phase.BACKWARD].append(backward_s)
        if repeats.enough(seconds.values(), started):
            break
    del model
    gc.collect()
    found: dict[tuple[Phase, str], Timing] = {}
    for phase, whole in seconds.items():
        watched = zip(blocks, watches, strict=True)
        of_blocks = {path: watch.seconds[phase][repeats.warm_up :] for path, watch in watched}
        of_blocks = {path: each for path, each in of_blocks.items() if each} or {"": whole}
        found |= {(phase, path): timing_of(each) for path, each in of_blocks.items()}
    return found


class _Watch:
    """Seconds of a module's passes: from its call to its result, and from the gradient of its
    result to that of its input."""

    def __init__(self, module: torch.nn.Module, clock: Clock) -> None:
        self.seconds: dict[Phase, list[float]] = {phase: [] for phase in Phase}
        self._clock = clock
        self._started = 0.0
        self._input: Any = None
        module.register_forward_pre_hook(self._begin, with_kwargs=True)
        module.register_forward_hook(self._end)

    def _begin(
        self, _: torch.nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        self._input = next(
            (each for each in (*arguments, *named.values()) if _differentiable(each)), None
        )
        self._started = now(self._clock)

    def _end(self, _: torch.nn.Module, __: object, result: Any) -> None:
        self.seconds[Phase.FORWARD].append(now(self._clock) - self._started)
        results = result if isinstance(result, tuple) else (result,)
        output = next((each for each in results if _differentiable(each)), None)
        if output is not None and self._input is not None:
            output.register_hook(self._begin_backward)
            self._input.register_hook(self._end_backward)

    def _begin_backward(self, _: object) -> None:
        self._started = now(self._clock)

    def _end_backward(self, _: object) -> None:
        self.seconds[Phase.BACKWARD].append(now(self._clock) - self._started)


def _differentiable(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _step(
    model: torch.nn.Module, family: ModelFamily, inputs: Mapping[str, Any], clock: Clock
) -> tuple[float, float]:
    model.zero_grad(set_to_none=True)
    start = now(clock)
    loss = family.loss(model, inputs, partial(cross_entropy, tp=1))
    middle = now(clock)
    loss.backward()
    return middle - start, now(clock) - middle
