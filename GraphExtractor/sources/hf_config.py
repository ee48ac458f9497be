"""A Hugging Face ``config.json``: a family of ours where it can express the configuration, else transformers' own module."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from Common.errors import InputError
from Common.files import read_json
from GraphExtractor.layer_modules import LayerModules, find_layer_modules
from GraphExtractor.models.base import CrossEntropy, ModelFamily, TransformerFamily
from GraphExtractor.sources.config_values import LONGEST_DEFAULT, ConfigValues, InexpressibleError

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey

logger = logging.getLogger(__name__)

_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx")
_IGNORED_BY_ATTENTION = ("sliding_window", "attn_logit_softcapping", "attention_chunk_size")


def read_config(path: str, families: Mapping[str, type[ModelFamily]]) -> ModelFamily:
    """The model of a configuration file; ``families`` by the model type that they read.

    Raises:
        InputError: the file is no configuration, or of a model that transformers does not know.
    """
    config = ConfigValues(path, _content(path))
    model_type = config.values.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(f"{path} has no model_type; give the config.json of a model that Hugging Face transformers knows")
    if model_type in families:
        try:
            return _checked(families[model_type].from_config(config), path)
        except InexpressibleError as missing:
            logger.info("%s: family %s does not have %s; transformers' own model is used", path, model_type, missing)
        except NotImplementedError:
            logger.info("%s: family %s reads no configurations; transformers' own model is used", path, model_type)
    _check_known(path, model_type)
    positions = next((config.values[key] for key in _POSITIONS if type(config.values.get(key)) is int), LONGEST_DEFAULT)
    return HuggingFaceModule(
        layers=0,
        sequence_length=max(min(positions, LONGEST_DEFAULT), 1),
        path=path,
        version=hashlib.blake2b(json.dumps(config.values, sort_keys=True).encode(), digest_size=10).hexdigest(),
    )


def _checked(family: ModelFamily, path: str) -> ModelFamily:
    if isinstance(family, TransformerFamily):
        own_width = any(hasattr(family, name) for name in ("head_width", "value_width"))
        for what, size, heads in (("hidden width", family.hidden, family.heads), ("heads", family.heads, family.kv_heads)):
            if size % heads and not (own_width and what == "hidden width"):
                by = "key/value heads" if what == "heads" else "attention heads"
                raise InputError(f"{path}: {heads} {by} do not divide {what} {size}; correct one of them")
    return family


def _content(path: str) -> Mapping[str, Any]:
    content = read_json(Path(path), "a config.json")
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, but a configuration is a mapping with a model_type")
    return content


def _check_known(path: str, model_type: str) -> None:
    from Common.suggestions import nearest

    try:
        from transformers.models.auto import auto_mappings  # without torch
    except ImportError:  # of another version: it is said when the model is built
        return
    known = auto_mappings.CONFIG_MAPPING_NAMES
    if model_type not in known:
        hint = nearest(model_type, known, "a model with code of its own is given as a model.py with build() and example_inputs()")
        raise InputError(f"{path}: transformers knows no model_type {model_type!r}; {hint}")


@dataclass(frozen=True, kw_only=True)
class HuggingFaceModule(ModelFamily):
    """A configuration of transformers as it stands; ``version`` is a hash of its content."""

    folder: ClassVar[str] = "HuggingFace"
    blocks: ClassVar[tuple[str, ...]] = ()
    described: ClassVar[bool] = False
    drops_unused: ClassVar[bool] = True

    path: str
    version: str

    def check(self, key: GraphKey) -> None:
        """See base class."""
        if key.sequence_parallel:
            raise InputError(f"{self.path} has no plan for sequence parallelism; leave it out")
        if key.cp > 1:
            raise InputError(f"{self.path} has no plan for context parallelism, given degree {key.cp}; use 1")

    def layer_modules(self, model: torch.nn.Module) -> LayerModules:
        """See base class."""
        return find_layer_modules(model)

    def failures(self) -> AbstractContextManager[None]:
        """See base class."""
        from GraphExtractor.sources.hf_building import REMEDY
        from GraphExtractor.sources.user_errors import users_code

        return users_code(self.path, "the training step", REMEDY)

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        from GraphExtractor.sources.hf_building import build

        config = ConfigValues(self.path, _content(self.path))
        model = build(config, attention)
        for name in _IGNORED_BY_ATTENTION:
            limit = config.values.get(name)
            if limit and not (isinstance(limit, int) and limit >= key.sequence_length):
                logger.warning("%s: %s %s is not priced: every token attends to all others", self.path, name, limit)
        return model

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class."""
        from GraphExtractor.sources.hf_building import inputs

        return inputs(ConfigValues(self.path, _content(self.path)), key)

    def loss(self, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], cross_entropy: CrossEntropy) -> torch.Tensor:
        """See base class."""
        from GraphExtractor.sources.hf_building import loss

        return loss(model, inputs, self.path)
