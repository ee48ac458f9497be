"""Qwen3 with experts: grouped queries, norms of every head's queries and keys, many small
experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.models.base import (
    ATTENTION_PLAN,
    LlamaLikeFamily,
    ModelFamily,
    TensorParallelPlan,
)

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey
    from GraphExtractor.sources.config_values import ConfigValues


@dataclass(frozen=True, kw_only=True)
class Qwen3Moe(LlamaLikeFamily):
    """Qwen3MoeForCausalLM (Qwen3 technical report 2025); ``ffn`` is the width of an expert, of
    which a token meets ``chosen``."""

    folder: ClassVar[str] = "Qwen3Moe"
    model_type: ClassVar[str] = "qwen3_moe"
    plan: ClassVar[TensorParallelPlan] = ATTENTION_PLAN

    head_width: int = 128
    chosen: int = 8

    @classmethod
    def from_config(cls, config: ConfigValues) -> Qwen3Moe:
        """See base class."""
        config.expect_architecture("Qwen3MoeForCausalLM")
        config.expect_each(
            hidden_act="silu",
            attention_bias=False,
            attention_dropout=0.0,
            use_sliding_window=False,
            tie_word_embeddings=False,
            decoder_sparse_step=1,
        )
        config.expect("mlp_only_layers", [], [], None)
        return cls(
            layers=config.size("num_hidden_layers", 24),
            hidden=config.size("hidden_size", 2048),
            heads=config.size("num_attention_heads", 32),
            kv_heads=config.size("num_key_value_heads", 4),
            head_width=config.stated_size("head_dim"),
            ffn=config.size("moe_intermediate_size", 768),
            experts=config.size("num_experts", config.size("num_local_experts", 128)),
            chosen=config.size("num_experts_per_tok", 8),
            vocabulary=config.size("vocab_size", 151936),
            sequence_length=config.length("max_position_embeddings", 32768),
        )

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        return super().settings(key, vocabulary, attention) | {
            "moe_intermediate_size": self.ffn,
            "num_experts": self.experts,
            "num_experts_per_tok": self.chosen,
        }

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.experts import put_experts

        model = super().build(key, vocabulary, attention)
        put_experts(
            model, self.part("SparseMoeBlock"), self.hidden, self.ffn, self.experts, self.chosen
        )
        return model


_qwen3_moe = partial(
    Qwen3Moe.sized,
    kv_heads=4,
    experts=128,
    vocabulary=151936,
    sequence_length=4096,
    source="Qwen3 technical report 2025, table 2, and the released configurations and "
    "checkpoints; pre-trained on 4,096 tokens",
)

MODELS: Mapping[str, ModelFamily] = {
    "qwen3-30b-a3b": _qwen3_moe(
        48, 2048, 32, 30_532_122_624, ffn=768, published_active_count=3_353_032_704
    ),
    "qwen3-235b-a22b": _qwen3_moe(
        94, 4096, 64, 235_093_634_560, ffn=1536, published_active_count=22_190_763_520
    ),
}
