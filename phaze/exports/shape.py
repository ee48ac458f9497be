"""The sizes of a language model that launchers are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from GraphExtractor.models.base import LanguageModelFamily
from GraphExtractor.models.bloom import Bloom
from GraphExtractor.models.deepseek_v3 import DeepseekV3
from GraphExtractor.models.glm4_moe import Glm4Moe
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.models.gpt_moe import GptMoe
from GraphExtractor.models.gpt_oss import GptOss
from GraphExtractor.models.llama import Llama
from GraphExtractor.models.mixtral import Mixtral
from GraphExtractor.models.mpt import Mpt
from GraphExtractor.models.nemotron_h import NemotronH
from GraphExtractor.models.opt import Opt
from GraphExtractor.models.qwen3 import Qwen3
from GraphExtractor.models.qwen3_moe import Qwen3Moe
from GraphExtractor.models.registry import find_model

GATED: dict[type[LanguageModelFamily], str] = {
    Qwen3Moe: "qwen3_moe",
    Qwen3: "qwen3",
    Mixtral: "mixtral",
    Llama: "llama",
}


class Positions(StrEnum):
    """How a model knows where tokens are."""

    LEARNED = "learned"
    ROTARY = "rotary"
    ALIBI = "alibi"


@dataclass(frozen=True)
class Experts:
    """``count`` experts of width ``ffn`` in a block, of which a token meets ``chosen``; all meet
    ``shared_width`` besides."""

    count: int
    chosen: int
    ffn: int
    shared_width: int = 0


@dataclass(frozen=True)
class DecoderShape:
    """A decoder of ``layers`` blocks. ``head_width`` is that of a head of queries; ``vocabulary``
    is not padded."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    ffn: int
    vocabulary: int
    positions: Positions
    gated: bool  # SwiGLU and RMSNorm, as Llama; else GELU or ReLU and LayerNorm
    activation: str  # silu, gelu or relu
    biases: bool
    tied: bool  # the head has the weights of the embedding
    query_norm: bool = False  # queries and keys are normalised
    dropout: bool = False
    experts: Experts | None = None


def unwritten_parts(model: str) -> str:
    """What a decoder of text has that no exporter writes yet, though programs have it; empty where
    a model is none or ``decoder_shape`` says it."""
    match find_model(model):
        case DeepseekV3(further=further):
            more = " and layers that predict further tokens" if further else ""
            return f"latent attention{more}"
        case GptOss():
            return "biases of experts and windows of attention"
        case NemotronH():
            return "Mamba mixers among blocks"
        case Glm4Moe(dense_layers=dense, step=step):
            blocks = "dense blocks among those of experts, and " if dense or step > 1 else ""
            return f"{blocks}experts that all tokens meet"
        case GptMoe():
            return "experts without gates"
    return ""


def decoder_shape(model: str) -> DecoderShape | None:
    """That of a model by its name; None where it is no decoder of blocks alike, such as one of
    images, of latent attention, or with experts that have no gates."""
    family = find_model(model)
    if not isinstance(family, LanguageModelFamily | Opt):
        return None
    if isinstance(family, DeepseekV3 | GptMoe):
        return None
    sizes = (family.layers, family.hidden, family.heads, family.kv_heads or family.heads)
    if isinstance(family, Llama | Mixtral | Qwen3 | Qwen3Moe):
        experts = None
        if isinstance(family, Mixtral | Qwen3Moe):
            experts = Experts(family.experts, family.chosen, family.ffn)
        return DecoderShape(
            next(name for kind, name in GATED.items() if isinstance(family, kind)),
            *(*sizes, family.width_of_heads, family.ffn, family.vocabulary),
            positions=Positions.ROTARY,
            gated=True,
            activation="silu",
            biases=False,
            tied=isinstance(family, Llama | Qwen3) and family.tied,
            query_norm=isinstance(family, Qwen3 | Qwen3Moe),
            experts=experts,
        )
    if isinstance(family, Gpt | Opt | Bloom | Mpt):
        own = isinstance(family, Gpt | Opt)
        return DecoderShape(
            type(family).__name__.lower(),
            *(*sizes, family.hidden // family.heads, family.ffn, family.vocabulary),
            positions=Positions.LEARNED if own else Positions.ALIBI,
            gated=False,
            activation="relu" if isinstance(family, Opt) else "gelu",
            biases=not isinstance(family, Mpt),
            tied=True,
            dropout=own,
        )
    return None
