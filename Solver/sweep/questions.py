"""What one point of a sweep asks, resolved, and the content key by which its answer is found again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from Common.files import code_version, content_key
from Common.records import to_json
from Estimator.design_space import load_design_space
from Estimator.devices.files import load_device, load_software
from Estimator.hardware_files import load_cluster
from GraphExtractor.models.registry import find_model
from GraphExtractor.names import is_path
from Solver.plan_search.request import PlanRequest, plan_request
from Solver.plan_search.settings import asks_for_device
from Solver.study import REPOSITORY, Study, study_from

ROOMS = ("GraphExtractor", "Estimator", "Solver")  # whose code decides an answer
LIBRARIES = ("torch", "transformers")  # which decide a graph
_NOT_ASKED = frozenset({"name", "output", "csv", "force_reextract_model"})


@dataclass(frozen=True)
class Question:
    """A resolved point. ``key`` is the hash of everything that decides its answer; points of one ``family`` share layer times."""

    key: str
    family: str
    request: Study | PlanRequest

    @property
    def size(self) -> int | None:
        """Design points in its space; None where only a trace tells."""
        if isinstance(self.request, PlanRequest):
            return self.request.size.plans
        from Solver.search import space_size

        return space_size(self.request).points

    def in_folder(self, run: Path) -> Study | PlanRequest:
        """The request with its run in folder ``run``."""
        if isinstance(self.request, Study):
            return replace(self.request, run_folder=run)
        return replace(self.request, run=run)

    def moved_to(self, root: Path, run: Path) -> Study | PlanRequest:
        """The request with everything it makes under ``root`` and its run in ``run``."""
        if isinstance(self.request, Study):
            return replace(self.request, output=root, run_folder=run)
        return replace(self.request, graphs=root / "GraphExtractor" / "out", run=run)


def question(settings: Mapping[str, Any], output: Path | None) -> Question:
    """Resolve the settings of one point, whose graphs and estimates go under ``output``.

    Raises:
        InputError: they are not allowed, or contradict each other.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    if output is not None:
        given["output"] = str(output)
    request = (plan_request if asks_for_device(given) else study_from)(given, {}, "this point")
    return Question(key_of(request), _family(request), request)


def key_of(request: Study | PlanRequest) -> str:
    """Content key of a request: its settings, the content of files they name, and the code that answers it.

    Raises:
        InputError: a file it names is not there any more, or cannot be read.
    """
    decides = {key: value for key, value in request.as_mapping().items() if key not in _NOT_ASKED}
    decides |= {"strict": request.strict, "sequence_length": _lengths(request)} | _files(request)
    return content_key(decides, _models(request), _code())


def _family(request: Study | PlanRequest) -> str:
    """Hash of what decides graphs, and for chips to design their layer times."""
    asked = request.as_mapping()
    keys = ["model", "micro_batch_size", "tp", "attention", "sequence_parallel"]
    if isinstance(request, Study):
        keys += ["design_space", "technology", "cluster"]
    return content_key([asked[key] for key in keys], _lengths(request))


def _names(request: Study | PlanRequest) -> tuple[str, ...]:
    return tuple(model.name for model in request.models) if isinstance(request, Study) else (request.model,)


def _lengths(request: Study | PlanRequest) -> list[int]:
    return [request.sequence_length or find_model(name).sequence_length for name in _names(request)]


def _models(request: Study | PlanRequest) -> list[str]:
    """Hashes of models that are files."""
    families = [find_model(name) for name in _names(request) if is_path(name)]
    return [content_key(type(family).__qualname__, asdict(family)) for family in families]


def _files(request: Study | PlanRequest) -> dict[str, str]:
    """Hashes of hardware that files describe, with what those files name; hardware that ships is part of the code."""
    found = {}
    if isinstance(request, PlanRequest):
        named: dict[str, str | None] = {**request.hardware}
    else:
        named = {"cluster": request.cluster}
        if _is_file(request.design_space) or _is_file(request.technology):
            space = _hash(to_json(load_design_space(request.design_space, request.technology)))
            found = {"design_space": space, "technology": ""}
        cores = request.folders.arch_configs / "cores.json"  # precedes the default space where it exists
        if cores.exists():
            found["cores"] = _hash(cores.read_bytes())
    for key, load in (("device", load_device), ("cluster", load_cluster), ("software", load_software)):
        name = named.get(key)
        if name is not None and _is_file(name):
            found[key] = _hash(to_json(load(name)))
    return found


def _is_file(name: str | None) -> bool:
    return name is not None and "/" in name  # named_file made paths absolute


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=10).hexdigest()


@cache
def _code() -> str:
    """Version of the code of this process, which stays as it was loaded."""
    libraries = {name: version(name) for name in LIBRARIES}
    return content_key(code_version(_rooms()), libraries)


def _rooms() -> Iterable[Path]:
    return (REPOSITORY / room for room in ROOMS)
