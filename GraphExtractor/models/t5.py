"""T5: encoder and decoder with learned biases on distances, one table of tokens for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues
from phaze_common.choices import KeyExchange
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class T5(TransformerFamily):
    """The T5 of Raffel et al. 2020; half of its ``layers`` blocks are the encoder's.

    ``sequence_length`` tokens enter the encoder, and as many the decoder. Position biases are those
    of the first block of each stack, which goes on to send them to the others.
    """

    folder: ClassVar[str] = "T5"
    model_type: ClassVar[str] = "t5"
    blocks: ClassVar[tuple[str, ...]] = ("encoder.blocks", "decoder.blocks")
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*attention.q", "*attention.k", "*attention.v", "*.ffn.wi"),
        row=("*attention.o", "*.ffn.wo"),
        entrances=("*.attention", "*.cross_attention", "*.ffn"),
        embedding="*coder.embedding",
        head="head",
        first="*coder.dropout",
    )
    architectures: ClassVar[tuple[str, ...]] = ("T5ForConditionalGeneration",)
    fixed: ClassVar[Mapping[str, object]] = {
        "feed_forward_proj": "relu",
        "dropout_rate": 0.1,
        "relative_attention_num_buckets": 32,
        "tie_word_embeddings": True,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        "layers": ConfigSize("num_layers", 6),
        "hidden": ConfigSize("d_model", 512),
        "heads": ConfigSize("num_heads", 8),
        "head_width": ConfigSize("d_kv", 64),
        "ffn": ConfigSize("d_ff", 2048),
        "vocabulary": ConfigSize("vocab_size", 32128),
        "sequence_length": ConfigSize("n_positions", 512),
    }

    head_width: int

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class; a configuration counts the blocks of one stack."""
        sizes = super().read_sizes(config)
        config.expect("num_decoder_layers", None, None, sizes["layers"])
        return sizes | {"layers": 2 * sizes["layers"]}

    def check(self, key: GraphKey) -> None:
        """Both stacks have blocks, and biases of pairs of tokens stay with the queries.

        Raises: InputError: ``layers`` is odd, or queries would be exchanged.
        """
        if key.exchange is KeyExchange.ULYSSES and key.sequence_devices > 1:
            raise InputError(
                f"{key.model} learns a bias for every pair of tokens, which stays with the queries "
                "that ulysses exchanges; use exchange gather or ring"
            )
        if self.layers % 2:
            raise InputError(
                f"{key.model} has {self.layers} blocks; give an even number of them, half of "
                "which are the encoder's"
            )

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; ``attention`` is not needed where attention is torch's own function."""
        from GraphExtractor.biased_attention import BlockSizes, EncoderDecoder

        sizes = BlockSizes(self.hidden, self.heads, self.head_width, self.ffn)
        return EncoderDecoder(vocabulary, self.layers // 2, sizes)

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        return {"ids": token_ids(key), "decoder_ids": token_ids(key), "labels": token_ids(key)}

    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """Cross entropy of the decoder's next tokens; labels come shifted."""
        return cross_entropy(model(inputs["ids"], inputs["decoder_ids"]), inputs["labels"])


_t5 = partial(
    T5.sized,
    vocabulary=32128,
    sequence_length=512,
    source="Raffel et al. 2020, section 3.7, and the released configurations and checkpoints",
)

MODELS: Mapping[str, ModelFamily] = {
    "t5-small": _t5(12, 512, 8, 60_506_624, head_width=64, ffn=2048),
    "t5-base": _t5(24, 768, 12, 222_903_552, head_width=64, ffn=3072),
    "t5-large": _t5(48, 1024, 16, 737_668_096, head_width=64, ffn=4096),
    "t5-3b": _t5(48, 1024, 32, 2_851_598_336, head_width=128, ffn=16384),
    "t5-11b": _t5(48, 1024, 128, 11_307_321_344, head_width=128, ffn=65536),
}
