"""BLOOM: pre-LN decoder with ALiBi, a layer norm behind the embedding, and a tied head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import LanguageModelFamily, ModelFamily, TensorParallelPlan
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Bloom(LanguageModelFamily):
    """BloomForCausalLM (BigScience 2022), trained without dropout, its tanh GELU one operator."""

    folder: ClassVar[str] = "Bloom"
    model_type: ClassVar[str] = "bloom"
    divides_twice: ClassVar[bool] = True
    blocks: ClassVar[tuple[str, ...]] = ("transformer.h",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.self_attention.projection", "*.mlp.dense_h_to_4h"),
        row=("*.self_attention.output", "*.mlp.dense_4h_to_h"),
        entrances=("*.self_attention", "*.mlp"),
        embedding="transformer.word_embeddings",
        head="lm_head",
        first="transformer.word_embeddings_layernorm",
        divided={"*.self_attention": ("heads",)},
    )
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "apply_residual_connection_post_layernorm": False,
        "tie_word_embeddings": True,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        "hidden": ConfigSize("hidden_size", 64, instead="n_embed"),
        "layers": ConfigSize("num_hidden_layers", 2, instead="n_layer"),
        "heads": ConfigSize("num_attention_heads", 8, instead="n_head"),
        "vocabulary": ConfigSize("vocab_size", 250880),
        "sequence_length": ConfigSize("seq_length", 2048),
    }

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        sizes = super().read_sizes(config)
        return sizes | {"ffn": 4 * sizes["hidden"]}

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; ``attention`` is not needed where attention is torch's own function."""
        import torch
        from transformers import BloomConfig, BloomForCausalLM

        from GraphExtractor.biased_attention import AlibiAttention

        settings = self.written_sizes(vocab_size=vocabulary, use_cache=False)
        model = BloomForCausalLM(BloomConfig(**settings))
        for block in model.transformer.h:
            own = block.self_attention
            block.self_attention = AlibiAttention(
                own.query_key_value, own.dense, self.heads, 0.0, key.sequence_length
            )
            block.mlp.gelu_impl = torch.nn.GELU(approximate="tanh")
            if self.ffn != 4 * self.hidden:
                block.mlp.dense_h_to_4h = torch.nn.Linear(self.hidden, self.ffn)
                block.mlp.dense_4h_to_h = torch.nn.Linear(self.ffn, self.hidden)
        return model


_bloom = partial(
    Bloom.sized,
    vocabulary=250880,
    sequence_length=2048,
    source="BigScience 2022, table 3, and the released checkpoints",
)

MODELS: Mapping[str, ModelFamily] = {
    "bloom-560m": _bloom(24, 1024, 16, 559_214_592),
    "bloom-1b1": _bloom(24, 1536, 16, 1_065_314_304),
    "bloom-1b7": _bloom(24, 2048, 16, 1_722_408_960),
    "bloom-3b": _bloom(30, 2560, 32, 3_002_557_440),
    "bloom-7b1": _bloom(30, 4096, 32, 7_069_016_064),
    "bloom-176b": _bloom(70, 14336, 112, 176_247_271_424),
}
ALIASES: Mapping[str, str] = {"bloom": "bloom-176b"}
