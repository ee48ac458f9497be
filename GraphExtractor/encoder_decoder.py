"""An encoder and a decoder whose attention adds learned biases on the distance between tokens, as
T5 has them.

Hugging Face's T5 spells its attention out, product by product; here it runs the attention that was
asked for.
"""

import torch
from torch import nn
from torch.nn import functional

from GraphExtractor import custom_operators
from GraphExtractor.graph import GraphKey


class RelativeAttention(nn.Module):  # type: ignore[misc]
    """Attention without scaling (Raffel et al. 2020), to the tokens themselves or to a ``memory``.

    A module with ``buckets`` > 0 has a table of one bias per head and bucket of distances and makes
    the biases of all pairs of tokens from it, of shape (1, heads, queries, keys); others are given
    them, or do without.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        head_width: int,
        dropout: float,
        *,
        causal: bool,
        buckets: int = 0,
    ) -> None:
        super().__init__()
        inner = heads * head_width
        self.q, self.k, self.v = (nn.Linear(hidden, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, hidden, bias=False)
        self.table = nn.Embedding(buckets, heads) if buckets else None
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.tp = self.cp = 1
        self.sequence_parallel = False

    def shard(self, key: GraphKey) -> None:
        """Keep one device's heads, of the biases too; the projections are split by the family's
        plan."""
        self.heads //= key.tp
        self.tp, self.cp, self.sequence_parallel = (
            key.tp,
            key.sequence_devices,
            key.sequence_parallel,
        )
        if self.table is not None:
            weight = self.table.weight
            self.table.weight = nn.Parameter(
                torch.empty(len(weight), self.heads, dtype=weight.dtype)
            )

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, memory: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend; returns the output, shaped like ``x``, and the biases."""
        source = x if memory is None else self._enter(memory)
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

    def _enter(self, memory: torch.Tensor) -> torch.Tensor:
        """A memory enters each attention by itself: each reduces its gradient (Megatron-LM's
        column-parallel linear)."""
        if self.tp == 1:
            return memory
        enter = (
            custom_operators.gather_sequence
            if self.sequence_parallel
            else custom_operators.copy_to_group
        )
        entered: torch.Tensor = enter(memory, self.tp)
        return entered


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
    """Attention, in a decoder attention to the memory too, and a feed-forward net; each behind a
    norm, beside a residual."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        head_width: int,
        ffn: int,
        dropout: float,
        *,
        decoder: bool,
        buckets: int,
    ) -> None:
        super().__init__()
        self.attention_norm = _norm(hidden)
        self.attention = RelativeAttention(
            hidden, heads, head_width, dropout, causal=decoder, buckets=buckets
        )
        if decoder:
            self.cross_norm = _norm(hidden)
            self.cross_attention = RelativeAttention(
                hidden, heads, head_width, dropout, causal=False
            )
        self.ffn_norm = _norm(hidden)
        self.ffn = FeedForward(hidden, ffn, dropout)
        self.dropout = nn.Dropout(dropout)

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
        self,
        table: nn.Parameter,
        layers: int,
        heads: int,
        head_width: int,
        ffn: int,
        dropout: float,
        *,
        decoder: bool,
        buckets: int,
    ) -> None:
        super().__init__()
        vocabulary, hidden = table.shape
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.embedding.weight = table
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(
                hidden,
                heads,
                head_width,
                ffn,
                dropout,
                decoder=decoder,
                buckets=0 if position else buckets,
            )
            for position in range(layers)
        )
        self.norm = _norm(hidden)
        self.last_dropout = nn.Dropout(dropout)

    def forward(self, ids: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states (batch, sequence, hidden) of ids (batch, sequence)."""
        x, bias = self.dropout(self.embedding(ids)), None
        for block in self.blocks:
            x, bias = block(x, bias, memory)
        states: torch.Tensor = self.last_dropout(self.norm(x))
        return states


class EncoderDecoder(nn.Module):  # type: ignore[misc]
    """Two stacks of equal depth and a head that share one table of tokens."""

    def __init__(
        self,
        vocabulary: int,
        hidden: int,
        layers: int,
        heads: int,
        head_width: int,
        ffn: int,
        *,
        dropout: float = 0.1,
        buckets: int = 32,
    ) -> None:
        super().__init__()
        table = nn.Parameter(torch.empty(vocabulary, hidden))
        self.encoder, self.decoder = (
            Stack(table, layers, heads, head_width, ffn, dropout, decoder=decoder, buckets=buckets)
            for decoder in (False, True)
        )
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = table

    def forward(self, ids: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
        """Logits (batch, sequence, vocabulary) of the decoder's tokens."""
        states = self.decoder(decoder_ids, self.encoder(ids))
        logits: torch.Tensor = self.head(
            states * states.shape[-1] ** -0.5
        )  # as the table is the embedding's, too
        return logits


def _norm(hidden: int) -> nn.Module:
    return custom_operators.FusedRmsNorm(nn.Parameter(torch.empty(hidden)))
