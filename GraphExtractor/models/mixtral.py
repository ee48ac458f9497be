"""Mixtral: Llama blocks whose MLP is a mixture of experts."""

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
class Mixtral(LlamaLikeFamily):
    """MixtralForCausalLM (Jiang et al. 2024); ``ffn`` is the width of an expert, of which a token
    meets ``chosen``."""

    folder: ClassVar[str] = "Mixtral"
    model_type: ClassVar[str] = "mixtral"
    plan: ClassVar[TensorParallelPlan] = ATTENTION_PLAN

    chosen: int = 2

    @classmethod
    def from_config(cls, config: ConfigValues) -> Mixtral:
        """See base class."""
        heads = config.size("num_attention_heads", 32)
        config.expect_architecture("MixtralForCausalLM")
        config.expect_each(
            hidden_act="silu", attention_dropout=0.0, sliding_window=None, tie_word_embeddings=False
        )
        return cls(
            layers=config.size("num_hidden_layers", 32),
            hidden=config.size("hidden_size", 4096),
            heads=heads,
            head_width=config.stated_size("head_dim"),
            kv_heads=config.size("num_key_value_heads", 8),
            ffn=config.size("intermediate_size", 14336),
            experts=config.size("num_local_experts", 8),
            chosen=config.size("num_experts_per_tok", 2),
            vocabulary=config.size("vocab_size", 32000),
            sequence_length=config.length("max_position_embeddings", 131072),
        )

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        return super().settings(key, vocabulary, attention) | {
            "num_local_experts": self.experts,
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


_mixtral = partial(
    Mixtral.sized,
    kv_heads=8,
    experts=8,
    sequence_length=4096,
    source="Jiang et al. 2024, table 1, and the released checkpoints; the active part is theirs "
    "less the experts a token misses",
)

MODELS: Mapping[str, ModelFamily] = {
    "mixtral-8x7b": _mixtral(
        32,
        4096,
        32,
        46_702_792_704,
        ffn=14336,
        vocabulary=32000,
        published_active_count=12_879_925_248,
    ),
    "mixtral-8x22b": _mixtral(
        56,
        6144,
        48,
        140_630_071_296,
        ffn=16384,
        vocabulary=32768,
        published_active_count=39_161_468_928,
    ),
}
ALIASES: Mapping[str, str] = {"mixtral": "mixtral-8x7b"}
