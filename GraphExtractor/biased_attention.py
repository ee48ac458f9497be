"""Attention with biases on the distance between tokens, in the place of a model's own.

Hugging Face's T5, BLOOM and MPT spell their attention out, product by product; here it runs the
attention that was chosen. Biases are learned (T5), or linear (Press et al. 2022).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from GraphExtractor.custom_operators import FusedRmsNorm, enter_group, own_part
from GraphExtractor.graph import CollectiveGroup, GraphKey


@dataclass(frozen=True)
class BlockSizes:
    """Widths of the blocks of both stacks, whose attention tells ``buckets`` of distances apart."""

    hidden: int
    heads: int
    head_width: int
    ffn: int
    dropout: float = 0.1
    buckets: int = 32


class RelativeAttention(nn.Module):  # type: ignore[misc]
    """Attention without scaling (Raffel et al. 2020), to the tokens themselves or to a ``memory``.

    A module with ``biases`` has a table of one bias per head and bucket of distances and makes the
    biases of all pairs of tokens from it, of shape (1, heads, queries, keys); others are given
    them, or do without.
    """

    def __init__(self, sizes: BlockSizes, *, causal: bool, biases: bool) -> None:
        super().__init__()
        hidden, inner = sizes.hidden, sizes.heads * sizes.head_width
        self.q, self.k, self.v = (nn.Linear(hidden, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, hidden, bias=False)
        self.table = nn.Embedding(sizes.buckets, sizes.heads) if biases else None
        self.heads, self.dropout, self.causal = sizes.heads, sizes.dropout, causal
        self.tp = self.cp = 1
        self.sequence_parallel = False

    def shard(self, key: GraphKey) -> None:
        """Keep one device's heads, of the biases too; the family's plan splits the projections."""
        self.heads //= key.tp
        self.tp, self.cp = key.tp, key.sequence_devices
        self.sequence_parallel = key.sequence_parallel
        if self.table is not None:
            weight = self.table.weight
            part = torch.empty(len(weight), self.heads, dtype=weight.dtype)
            self.table.weight = nn.Parameter(part)

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, memory: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend; returns the output, shaped like ``x``, and the biases."""
        # each attention reduces the memory's gradient by itself, as Megatron-LM's linears do
        group = self.tp, self.sequence_parallel
        source = x if memory is None else enter_group(memory, *group)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q(x), self.k(source), self.v(source))
        )
        if self.table is not None:  # which bucket a pair is in makes no difference here
            buckets = torch.zeros(q.shape[2], k.shape[2] * self.cp, dtype=torch.long)
            bias = self.table(buckets).permute(2, 0, 1).unsqueeze(0)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, bias, self.dropout, is_causal=self.causal, scale=1.0
        )
        return self.o(mixed.transpose(1, 2).flatten(2)), bias


class FeedForward(nn.Module):  # type: ignore[misc]
    """Two linears without biases around a ReLU."""

    def __init__(self, hidden: int, ffn: int, dropout: float) -> None:
        super().__init__()
        self.wi, self.wo = nn.Linear(hidden, ffn, bias=False), nn.Linear(ffn, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the shape of ``x``."""
        out: torch.Tensor = self.wo(self.dropout(functional.relu(self.wi(x))))
        return out


class Block(nn.Module):  # type: ignore[misc]
    """Attention, in a decoder also to the memory, and an MLP, each with norm and residual."""

    def __init__(self, sizes: BlockSizes, *, decoder: bool, biases: bool) -> None:
        super().__init__()
        self.attention_norm = _norm(sizes.hidden)
        self.attention = RelativeAttention(sizes, causal=decoder, biases=biases)
        if decoder:
            self.cross_norm = _norm(sizes.hidden)
            self.cross_attention = RelativeAttention(sizes, causal=False, biases=False)
        self.ffn_norm = _norm(sizes.hidden)
        self.ffn = FeedForward(sizes.hidden, sizes.ffn, sizes.dropout)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor | None, memory: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The block's output, shaped like ``x``, and the biases of its attention."""
        attended, bias = self.attention(self.attention_norm(x), bias)
        x = x + self.dropout(attended)
        if memory is not None:
            x = x + self.dropout(self.cross_attention(self.cross_norm(x), memory=memory)[0])
        return x + self.dropout(self.ffn(self.ffn_norm(x))), bias


class Stack(nn.Module):  # type: ignore[misc]
    """Embedding, ``layers`` blocks that share the biases which the first makes, a norm."""

    def __init__(
        self, table: nn.Parameter, layers: int, sizes: BlockSizes, *, decoder: bool
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(*table.shape)
        self.embedding.weight = table
        self.dropout = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(
            Block(sizes, decoder=decoder, biases=position == 0) for position in range(layers)
        )
        self.norm = _norm(sizes.hidden)
        self.last_dropout = nn.Dropout(sizes.dropout)

    def forward(self, ids: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states (batch, sequence, hidden) of ids (batch, sequence)."""
        x, bias = self.dropout(self.embedding(ids)), None
        for block in self.blocks:
            x, bias = block(x, bias, memory)
        states: torch.Tensor = self.last_dropout(self.norm(x))
        return states


class EncoderDecoder(nn.Module):  # type: ignore[misc]
    """Two stacks of equal depth and a head that share one table of tokens."""

    def __init__(self, vocabulary: int, layers: int, sizes: BlockSizes) -> None:
        super().__init__()
        table = nn.Parameter(torch.empty(vocabulary, sizes.hidden))
        self.encoder, self.decoder = (
            Stack(table, layers, sizes, decoder=decoder) for decoder in (False, True)
        )
        self.head = nn.Linear(sizes.hidden, vocabulary, bias=False)
        self.head.weight = table

    def forward(self, ids: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
        """Logits (batch, sequence, vocabulary) of the decoder's tokens."""
        states = self.decoder(decoder_ids, self.encoder(ids))
        # scaled, as the table is the embedding's, too
        logits: torch.Tensor = self.head(states * states.shape[-1] ** -0.5)
        return logits


def _norm(hidden: int) -> nn.Module:
    return FusedRmsNorm(nn.Parameter(torch.empty(hidden)))


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
        devices = len(self.biases) // self.heads  # each has the biases of its heads
        biases = own_part(self.biases, 0, devices, CollectiveGroup.TENSOR)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, biases, self.dropout, is_causal=True
        )
        out = self.output(mixed.transpose(1, 2).flatten(2))
        return out if residual is None else out + residual, None
