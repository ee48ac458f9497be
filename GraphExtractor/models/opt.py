"""OPT: ReLU decoder with learned positions; the 350M size is post-LN with narrow embeddings."""

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
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, standard_sizes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Opt(TransformerFamily):
    """OPTForCausalLM (Zhang et al. 2022)."""

    folder: ClassVar[str] = "OPT"
    model_type: ClassVar[str] = "opt"
    divides_twice: ClassVar[bool] = True
    blocks: ClassVar[tuple[str, ...]] = ("model.decoder.layers",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.self_attn.q_proj", "*.self_attn.k_proj", "*.self_attn.v_proj", "*.fc1"),
        row=("*.self_attn.out_proj", "*.fc2"),
        entrances=("*.self_attn", "*.fc1"),
        embedding="model.decoder.embed_tokens",
        head="lm_head",
        divided={"*.self_attn": ("num_heads",)},
    )
    fixed: ClassVar[Mapping[str, object]] = {
        "activation_function": "relu",
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "layerdrop": 0.0,
        "_remove_final_layer_norm": False,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "tie_word_embeddings": True,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=12, hidden=768, heads=12, vocabulary=50272, sequence_length=2048),
        "ffn": ConfigSize("ffn_dim", 3072),
        "word_embedding": ConfigSize("word_embed_proj_dim", "hidden"),
    }

    word_embedding: int = 0  # 0: as wide as hidden
    pre_norm: bool = True

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        config.expect("do_layer_norm_before", True, True, False)
        pre_norm = config.values.get("do_layer_norm_before", True)
        return super().read_sizes(config) | {"pre_norm": pre_norm}

    @property
    def summed_sizes(self) -> Mapping[str, int]:
        """See base class; narrow words are made wide, and outputs narrow, by products."""
        narrow = {"columns of the word embedding": self.word_embedding or self.hidden}
        return {**super().summed_sizes, **narrow}

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import OPTConfig, OPTForCausalLM

        settings = self.written_sizes(
            vocab_size=vocabulary,
            max_position_embeddings=self.positions(key.sequence_length),
            word_embed_proj_dim=self.word_embedding or self.hidden,
            do_layer_norm_before=self.pre_norm,
            use_cache=False,
            attn_implementation=attention,
        )
        return OPTForCausalLM(OPTConfig(**settings))

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        return {name: token_ids(key) for name in ("input_ids", "position_ids", "labels")}

    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """Next-token cross entropy; labels come shifted, as training data loaders deliver them."""
        output = model(input_ids=inputs["input_ids"], position_ids=inputs["position_ids"])
        return cross_entropy(output.logits, inputs["labels"])


_opt = partial(
    Opt.sized,
    vocabulary=50272,
    sequence_length=2048,
    source="Zhang et al. 2022, table 1; the released checkpoints up to 30B",
)

MODELS: Mapping[str, ModelFamily] = {
    "opt-125m": _opt(12, 768, 12, 125_239_296),
    "opt": _opt(24, 1024, 16, 331_196_416, word_embedding=512, pre_norm=False),
    "opt-1.3b": _opt(24, 2048, 32, 1_315_758_080),
    "opt-2.7b": _opt(32, 2560, 32, 2_651_596_800),
    "opt-6.7b": _opt(32, 4096, 32, 6_658_473_984),
    "opt-13b": _opt(40, 5120, 40, 12_853_473_280),
    "opt-30b": _opt(48, 7168, 56, 29_974_540_288),
    "opt-66b": _opt(64, 9216, 72, 66e9),
    "opt-175b": _opt(96, 12288, 96, 175e9),
}
ALIASES: Mapping[str, str] = {"opt-350m": "opt"}
