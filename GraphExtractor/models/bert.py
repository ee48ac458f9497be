"""BERT and Megatron's pre-LN BERT, with their pre-training heads (masked language model and next sentence)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import CrossEntropy, ModelFamily, TensorParallelPlan, TransformerFamily, token_ids

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey


@dataclass(frozen=True, kw_only=True)
class Bert(TransformerFamily):
    """BertForPreTraining (Devlin et al. 2018): post-LN encoder."""

    folder: ClassVar[str] = "Bert"
    blocks: ClassVar[tuple[str, ...]] = ("bert.encoder.layer",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.attention.self.query", "*.attention.self.key", "*.attention.self.value", "*.intermediate.dense"),
        row=("*.layer.*.output.dense",),
        entrances=("*.attention.self", "*.intermediate"),
        embedding="bert.embeddings.word_embeddings",
        head="cls.predictions.decoder",
        first="bert.embeddings.LayerNorm",
        divided={"*.attention.self": ("num_attention_heads", "all_head_size")},
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
        from transformers import BertConfig, BertForPreTraining

        return BertForPreTraining(BertConfig(**self._config(key, vocabulary, attention)))

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        import torch

        return {
            "input_ids": token_ids(key),
            "token_type_ids": token_ids(key),
            "labels": token_ids(key),
            "next_sentence_label": torch.zeros(key.micro_batch_size, dtype=torch.long),
        }

    def loss(self, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], cross_entropy: CrossEntropy) -> torch.Tensor:
        """Masked-token loss over all positions plus next-sentence loss."""
        import torch

        output = model(input_ids=inputs["input_ids"], token_type_ids=inputs["token_type_ids"])
        sentence_loss = torch.nn.functional.cross_entropy(output.seq_relationship_logits, inputs["next_sentence_label"])
        return cross_entropy(output.prediction_logits, inputs["labels"]) + sentence_loss


@dataclass(frozen=True, kw_only=True)
class MegatronBert(Bert):
    """MegatronBertForPreTraining (Shoeybi et al. 2019): layer norms moved into the residual branches."""

    plan: ClassVar[TensorParallelPlan] = replace(Bert.plan, first="bert.embeddings.dropout")

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import BertConfig, MegatronBertConfig, MegatronBertForPreTraining
        from transformers.models.bert.modeling_bert import BertSelfAttention

        settings = self._config(key, vocabulary, attention)
        attention_config = BertConfig(**settings)
        del settings["attn_implementation"]
        model = MegatronBertForPreTraining(MegatronBertConfig(**settings))
        for layer in model.bert.encoder.layer:
            # the same projections, but with a choice of attention implementation, which Megatron's copy never got
            layer.attention.self = BertSelfAttention(attention_config)
        return model


def _bert(family: type[Bert], layers: int, hidden: int, heads: int, vocabulary: int, published: int) -> Bert:
    return family(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=vocabulary,
        sequence_length=512,
        published_parameter_count=published,
    )


MODELS: MappingProxyType[str, ModelFamily] = MappingProxyType(
    {
        # Devlin et al. 2018 and its released checkpoints; Shoeybi et al. 2019, tables 1 and 4
        "bertbase": _bert(Bert, 12, 768, 12, 30522, 110_106_428),
        "bertlarge": _bert(Bert, 24, 1024, 16, 30522, 336_226_108),
        "megatronbert": _bert(MegatronBert, 24, 1024, 16, 29056, 336_000_000),
    }
)
