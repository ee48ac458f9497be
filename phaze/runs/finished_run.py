"""Reads a run directory back: what was asked, what came out, and everything a reader needs to see
why."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from Estimator.chips.axes import SIZES
from phaze.runs.design_tables import complete_designs, lacking_columns, with_later_axes
from phaze.runs.run_directory import Manifest
from phaze.settings.config_files import setting_beside
from phaze.settings.request import settings_for
from phaze_common import file_formats
from phaze_common.errors import ArtefactError, InputError
from phaze_common.files import artefact_bytes, parse_json, unpack
from phaze_common.parquet import MAX_FILE_BYTES, read_parquet
from phaze_common.records import parse_yaml, to_record
from phaze_common.run_files import (
    BEST,
    DESIGNS,
    MANIFEST,
    PLANS,
    SCHEDULES,
    STUDY,
    SWEEP,
    run_document,
)
from phaze_common.run_files import unreadable as _unreadable
from phaze_common.sealed import KEY, digest_of, is_as_written
from phaze_common.setting_fields import Mode
from phaze_common.settings import ALL
from Solver.designs.schedule_records import KeptSchedule, KeptSchedules, KeptTensor, PricedOperator
from Solver.results import DesignPoint, SearchResult

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)
Record = TypeVar("Record")

EDITED = frozenset({STUDY})  # by people: where the files are that it names may have changed
ALWAYS_STATED = frozenset(
    {"model", "devices", "micro_batch_size", "tp", "recompute", "global_batch_size"}
)
CHANGED = "it does not hold what the run wrote"
OTHER_LAYOUT = "it is damaged, or was written by another version of phaze"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: ``settings`` of study.yaml, ``designs`` with a row per design point,
    ``plans`` of the best hardware.

    ``operators`` are those of the best design, ``tensors`` those between its layers. ``run_code``
    are the model files (Python) that may be run to search again (None: any that its study names).
    ``study_edited`` is whether ``settings`` are other than those the run wrote.
    """

    folder: Path
    settings: dict[str, Any]
    result: SearchResult
    manifest: Manifest
    schedules: tuple[KeptSchedule, ...]
    operators: tuple[PricedOperator, ...]
    tensors: tuple[KeptTensor, ...]
    designs: pd.DataFrame
    plans: pd.DataFrame
    run_code: frozenset[str] | None = frozenset()
    study_edited: bool = False

    @property
    def on_device(self) -> bool:
        """Whether the hardware was given, rather than designed."""
        return self.result.hardware.device is not None


def open_run(folder: Path, run_code: frozenset[str] | None = frozenset()) -> FinishedRun:
    """Read the run in ``folder``; relative paths in its study are those from there. ``run_code`` as
    of a ``FinishedRun``.

    Raises: InputError: there is no finished run in it, or a file of it is missing, damaged or of
        another version.
    """
    if folder.name == BEST:
        folder = folder.parent
    best = folder / BEST
    try:
        found, is_folder = best.is_file(), folder.is_dir()
    except OSError as error:  # a name the file system cannot hold
        raise InputError(
            f"run {str(folder)!r:.120} cannot be a folder; give the folder that run_solver wrote"
        ) from error
    if not found:
        if not is_folder:
            what = f"{folder} is a file" if folder.exists() else f"there is no folder {folder}"
            raise InputError(f"{what}; give the folder of a run, such as Solver/output/STUDY")
        if (folder / SWEEP).is_file():
            raise InputError(
                f"{folder} is that of a sweep; give the folder of one of its points, which are in "
                f"{folder / 'points'}"
            )
        given = "has no best.json: it is not a run, or one that did not finish"
        raise InputError(
            f"{folder} {given}; give the folder that run_solver wrote, or run the study again to "
            "finish it"
        )
    files = _RunReader(folder)
    result = _result(files.mapping(BEST), best)
    settings = _settings(
        files.text(STUDY), folder / STUDY, on_device=result.hardware.device is not None
    )
    kept = to_record_of_run(KeptSchedules, files.schedules(), folder / SCHEDULES)
    designs, plans = (with_later_axes(files.table(name)) for name in (DESIGNS, PLANS))
    models = frozenset(() if result.best is None else result.best.models)
    problem = lacking_columns(designs, plans, models, on_device=result.hardware.device is not None)
    if problem:
        raise _unreadable(folder / problem.file, problem.what)
    of_best = kept.schedules, kept.operators, kept.tensors
    return FinishedRun(
        folder,
        settings,
        result,
        files.manifest,
        *of_best,
        complete_designs(designs),
        plans,
        run_code,
        study_edited=STUDY in files.edited,
    )


def answer_there(folder: Path, question: str, study: bytes) -> SearchResult | None:
    """What the run in ``folder`` found, where it answered ``question`` with the settings ``study``
    and all that it wrote is there as it wrote it; else None."""
    try:
        files = _RunReader(folder)
        written = files.manifest.files
        if files.manifest.question != question or written.get(STUDY) != digest_of(study):
            return None
        if any(digest_of(_content(folder / name)) != digest for name, digest in written.items()):
            return None
        return _result(files.mapping(BEST), folder / BEST)
    except InputError:
        return None


class _RunReader:
    """The files of a run, each compared with the digest that the manifest has of it.

    What a run found is told as the run wrote it, or not at all: numbers of an edited answer would
    contradict each other. Of the study, which people edit, it is said that it was, and it is read;
    ``edited`` names it then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.edited: list[str] = []
        stated = self.mapping(MANIFEST)
        self.manifest = to_record_of_run(Manifest, stated, folder / MANIFEST)

    def text(self, name: str) -> bytes:
        """Content of a file, in which an edit is noticed."""
        path = self._folder / name
        content = _content(path)
        if name != MANIFEST and not self.manifest.has_written(name, content):
            if name == BEST:
                current = file_formats.BEST.current(run_document(path, content), str(path))
                # if damaged, that is to be said
                _result({key: value for key, value in current.items() if key != KEY}, path)
                raise InputError(
                    f"{path} was changed since the run wrote it, and a run is told as it was "
                    "found; undo the change, run the study again, or price the plan as it is now "
                    f"with 'phaze evaluate --plan {path}'"
                )
            if name not in EDITED:
                raise _unreadable(path, CHANGED)
            self.edited.append(name)
            logger.warning("%s was edited since the run wrote it; it is read as it is now", path)
        return content

    def mapping(self, name: str) -> dict[str, Any]:
        """A JSON document, without its digest."""
        path = self._folder / name
        document = run_document(path, self.text(name))
        kind = file_formats.MANIFEST if name == MANIFEST else file_formats.BEST
        current = kind.current(document, str(path))
        if name == MANIFEST and not is_as_written(document):
            raise _unreadable(path, CHANGED)
        return {key: value for key, value in current.items() if key != KEY}

    def schedules(self) -> Any:
        """The kept schedules, unpacked."""
        path = self._folder / SCHEDULES
        self.text(path.name)
        try:
            document = parse_json(unpack(path), str(path))
        except (ArtefactError, InputError) as error:
            raise _unreadable(path, "it is truncated, or not compressed") from error
        return file_formats.SCHEDULES.current(document, str(path))

    def table(self, name: str) -> pd.DataFrame:
        """A table of rows."""
        path = self._folder / name
        try:
            return read_parquet(self.text(name), "it")
        except ArtefactError as error:
            raise _unreadable(path, str(error)) from error


def _settings(text: bytes, path: Path, *, on_device: bool) -> dict[str, Any]:
    """The settings of a study, all of which a run writes, with relative paths made absolute against
    the folder it is in."""
    try:
        stated = parse_yaml(text.decode(), str(path))
    except (InputError, UnicodeDecodeError) as error:
        raise _unreadable(path, "it is not YAML") from error
    if isinstance(stated, dict):
        current = file_formats.STUDY.current(stated, str(path))
        stated = {key: value for key, value in current.items() if value is not None}
    always = ALWAYS_STATED | (set() if on_device else {"objective"})
    if not isinstance(stated, dict) or not stated.keys() >= always:
        raise _unreadable(path, "it does not hold the settings of a study")
    if ("device" in stated) != on_device:
        raise _unreadable(path, "it asks for other hardware than the run answered for")
    try:
        read = settings_for(Mode.SEARCH).read(stated, str(path))
    except InputError as error:
        raise _unreadable(path, OTHER_LAYOUT) from error
    values = {key: _plain(value, read.get(key)) for key, value in stated.items()}
    return {
        key: setting_beside(path.absolute().parent, str(key), value)
        for key, value in values.items()
    }


def _plain(stated: object, read: object) -> object:
    """A setting as a run writes it: what people write instead, such as text for a number, is the
    value it is read as."""
    if read is None or stated == ALL:
        return stated
    values = read if isinstance(read, tuple) else (read,)
    plain = [each if isinstance(each, bool | int | float) else str(each) for each in values]
    return plain if isinstance(read, tuple) else plain[0]


def _result(content: dict[str, Any], path: Path) -> SearchResult:
    """What ``best_json`` merged, taken apart again."""
    point_keys = {field.name for field in fields(DesignPoint)}
    whole = {key: value for key, value in content.items() if key not in point_keys}
    if "accelerator" in content:
        best = {key: value for key, value in content.items() if key in point_keys}
    else:
        best = None
    try:
        result = to_record(
            SearchResult, {**whole, "best": best, "status": content.get("status")}, str(path)
        )
    except InputError as error:
        raise _unreadable(path, OTHER_LAYOUT) from error
    others = [] if result.tight_memory is None else [result.tight_memory.runner_up]
    if not all(
        _holds_together(point)
        for point in (*result.per_hbm, result.best, *others)
        if point is not None
    ):
        raise _unreadable(path, OTHER_LAYOUT)
    return result


def _holds_together(point: DesignPoint) -> bool:
    """Whether a design has what those who read it rely on: plans with the stages they name, on a
    chip there can be."""
    chip = point.accelerator
    return (
        bool(point.models)
        and all(len(plan.stages) == plan.pp > 0 for plan in point.models.values())
        and (chip is None or min(getattr(chip, name) for name in SIZES) > 0)
    )


def to_record_of_run(cls: type[Record], document: object, path: Path) -> Record:
    """``document``, read from ``path``, as a ``cls``.

    Raises:
        InputError: it is none that this version writes.
    """
    try:
        return to_record(cls, document, str(path))
    except InputError as error:
        raise _unreadable(path, OTHER_LAYOUT) from error


def _content(path: Path) -> bytes:
    try:
        return artefact_bytes(path, MAX_FILE_BYTES)
    except OSError as error:
        raise _unreadable(path, (error.strerror or str(error)).lower()) from error
    except ArtefactError as error:
        raise _unreadable(path, f"it has more than {MAX_FILE_BYTES // 2**20} MiB") from error
