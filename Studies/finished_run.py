"""Reads a run directory back: what was asked, what came out, and everything a reader needs to see why."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from Common.errors import ArtefactError, InputError
from Common.files import unpack
from Common.records import from_json, parse_yaml, to_record
from Solver.results import DesignPoint, SearchResult
from Solver.search.schedule_records import KeptSchedule, KeptSchedules, KeptTensor, PricedOperator
from Studies.run_directory import Manifest

if TYPE_CHECKING:
    import pandas as pd

Record = TypeVar("Record")

RUN_FILES = (
    "best.json",
    "study.yaml",
    "manifest.json",
    "designs.parquet",
    "designs.csv",
    "plans.parquet",
    "plans.csv",
    "schedules.json.gz",
)
ALWAYS_STATED = frozenset({"model", "micro_batch_size", "tp", "recompute", "global_batch_size"})
OTHER_LAYOUT = "it is damaged, or was written by another version of phaze"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: ``settings`` of study.yaml, ``designs`` with a row per design point, ``plans`` of the best hardware.

    ``operators`` are those of the best design, ``tensors`` those between its layers.
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

    @property
    def on_device(self) -> bool:
        """Whether the hardware was given, rather than designed."""
        return self.result.hardware.device is not None


def open_run(folder: Path) -> FinishedRun:
    """Read the run in ``folder``.

    Raises:
        InputError: there is no finished run in it, or a file of it is missing, damaged or of another version.
    """
    if folder.name == "best.json":
        folder = folder.parent
    best = folder / "best.json"
    try:
        found, is_folder = best.is_file(), folder.is_dir()
    except OSError as error:  # a name the file system cannot hold
        raise InputError(f"run {str(folder)!r:.120} cannot be a folder; give the folder that run_solver wrote") from error
    if not found:
        if not is_folder:
            what = f"{folder} is a file" if folder.exists() else f"there is no folder {folder}"
            raise InputError(f"{what}; give the folder of a run, such as Solver/output/STUDY")
        if (folder / "sweep.yaml").is_file():
            raise InputError(
                f"{folder} is that of a sweep; give the folder of one of its points, which are in {folder / 'points'}"
            )
        given = "has no best.json: it is not a run, or one that did not finish"
        raise InputError(f"{folder} {given}; give the folder that run_solver wrote, or run the study again to finish it")
    text = _text(best)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _unreadable(best, "it is not JSON") from error
    if not isinstance(content, dict):
        raise _unreadable(best, "it is not a mapping")
    settings = _settings(folder / "study.yaml")
    designs = _designs(folder / "designs.parquet")
    kept = _schedules(folder / "schedules.json.gz")
    manifest = _read(Manifest, folder / "manifest.json")
    plans = _designs(folder / "plans.parquet")
    result = _result(content, best)
    return FinishedRun(folder, settings, result, manifest, kept.schedules, kept.operators, kept.tensors, designs, plans)


def _settings(path: Path) -> dict[str, Any]:
    """The settings of a study, all of which a run writes."""
    text = _text(path)
    try:
        settings = parse_yaml(text.decode(), str(path))
    except (InputError, UnicodeDecodeError) as error:
        raise _unreadable(path, "it is not YAML") from error
    if not isinstance(settings, dict) or not settings.keys() >= ALWAYS_STATED:
        raise _unreadable(path, "it does not hold the settings of a study")
    return settings


def _schedules(path: Path) -> KeptSchedules:
    _text(path)
    try:
        content = unpack(path)
    except ArtefactError as error:
        raise _unreadable(path, "it is truncated, or not compressed") from error
    return _record(KeptSchedules, content, path)


def _result(content: dict[str, Any], path: Path) -> SearchResult:
    """What ``best_json`` merged, taken apart again."""
    point_keys = {field.name for field in fields(DesignPoint)}
    whole = {key: value for key, value in content.items() if key not in point_keys}
    best = {key: value for key, value in content.items() if key in point_keys} if "accelerator" in content else None
    try:
        result = to_record(SearchResult, {**whole, "best": best, "status": content.get("status")}, str(path))
    except InputError as error:
        raise _unreadable(path, OTHER_LAYOUT) from error
    if not all(_holds_together(point) for point in (*result.per_hbm, result.best) if point is not None):
        raise _unreadable(path, OTHER_LAYOUT)
    return result


def _holds_together(point: DesignPoint) -> bool:
    """Whether a design has what those who read it rely on: plans with the stages they name, on a chip there can be."""
    chip = point.accelerator
    return (
        bool(point.models)
        and all(len(plan.stages) == plan.pp > 0 for plan in point.models.values())
        and (chip is None or min(chip.num_tc, chip.width, chip.depth, chip.num_vc, chip.width_vc, chip.glb_bytes) > 0)
    )


def _read(cls: type[Record], path: Path) -> Record:
    return _record(cls, _text(path), path)


def _record(cls: type[Record], text: bytes, path: Path) -> Record:
    try:
        return from_json(cls, text, str(path))
    except InputError as error:
        raise _unreadable(path, OTHER_LAYOUT) from error


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, (error.strerror or str(error)).lower()) from error


def _designs(path: Path) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    try:
        return pd.read_parquet(io.BytesIO(_text(path)))
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise _unreadable(path, "it is no table") from error


def _unreadable(path: Path, why: str) -> InputError:
    return InputError(f"{path} cannot be read ({why}); run the study again to make it anew")
