"""What one point of a sweep asks, resolved, and the content key by which its answer is found again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from Common.files import code_version, content_key
from GraphExtractor.models.registry import find_model
from Solver.plan_search.request import PlanRequest, plan_request
from Solver.plan_search.settings import asks_for_device
from Studies.named_content import file_contents, model_names
from Studies.settings import HOUSEKEEPING
from Studies.study import REPOSITORY, Study, study_from

ROOMS = ("GraphExtractor", "Estimator", "Plans", "Solver")  # whose code decides an answer
LIBRARIES = ("torch", "transformers")  # which decide a graph
HARDWARE = frozenset({"design_space", "cores", "device", "cluster", "software"})  # whose content stands for its name


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
    decides = {key: value for key, value in request.as_mapping().items() if key not in HOUSEKEEPING}
    decides |= {"strict": request.strict, "sequence_length": _lengths(request)}
    contents = file_contents(request)
    if "design_space" in contents:
        decides["technology"] = ""  # is in the content of the space
    placed = {key: value for key, value in contents.items() if key in HARDWARE}
    return content_key(decides | placed, [value for key, value in contents.items() if key not in HARDWARE], _code())


def _family(request: Study | PlanRequest) -> str:
    """Hash of what decides graphs, and for chips to design their layer times."""
    asked = request.as_mapping()
    keys = ["model", "micro_batch_size", "tp", "attention", "sequence_parallel"]
    if isinstance(request, Study):
        keys += ["design_space", "technology", "cluster"]
    return content_key([asked[key] for key in keys], _lengths(request))


def _lengths(request: Study | PlanRequest) -> list[int]:
    return [request.sequence_length or find_model(name).sequence_length for name in model_names(request)]


@cache
def _code() -> str:
    """Version of the code of this process, which stays as it was loaded."""
    libraries = {name: version(name) for name in LIBRARIES}
    return content_key(code_version(_rooms()), libraries)


def _rooms() -> Iterable[Path]:
    return (REPOSITORY / room for room in ROOMS)
