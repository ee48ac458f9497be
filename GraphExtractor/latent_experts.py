"""Experts without gates: with squared ReLU, that may work on a latent of their tokens (Nemotron 3),
or with GELU.

What experts read is projected down before tokens are exchanged, what they give back projected up
behind it, by products that every device has whole (Megatron-LM, ``moe_layer.py``,
``moe_latent_size``). The activation, weighted by routing, is one kernel
(``use_fused_weighted_squared_relu``). Importing this module registers operators with torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from GraphExtractor.custom_operators import define, differentiable
from GraphExtractor.experts import Experts, MixtureOfExperts, SharedExpert, summed_rows

_squared = define("weighted_relu2", "(Tensor x, Tensor weights) -> Tensor", lambda x, _: _like(x))
_squared_backward = define(
    "weighted_relu2_backward",
    "(Tensor gradient, Tensor x, Tensor weights) -> (Tensor, Tensor)",
    lambda _, x, weights: (_like(x), torch.empty_like(weights)),
)


def _like(x: Any) -> Any:
    return x.new_empty(x.shape)


_weighted_squared_relu = differentiable(_squared, _squared_backward)


class UngatedExperts(Experts):
    """MLPs with their weights stacked."""

    def __init__(self, experts: int, hidden: int, ffn: int) -> None:
        super().__init__(experts, hidden, ffn)
        self._without_gate()

    def _without_gate(self) -> None:
        experts, hidden, ffn = self.down_proj.shape
        self.gate_up_proj = torch.nn.Parameter(torch.empty(experts, ffn, hidden))

    def shrink(self, tp: int, ep: int) -> None:
        """See base class."""
        super().shrink(tp, ep)
        self._without_gate()

    def gated(self, inner: torch.Tensor, weights: torch.Tensor) -> Any:
        """See base class."""
        return _weighted_squared_relu(inner, weights)


class GeluExperts(UngatedExperts):
    """MLPs with GELU."""

    def gated(self, inner: torch.Tensor, weights: torch.Tensor) -> Any:
        """See base class; weights are one for each row."""
        return functional.gelu(inner, approximate="tanh")


class GeluMixture(MixtureOfExperts):
    """Experts with GELU and no gates, whose sums are weighted where tokens are."""

    def __init__(self, hidden: int, ffn: int, experts: int, chosen: int) -> None:
        super().__init__(hidden, ffn, experts, chosen)
        self.experts = GeluExperts(experts, hidden, ffn)

    def summed(self, rows: Any, index: Any, weights: Any) -> Any:
        """See base class."""
        return summed_rows(rows, index, weights)


class UngatedSharedExpert(SharedExpert):
    """An MLP that every token meets."""

    def _build(self, hidden: int, ffn: int) -> None:
        self.gate_up_proj = torch.nn.Linear(hidden, ffn, bias=False)
        self.down_proj = torch.nn.Linear(ffn, hidden, bias=False)

    def inner(self, x: torch.Tensor) -> Any:
        """See base class."""
        return self.down_proj(functional.relu(self.gate_up_proj(x)).square())


class LatentMixture(MixtureOfExperts):
    """Experts of a latent of width ``latent`` (0: of all columns), and a shared one of tokens."""

    def __init__(
        self, hidden: int, latent: int, ffn: int, experts: int, chosen: int, shared_ffn: int
    ) -> None:
        super().__init__(hidden, ffn, experts, chosen)
        self.experts = UngatedExperts(experts, latent or hidden, ffn)
        self.shared_expert = UngatedSharedExpert(hidden, shared_ffn)
        self.down = torch.nn.Linear(hidden, latent, bias=False) if latent else torch.nn.Identity()
        self.up = torch.nn.Linear(latent, hidden, bias=False) if latent else torch.nn.Identity()

    def narrowed(self, tokens: torch.Tensor) -> Any:
        """See base class."""
        return self.down(tokens)

    def widened(self, tokens: torch.Tensor) -> Any:
        """See base class."""
        return self.up(tokens)
