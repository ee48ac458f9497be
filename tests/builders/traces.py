"""Training graphs that tests share: whoever needs one first traces it, whichever worker and session
that is."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.storage import load, store
from phaze_common.files import code_version, content_key

REPOSITORY = Path(__file__).resolve().parents[2]


class Trace(Protocol):
    """``extract_graph``, or what stands for it."""

    def __call__(self, key: GraphKey, family: ModelFamily | None = None) -> ModelGraph:
        """The graph of ``key``."""


class TraceStore:
    """Graphs under ``folder``, by the content of what is asked and of all code that answers;
    ``trace`` makes what is not there.

    Models whose code is not ours are traced each time: what that code depends on is not known.
    """

    def __init__(self, folder: Path, trace: Trace) -> None:
        code = code_version(*(REPOSITORY / room for room in ("phaze_common", "GraphExtractor")))
        self._folder = folder / content_key(
            code, {name: version(name) for name in ("numpy", "torch", "transformers")}
        )
        self._trace = trace
        self._folder.mkdir(parents=True, exist_ok=True)

    def graph(self, key: GraphKey, family: ModelFamily | None = None) -> ModelGraph:
        """What ``trace(key, family)`` gives, from the folder where it was made before; errors are
        not kept."""
        if family is None:
            key = replace(key, model=canonical_name(key.model))
            family = find_model(key.model)
        kind = f"{type(family).__module__}.{type(family).__qualname__}"
        if not family.described or not kind.startswith("GraphExtractor."):
            return self._trace(key, family)
        made_from = content_key(asdict(key), kind, asdict(family))
        path = self._folder / f"{made_from}.json.gz"
        with _locked(path.with_suffix(".lock")):
            if not path.exists():
                store(self._trace(key, family), made_from, path)
            return load(path, made_from)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock at ``path``, which goes with its process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
