"""Heads for tokens and back: attention of whole sequences on devices that share tokens (Ulysses).

Jacobs et al. 2023: before attention an all-to-all over the devices that share a sequence turns
queries, keys and values of all heads of a part of the tokens into those of a part of the heads of
all tokens, behind it another one turns the output back. Each device runs whole-sequence attention
on its heads, in any order of the tokens. Grouped keys and values that are fewer than the devices
are repeated as often as makes them enough.
"""

import math
from typing import Any

import torch

from GraphExtractor.custom_operators import communicate, define, own_part
from GraphExtractor.graph import CollectiveGroup
from phaze_common.errors import InputError


def of_size(x: torch.Tensor, heads: int, length: int) -> torch.Tensor:
    """Queries, keys or values (batch, heads, sequence, width) of another size in the same order."""
    batch, width = x.shape[0], x.shape[-1]
    if x.is_contiguous():
        return x.new_empty(batch, heads, length, width)
    return x.new_empty(batch, length, heads, width).transpose(1, 2)


# queries, keys and values in one exchange, (batch, heads, sequence, width) each
_THREE = "(Tensor q, Tensor k, Tensor v, int cp) -> (Tensor, Tensor, Tensor)"
_scatter_heads = define(
    "all_to_all_heads",
    _THREE,
    lambda q, k, v, cp: tuple(of_size(x, x.shape[1] // cp, x.shape[2] * cp) for x in (q, k, v)),
)
_gather_heads = define(
    "all_to_all_head_gradients",
    _THREE,
    lambda q, k, v, cp: tuple(of_size(x, x.shape[1] * cp, x.shape[2] // cp) for x in (q, k, v)),
)
# attention's output is (batch, sequence, heads, width)
_scatter_tokens = define(
    "all_to_all_outputs",
    "(Tensor x, int cp) -> Tensor",
    lambda x, cp: x.new_empty(x.shape[0], x.shape[1] // cp, x.shape[2] * cp, x.shape[3]),
)
_gather_tokens = define(
    "all_to_all_output_gradients",
    "(Tensor x, int cp) -> Tensor",
    lambda x, cp: x.new_empty(x.shape[0], x.shape[1] * cp, x.shape[2] // cp, x.shape[3]),
)


def heads_for_tokens(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, devices: int) -> Any:
    """Queries, keys and values: some heads of all tokens, for all heads of some tokens.

    Raises: InputError: the heads of a device are not divisible by ``devices``.
    """
    heads, grouped = q.shape[1], k.shape[1]
    if heads % devices:
        raise InputError(
            f"ulysses divides the {heads} attention heads of a tensor-parallel device among "
            f"{devices} devices that share a "
            f"sequence; let these be a divisor of {heads}, or use exchange gather or ring"
        )
    repeats = devices // math.gcd(grouped, devices)
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    return communicate(devices, _scatter_heads, _gather_heads, q, k, v)


def tokens_for_heads(out: torch.Tensor, devices: int) -> Any:
    """Attention's output: all heads of some tokens, for some heads of all tokens."""
    return communicate(devices, _scatter_tokens, _gather_tokens, out)


def own_heads(of_heads: Any, dimension: int, devices: int) -> Any:
    """The part of biases or sinks, which heads have by themselves, of a part of the heads."""
    if of_heads is None or of_heads.dim() < -dimension or of_heads.shape[dimension] == 1:
        return of_heads
    return own_part(of_heads, dimension, devices, CollectiveGroup.CONTEXT)
