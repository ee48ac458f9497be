"""Nemotron 3: Mamba-2 mixers, attention and mixtures of experts, each a layer of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import (
    CrossEntropy,
    Inputs,
    LlamaLikeFamily,
    ModelFamily,
    TensorParallelPlan,
)
from GraphExtractor.sources.config_values import ConfigSize, standard_sizes
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch

_KINDS = {"M": "linear_attention", "*": "full_attention", "E": "moe"}


@dataclass(frozen=True, kw_only=True)
class NemotronH(LlamaLikeFamily):
    """NemotronHForCausalLM with experts (NVIDIA 2025, Nemotron 3).

    Layers are those of ``pattern``: M a Mamba-2 mixer, * attention, E experts of width ``ffn`` on
    a latent of width ``latent`` (0: none) beside a shared one of width ``shared_ffn``. A module of
    attention and experts predicts so many tokens ``further`` on, one after another.
    """

    folder: ClassVar[str] = "NemotronH"
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(  # mixers and experts divide themselves
        embedding="model.embeddings", head="lm_head"
    )
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(hidden=2688, heads=32, kv_heads=2, head_width=128, chosen=6),
        **standard_sizes(vocabulary=131072, sequence_length=8192),
        "ffn": ConfigSize("moe_intermediate_size"),
        "shared_ffn": ConfigSize("moe_shared_expert_intermediate_size"),
        "experts": ConfigSize("n_routed_experts"),
        "mamba_heads": ConfigSize("mamba_num_heads"),
        "mamba_width": ConfigSize("mamba_head_dim"),
        "groups": ConfigSize("n_groups"),
        "state": ConfigSize("ssm_state_size"),
    }

    pattern: str
    chosen: int
    shared_ffn: int
    latent: int = 0
    mamba_heads: int
    mamba_width: int = 64
    groups: int = 8
    state: int = 128
    further: int = 0

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """See base class."""
        sizes = {"attention heads": self.heads, "key/value heads": self.kv_heads}
        return {**sizes, "Mamba groups": self.groups, "expert columns": self.ffn}

    @property
    def splits_sequence(self) -> bool:
        """See base class."""
        return True

    def check(self, key: GraphKey) -> None:
        """See base class."""
        if key.cp > 1:
            raise InputError(
                f"context parallelism of Mamba layers, given degree {key.cp}, is not priced; use 1"
            )

    def part(self, name: str) -> Any:
        """See base class."""
        from GraphExtractor.torch_internals import modeling

        return getattr(modeling("nemotron_h"), f"{self.folder}{name}")

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """See base class."""
        kinds = [_KINDS[each] for each in self.pattern]
        return super().settings(key, vocabulary, attention) | {"layers_block_type": kinds}

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.further_tokens import FurtherTokens
        from GraphExtractor.latent_experts import LatentMixture
        from GraphExtractor.state_space import Mamba2Mixer, PlainAttention, StateWidths

        widths = StateWidths(self.mamba_heads, self.mamba_width, self.groups, self.state)
        experts = self.latent, self.ffn, self.experts, self.chosen, self.shared_ffn
        heads = self.heads, self.kv_heads, self.width_of_heads
        mixers: Mapping[str, Callable[[], torch.nn.Module]] = {
            "M": partial(Mamba2Mixer, self.hidden, widths),
            "*": partial(PlainAttention, self.hidden, *heads),
            "E": partial(LatentMixture, self.hidden, *experts),
        }
        model: Any = super().build(key, vocabulary, attention)
        for block, kind in zip(model.model.layers, self.pattern, strict=True):
            block.mixer = mixers[kind]()
        if self.further:
            made = [mixers[kind]() for kind in "*E"]
            model.further = FurtherTokens(self.hidden, made, self.further)
        return model

    def loss(self, model: Any, inputs: Inputs, cross_entropy: CrossEntropy) -> torch.Tensor:
        """See base class; losses of further tokens are added."""
        if not self.further:
            return super().loss(model, inputs, cross_entropy)
        from GraphExtractor.further_tokens import loss_of_further

        total: torch.Tensor = loss_of_further(model, inputs, cross_entropy)
        return total


def _nemotron(pattern: str, **sizes: Any) -> NemotronH:
    return NemotronH(
        layers=len(pattern),
        pattern=pattern,
        kv_heads=2,
        head_width=128,
        vocabulary=131072,
        sequence_length=8192,
        **sizes,
    )


_nano = partial(
    _nemotron,
    "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    hidden=2688,
    heads=32,
    ffn=1856,
    shared_ffn=3712,
    experts=128,
    chosen=6,
    mamba_heads=64,
)

MODELS: Mapping[str, ModelFamily] = {
    "nemotron-3-nano-30b-a3b": _nano(
        published_parameter_count=31_600_000_000,
        published_active_count=3_580_000_000,
        source="NVIDIA 2025, Nemotron 3 Nano, and Megatron-LM d98e8a6, examples/post_training/"
        "modelopt/conf/nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.sh",
    ),
    "nemotron-3.5-lightning-30b-a3b": _nano(
        further=2,
        published_parameter_count=32_900_000_000,
        published_active_count=4_520_000_000,
        source="counts of Nemotron 3 Nano and what its modules add; Megatron-LM d98e8a6, "
        "tests/functional_tests/test_cases/nemotron/nemotron3_5_lightning_nightly_tp1_pp1_cp1_ep8_dgx_gb200/model_config.yaml",
    ),
    "nemotron-3-super-120b-a12b": _nemotron(
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
        hidden=4096,
        heads=32,
        ffn=2688,
        shared_ffn=5376,
        latent=1024,
        experts=512,
        chosen=22,
        mamba_heads=128,
        further=2,
        published_parameter_count=123_600_000_000,
        published_active_count=14_330_000_000,
        source="NVIDIA 2026, Nemotron 3 Super (120.6B, to which its modules add), and "
        "Megatron-LM d98e8a6, examples/post_training/modelopt/conf/nvidia/"
        "NVIDIA-Nemotron-3-Super-120B-A12B-BF16.sh, with the modules of tests/functional_tests/"
        "test_cases/nemotron/nemotron3_super_release_gb200",
    ),
}
