"""Answers a request for a training: searches its plan where none is given, and prices it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Estimator.plans.plan import plan_mapping
from Estimator.plans.results import Status
from phaze.runs.run_directory import RUN_FILES, Holds, Origin, check_replaceable, refuse_other_kind
from phaze.settings.problem import check_code
from phaze.settings.request import Request
from phaze.studies.evaluation import Evaluation, evaluation_of, prepared
from phaze.studies.training_time.records import TrainingTime
from phaze.studies.training_time.request import TrainingRequest, plan_of_search
from phaze.studies.training_time.training import training_time_of
from phaze_common import run_files
from phaze_common.errors import ArtefactError, InputError
from phaze_common.file_formats import STUDY, TRAINING_TIME
from phaze_common.files import MAX_TEXT_BYTES, artefact_bytes, check_writable, write_atomically
from phaze_common.json_text import parse_json
from phaze_common.progress import Progress, SilentProgress
from phaze_common.records import to_json
from phaze_common.sealed import digest_of, with_digest
from Solver.results import SearchResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PricedTraining:
    """What a training takes with the plan of ``evaluation``, which ``search`` may have found."""

    training: TrainingTime
    evaluation: Evaluation
    search: SearchResult | None
    folder: Path | None


@dataclass(frozen=True)
class _Manifest(Origin):
    """Provenance of a training whose plan was given; ``files`` are digests of its own."""

    files: dict[str, str]


def price_training(
    asked: TrainingRequest, progress: Progress | None = None
) -> PricedTraining | SearchResult:
    """Answer ``asked``; the result of the search alone where no plan is feasible.

    A search leaves its run directory, with ``training_time.json`` in it; a plan that is given
    leaves one where there is an ``output``.

    Raises:
        InputError: what is asked does not fit together after all.
        PhazeError: a file cannot be written, or a solver failed.
    """
    request, search = asked.request, None
    folder = request.folders.run if asked.searched or request.output.output is not None else None
    if folder is not None and not asked.searched:
        refuse_other_kind(folder, Holds.TRAINING, "--output")
    check_code(request)
    if asked.searched:
        from phaze.studies.search_run import run_search

        search = run_search(request, progress or SilentProgress())
        if search.best is None:
            return search
        request = plan_of_search(request.folders.run / run_files.BEST, request)
    if folder is not None:
        check_writable(folder)
        check_replaceable(folder, (*RUN_FILES, run_files.TRAINING_TIME))
    plan = prepared(request)
    device = request.records.device
    power = None if device is None or device.board_power is None else device.board_power.value
    training = training_time_of(plan, asked.settings, asked.warm_up, power)
    answer = PricedTraining(training, evaluation_of(request, plan), search, folder)
    if folder is not None:
        _write(folder, asked, request, answer)
    return answer


def _set_other_aside(folder: Path, asked: TrainingRequest) -> None:
    """Keep the answer to another question that is there, under a name of its own, which is said."""
    path = folder / run_files.TRAINING_TIME
    if not path.is_file():
        return
    try:
        content = artefact_bytes(path, MAX_TEXT_BYTES)
        document = parse_json(content, str(path))
    except ArtefactError as error:
        raise InputError(
            f"{error}, so phaze did not write it; move it away, or give another --output"
        ) from error
    except InputError:
        document = None
    there = document.get("settings") if isinstance(document, dict) else None
    if there == parse_json(json.dumps(asked.as_mapping(), default=str), run_files.TRAINING_TIME):
        return
    kept = folder / f"{path.stem}-{digest_of(content)[:8]}{path.suffix}"
    path.replace(kept)
    logger.warning("%s held the answer to another question, which is kept as %s", path, kept.name)


def training_json(asked: TrainingRequest, answer: PricedTraining) -> dict[str, Any]:
    """The answer as a document, with what was asked, the plan and the hardware it is for."""
    evaluation = answer.evaluation
    hardware, plan = evaluation.hardware, evaluation.plan
    training: dict[str, Any] = json.loads(to_json(answer.training))
    del training["plan"]  # which is told by the keys of its settings
    chip, search = hardware.accelerator, answer.search
    document = {
        "model": plan.model,
        "device": hardware.device,
        "accelerator": None if chip is None else json.loads(to_json(chip)),
        "cluster": hardware.cluster,
        "software": hardware.software,
        "plan": {**plan_mapping(evaluation.uniform), "sequence_length": plan.sequence_length},
        "plan_searched": search is not None,
        "plan_proven": None if search is None else search.status is Status.OPTIMAL,
        **training,
        "settings": asked.as_mapping(),
    }
    return TRAINING_TIME.stamped(document)


def _write(folder: Path, asked: TrainingRequest, request: Request, answer: PricedTraining) -> None:
    """``training_time.json``, last; of a plan that was given also its request and provenance."""
    import yaml

    _set_other_aside(folder, asked)
    document = json.dumps(with_digest(training_json(asked, answer)), indent=2).encode()
    if answer.search is None:
        study = yaml.safe_dump(
            STUDY.stamped(asked.as_mapping()), sort_keys=False, default_flow_style=None
        ).encode()
        files = {run_files.STUDY: digest_of(study), run_files.TRAINING_TIME: digest_of(document)}
        write_atomically(
            folder / run_files.MANIFEST,
            _Manifest.of(request.records.contents, files=files).sealed(),
        )
        write_atomically(folder / run_files.STUDY, study)
    write_atomically(folder / run_files.TRAINING_TIME, document)
