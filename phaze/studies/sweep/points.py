"""A point of a sweep, resolved, and the content key by which its result is found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from Estimator.plans.axes import PLAN_AXES
from phaze.settings.file_contents import result_key
from phaze.settings.folders import REPOSITORY
from phaze.settings.hardware import HardwareFiles
from phaze.settings.request import Request
from phaze.settings.resolve import resolve
from phaze_common.files import code_version, content_key, library_version

# whose code, and constants, decide a result: how sure its times are too
ROOMS = (
    *("GraphExtractor", "Estimator", "Solver", "phaze_common"),
    *(f"phaze/{room}" for room in ("settings", "studies", "runs", "validation")),
)
LIBRARIES = ("torch", "transformers")  # which decide a graph
# what of a ``GraphKey`` follows from
OF_THE_GRAPHS = (
    "model",
    "sequence_length",
    *(each.key for each in PLAN_AXES if each.decides_graph),
)
OF_THE_LAYER_TIMES = (
    *("design_space", "technology", "chip", "cluster", "fast_domain"),
    *("device", "software", "solver"),
)


@dataclass(frozen=True)
class SweepPoint:
    """A resolved point. ``key`` is the hash of everything that decides its result.

    Points of one ``family`` share graphs and layer times: a sweep begins with one of each, and the
    others find what it made.
    """

    key: str
    family: str
    request: Request

    @property
    def size(self) -> int:
        """Design points in its space."""
        from phaze.settings.problem import space_size

        return space_size(self.request).points


def sweep_point(
    settings: Mapping[str, Any],
    output: Path | None,
    files: HardwareFiles,
    run_code: frozenset[str] | None = frozenset(),
) -> SweepPoint:
    """Resolve the settings of one point, whose graphs and estimates go under ``output``.

    Raises:
        InputError: they are not allowed, or contradict each other.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    if output is not None:
        given["output"] = str(output)
    return point_of(resolve(given, {}, source="this point", files=files, run_code=run_code))


def point_of(request: Request) -> SweepPoint:
    """A resolved request as a point."""
    return SweepPoint(key_of(request), _family(request), request)


def key_of(request: Request) -> str:
    """Content key of a request: its settings, files that they name, and the code.

    Raises:
        InputError: a file it names is not there any more, or cannot be read.
    """
    return content_key(result_key(request), _code())


def _family(request: Request) -> str:
    """Hash of what decides graphs and their layer times."""
    mapping = request.as_mapping()
    return content_key([mapping.get(key) for key in (*OF_THE_GRAPHS, *OF_THE_LAYER_TIMES)])


@cache
def _code() -> str:
    """Version of the code of this process, which stays as it was loaded."""
    libraries = {name: library_version(name) for name in LIBRARIES}
    return content_key(code_version(*(REPOSITORY / room for room in ROOMS)), libraries)
