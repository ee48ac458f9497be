"""BERT and Megatron's pre-LN BERT, with their pre-training heads (masked language model and next
sentence)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import (
    CrossEntropy,
    ModelFamily,
    TensorParallelPlan,
    TransformerFamily,
    token_ids,
)

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey
    from GraphExtractor.sources.config_values import ConfigValues


@dataclass(frozen=True, kw_only=True)
class Bert(TransformerFamily):
    """BertForPreTraining (Devlin et al. 2018): post-LN encoder."""

    folder: ClassVar[str] = "Bert"
    model_type: ClassVar[str] = "bert"
    blocks: ClassVar[tuple[str, ...]] = ("bert.encoder.layer",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=(
            "*.attention.self.query",
            "*.attention.self.key",
            "*.attention.self.value",
            "*.intermediate.dense",
        ),
        row=("*.layer.*.output.dense",),
        entrances=("*.attention.self", "*.intermediate"),
        embedding="bert.embeddings.word_embeddings",
        head="cls.predictions.decoder",
        first="bert.embeddings.LayerNorm",
        divided={"*.attention.self": ("num_attention_heads", "all_head_size")},
    )

    next_sentence: bool = (
        True  # whether the pooler and the head that predicts the next sentence are there
    )

    @classmethod
    def from_config(cls, config: ConfigValues) -> Bert:
        """See base class."""
        config.expect_architecture(
            "BertForPreTraining", "BertForMaskedLM", "MegatronBertForPreTraining"
        )
        config.expect_each(
            hidden_act="gelu",
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            is_decoder=False,
            add_cross_attention=False,
            position_embedding_type="absolute",
            type_vocab_size=2,
            tie_word_embeddings=True,
        )
        large = (
            cls.model_type == "megatron-bert"
        )  # what is left out has the size of the large model there
        return cls(
            layers=config.size("num_hidden_layers", 24 if large else 12),
            hidden=config.size("hidden_size", 1024 if large else 768),
            heads=config.size("num_attention_heads", 16 if large else 12),
            ffn=config.size("intermediate_size", 4096 if large else 3072),
            vocabulary=config.size("vocab_size", 29056 if large else 30522),
            sequence_length=config.length("max_position_embeddings", 512),
            next_sentence=config.values.get("architectures") != ["BertForMaskedLM"],
        )

    def _config(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, object]:
        return {
            "vocab_size": vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.ffn,
            "max_position_embeddings": self.positions(key.sequence_length),
            "attn_implementation": attention,
        }

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

        architecture = BertForPreTraining if self.next_sentence else BertForMaskedLM
        return architecture(BertConfig(**self._config(key, vocabulary, attention)))

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        import torch

        masked = {
            "input_ids": token_ids(key),
            "token_type_ids": token_ids(key),
            "labels": token_ids(key),
        }
        if not self.next_sentence:
            return masked
        return masked | {"next_sentence_label": torch.zeros(key.micro_batch_size, dtype=torch.long)}

    def loss(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        cross_entropy: CrossEntropy,
    ) -> torch.Tensor:
        """Masked-token loss over all positions plus next-sentence loss."""
        import torch

        output = model(input_ids=inputs["input_ids"], token_type_ids=inputs["token_type_ids"])
        if not self.next_sentence:
            return cross_entropy(output.logits, inputs["labels"])
        sentence_loss = torch.nn.functional.cross_entropy(
            output.seq_relationship_logits, inputs["next_sentence_label"]
        )
        return cross_entropy(output.prediction_logits, inputs["labels"]) + sentence_loss


@dataclass(frozen=True, kw_only=True)
class MegatronBert(Bert):
    """MegatronBertForPreTraining (Shoeybi et al. 2019): layer norms moved into the residual
    branches."""

    model_type: ClassVar[str] = "megatron-bert"
    plan: ClassVar[TensorParallelPlan] = replace(Bert.plan, first="bert.embeddings.dropout")

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import BertConfig, MegatronBertConfig, MegatronBertForPreTraining

        from GraphExtractor.torch_internals import modeling

        settings = self._config(key, vocabulary, attention)
        attention_config = BertConfig(**settings)
        del settings["attn_implementation"]
        model = MegatronBertForPreTraining(MegatronBertConfig(**settings))
        for layer in model.bert.encoder.layer:
            # the same projections, but with a choice of attention implementation, which Megatron's
            # copy never got
            layer.attention.self = modeling("bert").BertSelfAttention(attention_config)
        return model


_bert = partial(
    Bert.sized,
    vocabulary=30522,
    sequence_length=512,
    source="Devlin et al. 2018, section 3, and the released checkpoints",
)

MODELS: Mapping[str, ModelFamily] = {
    "bertbase": _bert(12, 768, 12, 110_106_428),
    "bertlarge": _bert(24, 1024, 16, 336_226_108),
    "megatronbert": MegatronBert.sized(
        24,
        1024,
        16,
        336_000_000,
        vocabulary=29056,
        sequence_length=512,
        source="Shoeybi et al. 2019, tables 1 and 4",
    ),
}
