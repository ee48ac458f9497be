"""Linear attention by the delta rule with a decay per channel, in chunks (Kimi Team 2025, Kimi Linear, section 3).

transformers' fallback for the kernel of flash-linear-attention solves the triangular system of a chunk row by row in a loop of
Python, whose trace takes minutes. In its place stands the same with the solution as one operator; all products are those of the
fallback, and so are the pairwise decays of a chunk, which it keeps in memory. Importing this module registers the operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from GraphExtractor.custom_operators import define

CHUNK = 64
_inverse = define("unit_lower_inverse", "(Tensor system) -> Tensor", lambda system: torch.empty_like(system))
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


def chunked_delta_rule(
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
    """Outputs (batch, tokens, heads, value width) and the last state; operands are (batch, tokens, heads, width) or less."""
    dtype, tokens = query.dtype, query.shape[1]
    padding = -tokens % chunk_size
    q, k, v, decay, rate = (each.transpose(1, 2).float() for each in (query, key, value, g, beta))
    if use_qk_l2norm_in_kernel:
        q, k = (each * torch.rsqrt((each * each).sum(-1, keepdim=True) + 1e-6) for each in (q, k))
    q = q * q.shape[-1] ** -0.5
    q, k, v, decay = (functional.pad(each, (0, 0, 0, padding)).unflatten(2, (-1, chunk_size)) for each in (q, k, v, decay))
    rate = functional.pad(rate, (0, padding)).unflatten(2, (-1, chunk_size)).unsqueeze(-1)
    decay = decay.cumsum(-2)
    later = torch.ones(chunk_size, chunk_size, dtype=torch.bool).triu(1)
    pairwise = (decay.unsqueeze(-2) - decay.unsqueeze(-3)).masked_fill(later.unsqueeze(-1), float("-inf")).exp()
    weighted = k * rate
    solution = _Inverse.apply((weighted.unsqueeze(-2) * k.unsqueeze(-3) * pairwise).sum(-1).tril(-1) + torch.eye(chunk_size))
    new, read = solution @ (v * rate), solution @ (weighted * decay.exp())
    state = q.new_zeros(*q.shape[:2], k.shape[-1], v.shape[-1]) if initial_state is None else initial_state
    outputs = []
    for chunk in range(q.shape[2]):
        own, keys, left = q[:, :, chunk], k[:, :, chunk], decay[:, :, chunk]
        scores = (own.unsqueeze(-2) * keys.unsqueeze(-3) * pairwise[:, :, chunk]).sum(-1).masked_fill(later, 0)
        fresh = new[:, :, chunk] - read[:, :, chunk] @ state
        outputs.append((own * left.exp()) @ state + scores @ fresh)
        kept = (keys * (left[:, :, -1:] - left).exp()).transpose(-1, -2)
        state = state * left[:, :, -1].exp().unsqueeze(-1) + kept @ fresh
    out = torch.stack(outputs, 2).flatten(2, 3)[:, :, :tokens].transpose(1, 2).to(dtype)
    return out, state if output_final_state else None
