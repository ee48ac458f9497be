"""GPT-2 and GPT-3: pre-LN decoder, learned positions, tied head."""

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
class Gpt(LanguageModelFamily):
    """GPT2LMHeadModel with the tanh GELU as one operator; heads may share keys and values."""

    folder: ClassVar[str] = "GPT"
    model_type: ClassVar[str] = "gpt2"
    divides_twice: ClassVar[bool] = True
    blocks: ClassVar[tuple[str, ...]] = ("transformer.h",)
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
    architectures: ClassVar[tuple[str, ...]] = ("GPT2LMHeadModel",)
    fixed: ClassVar[Mapping[str, object]] = {
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        "layers": ConfigSize("n_layer", 12),
        "hidden": ConfigSize("n_embd", 768),
        "heads": ConfigSize("n_head", 12),
        "vocabulary": ConfigSize("vocab_size", 50257),
        "sequence_length": ConfigSize("n_positions", 1024),
    }

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        config.expect("activation_function", "gelu_new", "gelu_new", "gelu_pytorch_tanh")
        sizes = super().read_sizes(config)
        return sizes | {"ffn": config.size("n_inner", 4 * sizes["hidden"])}

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from transformers import GPT2Config, GPT2LMHeadModel
        from transformers.pytorch_utils import Conv1D

        settings = self.written_sizes(
            vocab_size=vocabulary,
            n_positions=self.positions(key.sequence_length),
            n_inner=self.ffn,
            activation_function="gelu_pytorch_tanh",
            use_cache=False,
            attn_implementation=attention,
        )
        model = GPT2LMHeadModel(GPT2Config(**settings))
        if self.kv_heads != self.heads:
            shared = self.hidden // self.heads * self.kv_heads
            for block in model.transformer.h:
                block.attn.c_attn = Conv1D(self.hidden + 2 * shared, self.hidden)
                block.attn.split_size = [self.hidden, shared, shared]
        return model


_gpt = partial(Gpt.sized, vocabulary=50257, sequence_length=1024)
_gpt3 = partial(Gpt.sized, vocabulary=50257, sequence_length=2048)
_megatron = partial(Gpt.sized, vocabulary=51200, sequence_length=2048)
_shoeybi = partial(_gpt, source="Shoeybi et al. 2019, table 1")
_brown = partial(_gpt3, source="Brown et al. 2020, table 2.1")
_heads_of_128 = partial(
    _gpt3,
    source="Brown et al. 2020, table 2.1, with the width and heads that its head width of 128 "
    "implies",
)
_narayanan = partial(_megatron, source="Narayanan et al. 2021 (SC'21), table 1")
_korthikanti = partial(_megatron, source="Korthikanti et al. 2022, table 3")

MODELS: Mapping[str, ModelFamily] = {
    "gpt2": _gpt(
        *(48, 1600, 25, 1_557_611_200),
        source="Radford et al. 2019, table 2, and the released checkpoint",
    ),
    "megatrongpt2-xl": _shoeybi(40, 1536, 16, 1.2e9),
    "megatrongpt2-54": _shoeybi(54, 1920, 20, 2.5e9),
    "megatrongpt2-72": _shoeybi(72, 3072, 32, 8.3e9),
    "gpt3-125m": _brown(12, 768, 12, 125e6),
    "gpt3-350m": _brown(24, 1024, 16, 350e6),
    "gpt3-760m": _brown(24, 1536, 16, 760e6),
    "gpt3-1.3b": _heads_of_128(24, 2048, 16, 1.3e9),
    "gpt3-2.7b": _brown(32, 2560, 32, 2.7e9),
    "gpt3-6.7b": _brown(32, 4096, 32, 6.7e9),
    "gpt3-13b": _heads_of_128(40, 5120, 40, 13e9),
    "megatrongpt3": _brown(96, 12288, 96, 175e9),
    "megatron-1.7b": _narayanan(24, 2304, 24, 1.7e9),
    "megatron-3.6b": _narayanan(30, 3072, 32, 3.6e9),
    "megatron-7.5b": _narayanan(36, 4096, 32, 7.5e9),
    "megatron-18.4b": _narayanan(40, 6144, 48, 18.4e9),
    "megatron-39.1b": _narayanan(48, 8192, 64, 39.1e9),
    "megatron-76.1b": _narayanan(60, 10240, 80, 76.1e9),
    "megatron-145.6b": _narayanan(80, 12288, 96, 145.6e9),
    "megatron-310.1b": _narayanan(96, 16384, 128, 310.1e9),
    "megatron-529.6b": _narayanan(105, 20480, 128, 529.6e9),
    "megatron-1t": _narayanan(128, 25600, 160, 1008e9),
    # the 530B and 1T of this table are those of SC'21
    "megatron-22b": _korthikanti(48, 6144, 64, 22e9),
    "megatron-175b": _korthikanti(96, 12288, 96, 175e9),
    "mt-nlg-530b": _gpt3(105, 20480, 128, 530e9, source="Smith et al. 2022 (MT-NLG), section 2"),
}
ALIASES: Mapping[str, str] = {
    "gpt2-xl": "gpt2",
    "gpt3-175b": "megatrongpt3",
    "megatron-530b": "megatron-529.6b",
    "megatron-1008b": "megatron-1t",
}
