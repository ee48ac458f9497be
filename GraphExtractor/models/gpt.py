"""GPT-2 and GPT-3: pre-LN decoder, learned positions, tied head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import CrossEntropy, ModelFamily, TensorParallelPlan, token_ids

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey


@dataclass(frozen=True, kw_only=True)
class Gpt(ModelFamily):
    """GPT2LMHeadModel with the tanh-approximated GELU as one operator."""

    folder: ClassVar[str] = "GPT"
    blocks: ClassVar[str] = "transformer.h"
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.attn.c_attn", "*.mlp.c_fc"),
        row=("*.attn.c_proj", "*.mlp.c_proj"),
        entrances=("*.attn", "*.mlp"),
        embedding="transformer.wte",
        head="lm_head",
        first="transformer.drop",
        last="transformer.ln_f",
        divided={"*.attn": ("split_size", "num_heads")},
    )

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=vocabulary,
            n_positions=self.positions(key.sequence_length),
            n_embd=self.hidden,
            n_layer=self.layers,
            n_head=self.heads,
            n_inner=self.ffn,
            activation_function="gelu_pytorch_tanh",
            use_cache=False,
            attn_implementation=attention,
        )
        return GPT2LMHeadModel(config)

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        return {"input_ids": token_ids(key), "labels": token_ids(key)}

    def loss(self, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], cross_entropy: CrossEntropy) -> torch.Tensor:
        """Next-token cross entropy; labels come shifted, as training data loaders deliver them."""
        return cross_entropy(model(input_ids=inputs["input_ids"]).logits, inputs["labels"])
