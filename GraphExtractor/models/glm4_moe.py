"""GLM-4.5 and Llama 4: grouped queries, and experts beside one that all tokens meet, behind or
between dense blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import LlamaLikeFamily, ModelFamily, TensorParallelPlan
from GraphExtractor.models.deepseek_v3 import DeepseekV3, put_mixtures
from GraphExtractor.sources.config_values import ConfigSize, standard_sizes
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Glm4Moe(LlamaLikeFamily):
    """Glm4MoeForCausalLM (GLM-4.5 Team 2025), without modules that predict further tokens.

    The last of every ``step`` blocks behind ``dense_layers`` has experts of width ``expert_ffn``,
    of which a token meets ``chosen``, and one that all tokens meet; the others have an MLP of width
    ``ffn``. Rotary positions turn the part ``rotary`` of a head. The text blocks of Llama 4 (Meta
    2025) are the same, but for positions that every fourth block lacks and attention within chunks
    of ``chunk`` tokens in the others, so that no longer sequences are extracted.
    """

    folder: ClassVar[str] = "Glm4Moe"
    plan: ClassVar[TensorParallelPlan] = replace(
        DeepseekV3.plan,  # of dense blocks
        column=(*LlamaLikeFamily.plan.column[:3], *DeepseekV3.plan.column),
        row=(*LlamaLikeFamily.plan.row[:1], *DeepseekV3.plan.row),
        entrances=(*LlamaLikeFamily.plan.entrances[:1], *DeepseekV3.plan.entrances),
    )
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(hidden=4096, heads=96, kv_heads=8, head_width=128, ffn=10944, chosen=8),
        **standard_sizes(layers=46, vocabulary=151552, sequence_length=4096),
        "expert_ffn": ConfigSize("moe_intermediate_size", 1408),
        "experts": ConfigSize("n_routed_experts", 128),
    }

    expert_ffn: int
    chosen: int
    dense_layers: int = 0
    step: int = 1
    query_norm: bool = False
    bias: bool = False
    rotary: float = 0.5
    chunk: int = 0  # 0: attention to all tokens

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """See base class."""
        sizes = {"attention heads": self.heads, "key/value heads": self.kv_heads}
        return {**sizes, "ffn width": self.ffn, "expert width": self.expert_ffn}

    def check(self, key: GraphKey) -> None:
        """See base class.

        Raises:
            InputError: sequences are longer than the chunks that attention is within.
        """
        if self.chunk and key.sequence_length > self.chunk:
            raise InputError(
                f"sequences of {key.sequence_length} tokens, given for {key.model}, attend within "
                f"chunks of {self.chunk} in most of its blocks, which is not priced; give a "
                f"sequence_length of at most {self.chunk}"
            )

    def part(self, name: str) -> Any:
        """See base class."""
        from GraphExtractor.torch_internals import modeling

        return getattr(modeling("glm4_moe"), f"{self.folder}{name}")

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class; all blocks are dense until experts are put into them."""
        return super().settings(key, vocabulary, attention) | {
            "first_k_dense_replace": self.layers,
            "use_qk_norm": self.query_norm,
            "attention_bias": self.bias,
            "partial_rotary_factor": self.rotary,
        }

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        model: Any = super().build(key, vocabulary, attention)
        places = [
            place >= self.dense_layers and (place + 1) % self.step == 0
            for place in range(self.layers)
        ]
        sizes = self.expert_ffn, self.experts, self.chosen, self.expert_ffn
        put_mixtures(model.model.layers, places, self.hidden, *sizes)
        return model


_glm = partial(
    Glm4Moe,
    heads=96,
    kv_heads=8,
    head_width=128,
    chosen=8,
    bias=True,
    vocabulary=151552,
    sequence_length=4096,
    source="GLM-4.5 Team 2025, table 1 (355B and 106B, of which a token meets 32B and 12B, without "
    "both tables), and the released configurations, from which the latter are counted with them",
)
_llama4 = partial(
    Glm4Moe,
    layers=48,
    hidden=5120,
    heads=40,
    kv_heads=8,
    head_width=128,
    ffn=16384,
    expert_ffn=8192,
    chosen=1,
    rotary=1.0,
    vocabulary=202048,
    sequence_length=8192,
    chunk=8192,
)

MODELS: Mapping[str, ModelFamily] = {
    "glm-4.5": _glm(
        layers=92,
        dense_layers=3,
        hidden=5120,
        ffn=12288,
        expert_ffn=1536,
        experts=160,
        query_norm=True,
        published_parameter_count=355_000_000_000,
        published_active_count=33_632_228_352,
    ),
    "glm-4.5-air": _glm(
        layers=46,
        dense_layers=1,
        hidden=4096,
        ffn=10944,
        expert_ffn=1408,
        experts=128,
        published_parameter_count=106_000_000_000,
        published_active_count=13_424_123_904,
    ),
    "llama-4-scout": _llama4(
        experts=16,
        query_norm=True,
        published_parameter_count=109_000_000_000,
        published_active_count=17_172_894_720,
        source="Meta 2025, The Llama 4 herd (109B with its vision encoder; 17B active), and the "
        "released configuration, from which the latter are counted",
    ),
    "llama-4-maverick": _llama4(
        experts=128,
        step=2,
        published_parameter_count=400_000_000_000,
        published_active_count=17_184_691_200,
        source="Meta 2025, The Llama 4 herd (17B active), and the released configuration, from "
        "which these are counted",
    ),
}
