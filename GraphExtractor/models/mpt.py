"""MPT: pre-LN decoder with ALiBi, without biases and dropout, tied head."""

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
class Mpt(LanguageModelFamily):
    """MptForCausalLM (MosaicML 2023)."""

    folder: ClassVar[str] = "MPT"
    model_type: ClassVar[str] = "mpt"
    divides_twice: ClassVar[bool] = True
    blocks: ClassVar[tuple[str, ...]] = ("transformer.blocks",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.attn.projection", "*.ffn.up_proj"),
        row=("*.attn.output", "*.ffn.down_proj"),
        entrances=("*.attn", "*.ffn"),
        embedding="transformer.wte",
        head="lm_head",
        divided={"*.attn": ("heads",)},
    )
    architectures: ClassVar[tuple[str, ...]] = ("MptForCausalLM", "MPTForCausalLM")
    fixed: ClassVar[Mapping[str, object]] = {
        "resid_pdrop": 0.0,
        "emb_pdrop": 0.0,
        "no_bias": True,
        "tie_word_embeddings": True,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        "layers": ConfigSize("n_layers", 24),
        "hidden": ConfigSize("d_model", 2048),
        "heads": ConfigSize("n_heads", 16),
        "vocabulary": ConfigSize("vocab_size", 50368),
        "sequence_length": ConfigSize("max_seq_len", 2048),
    }

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        config.inside("attn_config").expect_each(
            alibi=True, attn_pdrop=0.0, clip_qkv=None, qk_ln=False, attn_type="multihead_attention"
        )
        sizes = super().read_sizes(config)
        return sizes | {"ffn": config.size("expansion_ratio", 4) * sizes["hidden"]}

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; ``attention`` is not needed where attention is torch's own function."""
        import torch
        from transformers import MptConfig, MptForCausalLM

        from GraphExtractor.biased_attention import AlibiAttention

        settings = self.written_sizes(
            vocab_size=vocabulary, max_seq_len=key.sequence_length, use_cache=False
        )
        model = MptForCausalLM(MptConfig(**settings))
        for block in model.transformer.blocks:
            own = block.attn
            block.attn = AlibiAttention(
                own.Wqkv, own.out_proj, self.heads, 0.0, key.sequence_length
            )
            if self.ffn != 4 * self.hidden:
                block.ffn.up_proj = torch.nn.Linear(self.hidden, self.ffn, bias=False)
                block.ffn.down_proj = torch.nn.Linear(self.ffn, self.hidden, bias=False)
        return model


_mpt = partial(
    Mpt.sized,
    vocabulary=50432,
    sequence_length=2048,
    source="llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml; ALiBi and vocabulary of the "
    "released mpt-7b and mpt-30b",
)

MODELS: Mapping[str, ModelFamily] = {
    "mpt-125m": _mpt(12, 768, 12),
    "mpt-350m": _mpt(24, 1024, 16),
    "mpt-760m": _mpt(24, 1536, 12),
    "mpt-1b": _mpt(24, 2048, 16),
    "mpt-3b": _mpt(32, 2560, 20),
    "mpt-7b": _mpt(32, 4096, 32, 6_649_286_656),
    "mpt-13b": _mpt(40, 5120, 40),
    "mpt-30b": _mpt(48, 7168, 56, 29.95e9),
    "mpt-70b": _mpt(80, 8192, 64),
}
