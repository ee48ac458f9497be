"""GPT's blocks with experts in the place of the MLP, as Megatron-LM builds them by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import TensorParallelPlan
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.sources.config_values import ConfigSize

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class GptMoe(Gpt):
    """GPT with ``experts`` of width ``ffn``, without gates, of which a token meets ``chosen``
    (Megatron-LM, ``--num-experts`` without ``--swiglu``)."""

    folder: ClassVar[str] = "GPTMoE"
    model_type: ClassVar[str] = ""
    divides_twice: ClassVar[bool] = False
    keys: ClassVar[Mapping[str, ConfigSize]] = Gpt.keys
    plan: ClassVar[TensorParallelPlan] = replace(  # experts divide themselves
        Gpt.plan,
        column=Gpt.plan.column[:1],
        row=Gpt.plan.row[:1],
        entrances=Gpt.plan.entrances[:1],
    )

    chosen: int = 1

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.latent_experts import GeluMixture

        model: Any = super().build(key, vocabulary, attention)
        for block in model.transformer.h:
            block.mlp = GeluMixture(self.hidden, self.ffn, self.experts, self.chosen)
        return model
