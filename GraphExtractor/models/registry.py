"""Every model name the framework knows: listed ones, dimensions spelled out, or paths of files.

A file adds its published configurations as ``MODELS``, by name, and other names of them as
``ALIASES``. Counts of nine and more digits are those of released checkpoints, rounded ones those of
the papers named beside them.
"""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from GraphExtractor import models
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.dimensions import Dimensions, parse_dimensions
from GraphExtractor.models.resnet_dimensions import ResNetDimensions, parse_resnet
from GraphExtractor.names import CONFIG_SUFFIX, absolute_path, holds_model, is_path
from phaze_common.errors import InputError
from phaze_common.suggestions import suggested


@cache
def listed_models() -> Mapping[str, ModelFamily]:
    """All listed configurations by name, in the order of their files."""
    return _collected("MODELS")


@cache
def listed_aliases() -> Mapping[str, str]:
    """Other names of listed models."""
    return _collected("ALIASES")


def _collected(attribute: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in pkgutil.iter_modules(models.__path__):
        found |= getattr(import_module(f"{models.__name__}.{file.name}"), attribute, {})
    return found


def canonical_name(name: str) -> str:
    """Name under which a model is known everywhere: a listed one, dimensions in order, or a path.

    Raises: InputError: no such model or file, or dimensions that cannot be.
    """
    canonical = listed_aliases().get(name, name)
    if canonical in listed_models():
        return canonical
    if is_path(name):
        return absolute_path(name)
    dimensions = _spelled_out(name)
    if dimensions is not None:
        return dimensions.name
    if "/" in name or holds_model(name):
        return absolute_path(name)  # which says that it is no file of a model
    known = [*listed_models(), *listed_aliases()]
    close = suggested(name, known)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(
        f"unknown model {name!r}; {hint}'phaze models' lists them, and dimensions such as "
        "gpt:layers=24,hidden=2304,heads=24, "
        "the path of a Hugging Face config.json and that of a model.py of your own are models too"
    )


def find_model(name: str) -> ModelFamily:
    """Return the configuration behind a model name; a user's file is read, not run.

    Raises: InputError: no such model or file, impossible dimensions, or a file without a model.
    """
    canonical = canonical_name(name)
    if canonical in listed_models():
        return listed_models()[canonical]
    if is_path(canonical):
        return _of_file(canonical)
    dimensions = _spelled_out(canonical)
    assert dimensions is not None  # it is canonical
    return dimensions.model()


def _spelled_out(name: str) -> Dimensions | ResNetDimensions | None:
    return parse_resnet(name) or parse_dimensions(name)


def families_by_model_type() -> Mapping[str, type[ModelFamily]]:
    """Families that read Hugging Face configurations, by the type of model these state."""
    families = {type(family) for family in listed_models().values()}
    return {family.model_type: family for family in families if family.model_type}


def _of_file(path: str) -> ModelFamily:
    if path.endswith(CONFIG_SUFFIX):
        from GraphExtractor.sources.hf_config import read_config

        return read_config(path, families_by_model_type())
    from GraphExtractor.sources.user_module import UserModule

    return UserModule.read(path)
