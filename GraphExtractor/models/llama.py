"""Llama: pre-RMSNorm decoder with rotary positions and a gated MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import LlamaLikeFamily, ModelFamily

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey
    from GraphExtractor.sources.config_values import ConfigValues


@dataclass(frozen=True, kw_only=True)
class Llama(LlamaLikeFamily):
    """LlamaForCausalLM (Touvron et al. 2023), RMSNorm as the fused kernel every trainer uses."""

    folder: ClassVar[str] = "Llama"
    model_type: ClassVar[str] = "llama"

    @classmethod
    def from_config(cls, config: ConfigValues) -> Llama:
        """See base class."""
        hidden, heads = config.size("hidden_size", 4096), config.size("num_attention_heads", 32)
        config.expect_architecture("LlamaForCausalLM")
        config.expect("hidden_act", "silu", "silu")
        config.expect("attention_bias", False, False)
        config.expect("mlp_bias", False, False)
        config.expect("attention_dropout", 0.0, 0.0)
        config.expect("tie_word_embeddings", False, False)
        config.expect("head_dim", None, None, hidden // heads)
        return cls(
            layers=config.size("num_hidden_layers", 32),
            hidden=hidden,
            heads=heads,
            kv_heads=config.size("num_key_value_heads", heads),
            ffn=config.size("intermediate_size", 11008),
            vocabulary=config.size("vocab_size", 32000),
            sequence_length=config.length("max_position_embeddings", 2048),
        )

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.models.llama.modeling_llama import LlamaRMSNorm

        from GraphExtractor.opaque import fuse_norms

        config = LlamaConfig(**self.settings(key, vocabulary, attention))
        model = LlamaForCausalLM(config)
        fuse_norms(model, LlamaRMSNorm)
        return model


def _llama(
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    published: int,
    sequence_length: int,
    kv_heads: int = 0,
    vocabulary: int = 32000,
) -> Llama:
    return Llama(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocabulary=vocabulary,
        sequence_length=sequence_length,
        published_parameter_count=published,
        kv_heads=kv_heads,
    )


MODELS: Mapping[str, ModelFamily] = {
    # Touvron et al. 2023 (table 2; Llama 2, table 1), Grattafiori et al. 2024 (table 3) and the released checkpoints
    "llama-7b": _llama(32, 4096, 32, 11008, 6_738_415_616, 2048),
    "llama-13b": _llama(40, 5120, 40, 13824, 13_015_864_320, 2048),
    "llama-33b": _llama(60, 6656, 52, 17920, 32_528_943_616, 2048),
    "llama-65b": _llama(80, 8192, 64, 22016, 65_285_660_672, 2048),
    "llama2": _llama(32, 4096, 32, 11008, 6_738_415_616, 4096),
    "llama2-13b": _llama(40, 5120, 40, 13824, 13_015_864_320, 4096),
    "llama2-70b": _llama(80, 8192, 64, 28672, 68_976_648_192, 4096, kv_heads=8),
    "llama3-8b": _llama(32, 4096, 32, 14336, 8_030_261_248, 8192, kv_heads=8, vocabulary=128256),
    "llama3-70b": _llama(80, 8192, 64, 28672, 70_553_706_496, 8192, kv_heads=8, vocabulary=128256),
    "llama3-405b": _llama(126, 16384, 128, 53248, 405_853_388_800, 8192, kv_heads=8, vocabulary=128256),
}
ALIASES: Mapping[str, str] = {"llama2-7b": "llama2"}
