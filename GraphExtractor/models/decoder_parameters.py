"""How many parameters the matrices of a decoder have: attention, MLPs or experts, tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecoderMatrices:
    """Sizes of a decoder's matrices, which biases, norms and positions are not.

    ``heads`` of queries and ``kv_heads`` are ``head_width`` columns wide. ``gated`` MLPs have three
    matrices, others two; ``tied`` decoders have one table.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    ffn: int
    vocabulary: int
    gated: bool
    tied: bool

    @property
    def attention(self) -> int:
        """Of a block: projections to queries, keys and values, and of what heads give."""
        return 2 * self.hidden * self.head_width * (self.heads + self.kv_heads)

    @property
    def mlp(self) -> int:
        """Of a block without experts."""
        return self.expert(self.ffn)

    @property
    def tables(self) -> int:
        """Embedding and head."""
        return (1 if self.tied else 2) * self.vocabulary * self.hidden

    def expert(self, ffn: int) -> int:
        """Of an expert, or an MLP, of ``ffn`` columns."""
        return (3 if self.gated else 2) * self.hidden * ffn

    def routed(self, count: int, ffn: int, shared_width: int = 0) -> int:
        """Of a block with ``count`` experts, a router, and ``shared_width`` columns for all."""
        return count * (self.expert(ffn) + self.hidden) + self.expert(shared_width)

    def total(self, blocks: int, blocks_with_experts: int = 0, routed: int = 0) -> int:
        """Of a decoder of ``blocks``, some with ``routed`` parameters in the place of an MLP's."""
        return (
            self.tables
            + blocks * self.attention
            + (blocks - blocks_with_experts) * self.mlp
            + blocks_with_experts * routed
        )
