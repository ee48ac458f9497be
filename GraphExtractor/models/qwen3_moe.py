"""Qwen3 with many small experts: grouped queries, norms of every head's queries and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from GraphExtractor.models.base import ExpertsLikeLlama, ModelFamily
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, standard_sizes


@dataclass(frozen=True, kw_only=True)
class Qwen3Moe(ExpertsLikeLlama):
    """Qwen3MoeForCausalLM (Qwen3 technical report 2025)."""

    folder: ClassVar[str] = "Qwen3Moe"
    model_type: ClassVar[str] = "qwen3_moe"
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "decoder_sparse_step": 1,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=24, hidden=2048, heads=32, kv_heads=4, head_width=0, chosen=8),
        **standard_sizes(vocabulary=151936, sequence_length=32768),
        "ffn": ConfigSize("moe_intermediate_size", 768),
        "experts": ConfigSize("num_local_experts", 128, instead="num_experts"),
    }

    head_width: int = 128
    chosen: int = 8

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        config.expect("mlp_only_layers", [], [], None)
        return super().read_sizes(config)


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
