"""Linear attention by the delta rule with a decay, in chunks.

The decay is one per head (Yang et al. 2025, Gated DeltaNet, section 3.3) or per channel (Kimi Team
2025, Kimi Linear, section 3). transformers' fallbacks for the kernels of flash-linear-attention
write each chunk's output into a tensor, and one solves the triangular system of a chunk row by row
in a loop of Python: their traces take minutes, or hold a copy of the whole output for every chunk.
In their place stand the same without either; all products are those of the fallbacks. Importing
this module registers operators with torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from GraphExtractor.custom_operators import define

CHUNK = 64
_inverse = define(
    "unit_lower_inverse", "(Tensor system) -> Tensor", lambda system: torch.empty_like(system)
)
_inverse_backward = define(
    "unit_lower_inverse_backward",
    "(Tensor gradient, Tensor inverse) -> Tensor",
    lambda gradient, inverse: torch.empty_like(inverse),
)


class _Inverse(torch.autograd.Function):  # type: ignore[misc]
    """Of lower triangular matrices with ones on their diagonals; saves its result."""

    @staticmethod
    def forward(ctx: Any, system: Any) -> Any:
        inverse = _inverse(system)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _inverse_backward(gradient, *ctx.saved_tensors)


def gated_delta_rule(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    chunk_size: int = CHUNK,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Any, Any]:
    """Outputs (batch, tokens, heads, width) and the last state; queries and keys may have fewer
    heads."""
    groups = value.shape[2] // key.shape[2]
    if groups > 1:
        query, key = (each.repeat_interleave(groups, 2) for each in (query, key))
    q, k, v, rate, decay = _in_chunks(
        (query, key, value, beta, g), chunk_size, normalised=use_qk_l2norm_in_kernel
    )
    decay = decay.squeeze(-1).cumsum(-1)
    later = torch.ones(chunk_size, chunk_size, dtype=torch.bool).triu(1)
    pairwise = (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(later, float("-inf")).exp()
    weighted, since = k * rate, decay.exp().unsqueeze(-1)
    system, scores = (each @ k.transpose(-1, -2) * pairwise for each in (weighted, q))
    new, read = (
        torch.linalg.solve_triangular(system, each, upper=False, unitriangular=True)
        for each in (v * rate, weighted * since)
    )
    q, kept = q * since, k * (decay[..., -1:] - decay).exp().unsqueeze(-1)
    state, outputs = _first(initial_state, k, v), []
    for chunk in range(q.shape[2]):
        fresh = new[:, :, chunk] - read[:, :, chunk] @ state
        outputs.append(q[:, :, chunk] @ state + scores[:, :, chunk] @ fresh)
        state = state * since[:, :, chunk, -1:] + kept[:, :, chunk].transpose(-1, -2) @ fresh
    return _joined(outputs, query), state if output_final_state else None


def channel_delta_rule(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    chunk_size: int = CHUNK,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Any, Any]:
    """Outputs (batch, tokens, heads, width) and the last state; the decay is of the width of keys,
    beta of none."""
    q, k, v, rate, decay = _in_chunks(
        (query, key, value, beta, g), chunk_size, normalised=use_qk_l2norm_in_kernel
    )
    decay = decay.cumsum(-2)
    later = torch.ones(chunk_size, chunk_size, dtype=torch.bool).triu(1)
    pairwise = (
        (decay.unsqueeze(-2) - decay.unsqueeze(-3))
        .masked_fill(later.unsqueeze(-1), float("-inf"))
        .exp()
    )
    weighted = k * rate
    solution = _Inverse.apply(
        (weighted.unsqueeze(-2) * k.unsqueeze(-3) * pairwise).sum(-1).tril(-1)
        + torch.eye(chunk_size)
    )
    new, read = solution @ (v * rate), solution @ (weighted * decay.exp())
    state, outputs = _first(initial_state, k, v), []
    for chunk in range(q.shape[2]):
        own, keys, left = q[:, :, chunk], k[:, :, chunk], decay[:, :, chunk]
        scores = (
            (own.unsqueeze(-2) * keys.unsqueeze(-3) * pairwise[:, :, chunk])
            .sum(-1)
            .masked_fill(later, 0)
        )
        fresh = new[:, :, chunk] - read[:, :, chunk] @ state
        outputs.append((own * left.exp()) @ state + scores @ fresh)
        kept = (keys * (left[:, :, -1:] - left).exp()).transpose(-1, -2)
        state = state * left[:, :, -1].exp().unsqueeze(-1) + kept @ fresh
    return _joined(outputs, query), state if output_final_state else None


def _in_chunks(operands: tuple[Any, ...], size: int, *, normalised: bool) -> tuple[Any, ...]:
    """Queries, keys and others of (batch, tokens, heads, width), in fp32, as (batch, heads, chunks,
    size, width)."""
    whole = [each.transpose(1, 2).float() for each in operands]
    if normalised:
        whole[:2] = [
            each * torch.rsqrt((each * each).sum(-1, keepdim=True) + 1e-6) for each in whole[:2]
        ]
    whole[0] = whole[0] * whole[0].shape[-1] ** -0.5
    wide = [each if each.dim() == 4 else each.unsqueeze(-1) for each in whole]
    return tuple(
        functional.pad(each, (0, 0, 0, -each.shape[2] % size)).unflatten(2, (-1, size))
        for each in wide
    )


def _first(state: Any, k: Any, v: Any) -> Any:
    return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if state is None else state.float()


def _joined(outputs: list[Any], query: Any) -> Any:
    """Chunks one behind the other, as many tokens as queries and in their format."""
    return (
        torch.stack(outputs, 2)
        .flatten(2, 3)[:, :, : query.shape[1]]
        .transpose(1, 2)
        .to(query.dtype)
    )
