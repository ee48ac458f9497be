"""DeepSeek-V3: latent attention, and experts, of which some are shared, behind dense blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import (
    CrossEntropy,
    Inputs,
    LlamaLikeFamily,
    ModelFamily,
    TensorParallelPlan,
)
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, standard_sizes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class DeepseekV3(LlamaLikeFamily):
    """DeepseekV3ForCausalLM (DeepSeek-AI 2024), with ``further`` modules that predict tokens after
    the next one, each a block of experts (MTP, section 2.2).

    The first ``dense_layers`` blocks have an MLP of width ``ffn``, the others experts of width
    ``expert_ffn``, of which a token meets ``chosen``, and ``shared`` that all tokens meet. Queries
    have no latent where ``query_rank`` is 0.
    """

    folder: ClassVar[str] = "DeepseekV3"
    model_type: ClassVar[str] = "deepseek_v3"
    # attention and experts divide themselves
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.mlp.dense.gate_proj", "*.mlp.dense.up_proj"),
        row=("*.mlp.dense.down_proj",),
        entrances=("*.mlp.dense",),
        embedding="model.embed_tokens",
        head="lm_head",
    )
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "moe_layer_freq": 1,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=61, hidden=7168, heads=128, ffn=18432, chosen=8),
        **standard_sizes(vocabulary=129280, sequence_length=4096),
        "expert_ffn": ConfigSize("moe_intermediate_size", 2048),
        "experts": ConfigSize("n_routed_experts", 256),
        "shared": ConfigSize("n_shared_experts", 1),
        "query_rank": ConfigSize("q_lora_rank", 1536),
        "key_rank": ConfigSize("kv_lora_rank", 512),
        "plain_width": ConfigSize("qk_nope_head_dim", 128),
        "rotary_width": ConfigSize("qk_rope_head_dim", 64),
        "value_width": ConfigSize("v_head_dim", 128),
    }

    dense_layers: int
    expert_ffn: int
    chosen: int
    shared: int = 1
    query_rank: int = 1536
    key_rank: int = 512
    plain_width: int = 128  # of a head's queries and keys, beside the rotary part
    rotary_width: int = 64
    value_width: int = 128
    further: int = 0

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        config.expect("q_lora_rank", 1536, None, *range(1, config.size("hidden_size", 7168)))
        sizes = super().read_sizes(config)
        if config.values.get("q_lora_rank", 1536) is None:
            sizes["query_rank"] = 0  # queries are not compressed
        config.expect_each(num_key_value_heads=sizes["heads"])
        dense = config.values.get("first_k_dense_replace")
        dense = 0 if dense == 0 else config.size("first_k_dense_replace", 3)
        groups, chosen = config.size("n_group", 8), config.size("topk_group", 4)
        return sizes | {"dense_layers": dense, "chosen_groups": chosen if chosen < groups else 0}

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """See base class."""
        sizes = {"attention heads": self.heads, "ffn width": self.ffn}
        return {**sizes, "expert width": self.expert_ffn}

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        return super().settings(key, vocabulary, attention) | {
            "first_k_dense_replace": self.dense_layers,
            "head_dim": self.rotary_width,  # of rotary positions
            "q_lora_rank": self.query_rank or None,
        }

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.latent_attention import LatentAttention, LatentWidths

        experts = self.expert_ffn, self.experts, self.chosen, self.shared * self.expert_ffn
        widths = LatentWidths(
            self.query_rank, self.key_rank, self.plain_width, self.rotary_width, self.value_width
        )
        model: Any = super().build(key, vocabulary, attention)
        blocks = model.model.layers
        for block in blocks:
            block.self_attn = LatentAttention(self.hidden, self.heads, widths)
        routed = [isinstance(block.mlp, self.part("MoE")) for block in blocks]
        put_mixtures(blocks, routed, self.hidden, *experts)
        if self.further:
            from GraphExtractor.experts import MixtureOfExperts
            from GraphExtractor.further_tokens import FurtherTokens

            mixers = (
                LatentAttention(self.hidden, self.heads, widths),
                MixtureOfExperts(self.hidden, *experts),
            )
            model.further = FurtherTokens(self.hidden, mixers, self.further)
        return model

    def loss(self, model: Any, inputs: Inputs, cross_entropy: CrossEntropy) -> torch.Tensor:
        """See base class; losses of further tokens are added."""
        if not self.further:
            return super().loss(model, inputs, cross_entropy)
        import torch

        from GraphExtractor.further_tokens import loss_of_further

        tokens = inputs["input_ids"]
        places = torch.arange(tokens.shape[1]).unsqueeze(0)
        turned = model.model.rotary_emb(model.lm_head.weight, places)
        total: torch.Tensor = loss_of_further(
            model, inputs, cross_entropy, position_embeddings=turned
        )
        return total


def put_mixtures(blocks: Any, routed: Sequence[bool], hidden: int, *sizes: int) -> None:
    """Put experts of these ``sizes`` in the place of the MLPs of the ``blocks`` that are so, and
    name those of the others."""
    from torch import nn

    from GraphExtractor.experts import MixtureOfExperts

    for block, of_experts in zip(blocks, routed, strict=True):
        dense = nn.Sequential()
        dense.add_module("dense", block.mlp)
        block.mlp = MixtureOfExperts(hidden, *sizes) if of_experts else dense


_deepseek_v2 = partial(
    DeepseekV3,
    dense_layers=1,
    hidden=5120,
    heads=128,
    ffn=12288,
    expert_ffn=1536,
    experts=160,
    chosen=6,
    chosen_groups=3,
    shared=2,
    vocabulary=102400,
    sequence_length=4096,
)

_deepseek_v3 = partial(
    DeepseekV3,
    layers=61,
    dense_layers=3,
    hidden=7168,
    heads=128,
    ffn=18432,
    expert_ffn=2048,
    experts=256,
    chosen=8,
    chosen_groups=4,
    vocabulary=129280,
    sequence_length=4096,
)

MODELS: Mapping[str, ModelFamily] = {
    "deepseek-v3": _deepseek_v3(
        published_parameter_count=671_026_404_352,
        published_active_count=37_552_282_624,
        source="DeepSeek-AI 2024, section 4.2, and the released configuration; counts are the "
        "checkpoint's without its layer 61",
    ),
    "deepseek-v3-mtp": _deepseek_v3(
        further=1,
        published_parameter_count=682_500_000_000,
        published_active_count=39_200_000_000,
        source="DeepSeek-AI 2024, sections 2.2 and 4.2: deepseek-v3 with the module that predicts "
        "a second token, 11.5B of its own",
    ),
    "deepseek-v2": _deepseek_v2(
        layers=60,
        published_parameter_count=235_741_434_880,
        published_active_count=21_390_000_000,
        source="DeepSeek-AI 2024, DeepSeek-V2, section 3.1.2, and the released configuration",
    ),
    "deepseek-v2-4-layers": _deepseek_v2(
        layers=4,
        published_active_count=2_404_000_000,
        source="DeepSeek-V2's first layers, as SimuMax 4dcaae5 measures them (examples)",
    ),
    "kimi-k2": DeepseekV3(
        layers=61,
        dense_layers=1,
        hidden=7168,
        heads=64,
        ffn=18432,
        expert_ffn=2048,
        experts=384,
        chosen=8,
        vocabulary=163840,
        sequence_length=4096,
        published_parameter_count=1_040_000_000_000,
        published_active_count=32_600_000_000,
        source="Kimi Team 2025, Kimi K2, table 2, and the released configuration",
    ),
    "moonlight-16b-a3b": DeepseekV3(
        layers=27,
        dense_layers=1,
        hidden=2048,
        heads=16,
        ffn=11264,
        expert_ffn=1408,
        experts=64,
        chosen=6,
        shared=2,
        query_rank=0,
        vocabulary=163840,
        sequence_length=8192,
        published_parameter_count=16_000_000_000,
        published_active_count=2_910_000_000,
        source="Liu et al. 2025, Muon is scalable for LLM training, and the released configuration",
    ),
}
