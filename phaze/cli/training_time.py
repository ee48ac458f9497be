"""``phaze training-time``: what a whole training takes on devices that exist, or on a designed
chip."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from GraphExtractor.permission import files_to_run
from phaze.cli import mode
from phaze.cli.exit_status import DONE, FAILED, NOTHING_FEASIBLE
from phaze.cli.printing import print_answer, print_shown
from phaze.settings.request import setting_groups
from phaze.studies.training_time.settings import all_settings

logger = logging.getLogger(__name__)


TRAINING_GROUPS: Mapping[str, Sequence[str]] = {
    "the whole training": ("tokens", "samples", "best", "batch_size_warmup"),
    "energy and money": ("price_per_device_hour", "device_power", "pue", "grid_intensity"),
    "failures and checkpoints": (
        "device_mtbf_hours",
        "checkpoint_bandwidth",
        "checkpoint_interval",
        "restart_time",
    ),
}


@dataclass(frozen=True, kw_only=True)
class TrainingTime(mode.Command):
    """Predict time, energy, money and carbon of a whole training, with a plan that is given or the
    best one."""

    settings: Mapping[str, object] = mode.setting_flags(
        all_settings, groups=lambda: {**TRAINING_GROUPS, **setting_groups()}
    )
    plan: Path | None = mode.plan_flag("--config")
    run_code: tuple[str, ...] = mode.run_code_flag()


def run(command: TrainingTime) -> int:
    """Price the training with the given plan or the best one, and print what it takes."""
    from phaze.studies.training_time.request import training_request

    training = training_request(command.plan, command.settings, files_to_run(command.run_code))
    for note in training.request.notes:
        logger.info("%s", note)
    from Estimator.plans.results import Status
    from phaze.report.tables.training_time_tables import training_tables
    from phaze.studies.training_time.run import price_training, training_json
    from Solver.results import SearchResult

    answer = price_training(training, command.progress)
    if isinstance(answer, SearchResult):
        from phaze.report.tables.search_tables import print_result

        as_json = json.dumps({"status": answer.status.value, "reason": answer.reason}, indent=2)
        print_shown(as_json, print_result, answer, command)
        return NOTHING_FEASIBLE if answer.status is Status.INFEASIBLE else FAILED
    document = json.dumps(training_json(training, answer), indent=2)
    print_answer(document, lambda: training_tables(answer, searched=training.searched), command)
    if answer.folder is not None:
        logger.info("files are in %s", answer.folder)
    return NOTHING_FEASIBLE if answer.training.status is Status.INFEASIBLE else DONE


MODE = mode.Mode(
    "training-time",
    mode.SEARCH_AND_PRICE,
    TrainingTime,
    run,
    ("--model NAME --device NAME --tokens N [FLAG ...]", "--plan FILE --tokens N [FLAG ...]"),
    mode.OF_PLANS,
)
