"""Llama: pre-RMSNorm decoder with rotary positions and a gated MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import LlamaLikeFamily, ModelFamily
from GraphExtractor.sources.config_values import ConfigSize, standard_sizes


@dataclass(frozen=True, kw_only=True)
class Llama(LlamaLikeFamily):
    """LlamaForCausalLM (Touvron et al. 2023), RMSNorm as the fused kernel every trainer uses."""

    folder: ClassVar[str] = "Llama"
    model_type: ClassVar[str] = "llama"
    divides_twice: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=32, hidden=4096, heads=32, head_width=0, kv_heads="heads"),
        **standard_sizes(ffn=11008, vocabulary=32000, sequence_length=2048),
    }

    tied: bool = False  # the head has the weights of the embedding

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        return super().settings(key, vocabulary, attention) | {"tie_word_embeddings": self.tied}


_llama1 = partial(
    Llama.sized,
    vocabulary=32000,
    sequence_length=2048,
    source="Touvron et al. 2023 (LLaMA), table 2, and the released checkpoints",
)
_llama2 = partial(
    Llama.sized,
    vocabulary=32000,
    sequence_length=4096,
    source="Touvron et al. 2023 (Llama 2), table 1, and the released checkpoints",
)
_llama3 = partial(
    Llama.sized,
    kv_heads=8,
    vocabulary=128256,
    sequence_length=8192,
    source="Grattafiori et al. 2024, table 3, and the released checkpoints",
)

MODELS: Mapping[str, ModelFamily] = {
    "llama-7b": _llama1(32, 4096, 32, 6_738_415_616, ffn=11008),
    "llama-13b": _llama1(40, 5120, 40, 13_015_864_320, ffn=13824),
    "llama-33b": _llama1(60, 6656, 52, 32_528_943_616, ffn=17920),
    "llama-65b": _llama1(80, 8192, 64, 65_285_660_672, ffn=22016),
    "llama2": _llama2(32, 4096, 32, 6_738_415_616, ffn=11008),
    "llama2-13b": _llama2(40, 5120, 40, 13_015_864_320, ffn=13824),
    "llama2-70b": _llama2(80, 8192, 64, 68_976_648_192, ffn=28672, kv_heads=8),
    "llama3-8b": _llama3(32, 4096, 32, 8_030_261_248, ffn=14336),
    "llama3-70b": _llama3(80, 8192, 64, 70_553_706_496, ffn=28672),
    "llama3-405b": _llama3(126, 16384, 128, 405_853_388_800, ffn=53248),
}
ALIASES: Mapping[str, str] = {"llama2-7b": "llama2"}
