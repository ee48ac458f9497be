"""One plan as the command line says it: by settings, in a file of a plan, or as a launch of another
program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from GraphExtractor.permission import files_to_run
from phaze.cli import mode
from phaze_common.errors import InputError
from phaze_common.files import user_path

if TYPE_CHECKING:
    from phaze.settings.launched import LaunchReading
    from phaze.settings.request import Request
    from phaze.studies.evaluation import Evaluation

logger = logging.getLogger(__name__)
USAGES = (
    "--model NAME --device NAME [FLAG ...]",
    "--plan FILE [FLAG ...]",
    "--from FILE [FLAG ...]",
)


@dataclass(frozen=True, kw_only=True)
class OnePlan(mode.Command):
    """What a mode is given that prices one plan."""

    settings: Mapping[str, object] = mode.setting_flags(mode.plan_settings)
    plan: Path | None = mode.plan_flag()
    launcher: str | None = mode.flag(
        None,
        "launch file of another program: a Megatron-LM command, a configuration of DeepSpeed, "
        "torchtitan (of several FILE:NAME), accelerate, NeMo or Megatron Bridge, or arguments of "
        "Hugging Face's Trainer",
        "FILE",
        ("--from",),
    )
    ignore: tuple[str, ...] = mode.flag(
        (),
        "with --from: price the launch without what this key of it changes, which no plan says; "
        "may be repeated, or a list with commas",
        "KEY",
    )
    run_code: tuple[str, ...] = mode.run_code_flag()


def read(command: OnePlan) -> tuple[Request, LaunchReading | None]:
    """The request for the plan, and what was read of a launch of another program.

    Raises: InputError: what is given contradicts itself, or code may not be run.
    """
    from phaze.runs.plan_files import evaluate_request
    from phaze.settings.problem import check_code

    launch = None
    if command.launcher is None:
        if command.ignore:
            raise InputError(
                "--ignore is about keys of a launch file, and none is given; name one with "
                "--from, or leave it out"
            )
        request = evaluate_request(command.plan, command.settings, files_to_run(command.run_code))
    else:
        launch = _launched(command)
        request = _request(command, launch)
        launch = launch.taking(_taken(command, launch, request))
    check_code(request)
    for note in request.notes:
        logger.info("%s", note)
    return request, launch


def as_priced(
    launch: LaunchReading | None, command: OnePlan, evaluation: Evaluation
) -> LaunchReading | None:
    """The launch, under the framework and on the nodes that it was priced for where nothing says
    others."""
    if launch is not None and "software" not in command.settings:
        launch = launch.under(evaluation.machine.software.name)
    if launch is not None and not {"devices", "dp"} & command.settings.keys():
        node = evaluation.machine.cluster.node_size
        launch = launch.on_nodes(evaluation.iteration.site_devices, node)
    return launch


def _launched(command: OnePlan) -> LaunchReading:
    """What a launch file of another program says."""
    from GraphExtractor.models.registry import canonical_name, find_model
    from phaze.exports.launchers import read_launch
    from phaze.settings.request import settings_for
    from phaze.settings.specified_constants import dotted
    from phaze_common.setting_fields import Mode
    from phaze_common.settings import COMMAND_LINE

    path = user_path(str(command.launcher))
    if command.plan is not None:
        raise InputError(f"--from {path} and --plan {command.plan} are two plans; give one of them")
    table = settings_for(Mode.EVALUATE)
    specified = table.canonical(dotted(command.settings), COMMAND_LINE)
    # what is wrong on the command line is not said of the file
    values = table.read(specified, COMMAND_LINE)
    if "model" in values:
        find_model(canonical_name(values["model"]))
    found = read_launch(path, {key: _plain(value) for key, value in specified.items()})
    try:
        return found.ignoring(command.ignore)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _request(command: OnePlan, launch: LaunchReading) -> Request:
    """The plan of a launch, under what the command line says."""
    from phaze.settings.resolve import resolve
    from phaze_common.setting_fields import Mode

    path, found = user_path(str(command.launcher)), launch.settings
    read = ", ".join(f"{key} {value}" for key, value in found.items() if value is not None)
    logger.info("read from %s: %s", path, read)
    if launch.no_model and "model" not in {**found, **command.settings}:
        raise InputError(
            f"{path}: its model is not read ({launch.no_model}); name it with --model, or give "
            "its config.json"
        )
    request = resolve(found, command.settings, Mode.EVALUATE, source=str(path))
    for key in found.keys() & command.settings.keys():
        if found[key] is not None and str(found[key]) != str(command.settings[key]):
            message = "%s is %s, as the command line says, and not %s as the file does"
            logger.info(message, key, command.settings[key], found[key])
    _check_batch(request, path)
    return request


def _taken(command: OnePlan, launch: LaunchReading, request: Request) -> dict[str, object]:
    """The batches, replicas and lengths that are priced though nobody specifies them."""
    from phaze.settings.problem import single_plan
    from phaze.settings.specified_constants import dotted
    from phaze_common.settings import COMMAND_LINE

    typed = mode.plan_settings().canonical(dotted(command.settings), COMMAND_LINE)
    specified = {**launch.settings, **typed}
    plan = single_plan(request)
    found = {
        "micro_batch_size": plan.micro_batch_size,
        "global_batch_size": plan.global_batch_size,
        "dp": plan.dp,
        "sequence_length": request.workload.sequence_length[0],
    }
    if "sequence_length" in request.workload.models[0].name:
        del found["sequence_length"]
    return {
        key: value
        for key, value in found.items()
        if specified.get(key) is None and (key != "dp" or "devices" not in specified)
    }


def _check_batch(request: Request, path: Path) -> None:
    """Refuse a batch that does not come out in whole micro-batches, as all of these programs do."""
    from phaze.settings.problem import single_plan

    plan = single_plan(request)
    rows = plan.micro_batch_size * plan.dp
    if plan.global_batch_size % rows:
        raise InputError(
            f"{path}: a global batch of {plan.global_batch_size} is no multiple of {rows}, "
            f"micro-batch {plan.micro_batch_size} "
            f"x dp {plan.dp}, and no launch of it would start; change one of them"
        )
