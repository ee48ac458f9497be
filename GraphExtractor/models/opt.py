"""OPT: ReLU decoder with learned positions; the 350M size is post-LN with narrow word embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import CrossEntropy, ModelFamily, TensorParallelPlan, token_ids

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey


@dataclass(frozen=True, kw_only=True)
class Opt(ModelFamily):
    """OPTForCausalLM (Zhang et al. 2022)."""

    folder: ClassVar[str] = "OPT"
    blocks: ClassVar[str] = "model.decoder.layers"
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.self_attn.q_proj", "*.self_attn.k_proj", "*.self_attn.v_proj", "*.fc1"),
        row=("*.self_attn.out_proj", "*.fc2"),
        entrances=("*.self_attn", "*.fc1"),
        embedding="model.decoder.embed_tokens",
        head="lm_head",
        divided={"*.self_attn": ("num_heads",)},
    )

    word_embedding: int = 0  # 0: as wide as hidden
    pre_norm: bool = True

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import OPTConfig, OPTForCausalLM

        config = OPTConfig(
            vocab_size=vocabulary,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            ffn_dim=self.ffn,
            max_position_embeddings=self.positions(key.sequence_length),
            word_embed_proj_dim=self.word_embedding or self.hidden,
            do_layer_norm_before=self.pre_norm,
            use_cache=False,
            attn_implementation=attention,
        )
        return OPTForCausalLM(config)

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        return {"input_ids": token_ids(key), "position_ids": token_ids(key), "labels": token_ids(key)}

    def loss(self, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], cross_entropy: CrossEntropy) -> torch.Tensor:
        """Next-token cross entropy; labels come shifted, as training data loaders deliver them."""
        output = model(input_ids=inputs["input_ids"], position_ids=inputs["position_ids"])
        return cross_entropy(output.logits, inputs["labels"])
