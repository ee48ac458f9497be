"""The training of a run's plan, as ``phaze train`` left it beside the run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from Estimator.plans.plan import Plan
from Estimator.plans.results import PipelineReport
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
    """A training, what its processes measured, and what was predicted of its pipeline."""

    record: TrainRecord
    job: JobRecord
    predicted: PipelineReport | None


def trained_run(folder: Path, plan: Plan, predicted: PipelineReport) -> TrainedRun | None:
    """The training of ``plan`` beside the run in ``folder``, where there is one to be read."""
    place = folder / TRAIN_FOLDER
    if not (place / TRAIN_FILE).is_file() or not (place / MEASURED_FILE).is_file():
        return None
    try:
        record = _read(TrainRecord, place / TRAIN_FILE)
        job = _read(JobRecord, place / MEASURED_FILE)
    except PhazeError as error:
        logger.warning("the training in %s is left out: %s", place, error)
        return None
    layers = ([each.layers for each in stages] for stages in (record.stages, plan.stages))
    if record.model != plan.model or next(layers) != next(layers):
        logger.info("the training in %s is of another plan and left out", place)
        return None
    return TrainedRun(record, job, predicted)


def _read(kind: type[Record], path: Path) -> Record:
    return to_record(kind, TRAINING.current(read_json(path, "a training"), str(path)), str(path))
