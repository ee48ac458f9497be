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

from GraphExtractor.custom_operators import define, differentiable

CHUNK = 64
_inverse_forward = define("unit_lower_inverse", "(Tensor system) -> Tensor", torch.empty_like)
_inverse_backward = define(
    "unit_lower_inverse_backward",
    "(Tensor gradient, Tensor inverse) -> Tensor",
    lambda _, inverse: torch.empty_like(inverse),
)
# of lower triangular matrices with ones on their diagonals; reads its result again
inverse = differentiable(_inverse_forward, _inverse_backward, saved=slice(1, None))


def gated_delta_rule(
    query: Any, key: Any, value: Any, g: Any, beta: Any, chunk_size: int = CHUNK, **settings: Any
) -> tuple[Any, Any]:
    """Outputs (batch, tokens, heads, width) and the last state; queries may have fewer heads."""
    groups = value.shape[2] // key.shape[2]
    if groups > 1:
        query, key = (each.repeat_interleave(groups, 2) for each in (query, key))
    q, k, v, rate, decay = _in_chunks((query, key, value, beta, g), chunk_size, settings)
    decay = decay.squeeze(-1).cumsum(-1)
    later = torch.ones(chunk_size, chunk_size, dtype=torch.bool).triu(1)
    pairwise = (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(later, float("-inf")).exp()
    weighted, since = k * rate, decay.exp().unsqueeze(-1)
    system, scores = (each @ k.transpose(-1, -2) * pairwise for each in (weighted, q))
    new, read = (
        torch.linalg.solve_triangular(system, each, upper=False, unitriangular=True)
        for each in (v * rate, weighted * since)
    )
    q, fading = q * since, k * (decay[..., -1:] - decay).exp().unsqueeze(-1)
    state, outputs = _first(settings, k, v), []
    for chunk in range(q.shape[2]):
        fresh = new[:, :, chunk] - read[:, :, chunk] @ state
        outputs.append(q[:, :, chunk] @ state + scores[:, :, chunk] @ fresh)
        state = state * since[:, :, chunk, -1:] + fading[:, :, chunk].transpose(-1, -2) @ fresh
    return _joined(outputs, query), state if settings.get("output_final_state") else None


def channel_delta_rule(
    query: Any, key: Any, value: Any, g: Any, beta: Any, chunk_size: int = CHUNK, **settings: Any
) -> tuple[Any, Any]:
    """As ``gated_delta_rule``; the decay is of the width of keys, beta of none."""
    q, k, v, rate, decay = _in_chunks((query, key, value, beta, g), chunk_size, settings)
    decay = decay.cumsum(-2)
    later = torch.ones(chunk_size, chunk_size, dtype=torch.bool).triu(1)
    pairwise = decay.unsqueeze(-2) - decay.unsqueeze(-3)
    pairwise = pairwise.masked_fill(later.unsqueeze(-1), float("-inf")).exp()
    weighted = k * rate
    system = (weighted.unsqueeze(-2) * k.unsqueeze(-3) * pairwise).sum(-1).tril(-1)
    solution = inverse(system + torch.eye(chunk_size))
    new, read = solution @ (v * rate), solution @ (weighted * decay.exp())
    state, outputs = _first(settings, k, v), []
    for chunk in range(q.shape[2]):
        own, keys, left = q[:, :, chunk], k[:, :, chunk], decay[:, :, chunk]
        scores = (own.unsqueeze(-2) * keys.unsqueeze(-3) * pairwise[:, :, chunk]).sum(-1)
        scores = scores.masked_fill(later, 0)
        fresh = new[:, :, chunk] - read[:, :, chunk] @ state
        outputs.append((own * left.exp()) @ state + scores @ fresh)
        fading = (keys * (left[:, :, -1:] - left).exp()).transpose(-1, -2)
        state = state * left[:, :, -1].exp().unsqueeze(-1) + fading @ fresh
    return _joined(outputs, query), state if settings.get("output_final_state") else None


def _in_chunks(operands: tuple[Any, ...], size: int, settings: dict[str, Any]) -> tuple[Any, ...]:
    """(batch, tokens, heads, width) in fp32, as (batch, heads, chunks, size, width)."""
    whole = [each.transpose(1, 2).float() for each in operands]
    if settings.get("use_qk_l2norm_in_kernel"):
        for place, each in enumerate(whole[:2]):
            whole[place] = each * torch.rsqrt((each * each).sum(-1, keepdim=True) + 1e-6)
    whole[0] = whole[0] * whole[0].shape[-1] ** -0.5
    wide = [each if each.dim() == 4 else each.unsqueeze(-1) for each in whole]
    return tuple(
        functional.pad(each, (0, 0, 0, -each.shape[2] % size)).unflatten(2, (-1, size))
        for each in wide
    )


def _first(settings: dict[str, Any], k: Any, v: Any) -> Any:
    state = settings.get("initial_state")
    return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if state is None else state.float()


def _joined(outputs: list[Any], query: Any) -> Any:
    """Chunks one behind the other, as many tokens as queries and in their format."""
    tokens = torch.stack(outputs, 2).flatten(2, 3)[:, :, : query.shape[1]]
    return tokens.transpose(1, 2).to(query.dtype)
