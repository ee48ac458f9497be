"""Multi-head latent attention (DeepSeek-V2, section 2.1), divided over devices as Megatron-LM does.

Queries, and keys with values, come out of low-rank projections. Those down to the ranks are small,
replicated, and here one product, as where Megatron-LM fuses them; those up to the heads are
column-parallel, what leaves the heads is row-parallel. What enters the heads is therefore not the
block's input but the two latents and the rotary part of the keys, which all heads share: their
gradients are summed over the group, or under sequence parallelism they are gathered, narrow as they
are, and their gradients reduced and scattered.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from GraphExtractor import custom_operators
from GraphExtractor.graph import GraphKey
from GraphExtractor.torch_internals import modeling


@dataclass(frozen=True)
class LatentWidths:
    """Ranks of latents, widths of a head's queries and keys (plain, with positions) and values.

    A ``query_rank`` of 0 stands for queries without a latent.
    """

    query_rank: int
    key_rank: int
    plain: int
    rotary: int
    value: int


class LatentAttention(torch.nn.Module):  # type: ignore[misc]
    """Attention of ``heads`` heads in the place of a Hugging Face module."""

    def __init__(self, hidden: int, heads: int, widths: LatentWidths) -> None:
        super().__init__()
        self.widths = widths
        self.tp, self.sequence_parallel = 1, False
        ranks = widths.query_rank + widths.key_rank
        self.qkv_a_proj = torch.nn.Linear(hidden, ranks + widths.rotary, bias=False)
        self.q_a_layernorm = _norm(widths.query_rank) if widths.query_rank else torch.nn.Identity()
        self.kv_a_layernorm = _norm(widths.key_rank)
        self._build_heads(hidden, heads)

    def _build_heads(self, hidden: int, heads: int) -> None:
        widths = self.widths
        queries, keys = widths.plain + widths.rotary, widths.plain + widths.value
        read = widths.query_rank or hidden
        self.q_b_proj = torch.nn.Linear(read, heads * queries, bias=False)
        self.kv_b_proj = torch.nn.Linear(widths.key_rank, heads * keys, bias=False)
        self.o_proj = torch.nn.Linear(heads * widths.value, hidden, bias=False)

    def shard(self, key: GraphKey) -> None:
        """Keep 1/tp of the heads."""
        self.tp, self.sequence_parallel = key.tp, key.sequence_parallel and key.tp > 1
        heads = self.o_proj.in_features // self.widths.value // key.tp
        self._build_heads(self.o_proj.out_features, heads)

    def forward(
        self, hidden_states: torch.Tensor, position_embeddings: tuple[Any, Any], **_: Any
    ) -> tuple[Any, None]:
        """Tokens (batch, sequence, hidden); rotary tables are those of the whole sequence."""
        widths, group = self.widths, (self.tp, self.sequence_parallel)
        sizes = [each for each in (widths.query_rank, widths.key_rank, widths.rotary) if each]
        *compressed, keys, rotary = self.qkv_a_proj(hidden_states).split(sizes, -1)
        read = self.q_a_layernorm(compressed[0]) if compressed else hidden_states
        latent = custom_operators.enter_group(read, *group)
        queries = _of_heads(self.q_b_proj(latent), widths.plain + widths.rotary)
        latent = custom_operators.enter_group(self.kv_a_layernorm(keys), *group)
        rotary = custom_operators.enter_group(rotary, *group).unsqueeze(1)
        keys_and_values = _of_heads(self.kv_b_proj(latent), widths.plain + widths.value)
        keys, values = keys_and_values.split((widths.plain, widths.value), -1)
        plain, turned = queries.split((widths.plain, widths.rotary), -1)
        turned, rotary = modeling("deepseek_v3").apply_rotary_pos_emb_interleave(
            turned, rotary, *position_embeddings
        )
        queries = torch.cat((plain, turned), -1)
        keys = torch.cat((keys, rotary.expand(-1, keys.shape[1], -1, -1)), -1)
        out = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        summand = self.o_proj(out.transpose(1, 2).flatten(2))
        return custom_operators.leave_group(summand, *group), None


def _norm(rank: int) -> Any:
    return custom_operators.FusedRmsNorm(torch.nn.Parameter(torch.empty(rank)))


def _of_heads(x: torch.Tensor, width: int) -> torch.Tensor:
    """(batch, head, sequence, width) of (batch, sequence, head · width)."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)
