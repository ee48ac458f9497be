"""Every model name the framework knows: those that the files of this folder list, or dimensions spelled out.

A file adds its published configurations as ``MODELS``, by name, and other names of them as ``ALIASES``. Counts of nine and more
digits are those of released checkpoints, rounded ones those of the papers named beside them.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from Common.errors import InputError
from GraphExtractor import models
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.dimensions import parse_dimensions


@cache
def listed_models() -> Mapping[str, ModelFamily]:
    """All listed configurations by name, in the order of their files."""
    return _collected("MODELS")


@cache
def listed_aliases() -> Mapping[str, str]:
    """Other names of listed models."""
    return _collected("ALIASES")


def _collected(attribute: str) -> dict[str, Any]:
    files = [import_module(f"{models.__name__}.{file.name}") for file in pkgutil.iter_modules(models.__path__)]
    return {name: entry for file in files for name, entry in getattr(file, attribute, {}).items()}


def canonical_name(name: str) -> str:
    """Name under which a model's artefacts are kept: a listed one, or dimensions in the order and form of ``dimensions``.

    Raises:
        InputError: no such model, or dimensions that cannot be.
    """
    canonical = listed_aliases().get(name, name)
    if canonical in listed_models():
        return canonical
    dimensions = parse_dimensions(name)
    if dimensions is not None:
        return dimensions.name
    known = [*listed_models(), *listed_aliases()]
    close = difflib.get_close_matches(name.lower(), known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "give one of them"
    raise InputError(
        f"unknown model {name!r}; known models are {', '.join(known)}, and dimensions such as "
        f"gpt:layers=24,hidden=2304,heads=24; {hint}"
    )


def find_model(name: str) -> ModelFamily:
    """Return the configuration behind a model name, alias or dimensions.

    Raises:
        InputError: no such model, or dimensions that cannot be.
    """
    canonical = canonical_name(name)
    dimensions = parse_dimensions(canonical)
    return listed_models()[canonical] if dimensions is None else dimensions.model()
