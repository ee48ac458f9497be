"""Modules of transformers from their configuration alone, what they are fed, and their loss."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from Common.errors import InputError
from GraphExtractor.sources.building import as_fake, built_on_fake, shapes_only
from GraphExtractor.sources.config_values import ConfigValues
from GraphExtractor.sources.losses import checked_loss, mean_of, own_loss
from GraphExtractor.sources.token_loops import CONFIGURATION, TokenLoops
from GraphExtractor.sources.user_errors import users_code

if TYPE_CHECKING:
    from GraphExtractor.graph import GraphKey

logger = logging.getLogger(__name__)

REMEDY = "change the configuration, or give the model as a model.py of your own"
_TASKS = (  # what a model type is trained for where its configuration names no architecture; encoders come as decoders too
    "MaskedLM",
    "CausalLM",
    "ImageClassification",
    "AudioClassification",
    "SequenceClassification",
)
_PAIRED_TASKS = ("Seq2SeqLM", "SpeechSeq2Seq")  # of encoder-decoder models, before all others
_PER_SAMPLE = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification", "ForVideoClassification")
_PER_TOKEN = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration", "ForTokenClassification", "ForSeq2SeqLM")


def build(config: ConfigValues, attention: str) -> torch.nn.Module:
    """The module of a configuration, on fake tensors; call under a fake mode.

    Raises:
        InputError: transformers cannot build it.
    """
    with users_code(config.path, "building the model", REMEDY), shapes_only():
        settings = _settings(config)
        architecture = _architecture(config, settings)
        try:
            model = built_on_fake(lambda: _built(architecture, settings, attention))
        except (ValueError, KeyError):  # it has but one attention of its own
            model = built_on_fake(lambda: _built(architecture, _settings(config), "eager"))
        model.tie_weights()
    for module in model.modules():  # a write in place through a view hides from the trace what reads the tensor next
        if getattr(module, "inplace", False) is True:
            module.inplace = False
    return model


def _built(architecture: Any, settings: Any, attention: str) -> torch.nn.Module:
    settings._attn_implementation = attention
    return architecture(settings)


def _settings(config: ConfigValues) -> Any:
    from transformers import CONFIG_MAPPING

    settings = CONFIG_MAPPING[config.values["model_type"]].from_dict(dict(config.values))
    if hasattr(settings, "use_cache"):
        settings.use_cache = False
    if getattr(settings, "is_encoder_decoder", False) and getattr(settings, "decoder_start_token_id", None) is None:
        settings.decoder_start_token_id = 0
    return settings


def _architecture(config: ConfigValues, settings: Any) -> Any:
    """The class that the configuration names first, else the most usual one of its type."""
    import transformers

    named = config.values.get("architectures")
    if named:
        name = named[0] if isinstance(named, list) else named
        found = getattr(transformers, name, None) if isinstance(name, str) else None
        if not isinstance(found, type) or not issubclass(found, torch.nn.Module):
            raise InputError(
                f"{config.path}: transformers has no architecture {name!r}; correct 'architectures', or leave it out"
            )
        return found
    for task in (*(_PAIRED_TASKS if getattr(settings, "is_encoder_decoder", False) else ()), *_TASKS):
        mapping = getattr(transformers, f"AutoModelFor{task}")._model_mapping
        if type(settings) in mapping:
            return _first(mapping[type(settings)])
    return _first(transformers.AutoModel._model_mapping[type(settings)])


def _first(classes: Any) -> Any:
    return classes[0] if isinstance(classes, list | tuple) else classes


def inputs(config: ConfigValues, key: GraphKey) -> dict[str, torch.Tensor]:
    """What the module of a configuration reads, with labels where it has a loss of its own; call under a fake mode.

    Raises:
        InputError: its main input is of a kind that is not known.
    """
    with users_code(config.path, "making inputs", REMEDY):
        settings = _settings(config)
        architecture = _architecture(config, settings)
        batch, length, kind = key.micro_batch_size, key.sequence_length, architecture.main_input_name
        if kind == "input_ids":
            given = {kind: torch.zeros(batch, length, dtype=torch.long)}
        elif kind == "pixel_values":
            given = {kind: torch.zeros(batch, getattr(settings, "num_channels", 3), *_image(settings))}
        elif kind == "input_values":
            given = {kind: torch.zeros(batch, length)}
        elif kind == "input_features":
            frames = 2 * getattr(settings, "max_source_positions", length // 2)
            given = {kind: torch.zeros(batch, getattr(settings, "num_mel_bins", 80), frames)}
        else:
            raise InputError(
                f"{config.path}: {architecture.__name__} reads {kind!r}, which is not known; give the model as a model.py with "
                "build() and example_inputs()"
            )
        name = architecture.__name__
        if name.endswith(_PER_SAMPLE):
            given["labels"] = torch.zeros(batch, dtype=torch.long)
        elif name.endswith(_PER_TOKEN):
            given["labels"] = torch.zeros(batch, length, dtype=torch.long)
        elif getattr(settings, "is_encoder_decoder", False):
            given["decoder_input_ids"] = torch.zeros(batch, length, dtype=torch.long)
        return {name: as_fake(value, torch.get_default_dtype()) for name, value in given.items()}


def _image(settings: Any) -> tuple[int, int]:
    size = getattr(settings, "image_size", 224)
    return (size[0], size[1]) if isinstance(size, list | tuple) else (size, size)


def loss(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], path: str) -> torch.Tensor:
    """The loss of a forward pass, or the mean of its output."""
    with users_code(path, "the forward pass", REMEDY), shapes_only(), TokenLoops(model, CONFIGURATION):
        output = model(**inputs)
    own = own_loss(output)
    if own is None:
        logger.warning("%s: %s has no loss; the mean of its output stands for it", path, type(model).__name__)
    return checked_loss(mean_of(output, path) if own is None else own, path)
