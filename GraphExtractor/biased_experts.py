"""Experts with biases and clamped gates (GPT-OSS).

Biases of the first product are added by it. What it gives is clamped before the gate; biases of the
second product are multiplied by the routing weight of each row and added. Either is one operator
here: how many kernels a framework makes of it is said by its software (Megatron-Core: seven and
more over rows in fp32). Importing this module registers operators with torch.
"""

from __future__ import annotations

from typing import Any

import torch

from GraphExtractor.custom_operators import define, differentiable
from GraphExtractor.experts import Experts, MixtureOfExperts, weighted_swiglu
from GraphExtractor.graph_key import GraphKey

_clamp_forward = define("clamped_halves", "(Tensor x) -> Tensor", torch.empty_like)
_clamp_backward = define(
    "clamped_halves_backward",
    "(Tensor gradient, Tensor x) -> Tensor",
    lambda _, x: torch.empty_like(x),
)
_add_bias_forward = define(
    "expert_bias",
    "(Tensor rows, Tensor bias, Tensor weights) -> Tensor",
    lambda rows, *_: torch.empty_like(rows),
)
_add_bias_backward = define(
    "expert_bias_backward",
    "(Tensor gradient, Tensor bias, Tensor weights) -> (Tensor, Tensor, Tensor)",
    lambda *operands: tuple(map(torch.empty_like, operands)),
)
_clamp = differentiable(_clamp_forward, _clamp_backward)
_add_bias = differentiable(_add_bias_forward, _add_bias_backward, saved=slice(1, -1))


class BiasedExperts(Experts):
    """Experts whose projections have biases and whose gates are clamped."""

    def __init__(self, experts: int, hidden: int, ffn: int) -> None:
        super().__init__(experts, hidden, ffn)
        self._build_biases()

    def _build_biases(self) -> None:
        experts, hidden, ffn = self.down_proj.shape
        self.gate_up_bias = torch.nn.Parameter(torch.empty(experts, 2 * ffn))
        self.down_bias = torch.nn.Parameter(torch.empty(experts, hidden))

    def shrink(self, tp: int, ep: int) -> None:
        """See base class; biases of what the group sums are whole on each of its devices."""
        super().shrink(tp, ep)
        self._build_biases()

    def first(self, rows: torch.Tensor) -> Any:
        """See base class."""
        return super().first(rows) + self.gate_up_bias.unsqueeze(1)

    def gated(self, inner: torch.Tensor, weights: torch.Tensor) -> Any:
        """See base class."""
        return weighted_swiglu(_clamp(inner), weights)

    def second(self, inner: torch.Tensor, weights: torch.Tensor) -> Any:
        """See base class."""
        return _add_bias(super().second(inner, weights), self.down_bias, weights)


class BiasedMixture(MixtureOfExperts):
    """GPT-OSS's block: what it gives stands beside the scores, which nothing reads."""

    def __init__(self, hidden: int, ffn: int, experts: int, chosen: int) -> None:
        super().__init__(hidden, ffn, experts, chosen)
        self.experts = BiasedExperts(experts, hidden, ffn)
        self.router.bias = torch.nn.Parameter(torch.empty(experts))

    def forward(self, x: torch.Tensor) -> Any:
        """See base class."""
        return super().forward(x), None


def divide_sinks(attention: Any) -> None:
    """Let an attention module keep 1/tp of its sinks, one for each head, when it is sharded."""

    def shard(key: GraphKey) -> None:
        attention.sinks = torch.nn.Parameter(torch.empty(attention.sinks.numel() // key.tp))

    attention.shard = shard
