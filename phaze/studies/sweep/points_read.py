"""Reads finished sweeps and runs back as points, each with its settings and its result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from Estimator.plans.results import Status
from phaze.runs.finished_run import FinishedRun, open_run
from phaze.settings.file_contents import changes_no_result
from phaze.studies.sweep.results import PointResult, point_result
from phaze.studies.sweep.run import FAILED, IMPOSSIBLE
from phaze.studies.sweep.store import Store
from phaze.studies.sweep.table import value_text
from phaze_common import file_formats
from phaze_common.errors import ArtefactError, InputError, PhazeError
from phaze_common.files import artefact_bytes
from phaze_common.parquet import MAX_FILE_BYTES, read_parquet
from phaze_common.records import parse_yaml
from phaze_common.run_files import BEST, STUDY, SWEEP, TABLE

logger = logging.getLogger(__name__)

NAME = "name"
LOST = "lost"  # a point that a sweep finished, of which the files are gone


@dataclass(frozen=True, eq=False)
class ReadPoint:
    """A point: ``settings`` as given, ``resolved`` those of its run, which is in ``folder``.

    ``status`` is that of its search, or why there is none (``problem`` says it in words): it
    failed, was impossible, or is lost. ``number`` counts from 1 over all that is read together.
    """

    number: int
    source: str
    settings: Mapping[str, Any]
    resolved: Mapping[str, Any]
    status: str
    problem: str
    result: PointResult | None
    folder: Path | None

    @property
    def feasible(self) -> bool:
        """Whether there is a plan."""
        return self.result is not None and self.result.value is not None

    @property
    def objective(self) -> float:
        """What it reaches, 0 without a plan."""
        return (self.result.value or 0.0) if self.result else 0.0

    def value(self, key: str) -> Any:
        """A setting as given, or as its run resolved it; None where neither says."""
        given = self.settings.get(key)
        return _alone(self.resolved.get(key)) if given is None else given

    def open(self) -> FinishedRun | None:
        """Its run; None where there is none that can be read."""
        if self.folder is None:
            return None
        try:
            return open_run(self.folder)
        except InputError as error:
            logger.warning("%s", error)
            return None


@dataclass(frozen=True, eq=False)
class PointSet:
    """Points read together, named for where they were read from: one ``sweep``, or several runs."""

    name: str
    points: tuple[ReadPoint, ...]
    sweep: bool

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Settings of which there are several values, in the order in which they were asked."""
        given = dict.fromkeys(key for point in self.points for key in point.settings)
        keys = (key for key in given if not changes_no_result(key))
        return tuple(key for key in keys if len(self.values(key)) > 1)

    def values(self, key: str) -> tuple[Any, ...]:
        """The values of a setting, numbers ascending, others in the order of the points."""
        found = {value_text(point.value(key)): point.value(key) for point in self.points}
        several = list(found.values())
        if all(isinstance(each, int | float) and not isinstance(each, bool) for each in several):
            several.sort()
        return tuple(several)

    def common(self, key: str) -> Any:
        """The value that all points share."""
        return self.points[0].value(key)


def is_sweep(folder: Path) -> bool:
    """Whether ``folder`` is that of a sweep, rather than of a run."""
    return (folder / SWEEP).is_file() and not (folder / BEST).is_file()


def read_points(folders: Sequence[Path]) -> PointSet:
    """The points of sweeps and runs, a run being one point.

    Raises:
        InputError: a folder is neither, or a file of it is missing or damaged.
    """
    points: list[ReadPoint] = []
    for folder in folders:
        points += _of_sweep(folder) if is_sweep(folder) else [_of_run(folder)]
    if len(folders) > 1:
        points = [replace(each, number=place) for place, each in enumerate(points, start=1)]
    names = [_name(each) for each in folders]
    name = " and ".join(names) if len(names) < 4 else f"{len(names)} runs"
    return PointSet(name, tuple(points), is_sweep(folders[0]) and len(folders) == 1)


def _of_run(folder: Path) -> ReadPoint:
    run = open_run(folder)
    settings = {key: _alone(value) for key, value in run.settings.items() if key != NAME}
    result, name = point_result(run.result), run.folder.absolute().name
    ended = result.status.value, result.reason, result, run.folder
    return ReadPoint(1, name, settings, settings, *ended)


def _of_sweep(folder: Path) -> Iterator[ReadPoint]:
    asked = _asked(folder)
    for row in _rows(folder):
        settings = asked | {key: _whole(_plain(row[key])) for key in asked if key in row}
        yield _point(folder, row, settings)


def _asked(folder: Path) -> dict[str, Any]:
    """Settings of the sweep by key; those that it sweeps stand in the table's rows."""
    path = folder / SWEEP
    document = _document(path)
    if not document or not all(isinstance(key, str) for key in document):
        raise _unreadable(path)
    given = file_formats.STUDY.current(document, str(path))
    return {key: _alone(value) for key, value in given.items() if key != NAME}


def _name(folder: Path) -> str:
    """What a sweep is called, else the name of the folder."""
    name = None
    if is_sweep(folder):
        name = parse_yaml(artefact_bytes(folder / SWEEP).decode(), SWEEP).get(NAME)
    return name if isinstance(name, str) and name else folder.absolute().name


def _rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / TABLE
    if not path.is_file():
        raise InputError(
            f"{folder} has no {TABLE}: the sweep did not finish; give the same 'phaze sweep' "
            "again, which goes on"
        )
    try:
        table = read_parquet(artefact_bytes(path, MAX_FILE_BYTES), "it")
    except (ArtefactError, OSError) as error:
        raise _unreadable(path) from error
    if not len(table) or not {"point", "status", "key", "problem"} <= set(table.columns):
        raise _unreadable(path)
    if table["point"].dtype.kind != "i":
        raise _unreadable(path)
    rows: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    return rows


def _point(folder: Path, row: Mapping[str, Any], settings: Mapping[str, Any]) -> ReadPoint:
    status, key, problem = str(row["status"]), _plain(row["key"]), str(_plain(row["problem"]) or "")
    resolved, result, place = dict[str, Any](), None, None
    if status not in {FAILED, IMPOSSIBLE} and isinstance(key, str):
        stores = (folder / "points", folder.parent / "points")
        place = next((each / key for each in stores if Store(each).peek(key)), None)
        result = None if place is None else Store(place.parent).peek(key)
        if place is None or result is None:
            lost = f"its run {key} is neither in {stores[0]} nor in {stores[1]}"
            status, problem = LOST, f"{lost}; run the sweep again"
        else:
            resolved, problem = _study(place), result.reason
    ended = status, problem, result, place
    return ReadPoint(int(row["point"]), folder.name, settings, resolved, *ended)


def _study(folder: Path) -> dict[str, Any]:
    known = _document(folder / STUDY)  # else the point's result says all that is needed of it
    return file_formats.STUDY.current(known, str(folder / STUDY)) if known else {}


def _document(path: Path) -> dict[str, Any]:
    """What a YAML file says; nothing where it cannot be read."""
    with suppress(PhazeError, OSError, UnicodeDecodeError):
        document = parse_yaml(artefact_bytes(path).decode(), str(path))
        return document if isinstance(document, dict) else {}
    return {}


def _alone(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _plain(value: Any) -> Any:
    """A cell of a table as Python has it; None where it is empty."""
    if hasattr(value, "item"):
        value = value.item()
    return None if value is None or value != value else value


def _whole(value: Any) -> Any:
    """Whole numbers as such; a column with empty cells or fractions holds floating point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unreadable(path: Path) -> InputError:
    return InputError(
        f"{path} is damaged, or was not written by 'phaze sweep'; give the same sweep again to "
        "write it anew"
    )


def infeasible_text(point: ReadPoint) -> str:
    """Why a point has no plan, in a few words."""
    if point.status == Status.INFEASIBLE.value:
        return "does not fit"
    return point.status.replace("_", " ")
