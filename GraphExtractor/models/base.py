"""What a model family must provide: one file per family, with its published configurations."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

from GraphExtractor.layer_modules import LayerModules, find_layer_modules
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues
from phaze_common.numbers import number

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey, ModelGraph

logger = logging.getLogger(__name__)
Inputs: TypeAlias = "Mapping[str, torch.Tensor]"  # by name


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
    """Mean cross entropy of logits (..., vocabulary), vocabulary-parallel, and labels (...)."""

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss."""


@dataclass(frozen=True, kw_only=True)
class ModelFamily(ABC):
    """One model configuration; subclasses know how a family is built, fed and split.

    Modules of families import no torch at their top.

    ``published_parameter_count`` is that of the released checkpoint, or of the paper where none was
    released, or 0; of models with experts ``published_active_count`` is the part a token meets.
    ``sequence_length`` is the default; where positions are learned, the table grows to whatever is
    asked for. ``layers`` counts all repeated blocks. ``source`` says where the sizes of a listed
    model are from.
    """

    folder: ClassVar[str]  # artefacts go to GraphExtractor/out/<folder>/
    blocks: ClassVar[tuple[str, ...]]  # paths of the lists holding the repeated layers
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan()
    described: ClassVar[bool] = True  # layers and shapes are known, not looked for in the model
    asks_values: ClassVar[bool] = True  # its code may ask tensors for more than shapes and types
    couples_rows: ClassVar[bool] = False  # norms over a batch make rows depend on each other
    drops_unused: ClassVar[bool] = False  # parameters without gradient are left out, not refused
    model_type: ClassVar[str] = ""  # of Hugging Face configurations that ``from_config`` reads
    # what those must name (as a rule their folder is in it), and must say where they say it
    architectures: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[Mapping[str, object]] = {}
    keys: ClassVar[Mapping[str, ConfigSize]] = {}  # of the fields that those say

    layers: int
    sequence_length: int
    published_parameter_count: int = 0
    published_active_count: int = 0
    vocabulary: int = 0
    vocabulary_multiple: int = 128  # that it is padded to, per device that it is split over
    experts: int = 0
    # of the groups of experts that a token's are in, one for each node, how many there may be (0:
    # any)
    chosen_groups: int = 0
    source: str = field(default="", compare=False)

    @property
    def is_mixture(self) -> bool:
        """Whether a token meets a part of it alone; ``experts`` are those that can be divided."""
        return self.experts > 0

    @classmethod
    def from_config(cls, config: ConfigValues) -> ModelFamily:
        """The model of a Hugging Face configuration of ``model_type``.

        Raises: InexpressibleError: the configuration asks for what this family does not have.
        """
        if not cls.keys:
            raise NotImplementedError(f"{cls.__name__} reads no configurations")
        config.expect_architecture(*cls.architectures or (f"{cls.folder}ForCausalLM",))
        config.expect_each(**cls.fixed)
        return cls(**cls.read_sizes(config))

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """The fields that a configuration says."""
        return config.sizes(cls.keys)

    def written_sizes(self, **others: object) -> dict[str, Any]:
        """The sizes of this model by their keys in a configuration; ``others`` besides."""
        return {size.key: getattr(self, name) for name, size in self.keys.items()} | others

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
        """Whether a sample is a sequence; else it is of one size, and ``sequence_length`` is 1."""
        return True

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """Sizes that a tensor-parallel width has to divide, by name; none: no width but 1."""
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
        """What goes wrong while the model is built and traced, for whoever wrote it, if not us."""
        return nullcontext()

    def padded_vocabulary(self, tp: int) -> int:
        """Vocabulary rounded up to a multiple of 128·tp, as Megatron does; of files one of tp."""
        multiple = self.vocabulary_multiple * tp
        return -(-self.vocabulary // multiple) * multiple

    def positions(self, sequence_length: int) -> int:
        """Rows of a learned position table for ``sequence_length``."""
        if sequence_length > self.sequence_length:
            rows = number(self.sequence_length), number(sequence_length)
            logger.info("position table enlarged from %s to %s rows", *rows)
        return max(self.sequence_length, sequence_length)

    def tried_otherwise(self, error: Exception) -> bool:
        """Whether there is another form to build the model in, after ``error``; it then is."""
        return False

    @abstractmethod
    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """Build the model from configuration alone, of full size, for ``vocabulary`` tokens.

        Called under a fake-tensor mode with weight initialisation off; Hugging Face models are
        given ``attention`` as their attention implementation.
        """

    @abstractmethod
    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """Example inputs including labels, keyed by name; only shapes and dtypes matter."""

    @abstractmethod
    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """Run the forward pass up to the scalar training loss."""


@dataclass(frozen=True, kw_only=True)
class UndescribedFamily(ModelFamily):
    """The model of a file at ``path``; ``version`` is a hash of it, ``tokens``: it has a length."""

    blocks: ClassVar[tuple[str, ...]] = ()
    described: ClassVar[bool] = False

    layers: int = 0
    path: str
    version: str
    tokens: bool = True

    @property
    def has_sequence(self) -> bool:
        """See base class."""
        return self.tokens

    def layer_modules(self, model: torch.nn.Module) -> LayerModules:
        """See base class."""
        return find_layer_modules(model)


@dataclass(frozen=True, kw_only=True)
class TransformerFamily(ModelFamily):
    """A model of equal transformer blocks.

    A 2D layout divides those that are nothing but linear layers, norms of the width of ``hidden``
    or of heads, tables and what is done to each element, around attention.
    """

    asks_values: ClassVar[bool] = False
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
        given = {"ffn": 4 * hidden, "published_parameter_count": round(published), **others}
        return cls(layers=layers, hidden=hidden, heads=heads, **given)

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """See base class; the vocabulary is padded to fit."""
        if not self.plan.column:
            return {}
        sizes = "attention heads", "key/value heads", "ffn columns"
        return dict(zip(sizes, (self.heads, self.kv_heads, self.ffn), strict=True))

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
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """Next-token cross entropy; labels come shifted, as training data loaders deliver them.

        What balances experts costs next to nothing and is left out.
        """
        return cross_entropy(model(input_ids=inputs["input_ids"]).logits, inputs["labels"])


@dataclass(frozen=True, kw_only=True)
class ImageClassifierFamily(ModelFamily):
    """A model that tells the classes of images apart; a sample is an image and its class."""

    asks_values: ClassVar[bool] = False
    classes: int = 1000  # of ImageNet

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        labels = config.values.get("id2label")
        classes = len(labels) if isinstance(labels, Mapping) else config.size("num_labels", 2)
        return super().read_sizes(config) | {"classes": classes}

    @abstractmethod
    def side_of_images(self, key: GraphKey) -> int:
        """Pixels of a side of an image."""

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """Images in the dtype of the model, and the class of each."""
        import torch

        rows, side = key.micro_batch_size, self.side_of_images(key)
        labels = torch.zeros(rows, dtype=torch.long)
        return {"images": torch.zeros(rows, 3, side, side), "labels": labels}

    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """Cross entropy of the classes, which are not divided over a tensor-parallel group."""
        from torch.nn import functional

        output = model(inputs["images"])
        scores = getattr(output, "logits", output)
        return functional.cross_entropy(scores.float(), inputs["labels"])


@dataclass(frozen=True, kw_only=True)
class LlamaLikeFamily(LanguageModelFamily):
    """Decoder blocks with the modules of Llama: rotary positions, RMSNorms, a gated MLP or experts.

    The names of transformers' classes begin with ``folder``. ``head_width`` is 0 where heads are
    hidden / heads wide.
    """

    blocks: ClassVar[tuple[str, ...]] = ("model.layers",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=(
            *(f"*.self_attn.{name}_proj" for name in "qkv"),
            *(f"*.mlp.{name}_proj" for name in ("gate", "up")),
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
        """What its configuration says."""
        return self.written_sizes(
            num_key_value_heads=self.kv_heads,
            head_dim=self.width_of_heads,
            vocab_size=vocabulary,
            max_position_embeddings=max(self.sequence_length, key.sequence_length),
            use_cache=False,
            attn_implementation=attention,
        )

    def part(self, name: str) -> Any:
        """The class of transformers' modules whose name ends so."""
        from GraphExtractor.torch_internals import modeling

        return getattr(modeling(self.model_type), f"{self.folder}{name}")

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; RMSNorm is the fused kernel that every trainer uses."""
        import transformers

        from GraphExtractor.custom_operators import fuse_norms

        settings = self.settings(key, vocabulary, attention)
        config = getattr(transformers, f"{self.folder}Config")(**settings)
        model: torch.nn.Module = getattr(transformers, f"{self.folder}ForCausalLM")(config)
        fuse_norms(model, self.part("RMSNorm"))
        return model


@dataclass(frozen=True, kw_only=True)
class ExpertsLikeLlama(LlamaLikeFamily):
    """Llama-like blocks with experts, of width ``ffn``, of which a token meets ``chosen``."""

    plan: ClassVar[TensorParallelPlan] = replace(  # experts divide themselves
        LlamaLikeFamily.plan,
        column=LlamaLikeFamily.plan.column[:3],
        row=LlamaLikeFamily.plan.row[:1],
        entrances=LlamaLikeFamily.plan.entrances[:1],
    )

    chosen: int

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.experts import put_experts

        model = super().build(key, vocabulary, attention)
        block = self.part("SparseMoeBlock")
        put_experts(model, block, self.hidden, self.ffn, self.experts, self.chosen)
        return model


def token_ids(key: GraphKey) -> torch.Tensor:
    """Return integer ids of shape (micro batch, sequence)."""
    import torch

    return torch.zeros(key.micro_batch_size, key.sequence_length, dtype=torch.long)
