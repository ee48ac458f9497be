"""GPT-OSS: experts with biases and clamped gates, attention within a window in every second
block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.models.base import ExpertsLikeLlama, LlamaLikeFamily, ModelFamily
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, standard_sizes

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph_key import GraphKey

_LIMIT = 7.0  # of what enters the gates


@dataclass(frozen=True, kw_only=True)
class GptOss(ExpertsLikeLlama):
    """GptOssForCausalLM (OpenAI 2025); every second block attends to the last ``window`` tokens."""

    folder: ClassVar[str] = "GptOss"
    model_type: ClassVar[str] = "gpt_oss"
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "silu",
        "attention_bias": True,
        "attention_dropout": 0.0,
        "swiglu_limit": _LIMIT,
        "tie_word_embeddings": False,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=36, hidden=2880, heads=64, kv_heads=8, head_width=64, ffn=2880),
        **standard_sizes(chosen=4, vocabulary=201088, sequence_length=131072),
        "experts": ConfigSize("num_local_experts", 128),
        "window": ConfigSize("sliding_window", 128),
    }

    head_width: int = 64
    chosen: int = 4
    window: int = 128

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class; windows are in every second block, from the first on."""
        sizes = super().read_sizes(config)
        config.expect("layer_types", None, None, _kinds(sizes["layers"]))
        return sizes

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        return super().settings(key, vocabulary, attention) | {"layer_types": _kinds(self.layers)}

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.biased_experts import BiasedMixture, divide_sinks

        model: Any = LlamaLikeFamily.build(self, key, vocabulary, attention)
        for block in model.model.layers:
            block.mlp = BiasedMixture(self.hidden, self.ffn, self.experts, self.chosen)
            divide_sinks(block.self_attn)
        return model


def _kinds(layers: int) -> list[str]:
    return [("sliding_attention", "full_attention")[place % 2] for place in range(layers)]


_gpt_oss = partial(
    GptOss.sized,
    kv_heads=8,
    ffn=2880,
    vocabulary=201088,
    sequence_length=4096,
    source="OpenAI 2025, gpt-oss-120b and gpt-oss-20b model card, table 1, and the released "
    "configurations; the active part with the embedding, sequences as NVIDIA's recipes train",
)

MODELS: Mapping[str, ModelFamily] = {
    "gpt-oss-20b": _gpt_oss(
        24, 2880, 64, 20_914_757_184, experts=32, published_active_count=4_190_000_000
    ),
    "gpt-oss-120b": _gpt_oss(
        36, 2880, 64, 116_829_156_672, experts=128, published_active_count=5_710_000_000
    ),
}
