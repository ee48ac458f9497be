"""DeepSeek-V3: latent attention, and experts of which some are shared, behind a few dense
blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.models.base import LlamaLikeFamily, ModelFamily, TensorParallelPlan

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey
    from GraphExtractor.sources.config_values import ConfigValues


@dataclass(frozen=True, kw_only=True)
class DeepseekV3(LlamaLikeFamily):
    """DeepseekV3ForCausalLM (DeepSeek-AI 2024) without the module that predicts a second token.

    The first ``dense_layers`` blocks have an MLP of width ``ffn``, the others experts of width
    ``expert_ffn``, of which a token meets ``chosen``, and ``shared`` that all tokens meet.
    """

    folder: ClassVar[str] = "DeepseekV3"
    model_type: ClassVar[str] = "deepseek_v3"
    plan: ClassVar[TensorParallelPlan] = (
        TensorParallelPlan(  # attention and experts divide themselves
            column=("*.mlp.dense.gate_proj", "*.mlp.dense.up_proj"),
            row=("*.mlp.dense.down_proj",),
            entrances=("*.mlp.dense",),
            embedding="model.embed_tokens",
            head="lm_head",
        )
    )

    dense_layers: int
    expert_ffn: int
    chosen: int
    shared: int = 1
    query_rank: int = 1536
    key_rank: int = 512
    plain_width: int = 128  # of a head's queries and keys, beside the rotary part
    rotary_width: int = 64
    value_width: int = 128

    @classmethod
    def from_config(cls, config: ConfigValues) -> DeepseekV3:
        """See base class."""
        heads = config.size("num_attention_heads", 128)
        config.expect_architecture("DeepseekV3ForCausalLM")
        config.expect_each(
            hidden_act="silu",
            attention_bias=False,
            attention_dropout=0.0,
            num_key_value_heads=heads,
            tie_word_embeddings=False,
            moe_layer_freq=1,
        )
        config.expect(
            "q_lora_rank", 1536, *range(1, config.size("hidden_size", 7168))
        )  # without it queries are not compressed
        return cls(
            layers=config.size("num_hidden_layers", 61),
            dense_layers=0
            if config.values.get("first_k_dense_replace") == 0
            else config.size("first_k_dense_replace", 3),
            hidden=config.size("hidden_size", 7168),
            heads=heads,
            ffn=config.size("intermediate_size", 18432),
            expert_ffn=config.size("moe_intermediate_size", 2048),
            experts=config.size("n_routed_experts", 256),
            chosen=config.size("num_experts_per_tok", 8),
            shared=config.size("n_shared_experts", 1),
            query_rank=config.size("q_lora_rank", 1536),
            key_rank=config.size("kv_lora_rank", 512),
            plain_width=config.size("qk_nope_head_dim", 128),
            rotary_width=config.size("qk_rope_head_dim", 64),
            value_width=config.size("v_head_dim", 128),
            vocabulary=config.size("vocab_size", 129280),
            sequence_length=config.length("max_position_embeddings", 4096),
        )

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """See base class."""
        return {
            "attention heads": self.heads,
            "ffn width": self.ffn,
            "expert width": self.expert_ffn,
        }

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        return super().settings(key, vocabulary, attention) | {
            "moe_intermediate_size": self.expert_ffn,
            "n_routed_experts": self.experts,
            "num_experts_per_tok": self.chosen,
            "n_shared_experts": self.shared,
            "first_k_dense_replace": self.dense_layers,
            "q_lora_rank": self.query_rank,
            "kv_lora_rank": self.key_rank,
            "qk_nope_head_dim": self.plain_width,
            "qk_rope_head_dim": self.rotary_width,
            "head_dim": self.rotary_width,  # of rotary positions
            "v_head_dim": self.value_width,
        }

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from torch import nn

        from GraphExtractor.experts import MixtureOfExperts
        from GraphExtractor.latent_attention import LatentAttention, LatentWidths

        experts = self.expert_ffn, self.experts, self.chosen, self.shared * self.expert_ffn
        widths = LatentWidths(
            self.query_rank, self.key_rank, self.plain_width, self.rotary_width, self.value_width
        )
        model: Any = super().build(key, vocabulary, attention)
        for block in model.model.layers:
            block.self_attn = LatentAttention(self.hidden, self.heads, widths)
            if isinstance(block.mlp, self.part("MoE")):
                block.mlp = MixtureOfExperts(self.hidden, *experts)
            elif isinstance(block.mlp, self.part("MLP")):
                dense = nn.Sequential()
                dense.add_module("dense", block.mlp)
                block.mlp = dense
        return model


MODELS: Mapping[str, ModelFamily] = {
    "deepseek-v3": DeepseekV3(
        layers=61,
        dense_layers=3,
        hidden=7168,
        heads=128,
        ffn=18432,
        expert_ffn=2048,
        experts=256,
        chosen=8,
        vocabulary=129280,
        sequence_length=4096,
        published_parameter_count=671_026_404_352,
        published_active_count=37_552_282_624,
        source="DeepSeek-AI 2024, section 4.2, and the released configuration; counts are the "
        "checkpoint's without its layer 61",
    ),
}
