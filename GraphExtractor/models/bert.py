"""BERT and Megatron's pre-LN BERT, with their heads (masked language model, next sentence)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import (
    CrossEntropy,
    Inputs,
    ModelFamily,
    TensorParallelPlan,
    TransformerFamily,
    token_ids,
)
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, standard_sizes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Bert(TransformerFamily):
    """BertForPreTraining (Devlin et al. 2018): post-LN encoder."""

    folder: ClassVar[str] = "Bert"
    model_type: ClassVar[str] = "bert"
    blocks: ClassVar[tuple[str, ...]] = ("bert.encoder.layer",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=(
            *(f"*.attention.self.{name}" for name in ("query", "key", "value")),
            "*.intermediate.dense",
        ),
        row=("*.layer.*.output.dense",),
        entrances=("*.attention.self", "*.intermediate"),
        embedding="bert.embeddings.word_embeddings",
        head="cls.predictions.decoder",
        first="bert.embeddings.LayerNorm",
        divided={"*.attention.self": ("num_attention_heads", "all_head_size")},
    )
    architectures: ClassVar[tuple[str, ...]] = (
        "BertForPreTraining",
        "BertForMaskedLM",
        "MegatronBertForPreTraining",
    )
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
        "type_vocab_size": 2,
        "tie_word_embeddings": True,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = standard_sizes(
        layers=12, hidden=768, heads=12, ffn=3072, vocabulary=30522, sequence_length=512
    )

    next_sentence: bool = True  # whether pooler and head that predict the next sentence are there

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        next_sentence = config.values.get("architectures") != ["BertForMaskedLM"]
        return super().read_sizes(config) | {"next_sentence": next_sentence}

    def _settings(self, key: GraphKey, vocabulary: int) -> dict[str, Any]:
        positions = self.positions(key.sequence_length)
        return self.written_sizes(vocab_size=vocabulary, max_position_embeddings=positions)

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

        architecture = BertForPreTraining if self.next_sentence else BertForMaskedLM
        settings = self._settings(key, vocabulary)
        return architecture(BertConfig(**settings, attn_implementation=attention))

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        import torch

        inputs = {name: token_ids(key) for name in ("input_ids", "token_type_ids", "labels")}
        if self.next_sentence:
            inputs["next_sentence_label"] = torch.zeros(key.micro_batch_size, dtype=torch.long)
        return inputs

    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
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
    """MegatronBertForPreTraining (Shoeybi et al. 2019): layer norms in the residual branches."""

    model_type: ClassVar[str] = "megatron-bert"
    asks_values: ClassVar[bool] = True  # whether tokens are padding, and a mask hides nothing
    plan: ClassVar[TensorParallelPlan] = replace(Bert.plan, first="bert.embeddings.dropout")
    # what a configuration leaves out has the size of the large model
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **Bert.keys,
        **standard_sizes(layers=24, hidden=1024, heads=16, ffn=4096, vocabulary=29056),
    }

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import BertConfig, MegatronBertConfig, MegatronBertForPreTraining

        from GraphExtractor.torch_internals import modeling

        settings = self._settings(key, vocabulary)
        attention_config = BertConfig(**settings, attn_implementation=attention)
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
        *(24, 1024, 16, 336_000_000),
        vocabulary=29056,
        sequence_length=512,
        source="Shoeybi et al. 2019, tables 1 and 4",
    ),
}
