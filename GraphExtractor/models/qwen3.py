"""Qwen3: decoder with rotary positions, grouped queries, norms of queries and keys, a gated MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import LlamaLikeFamily, ModelFamily
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, standard_sizes


@dataclass(frozen=True, kw_only=True)
class Qwen3(LlamaLikeFamily):
    """Qwen3ForCausalLM (Qwen3 technical report 2025); heads are 128 wide whatever the hidden."""

    folder: ClassVar[str] = "Qwen3"
    model_type: ClassVar[str] = "qwen3"
    divides_twice: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=32, hidden=4096, heads=32, kv_heads=32, head_width=128),
        **standard_sizes(ffn=22016, vocabulary=151936, sequence_length=32768),
    }

    head_width: int = 128
    tied: bool = False

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        config.expect("tie_word_embeddings", False, False, True)
        tied = config.values.get("tie_word_embeddings", False)
        return super().read_sizes(config) | {"tied": tied}

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        return super().settings(key, vocabulary, attention) | {"tie_word_embeddings": self.tied}


_qwen3 = partial(
    Qwen3.sized,
    kv_heads=8,
    vocabulary=151936,
    sequence_length=4096,
    source="Qwen3 technical report 2025, table 1, and the released configurations and "
    "checkpoints; pre-trained on 4,096 tokens",
)

MODELS: Mapping[str, ModelFamily] = {
    "qwen3-0.6b": _qwen3(28, 1024, 16, 596_049_920, ffn=3072, tied=True),
    "qwen3-1.7b": _qwen3(28, 2048, 16, 1_720_574_976, ffn=6144, tied=True),
    "qwen3-4b": _qwen3(36, 2560, 32, 4_022_468_096, ffn=9728, tied=True),
    "qwen3-8b": _qwen3(36, 4096, 32, 8_190_735_360, ffn=12288),
    "qwen3-14b": _qwen3(40, 5120, 40, 14_768_307_200, ffn=17408),
    "qwen3-32b": _qwen3(64, 5120, 64, 32_762_123_264, ffn=25600),
}
