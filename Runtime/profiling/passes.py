"""Whole passes through the blocks of a model as torch runs them: modules, the graph of gradients and all.

Beside the seconds of their operators alone they say what a framework adds (``Estimator.profiled.overhead``).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
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
from Runtime.profiling.kernels import real_inputs
from Runtime.profiling.timing import Repeats, spread_of, timing_of

TORCH_ATTENTION = "sdpa"  # of Hugging Face models: torch's own fused attention


@dataclass(frozen=True)
class MeasuredPasses:
    """Seconds of the forward pass, loss included, and of the backward pass of one micro-batch."""

    forward: Timing
    backward: Timing

    def of(self, phase: Phase) -> Timing:
        """Those of one phase."""
        return self.forward if phase is Phase.FORWARD else self.backward


def real_model(key: GraphKey, family: ModelFamily, device: str) -> torch.nn.Module:
    """The blocks that are traced for ``key``, on one device, with weights of ``device``; of one of several equal blocks one."""
    attention = TORCH_ATTENTION if key.attention is Attention.FLASH else register_attention(key.attention)
    with default_dtype(key.dtype):
        model = reduced(family.build(key, family.padded_vocabulary(1), attention), family)
    for path, module in list(model.named_modules()):
        if isinstance(module, FusedRmsNorm):  # which is traced, and has no kernel
            norm = torch.nn.RMSNorm(module.weight.shape, dtype=module.weight.dtype)
            norm.weight = module.weight
            model.set_submodule(path, norm)
    return model.to(device).train()


def measured_passes(key: GraphKey, family: ModelFamily, device: str, clock: Clock, repeats: Repeats) -> MeasuredPasses:
    """Seconds of both passes of a micro-batch through ``real_model``."""
    model = real_model(key, family, device)
    inputs = {name: value.to(device) for name, value in real_inputs(key, family).items()}
    seconds: dict[Phase, list[float]] = {phase: [] for phase in Phase}
    started = time.monotonic()
    for index in range(repeats.warm_up + repeats.most):
        forward_s, backward_s = _step(model, family, inputs, clock)
        if index < repeats.warm_up:
            continue
        seconds[Phase.FORWARD].append(forward_s)
        seconds[Phase.BACKWARD].append(backward_s)
        both = seconds.values()
        known = all(spread_of(each) <= repeats.spread * sorted(each)[len(each) // 2] for each in both)
        taken = len(seconds[Phase.FORWARD])
        if (taken >= repeats.least and known) or (taken >= 3 and time.monotonic() - started > repeats.cap_s):
            break
    del model
    gc.collect()
    return MeasuredPasses(timing_of(seconds[Phase.FORWARD]), timing_of(seconds[Phase.BACKWARD]))


def _step(model: torch.nn.Module, family: ModelFamily, inputs: Mapping[str, Any], clock: Clock) -> tuple[float, float]:
    model.zero_grad(set_to_none=True)
    now = partial(_now, clock)
    start = now()
    loss = family.loss(model, inputs, partial(cross_entropy, tp=1))
    middle = now()
    loss.backward()
    return middle - start, now() - middle


def _now(clock: Clock) -> float:
    if clock is Clock.THREAD:
        return time.thread_time()
    if clock is Clock.EVENTS:
        torch.cuda.synchronize()
    return time.perf_counter()
