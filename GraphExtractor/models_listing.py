"""transformers' list of its models, kept for the processes that follow.

Whoever imports transformers has it read the text of all its models, twice, for the names that they
define: a sixth of what a first graph takes. The list is kept in the user's cache, under the names,
sizes and times of these files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from GraphExtractor.torch_internals import LISTED_BY, LISTING_MODULE
from phaze_common.errors import ArtefactError
from phaze_common.files import artefact_bytes, content_key, load_or_set_aside
from phaze_common.json_text import parse_json
from phaze_common.sealed import sealed, unsealed
from phaze_common.user_cache import LISTINGS, keep_content

MODELS = "models"  # the folder
# Folders by name, and names that modules define by the sets of libraries that they need
Listing = dict[Any, Any]


def keep_listing() -> None:
    """Have transformers, when it is imported, take the list of its models from the user's cache."""
    finder = _Finder()
    if "transformers" not in sys.modules and finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


class _Finder:
    """Finds the module that makes the list; any is as good as another."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Finder)

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != LISTING_MODULE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Loads it with the function in place that keeps the list."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        made = getattr(module, LISTED_BY, None)
        if made is not None:
            own = Path(self.path)
            setattr(module, LISTED_BY, lambda module_path: listed(Path(module_path), made, own))


def listed(path: Path, made: Callable[[Any], Listing], maker: Path) -> Listing:
    """What ``made``, of the file ``maker``, lists of the folder ``path``, or that of this file:
    that of all models as it was kept, or kept from now on."""
    folder = path.parent if path.is_file() else path
    if folder.name != MODELS:
        return made(path)
    made_from = content_key(_about(maker), list(_files(folder)))
    place = LISTINGS.place(made_from)
    if place is None:
        return made(path)
    kept = load_or_set_aside(place, _load)
    if kept is None:
        kept = made(path)
        keep_content(sealed(json.dumps(_as_lists(kept)).encode()), LISTINGS, made_from)
    return kept


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """All source files under ``folder``, as ``_about``."""
    for each in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _files(Path(each))
        elif each.name.endswith(".py"):
            yield _about(each)


def _about(file: Path | os.DirEntry[str]) -> tuple[str, int, int]:
    """The path of a file, its size in bytes and its time in nanoseconds, by which it is known."""
    try:
        status = file.stat()
    except FileNotFoundError:  # a link to nothing
        return os.fspath(file), 0, 0
    return os.fspath(file), status.st_size, status.st_mtime_ns


def _load(place: Path) -> Listing:
    pairs = parse_json(unsealed(artefact_bytes(place), str(place)), str(place))
    try:
        listing = _as_listing(pairs)
    except (AttributeError, TypeError, ValueError) as error:
        raise ArtefactError(f"{place} is no list of models: {error}") from error
    if not listing:
        raise ArtefactError(f"{place} lists no models")
    return listing


def _as_lists(listing: Listing) -> list[Any]:
    """Pairs of a folder and its listing, or of libraries and the names in each module."""
    return [
        [key, _as_lists(value)]
        if isinstance(key, str)
        else [sorted(key), {module: sorted(names) for module, names in value.items()}]
        for key, value in listing.items()
    ]


def _as_listing(pairs: list[Any]) -> Listing:
    """The listing of which ``_as_lists`` made ``pairs``."""
    return {
        key if isinstance(key, str) else frozenset(key): _as_listing(value)
        if isinstance(key, str)
        else {module: set(names) for module, names in value.items()}
        for key, value in pairs
    }
