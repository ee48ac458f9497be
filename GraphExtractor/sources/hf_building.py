"""Modules of transformers from their configuration alone, what they are fed, and their loss."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from GraphExtractor.attention import with_masks
from GraphExtractor.experts import share_experts
from GraphExtractor.known_values import KnownValues, with_value
from GraphExtractor.models_listing import keep_listing
from GraphExtractor.sources.building import (
    MixedProducts,
    as_fake,
    built_on_fake,
    checked_loss,
    mean_of,
    own_loss,
    shapes_only,
    tensors_in,
)
from GraphExtractor.sources.config_values import ConfigValues, HuggingFaceForm
from GraphExtractor.sources.hf_files import default_values, named_architecture, rotates_by_sections
from GraphExtractor.sources.hf_inputs import Reader
from GraphExtractor.sources.user_errors import (
    MOST_STEPS,
    OF_CHUNKS,
    SHORTER,
    TokenLoops,
    users_code,
)
from GraphExtractor.torch_internals import unset_fake_temporarily
from phaze_common.echo import as_given
from phaze_common.errors import InputError

if TYPE_CHECKING:
    from GraphExtractor.graph import GraphKey

logger = logging.getLogger(__name__)

REMEDY = "change the configuration, or give the model as a model.py of your own"
_OF_LOSSES = ("target size", "target batch_size", "training is not", "training not")
# blocks left out by chance are priced
_RANDOM_DEPTH = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")


def other_form(
    config: ConfigValues, tried: Sequence[HuggingFaceForm], error: Exception
) -> HuggingFaceForm | None:
    """The form to try after those ``tried``, the last of which came to ``error``; None: no other.

    Code that misses something (None where it reads a mask) gets masks. Sections of heads that
    rotate by time, height and width are made to fit heads that are not of released widths. Text
    that an image cannot be put into, since code needs more than a configuration tells of it or
    counts its tokens otherwise, is priced alone. A loss that is not implemented, or compares
    targets of another shape, is left out.
    """
    cause, last = error.__cause__, tried[-1]
    if not isinstance(cause, Exception):
        return None
    words = str(cause)
    if last.labels and any(each in words.lower() for each in _OF_LOSSES):
        return replace(last, labels=False)
    if isinstance(cause, NotImplementedError):
        return None
    if not last.masks and isinstance(cause, TypeError | AttributeError) and "NoneType" in words:
        return replace(last, masks=True)
    split = isinstance(cause, RuntimeError) and "split_with_sizes" in words
    if split and not last.sections and rotates_by_sections(config.values["model_type"]):
        return replace(last, sections=True)
    data = isinstance(cause, TypeError | ValueError | RuntimeError | LookupError)
    if not last.images or not data:
        return None
    try:
        reads = Reader(_architecture(config), _settings(config), config.path)
    except Exception:  # noqa: BLE001 - transformers refuses the configuration, which came up
        return None
    if not reads.can_do_without_images:
        return None
    logger.warning(
        "%s: %s cannot be given an image from its configuration alone (%s): its text is "
        "priced, without images",
        config.path,
        reads.name,
        " ".join(words.split())[:160],
    )
    return replace(last, images=False)


def build(
    config: ConfigValues, attention: str, form: HuggingFaceForm, ep: int = 1
) -> torch.nn.Module:
    """The module of a configuration, on fake tensors; call under a fake mode.

    Its experts are to be divided over ``ep`` devices.

    Raises: InputError: transformers cannot build it.
    """
    attention = with_masks(attention) if form.masks else attention
    with users_code(config.path, "building the model", REMEDY), shapes_only():
        settings, architecture = _settings(config), _architecture(config)
        try:
            model = built_on_fake(lambda: _built(architecture, settings, attention))
        except (ValueError, KeyError):  # it has but one attention of its own
            model = built_on_fake(lambda: _built(architecture, _settings(config), "eager"))
        model.tie_weights()
    if form.sections:
        _fit_sections(model, config.path)
    if ep > 1:
        share_experts(model, config.path)
    # a write in place through a view hides from the trace what reads the tensor next
    for module in model.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False
    return model


def _fit_sections(model: torch.nn.Module, path: str) -> None:
    """Scale the parts of a head that rotate by time, height and width to how wide the head is."""
    for module in model.modules():
        given = getattr(module, "mrope_section", None)
        frequencies = getattr(module, "inv_freq", None)
        if not isinstance(given, list | tuple) or frequencies is None:
            continue
        count, parts = frequencies.numel(), sum(given)
        if parts == count:
            continue
        ends = [round(count * sum(given[:place]) / parts) for place in range(len(given) + 1)]
        module.mrope_section = [end - start for start, end in pairwise(ends)]
        logger.warning(
            "%s: mrope_section %s is not of heads with %d frequencies: %s is priced",
            path,
            given,
            count,
            module.mrope_section,
        )


def image_tokens(model: torch.nn.Module, config: ConfigValues, key: GraphKey) -> int:
    """How many tokens of a sample's text stand for its image: as many as it has features."""
    reads = Reader(type(model), model.config, config.path)
    holders = (module for module in model.modules() if hasattr(module, "get_image_features"))
    holder = next(holders, None)
    if not reads.joins_images or holder is None:
        return 0
    with users_code(config.path, "reading an image", REMEDY), shapes_only(), KnownValues():
        with unset_fake_temporarily():
            images = dict(reads.images(key.micro_batch_size, key.sequence_length))
        given = {name: _faked(value) for name, value in images.items()}
        features = holder.get_image_features(**given)
        features = getattr(features, "pooler_output", features)
        elements = sum(each.numel() for each in tensors_in(features))
    hidden = model.config.get_text_config().hidden_size
    return int(elements // hidden // key.micro_batch_size)


def _faked(value: torch.Tensor) -> torch.Tensor:
    """A fake input of a training; what whole numbers say is known to the trace."""
    fake: torch.Tensor = as_fake(value, torch.get_default_dtype())
    return fake if value.is_floating_point() else with_value(fake, value)


def _built(architecture: Any, settings: Any, attention: str) -> torch.nn.Module:
    settings._attn_implementation = attention
    return architecture(settings)


def _settings(config: ConfigValues) -> Any:
    keep_listing()
    from transformers import CONFIG_MAPPING

    kind, values = CONFIG_MAPPING[config.values["model_type"]], copy.deepcopy(dict(config.values))
    settings = kind.from_dict(values)
    paired = getattr(settings, "is_encoder_decoder", False)
    if paired and getattr(settings, "decoder_start_token_id", None) is None:
        settings.decoder_start_token_id = 0
    for part in (settings, *vars(settings).values()):
        if getattr(part, "use_cache", False):
            part.use_cache = False
        for name in _RANDOM_DEPTH:
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    return settings


def limits_of_attention(config: ConfigValues) -> dict[str, int]:
    """Tokens that a token attends to at most, by the setting that says so; none where unused."""
    settings = _settings(config)
    text = getattr(settings, "text_config", settings)
    found = {name: getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size")}
    return {name: limit for name, limit in found.items() if isinstance(limit, int) and limit > 0}


def _architecture(config: ConfigValues) -> Any:
    """The class that the configuration names first, else the most usual one of its type."""
    import transformers

    values = config.values
    name = named_architecture(values, default_values(values["model_type"]))
    found = getattr(transformers, name, None) if isinstance(name, str) else None
    if not isinstance(found, type) or not issubclass(found, torch.nn.Module):
        named = values.get("architectures")
        named = named[0] if isinstance(named, list) and named else named
        raise InputError(
            f"{config.path}: transformers has no architecture {as_given(named)}; correct "
            "'architectures', or leave it out"
        )
    return found


def inputs(
    config: ConfigValues, key: GraphKey, image_tokens: int, form: HuggingFaceForm
) -> dict[str, torch.Tensor]:
    """What the module of a configuration reads, with labels where it has a loss of its own.

    Raises: InputError: it reads something that is not known.
    """
    with users_code(config.path, "making inputs", REMEDY):
        with unset_fake_temporarily():
            architecture, settings = _architecture(config), _settings(config)
            forms = image_tokens, form.images, form.labels
            given = Reader(architecture, settings, config.path, *forms).inputs(key)
        return {name: _faked(value) for name, value in given.items()}


def loss(
    model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], config: ConfigValues
) -> torch.Tensor:
    """The loss of a forward pass, or the mean of its output."""
    path = config.path
    reads = Reader(type(model), model.config, path)
    longest = max((size for each in inputs.values() for size in each.shape), default=0)
    remedy = SHORTER if longest > MOST_STEPS else OF_CHUNKS
    watched = users_code(path, "the forward pass", REMEDY)
    with watched, shapes_only(), TokenLoops(model, remedy), MixedProducts():
        output = model(**inputs, **reads.switches())
    own = own_loss(output)
    if own is None and reads.takes_labels and "labels" not in inputs:
        logger.warning(
            "%s: the loss of %s looks for its targets by their values, or reads others, and is not "
            "priced; the mean of its output stands for it",
            path,
            reads.name,
        )
    elif own is None:
        logger.warning("%s: %s has no loss; the mean of its output stands for it", path, reads.name)
    return checked_loss(mean_of(output, path) if own is None else own, path)
