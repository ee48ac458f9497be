"""Mamba-2 mixers, and attention without positions beside them, divided over devices as Megatron-LM
does.

A mixer is one product into gate, inputs, both state projections and steps, a short convolution, the
scan in chunks (Dao and Gu 2024, section 6), a gated norm over each group, and one product out
(Megatron-LM, ``mamba_mixer.py``). Heads and groups are divided: products into them are
column-parallel, those out of them row-parallel. Convolution and scan are one operator each; how
many kernels a framework makes of them is said by its software. Importing this module registers
operators with torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from GraphExtractor import custom_operators
from GraphExtractor.graph_key import GraphKey

_conv_forward = custom_operators.define(
    "causal_conv", "(Tensor x, Tensor weight, Tensor bias) -> Tensor", lambda x, *_: _whole(x)
)
_conv_backward = custom_operators.define(
    "causal_conv_backward",
    "(Tensor gradient, Tensor x, Tensor weight, Tensor bias) -> (Tensor, Tensor, Tensor)",
    lambda _, x, weight, bias: (_whole(x), _whole(weight), _whole(bias)),
)
# into, out_of and decay are B, C and A of Dao and Gu 2024
_scan_forward = custom_operators.define(
    "chunk_scan",
    "(Tensor x, Tensor into, Tensor out_of, Tensor step, Tensor decay, Tensor skip) -> Tensor",
    lambda x, *_: _whole(x),
)
_scan_backward = custom_operators.define(
    "chunk_scan_backward",
    "(Tensor gradient, Tensor x, Tensor into, Tensor out_of, Tensor step, Tensor decay, "
    "Tensor skip, Tensor out) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda _, *operands: tuple(map(_whole, operands[:6])),
)


def _whole(x: Any) -> Any:
    return x.new_empty(x.shape)


_conv = custom_operators.differentiable(_conv_forward, _conv_backward)
# reads its result again
_scan = custom_operators.differentiable(_scan_forward, _scan_backward, saved=slice(None))


@dataclass(frozen=True)
class StateWidths:
    """Heads and their width, groups of heads with the same projections of a state, and its size."""

    heads: int
    head_width: int
    groups: int
    state: int
    kernel: int = 4  # tokens that the convolution reaches over

    @property
    def inner(self) -> int:
        """Columns of all heads."""
        return self.heads * self.head_width

    @property
    def convolved(self) -> int:
        """Columns of heads and of both projections of the state."""
        return self.inner + 2 * self.groups * self.state

    def over(self, tp: int) -> StateWidths:
        """What one of ``tp`` devices has."""
        heads, groups = self.heads // tp, self.groups // tp
        return StateWidths(heads, self.head_width, groups, self.state, self.kernel)


class Mamba2Mixer(torch.nn.Module):  # type: ignore[misc]
    """A Mamba-2 mixer in the place of a Hugging Face module."""

    def __init__(self, hidden: int, widths: StateWidths) -> None:
        super().__init__()
        self.tp, self.sequence_parallel = 1, False
        self._build(hidden, widths)

    def _build(self, hidden: int, widths: StateWidths) -> None:
        self.hidden, self.widths, parameter = hidden, widths, torch.nn.Parameter
        columns = widths.inner + widths.convolved + widths.heads
        self.in_proj = torch.nn.Linear(hidden, columns, bias=False)
        self.conv_weight = parameter(torch.empty(widths.convolved, widths.kernel))
        self.conv_bias = parameter(torch.empty(widths.convolved))
        self.step_bias = parameter(torch.empty(widths.heads))
        self.decay = parameter(torch.empty(widths.heads))
        self.skip = parameter(torch.empty(widths.heads))
        # a norm over each group, which costs as much as one over all
        self.norm = custom_operators.FusedRmsNorm(parameter(torch.empty(widths.inner)))
        self.out_proj = torch.nn.Linear(widths.inner, hidden, bias=False)

    def shard(self, key: GraphKey) -> None:
        """Keep 1/tp of heads and groups."""
        self.tp, self.sequence_parallel = key.tp, key.sequence_parallel and key.tp > 1
        self._build(self.hidden, self.widths.over(key.tp))

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> Any:
        """Tokens (batch, sequence, hidden)."""
        widths, group = self.widths, (self.tp, self.sequence_parallel)
        projected = self.in_proj(custom_operators.enter_group(hidden_states, *group))
        sizes = widths.inner, widths.convolved, widths.heads
        gate, convolved, step = projected.split(sizes, -1)
        convolved = _conv(convolved, self.conv_weight, self.conv_bias)
        of_state = widths.groups * widths.state
        x, into, out_of = convolved.split((widths.inner, of_state, of_state), -1)
        step = functional.softplus(step + self.step_bias)
        out = _scan(x, into, out_of, step, self.decay, self.skip)
        out = self.norm(out * functional.silu(gate))
        return custom_operators.leave_group(self.out_proj(out), *group)


class PlainAttention(torch.nn.Module):  # type: ignore[misc]
    """Attention without positions, in the place of a Hugging Face module."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, width: int) -> None:
        super().__init__()
        self.tp, self.sequence_parallel, self.sizes = 1, False, (hidden, heads, kv_heads, width)
        self._build()

    def _build(self) -> None:
        hidden, heads, kv_heads, width = self.sizes
        self.qkv_proj = torch.nn.Linear(hidden, (heads + 2 * kv_heads) * width, bias=False)
        self.o_proj = torch.nn.Linear(heads * width, hidden, bias=False)

    def shard(self, key: GraphKey) -> None:
        """Keep 1/tp of the heads."""
        self.tp, self.sequence_parallel = key.tp, key.sequence_parallel and key.tp > 1
        hidden, heads, kv_heads, width = self.sizes
        self.sizes = hidden, heads // key.tp, kv_heads // key.tp, width
        self._build()

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[Any, None]:
        """Tokens (batch, sequence, hidden)."""
        (_hidden, heads, kv_heads, width), group = self.sizes, (self.tp, self.sequence_parallel)
        made = self.qkv_proj(custom_operators.enter_group(hidden_states, *group))
        sizes = heads * width, kv_heads * width, kv_heads * width
        q, k, v = (
            each.unflatten(-1, (-1, width)).transpose(1, 2) for each in made.split(sizes, -1)
        )
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return custom_operators.leave_group(
            self.o_proj(out.transpose(1, 2).flatten(2)), *group
        ), None
