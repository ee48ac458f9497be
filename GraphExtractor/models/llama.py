"""Llama: pre-RMSNorm decoder with rotary positions and a gated MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import CrossEntropy, ModelFamily, TensorParallelPlan, token_ids

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey


@dataclass(frozen=True, kw_only=True)
class Llama(ModelFamily):
    """LlamaForCausalLM (Touvron et al. 2023), RMSNorm as the fused kernel every trainer uses."""

    folder: ClassVar[str] = "Llama"
    blocks: ClassVar[str] = "model.layers"
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.self_attn.q_proj", "*.self_attn.k_proj", "*.self_attn.v_proj", "*.mlp.gate_proj", "*.mlp.up_proj"),
        row=("*.self_attn.o_proj", "*.mlp.down_proj"),
        entrances=("*.self_attn", "*.mlp"),
        embedding="model.embed_tokens",
        head="lm_head",
    )

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.models.llama.modeling_llama import LlamaRMSNorm

        from GraphExtractor.opaque import FusedRmsNorm

        config = LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            intermediate_size=self.ffn,
            max_position_embeddings=max(self.sequence_length, key.sequence_length),
            use_cache=False,
            attn_implementation=attention,
        )
        model = LlamaForCausalLM(config)
        for path, module in list(model.named_modules()):
            if isinstance(module, LlamaRMSNorm):
                model.set_submodule(path, FusedRmsNorm(module.weight))
        return model

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        return {"input_ids": token_ids(key), "labels": token_ids(key)}

    def loss(self, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], cross_entropy: CrossEntropy) -> torch.Tensor:
        """Next-token cross entropy; labels come shifted, as training data loaders deliver them."""
        return cross_entropy(model(input_ids=inputs["input_ids"]).logits, inputs["labels"])
