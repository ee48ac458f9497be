"""Qwen3 with experts: grouped queries, norms of every head's queries and keys, many small experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import ATTENTION_PLAN, LlamaLikeFamily, ModelFamily, TensorParallelPlan

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey
    from GraphExtractor.sources.config_values import ConfigValues


@dataclass(frozen=True, kw_only=True)
class Qwen3Moe(LlamaLikeFamily):
    """Qwen3MoeForCausalLM (Qwen3 technical report 2025); ``ffn`` is the width of an expert, of which a token meets ``chosen``."""

    folder: ClassVar[str] = "Qwen3Moe"
    model_type: ClassVar[str] = "qwen3_moe"
    plan: ClassVar[TensorParallelPlan] = ATTENTION_PLAN

    head_width: int = 128
    chosen: int = 8

    @classmethod
    def from_config(cls, config: ConfigValues) -> Qwen3Moe:
        """See base class."""
        config.expect_architecture("Qwen3MoeForCausalLM")
        config.expect("hidden_act", "silu", "silu")
        config.expect("attention_bias", False, False)
        config.expect("attention_dropout", 0.0, 0.0)
        config.expect("use_sliding_window", False, False)
        config.expect("tie_word_embeddings", False, False)
        config.expect("decoder_sparse_step", 1, 1)
        config.expect("mlp_only_layers", [], [], None)
        return cls(
            layers=config.size("num_hidden_layers", 24),
            hidden=config.size("hidden_size", 2048),
            heads=config.size("num_attention_heads", 32),
            kv_heads=config.size("num_key_value_heads", 4),
            head_width=config.size("head_dim", config.size("hidden_size", 2048) // config.size("num_attention_heads", 32)),
            ffn=config.size("moe_intermediate_size", 768),
            experts=config.size("num_experts", config.size("num_local_experts", 128)),
            chosen=config.size("num_experts_per_tok", 8),
            vocabulary=config.size("vocab_size", 151936),
            sequence_length=config.length("max_position_embeddings", 32768),
        )

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRMSNorm, Qwen3MoeSparseMoeBlock

        from GraphExtractor.experts import put_experts
        from GraphExtractor.opaque import fuse_norms

        config = Qwen3MoeConfig(
            **self.settings(key, vocabulary, attention),
            head_dim=self.head_width,
            moe_intermediate_size=self.ffn,
            num_experts=self.experts,
            num_experts_per_tok=self.chosen,
        )
        model = Qwen3MoeForCausalLM(config)
        fuse_norms(model, Qwen3MoeRMSNorm)
        put_experts(model, Qwen3MoeSparseMoeBlock, self.hidden, self.ffn, self.experts, self.chosen)
        return model


MODELS: Mapping[str, ModelFamily] = {
    # Qwen3 technical report 2025, table 2, and the released configurations and checkpoints; pre-trained on 4,096 tokens
    "qwen3-30b-a3b": Qwen3Moe(
        layers=48,
        hidden=2048,
        heads=32,
        kv_heads=4,
        ffn=768,
        experts=128,
        vocabulary=151936,
        sequence_length=4096,
        published_parameter_count=30_532_122_624,
        published_active_count=3_353_032_704,
    ),
    "qwen3-235b-a22b": Qwen3Moe(
        layers=94,
        hidden=4096,
        heads=64,
        kv_heads=4,
        ffn=1536,
        experts=128,
        vocabulary=151936,
        sequence_length=4096,
        published_parameter_count=235_093_634_560,
        published_active_count=22_190_763_520,
    ),
}
