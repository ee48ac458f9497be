"""Reads finished sweeps and runs back as points: what each asked, what came of it, and where its
run is."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
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
    """A point: ``settings`` as asked, ``resolved`` those of its run (empty without one), ``folder``
    the run's directory.

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

    def value(self, key: str) -> Any:
        """A setting as asked, or as its run resolved it: one value of a list of one, None where
        neither says."""
        return (
            self.settings[key]
            if self.settings.get(key) is not None
            else _alone(self.resolved.get(key))
        )

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
    """Points read together, under the name of what they were read from. ``sweep`` is whether that
    was one sweep."""

    name: str
    points: tuple[ReadPoint, ...]
    sweep: bool

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Settings of which there are several values, in the order in which they were asked."""
        asked = dict.fromkeys(key for point in self.points for key in point.settings)
        return tuple(
            key for key in asked if not changes_no_result(key) and len(self.values(key)) > 1
        )

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
        found = _of_sweep(folder) if is_sweep(folder) else iter([_of_run(folder)])
        before = len(points)
        points += [
            each if len(folders) == 1 else replace(each, number=before + place)
            for place, each in enumerate(found, start=1)
        ]
    names = [_name(each) for each in folders]
    return PointSet(
        " and ".join(names) if len(names) < 4 else f"{len(names)} runs",
        tuple(points),
        is_sweep(folders[0]) and len(folders) == 1,
    )


def _of_run(folder: Path) -> ReadPoint:
    run = open_run(folder)
    settings = {key: _alone(value) for key, value in run.settings.items() if key != NAME}
    result = point_result(run.result)
    return ReadPoint(
        1,
        run.folder.absolute().name,
        settings,
        settings,
        result.status.value,
        result.reason,
        result,
        run.folder,
    )


def _of_sweep(folder: Path) -> Iterator[ReadPoint]:
    asked = _asked(folder)
    for row in _rows(folder):
        settings = asked | {key: _whole(_plain(row[key])) for key in asked if key in row}
        yield _point(folder, row, settings)


def _asked(folder: Path) -> dict[str, Any]:
    """Settings of the sweep by key; those that it sweeps stand in the table's rows."""
    path = folder / SWEEP
    try:
        document = parse_yaml(artefact_bytes(path).decode(), str(path))
    except (PhazeError, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path) from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise _unreadable(path)
    asked = file_formats.STUDY.current(document, str(path))
    return {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in asked.items()
        if key != NAME
    }


def _name(folder: Path) -> str:
    """What a sweep is called, else the name of the folder."""
    name = (
        parse_yaml(artefact_bytes(folder / SWEEP).decode(), SWEEP).get(NAME)
        if is_sweep(folder)
        else None
    )
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
    if (
        not {"point", "status", "key", "problem"} <= set(table.columns)
        or not len(table)
        or table["point"].dtype.kind != "i"
    ):
        raise _unreadable(path)
    rows: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    return rows


def _point(folder: Path, row: Mapping[str, Any], settings: Mapping[str, Any]) -> ReadPoint:
    number, status, problem = int(row["point"]), str(row["status"]), _plain(row["problem"]) or ""
    key = _plain(row["key"])
    if status in {FAILED, IMPOSSIBLE} or not isinstance(key, str):
        return ReadPoint(number, folder.name, settings, {}, status, str(problem), None, None)
    for store in (folder / "points", folder.parent / "points"):
        result = Store(store).peek(key)
        if result is not None:
            place = store / key
            return ReadPoint(
                number, folder.name, settings, _study(place), status, result.reason, result, place
            )
    lost = (
        f"its run {key} is neither in {folder / 'points'} nor in {folder.parent / 'points'}; "
        "run the sweep again"
    )
    return ReadPoint(number, folder.name, settings, {}, LOST, lost, None, None)


def _study(folder: Path) -> dict[str, Any]:
    try:
        document = parse_yaml(artefact_bytes(folder / STUDY).decode(), str(folder / STUDY))
    except (PhazeError, OSError, UnicodeDecodeError):
        return {}  # the point's result says all that is needed of it
    return (
        file_formats.STUDY.current(document, str(folder / STUDY))
        if isinstance(document, dict)
        else {}
    )


def _alone(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _plain(value: Any) -> Any:
    """A cell of a table as Python has it; None where it is empty."""
    if hasattr(value, "item"):
        value = value.item()
    return None if value is None or value != value else value


def _whole(value: Any) -> Any:
    """Whole numbers as such, which a column with empty cells or fractions holds as floating
    point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unreadable(path: Path) -> InputError:
    return InputError(
        f"{path} is damaged, or was not written by 'phaze sweep'; give the same sweep again to "
        "write it anew"
    )


def infeasible_text(point: ReadPoint) -> str:
    """Why a point has no plan, in a few words."""
    if point.status in {FAILED, IMPOSSIBLE, LOST}:
        return point.status
    return (
        "does not fit"
        if point.status == Status.INFEASIBLE.value
        else point.status.replace("_", " ")
    )
