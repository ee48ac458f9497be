"""The training of a run's plan, as ``phaze train`` left it beside the run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from Estimator.plans.plan import Plan
from phaze.runtime.training.records import (
    MEASURED_FILE,
    TRAIN_FILE,
    TRAIN_FOLDER,
    JobRecord,
    TrainRecord,
)
from phaze_common.errors import PhazeError
from phaze_common.file_formats import TRAINING
from phaze_common.files import read_json
from phaze_common.records import to_record

logger = logging.getLogger(__name__)
Record = TypeVar("Record")


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A training: what it says of itself, and what its processes measured."""

    record: TrainRecord
    job: JobRecord


def trained_run(folder: Path, plan: Plan) -> TrainedRun | None:
    """The training beside the run in ``folder``; None where there is none of ``plan``, or it cannot
    be read."""
    place = folder / TRAIN_FOLDER
    if not (place / TRAIN_FILE).is_file() or not (place / MEASURED_FILE).is_file():
        return None
    try:
        record, job = (
            _read(TrainRecord, place / TRAIN_FILE),
            _read(JobRecord, place / MEASURED_FILE),
        )
    except PhazeError as error:
        logger.warning("the training in %s is left out: %s", place, error)
        return None
    if record.model != plan.model or [each.layers for each in record.stages] != [
        each.layers for each in plan.stages
    ]:
        logger.info("the training in %s is of another plan and left out", place)
        return None
    return TrainedRun(record, job)


def _read(kind: type[Record], path: Path) -> Record:
    return to_record(kind, TRAINING.current(read_json(path, "a training"), str(path)), str(path))
