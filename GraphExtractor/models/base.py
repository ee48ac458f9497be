"""What a model family must provide: one file per family, which names its published
configurations."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from GraphExtractor.layer_modules import LayerModules
from phaze_common.numbers import number

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey, ModelGraph
    from GraphExtractor.sources.config_values import ConfigValues

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TensorParallelPlan:
    """How Megatron splits a family's modules (Shoeybi et al. 2019, section 3); entries are globs
    over module paths.

    ``column`` and ``row`` linears form pairs; ``entrances`` are the modules whose input enters such
    a pair (the point of Megatron's f); ``embedding`` and ``head`` are split over the vocabulary;
    ``divided`` names integer attributes holding a per-device width (``module glob -> attributes``).
    Under sequence parallelism the sequence is split at the input of ``first`` (default: the first
    block), so that what follows the lookup already works on parts (Korthikanti et al. 2022, section
    4.3), and gathered at the head's input, or behind ``last`` where the model's code needs the
    whole sequence before the head. Modules with a ``shard(key)`` method of their own split
    themselves besides.
    """

    column: tuple[str, ...] = ()
    row: tuple[str, ...] = ()
    entrances: tuple[str, ...] = ()
    embedding: str = ""
    head: str = ""
    first: str = ""
    last: str = ""
    divided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class CrossEntropy(Protocol):
    """Mean cross entropy of logits (..., vocabulary) against integer labels (...),
    vocabulary-parallel where tp > 1."""

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss."""


@dataclass(frozen=True, kw_only=True)
class ModelFamily(ABC):
    """One model configuration; subclasses know how a family is built, fed and split. Must not
    import torch at module level.

    ``published_parameter_count`` is that of the released checkpoint, or of the paper where none was
    released, or 0; of models with experts ``published_active_count`` is the part a token meets.
    ``sequence_length`` is the default; where positions are learned, the table grows to whatever is
    asked for. ``layers`` counts all repeated blocks. ``source`` says where the sizes of a listed
    model are from.
    """

    folder: ClassVar[str]  # artefacts go to GraphExtractor/out/<folder>/
    blocks: ClassVar[tuple[str, ...]]  # paths of the lists holding the repeated layers
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan()
    described: ClassVar[bool] = (
        True  # whether layers and shapes are known beforehand, not looked for in the model
    )
    couples_rows: ClassVar[bool] = (
        False  # whether norms over a batch make what a row gives depend on the others
    )
    drops_unused: ClassVar[bool] = (
        False  # whether parameters that no gradient reaches are left out, not refused
    )
    model_type: ClassVar[str] = ""  # of Hugging Face configurations that ``from_config`` reads

    layers: int
    sequence_length: int
    published_parameter_count: int = 0
    published_active_count: int = 0
    vocabulary: int = 0
    vocabulary_multiple: int = 128  # that it is padded to, per device that it is split over
    experts: int = 0
    source: str = field(default="", compare=False)

    @property
    def is_mixture(self) -> bool:
        """Whether a token meets a part of it alone: ``experts`` are those that can be divided over
        devices."""
        return self.experts > 0

    @classmethod
    def from_config(cls, config: ConfigValues) -> ModelFamily:
        """The model of a Hugging Face configuration of ``model_type``.

        Raises:
            InexpressibleError: the configuration asks for what this family does not have.
        """
        raise NotImplementedError(f"{cls.__name__} reads no configurations")

    @property
    def parallel_plan(self) -> TensorParallelPlan:
        """How this model is split over a tensor-parallel group."""
        return self.plan

    @property
    def splits_sequence(self) -> bool:
        """Whether there is a plan that sequence parallelism can follow."""
        return bool(self.parallel_plan.column)

    @property
    def has_sequence(self) -> bool:
        """Whether a sample is a sequence, whose length can be asked for; else it is of one size,
        and ``sequence_length`` is 1."""
        return True

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """Sizes that a tensor-parallel width has to divide, by what they are called; none: no width
        but 1."""
        return {}

    def layer_modules(self, model: torch.nn.Module) -> LayerModules:
        """Which modules of ``model`` are layers."""
        return LayerModules(self.blocks)

    def check(self, key: GraphKey) -> None:  # noqa: B027  (most families have nothing to add)
        """Refuse what this family in particular cannot be extracted for."""

    def left_out(self, graph: ModelGraph) -> tuple[str, ...]:
        """Sentences about what this model does and its ``graph`` does not show."""
        return ()

    def failures(self) -> AbstractContextManager[None]:
        """What goes wrong while the model is built and traced, in words for whoever wrote it;
        nothing where that is us."""
        return nullcontext()

    def padded_vocabulary(self, tp: int) -> int:
        """Vocabulary rounded up to a multiple of 128·tp, as Megatron does; that of a configuration
        file to one of tp."""
        multiple = self.vocabulary_multiple * tp
        return -(-self.vocabulary // multiple) * multiple

    def positions(self, sequence_length: int) -> int:
        """Rows of a learned position table for ``sequence_length``."""
        if sequence_length > self.sequence_length:
            logger.info(
                "position table enlarged from %s to %s rows",
                number(self.sequence_length),
                number(sequence_length),
            )
        return max(self.sequence_length, sequence_length)

    def tried_otherwise(self, error: Exception) -> bool:
        """Whether the model, which ``error`` kept from being traced, has another form to be built
        in next; it then is."""
        return False

    @abstractmethod
    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """Build the model from configuration alone, full depth and width, for ``vocabulary``
        tokens.

        Called under a fake-tensor mode with weight initialisation off; Hugging Face models are
        given ``attention`` as their attention implementation.
        """

    @abstractmethod
    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """Example inputs including labels, keyed by name; only shapes and dtypes matter."""

    @abstractmethod
    def loss(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        cross_entropy: CrossEntropy,
    ) -> torch.Tensor:
        """Run the forward pass up to the scalar training loss."""


@dataclass(frozen=True, kw_only=True)
class TransformerFamily(ModelFamily):
    """A model of equal transformer blocks.

    A 2D layout divides those that are nothing but linear layers, norms of the width of ``hidden``
    or of heads, tables and what is done to each element, around attention.
    """

    divides_twice: ClassVar[bool] = False  # whether a 2D layout can divide it

    hidden: int
    heads: int
    ffn: int
    kv_heads: int = 0  # 0: as many as heads

    def __post_init__(self) -> None:
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)

    @classmethod
    def sized(
        cls, layers: int, hidden: int, heads: int, published: float = 0, **others: Any
    ) -> Self:
        """A published configuration, whose ``ffn`` is 4·hidden where ``others`` do not say it."""
        return cls(
            **{"layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, **others},
            published_parameter_count=round(published),
        )

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """See base class; the vocabulary is padded to fit."""
        if not self.plan.column:
            return {}
        return {
            "attention heads": self.heads,
            "key/value heads": self.kv_heads,
            "ffn columns": self.ffn,
        }

    @property
    def summed_sizes(self) -> Mapping[str, int]:
        """What products are summed over, hidden columns aside, by what it is called."""
        return {"ffn columns": self.ffn}


@dataclass(frozen=True, kw_only=True)
class LanguageModelFamily(TransformerFamily):
    """A transformer of Hugging Face's form that predicts the next token."""

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        return {"input_ids": token_ids(key), "labels": token_ids(key)}

    def loss(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        cross_entropy: CrossEntropy,
    ) -> torch.Tensor:
        """Next-token cross entropy; labels come shifted, as training data loaders deliver them.

        What balances experts costs next to nothing and is left out.
        """
        return cross_entropy(model(input_ids=inputs["input_ids"]).logits, inputs["labels"])


@dataclass(frozen=True, kw_only=True)
class LlamaLikeFamily(LanguageModelFamily):
    """Decoder blocks with the modules of Llama: rotary positions, RMSNorms, and a gated MLP or
    experts in its place.

    The names of transformers' classes begin with ``folder``. ``head_width`` is 0 where heads are
    hidden / heads wide.
    """

    blocks: ClassVar[tuple[str, ...]] = ("model.layers",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=(
            "*.self_attn.q_proj",
            "*.self_attn.k_proj",
            "*.self_attn.v_proj",
            "*.mlp.gate_proj",
            "*.mlp.up_proj",
        ),
        row=("*.self_attn.o_proj", "*.mlp.down_proj"),
        entrances=("*.self_attn", "*.mlp"),
        embedding="model.embed_tokens",
        head="lm_head",
    )

    head_width: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_width * self.heads == self.hidden:
            object.__setattr__(self, "head_width", 0)  # one form for one model

    @property
    def width_of_heads(self) -> int:
        """Columns of a head's queries."""
        return self.head_width or self.hidden // self.heads

    @property
    def summed_sizes(self) -> Mapping[str, int]:
        """See base class; heads may be wider than their part of hidden."""
        wider = {"columns of heads": self.heads * self.head_width} if self.head_width else {}
        return {**super().summed_sizes, **wider}

    def settings(self, key: GraphKey, vocabulary: int, attention: str) -> dict[str, Any]:
        """What the configurations of all of them say alike."""
        return {
            "vocab_size": vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.width_of_heads,
            "intermediate_size": self.ffn,
            "max_position_embeddings": max(self.sequence_length, key.sequence_length),
            "use_cache": False,
            "attn_implementation": attention,
        }

    def part(self, name: str) -> Any:
        """The class of transformers' modules whose name ends so."""
        from GraphExtractor.torch_internals import modeling

        return getattr(modeling(self.model_type), f"{self.folder}{name}")

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; RMSNorm is the fused kernel that every trainer uses."""
        import transformers

        from GraphExtractor.custom_operators import fuse_norms

        config = getattr(transformers, f"{self.folder}Config")(
            **self.settings(key, vocabulary, attention)
        )
        model: torch.nn.Module = getattr(transformers, f"{self.folder}ForCausalLM")(config)
        fuse_norms(model, self.part("RMSNorm"))
        return model


# of Llama-like blocks with experts, which divide themselves
ATTENTION_PLAN = replace(
    LlamaLikeFamily.plan,
    column=LlamaLikeFamily.plan.column[:3],
    row=LlamaLikeFamily.plan.row[:1],
    entrances=LlamaLikeFamily.plan.entrances[:1],
)


def token_ids(key: GraphKey) -> torch.Tensor:
    """Return integer ids of shape (micro batch, sequence)."""
    import torch

    return torch.zeros(key.micro_batch_size, key.sequence_length, dtype=torch.long)
