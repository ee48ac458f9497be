"""Mixtral: Llama blocks whose MLP is a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from GraphExtractor.models.base import ExpertsLikeLlama, ModelFamily
from GraphExtractor.sources.config_values import ConfigSize, standard_sizes


@dataclass(frozen=True, kw_only=True)
class Mixtral(ExpertsLikeLlama):
    """MixtralForCausalLM (Jiang et al. 2024)."""

    folder: ClassVar[str] = "Mixtral"
    model_type: ClassVar[str] = "mixtral"
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=32, hidden=4096, heads=32, head_width=0, kv_heads=8, ffn=14336),
        **standard_sizes(chosen=2, vocabulary=32000, sequence_length=131072),
        "experts": ConfigSize("num_local_experts", 8),
    }

    chosen: int = 2


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
        *(32, 4096, 32, 46_702_792_704),
        ffn=14336,
        vocabulary=32000,
        published_active_count=12_879_925_248,
    ),
    "mixtral-8x22b": _mixtral(
        *(56, 6144, 48, 140_630_071_296),
        ffn=16384,
        vocabulary=32768,
        published_active_count=39_161_468_928,
    ),
}
ALIASES: Mapping[str, str] = {"mixtral": "mixtral-8x7b"}
