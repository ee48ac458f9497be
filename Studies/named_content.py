"""Content of the files that a request names: what a name in a study stood for when it was answered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict

from Common.files import content_key
from Common.records import to_json
from Estimator.chips.design_space import load_design_space
from Estimator.devices.files import load_device, load_software
from Estimator.hardware_files import load_cluster
from GraphExtractor.models.registry import find_model
from GraphExtractor.names import is_path
from Solver.plan_search.request import PlanRequest
from Studies.study import Study


def file_contents(request: Study | PlanRequest) -> dict[str, str]:
    """Hashes of the hardware and the models that files describe, with what those files name; what ships is part of the code.

    Raises:
        InputError: a file is not there any more, or cannot be read.
    """
    return _hardware(request) | _models(request)


def model_names(request: Study | PlanRequest) -> tuple[str, ...]:
    """Names of the models of a request."""
    return tuple(model.name for model in request.models) if isinstance(request, Study) else (request.model,)


def _models(request: Study | PlanRequest) -> dict[str, str]:
    families = {name: find_model(name) for name in model_names(request) if is_path(name)}
    return {name: content_key(type(family).__qualname__, asdict(family)) for name, family in families.items()}


def _hardware(request: Study | PlanRequest) -> dict[str, str]:
    found = {}
    named: Iterable[tuple[str, str | None]]
    if isinstance(request, PlanRequest):
        named = request.hardware.items()
    else:
        named = (("cluster", request.cluster),)
        if _is_file(request.design_space) or _is_file(request.technology):
            found["design_space"] = _hash(to_json(load_design_space(request.design_space, request.technology)))
        cores = request.folders.arch_configs / "cores.json"  # precedes the default space where it exists
        if cores.exists():
            found["cores"] = _hash(cores.read_bytes())
    loaders = {"device": load_device, "cluster": load_cluster, "software": load_software}
    return found | {key: _hash(to_json(loaders[key](name))) for key, name in named if name is not None and _is_file(name)}


def _is_file(name: str | None) -> bool:
    return name is not None and "/" in name  # named_file made paths absolute


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=10).hexdigest()
