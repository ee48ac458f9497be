"""A Hugging Face ``config.json``: a family of ours where it can express it, else transformers'."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.models.base import (
    CrossEntropy,
    Inputs,
    ModelFamily,
    TransformerFamily,
    UndescribedFamily,
)
from GraphExtractor.sources.config_values import (
    LONGEST_DEFAULT,
    ConfigValues,
    HuggingFaceForm,
    InexpressibleError,
    check_sizes,
    with_floats,
)
from GraphExtractor.sources.hf_files import (
    default_values,
    forward_parameters,
    known_model_types,
    named_architecture,
    places_tokens_behind_padding,
    stacks_experts,
)
from phaze_common.echo import kind_of
from phaze_common.errors import InputError
from phaze_common.files import read_json
from phaze_common.suggestions import nearest

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey, ModelGraph

logger = logging.getLogger(__name__)

_POSITIONS = (
    *("max_target_positions", "max_position_embeddings", "n_positions", "max_seq_len"),
    *("max_sequence_length", "seq_length", "n_ctx", "context_length", "max_context_length"),
)
_EXPERTS = (
    *("num_local_experts", "n_routed_experts", "num_experts"),
    *("moe_num_experts", "num_routed_experts"),
)
_WITH_EXPERTS = ("is_moe", "use_moe", "enable_moe_block")  # switches of models that may be dense
_TEXT_PARTS = (
    *("text_config", "decoder", "decoder_config"),
    *("language_config", "text_encoder", "llm_config"),
)
# samples of a crop in pre-training, 15.6 s at 16 kHz (Baevski et al. 2020, section 4.2)
LONGEST_SOUND = 250_000


def read_config(path: str, families: Mapping[str, type[ModelFamily]]) -> ModelFamily:
    """The model of a configuration file; ``families`` by the model type that they read.

    Raises: InputError: the file is no configuration, or of a model that transformers does not know.
    """
    config = ConfigValues(path, _content(path))
    model_type = config.values.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(
            f"{path} has no model_type; give the config.json of a model that Hugging Face "
            "transformers knows"
        )
    if model_type in families:
        try:
            family = _checked(families[model_type].from_config(config), path)
            return replace(family, vocabulary_multiple=1)
        except InexpressibleError as missing:
            _say_that_own(path, f"family {model_type} does not have {missing}")
        except NotImplementedError:
            _say_that_own(path, f"family {model_type} reads no configurations")
    _check_known(path, model_type)
    text = json.dumps(config.values, sort_keys=True)
    length, tokens = _default_length(config.values, model_type)
    experts, stacked = _experts(config.values, model_type)
    return HuggingFaceModule(
        sequence_length=length,
        tokens=tokens,
        experts=experts if stacked else 0,
        mixture=experts > 0,
        path=path,
        version=hashlib.blake2b(text.encode(), digest_size=10).hexdigest(),
    )


@lru_cache(maxsize=64)  # once for each: a configuration is looked up wherever a model is named
def _say_that_own(path: str, why: str) -> None:
    logger.info("%s: %s; transformers' own model is used", path, why)


def _default_length(values: Mapping[str, Any], model_type: str) -> tuple[int, bool]:
    """Sequence length where none is given, and whether one can be: images have but one size."""
    defaults = default_values(model_type)
    reads = forward_parameters(model_type, named_architecture(values, defaults))
    own, *parts = _parts(values, defaults)
    if reads and not reads & {"input_ids", "decoder_input_ids"}:
        spectrogram = "num_mel_bins" in own and "conv_kernel" not in defaults
        if "pixel_values" in reads or ("input_values" in reads and spectrogram):
            return 1, False
        if "input_values" in reads:
            return LONGEST_SOUND, True
    lengths = (
        part[key] for part in (own, *parts) for key in _POSITIONS if type(part.get(key)) is int
    )
    found = next(lengths, LONGEST_DEFAULT)
    if places_tokens_behind_padding(model_type):
        padding = own.get("pad_token_id")
        found -= (padding if type(padding) is int else 0) + 1
    return max(min(found, LONGEST_DEFAULT), 1), True


def _parts(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A configuration with its defaults, then those of its parts about text."""
    parts: list[Mapping[str, Any]] = [{**defaults, **values}]
    for name in _TEXT_PARTS:
        own, known = values.get(name), defaults.get(name)
        if isinstance(own, Mapping) and not isinstance(known, Mapping):
            known = default_values(str(own.get("model_type", "")))
        given = (each for each in (known, own) if isinstance(each, Mapping))
        parts.append({key: value for each in given for key, value in each.items()})
    return parts


def _experts(values: Mapping[str, Any], model_type: str) -> tuple[int, bool]:
    """How many experts a layer has (0: none), and whether they are stacked, so can be divided."""
    parts = _parts(values, default_values(model_type))
    types = {model_type, *(part.get("model_type") for part in parts)}
    stacked = any(stacks_experts(each) for each in types if isinstance(each, str))
    with_experts = [
        part for part in parts if not any(part.get(name) is False for name in _WITH_EXPERTS)
    ]
    found = (part[key] for part in with_experts for key in _EXPERTS if type(part.get(key)) is int)
    return next((count for count in found if count > 1), 0), stacked


def _checked(family: ModelFamily, path: str) -> ModelFamily:
    if isinstance(family, TransformerFamily):
        own_width = getattr(family, "head_width", 0) or hasattr(family, "value_width")
        hidden = (family.hidden, "hidden width", family.heads, "attention heads")
        shared = (family.heads, "heads", family.kv_heads, "key/value heads")
        for size, what, heads, by in (shared,) if own_width else (hidden, shared):
            if size % heads:
                raise InputError(
                    f"{path}: {heads} {by} do not divide {what} {size}; correct one of them"
                )
    return family


def _content(path: str) -> Mapping[str, Any]:
    try:
        stat = Path(path).stat()
    except OSError:  # which reading says
        return _parsed(path, 0, 0)
    return _parsed(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=16)  # every step of building a model reads its configuration
def _parsed(path: str, modified_ns: int, size_bytes: int) -> Mapping[str, Any]:
    """The content of a file of this size that was written at ``modified_ns``."""
    content = read_json(Path(path), "a config.json")
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds {kind_of(content)}, but a configuration is a mapping with a model_type"
        )
    check_sizes(content, path)
    return {key: with_floats(value) for key, value in content.items()}


def _check_known(path: str, model_type: str) -> None:
    known = known_model_types()
    # of another version nothing is known: it is said when the model is built
    if known and model_type not in known:
        own = (
            "a model with code of its own is given as a model.py with build() and example_inputs()"
        )
        hint = nearest(model_type, known, own)
        raise InputError(f"{path}: transformers knows no model_type {model_type!r}; {hint}")


@dataclass(frozen=True, kw_only=True)
class HuggingFaceModule(UndescribedFamily):
    """A configuration of transformers as it stands.

    ``mixture``: it has experts, though its code may hold each by itself, which no plan divides.
    """

    folder: ClassVar[str] = "HuggingFace"
    drops_unused: ClassVar[bool] = True

    mixture: bool = False

    @property
    def is_mixture(self) -> bool:
        """See base class."""
        return self.mixture

    @cached_property
    def _forms(self) -> list[HuggingFaceForm]:
        """How it is built and fed: the last one counts."""
        return [HuggingFaceForm()]

    def tried_otherwise(self, error: Exception) -> bool:
        """See base class: with masks where its code reads them, then without images."""
        from GraphExtractor.sources.hf_building import other_form

        found = other_form(self._config, self._forms, error)
        if found is not None:
            self._forms.append(found)
        return found is not None

    @property
    def _config(self) -> ConfigValues:
        return ConfigValues(self.path, _content(self.path))

    @cached_property
    def _image_tokens(self) -> dict[tuple[int, int], int]:
        """Tokens of an image by micro-batch size and sequence length of models that were built."""
        return {}

    def check(self, key: GraphKey) -> None:
        """See base class."""
        if not self.tokens and key.sequence_length != 1:
            raise InputError(
                f"{self.path} reads inputs of one size, which its configuration says, and no "
                f"sequence of tokens, given sequence length {key.sequence_length}; leave it out"
            )
        if key.sequence_parallel:
            raise InputError(f"{self.path} has no plan for sequence parallelism; leave it out")
        if key.cp > 1:
            raise InputError(
                f"{self.path} has no plan for context parallelism, given degree {key.cp}; use 1"
            )

    def failures(self) -> AbstractContextManager[None]:
        """See base class."""
        from GraphExtractor.sources.hf_building import REMEDY
        from GraphExtractor.sources.user_errors import users_code

        return users_code(self.path, "the training step", REMEDY)

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.sources.hf_building import build, image_tokens

        form = self._forms[-1]
        if key.expert_tp < key.tp:
            raise InputError(
                f"etp is 1, but experts of {key.model} are divided by tensor parallelism as "
                "transformers writes them; leave etp out"
            )
        model = build(self._config, attention, form, key.ep)
        if form.images:
            place = key.micro_batch_size, key.sequence_length
            self._image_tokens[place] = image_tokens(model, self._config, key)
        return model

    def left_out(self, graph: ModelGraph) -> tuple[str, ...]:
        """See base class: limits of attention that its code does not tell, or that save nothing."""
        from GraphExtractor.score_mask import score_products
        from GraphExtractor.sources.hf_building import limits_of_attention

        limits = limits_of_attention(self._config)
        operators = score_products(graph.layers)
        if any(each.window is not None for each in operators) or not operators:
            return ()
        causal = all(each.causal for each in operators)
        whom = "its own and all earlier tokens" if causal else "all tokens"
        return tuple(
            f"{self.path}: {name} {limit} is not priced: scores of every token with {whom} are"
            for name, limit in limits.items()
            if limit < graph.key.sequence_length
        )

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        from GraphExtractor.sources.hf_building import inputs

        form, place = self._forms[-1], (key.micro_batch_size, key.sequence_length)
        tokens = self._image_tokens.get(place, 0) if form.images else 0
        return inputs(self._config, key, tokens, form)

    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """See base class."""
        from GraphExtractor.sources.hf_building import loss

        return loss(model, inputs, ConfigValues(self.path, {}))
