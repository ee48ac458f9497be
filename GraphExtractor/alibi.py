"""Self-attention with linear biases on the distance between tokens (Press et al. 2022), in the
place of a model's own.

Hugging Face's BLOOM and MPT spell their attention out, product by product; this one runs the
attention that was asked for.
"""

from typing import Any

import torch
from torch.nn import functional

from GraphExtractor.custom_operators import own_part
from GraphExtractor.graph import CollectiveGroup


class AlibiAttention(torch.nn.Module):  # type: ignore[misc]
    """Queries, keys and values from one ``projection``, biased causal attention, an ``output``
    linear, the residual if given.

    The biases, slope of the head times position of the key, are a constant of shape (heads, 1,
    sequence) that every device keeps: no operator makes them, no layer sends them.
    """

    biases: torch.Tensor

    def __init__(
        self,
        projection: torch.nn.Module,
        output: torch.nn.Module,
        heads: int,
        dropout: float,
        sequence_length: int,
    ) -> None:
        super().__init__()
        self.projection, self.output, self.heads, self.dropout = projection, output, heads, dropout
        self.register_buffer("biases", torch.zeros(heads, 1, sequence_length), persistent=False)

    def forward(
        self, hidden_states: torch.Tensor, residual: torch.Tensor | None = None, **_: Any
    ) -> tuple[torch.Tensor, None]:
        """Attend; returns the output and, in the place of the attention weights, nothing."""
        parts = self.projection(hidden_states).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        biases = own_part(
            self.biases, 0, len(self.biases) // self.heads, CollectiveGroup.TENSOR
        )  # those of one device's heads
        mixed = functional.scaled_dot_product_attention(
            q, k, v, biases, self.dropout, is_causal=True
        )
        out = self.output(mixed.transpose(1, 2).flatten(2))
        return out if residual is None else out + residual, None
