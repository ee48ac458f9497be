"""What ``evaluate`` is asked, from a file (a plan in YAML, or the best.json of a search) and the command line.

Precedence, weakest first: defaults, the file, the command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from Common.errors import InputError
from Common.files import beside, named_file, user_path
from Common.records import read_yaml
from Estimator.devices.device import Device
from GraphExtractor.graph import Attention, Recompute
from Plans.pipeline.schedule import PipelineSchedule
from Plans.plan import Precision, TrainingPlan, check_plan, usual_precision
from Solver.placement.problem import GroupOrder
from Studies.evaluation import Evaluation
from Studies.plan_settings import EVALUATION, MODEL
from Studies.study import Study, model_beside, read_config

HARDWARE_KEYS = frozenset({"device", "cluster", "software"})
STUDY_FILE = "study.yaml"  # of a run, beside its best.json
FROM_STUDY = ("sequence_length", "attention", "sequence_parallel", "global_batch_size", "optimizer", "zero_stage")
OUTDATES = {  # what a file says about the second no longer holds where the command line changes the first
    "device": ("cluster", "software"),
    "devices": ("dp",),
    "dp": ("devices",),
    "pp": ("stage_layers",),
    "interleave": ("stage_layers", "schedule"),
    "schedule": ("interleave",),
}


def evaluation_from(path: Path | None, given: Mapping[str, object]) -> Evaluation:
    """Resolve what is evaluated from a file and what the command line says under any names of the settings.

    Raises:
        InputError: unknown keys, models or hardware, values that are not allowed or contradict each other.
    """
    from Estimator.devices.files import device_names, load_device, load_software
    from Estimator.hardware_files import load_cluster
    from GraphExtractor.models.registry import canonical_name, find_model

    above = EVALUATION.read(given, "command line")
    below = {} if path is None else EVALUATION.read(read_plan(path, above.get("model")), str(path))
    outdated = {old for new, olds in OUTDATES.items() if new in above and above[new] != below.get(new) for old in olds}
    below = {key: value for key, value in below.items() if key not in outdated}
    values = {key: value for key, value in EVALUATION.override(below, above).items() if value is not None}
    if "model" not in values:
        raise InputError("no model was given; name one with --model, for instance --model megatrongpt3")
    model = canonical_name(values["model"])
    if "device" not in values:
        raise InputError(f"no device was given; name one with --device: {', '.join(device_names())}")
    device = load_device(named_file("device", values["device"]))
    return Evaluation(
        model=model,
        sequence_length=values.get("sequence_length") or find_model(model).sequence_length,
        plan=_plan(values, device),
        device=device,
        cluster=load_cluster(named_file("cluster", values.get("cluster", device.cluster))),
        software=load_software(named_file("software", values.get("software", device.software))),
        strict=values.get("strict", False),
        graphs=Study(models=(), output=user_path(values["output"]) if "output" in values else None).folders.graphs,
    )


def read_plan(path: Path, model: str | None) -> dict[str, object]:
    """Settings in a plan file, or those of ``model``'s plan (None: the first model's) in the best.json of a search.

    Raises:
        InputError: the file is not readable, not a mapping, or has no plan of the model.
    """
    content = _parsed(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds a {type(content).__name__}, but a plan is a mapping of settings such as 'tp: 8', or a best.json"
        )
    if "optimal" in content:
        return _of_search(content, path, model)
    return {key: _resolved(path.parent, str(key), value) for key, value in content.items()}


def _resolved(folder: Path, key: str, value: object) -> object:
    if key.replace("-", "_") in {MODEL.key, *MODEL.aliases}:
        return model_beside(folder, value)
    return beside(folder, value) if key in HARDWARE_KEYS else value


def _parsed(path: Path) -> Any:
    """Content of a YAML file, or of a JSON file, which a search may have made large."""
    if path.suffix != ".json":
        return read_yaml(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {path}: {reason}; give the path of an existing plan file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}; correct it") from error


def _of_search(content: Mapping[str, Any], path: Path, model: str | None) -> dict[str, object]:
    """The settings that a search chose for one of its models, and those of the study beside it."""
    from GraphExtractor.models.registry import canonical_name

    plans = content.get("models")
    if not isinstance(plans, dict) or not plans:
        raise InputError(f"{path} holds no plan: nothing was feasible in that search; give another file")
    name = next(iter(plans)) if model is None else canonical_name(model)
    plan = plans.get(name)
    if not isinstance(plan, dict):
        raise InputError(f"{path} holds no plan of {name}; it holds those of {', '.join(map(str, plans))}")
    settings: dict[str, object] = {"model": name}
    study = path.with_name(STUDY_FILE)
    if study.is_file():
        stated = read_config(study)
        fixed = [*FROM_STUDY, *(HARDWARE_KEYS if "device" in stated else ())]  # else the study designed its hardware
        settings |= {key: stated[key] for key in fixed if key in stated}
    settings |= {key: value for key, value in plan.items() if key in EVALUATION.keys}
    try:
        settings["stage_layers"] = [len(stage["layers"]) for stage in plan["stages"]]
        settings.setdefault("global_batch_size", plan["micro_batches_per_pipeline"] * plan["micro_batch_size"] * plan["dp"])
    except (KeyError, TypeError) as error:
        raise InputError(f"the plan of {name} in {path} is not one that a search wrote; give the best.json of a run") from error
    return settings


def _plan(values: Mapping[str, Any], device: Device) -> TrainingPlan:
    degrees = {name: values.get(name, 1) for name in ("tp", "pp", "cp")}
    dp = _replicas(values.get("dp"), values.get("devices"), degrees)
    converters = {
        "recompute": Recompute,
        "precision": Precision,
        "attention": Attention,
        "group_order": GroupOrder,
    }
    names = {field.name for field in fields(TrainingPlan)}
    stated = {key: converters.get(key, lambda same: same)(value) for key, value in values.items() if key in names}
    defaults = {
        "precision": usual_precision(device),
        "global_batch_size": dp * values.get("micro_batch_size", 1),
        "zero_stage": 3 if values.get("fsdp") else 0,
    }
    gpipe = _is_gpipe(values.get("schedule"), values.get("interleave", 1))
    plan = TrainingPlan(**(defaults | stated | {"dp": dp, "gpipe": gpipe}))
    check_plan(plan)
    return plan


def _replicas(dp: int | None, devices: int | None, degrees: Mapping[str, int]) -> int:
    """Data parallel degree: as given, or what a number of devices leaves for it."""
    if devices is None:
        return dp or 1
    replica = 1
    for degree in degrees.values():
        replica *= degree
    shown = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
    if devices % replica:
        raise InputError(f"devices is {devices}, which is no multiple of {shown} = {replica}; give a multiple, or other degrees")
    if dp is not None and dp * replica != devices:
        raise InputError(
            f"devices is {devices}, but {shown} x dp {dp} = {dp * replica}; leave one of devices and dp out, or make them agree"
        )
    return devices // replica


def _is_gpipe(schedule: str | None, interleave: int) -> bool:
    """Whether the schedule is GPipe; refuses a name that ``interleave`` chunks per stage contradict."""
    if schedule == PipelineSchedule.ONE_F_ONE_B and interleave > 1:
        raise InputError(
            f"schedule 1f1b runs one chunk per stage, given interleave {interleave}; give schedule interleaved, or interleave 1"
        )
    if schedule == PipelineSchedule.INTERLEAVED and interleave == 1:
        raise InputError("schedule interleaved needs several chunks per stage, given interleave 1; give interleave 2 or more")
    return schedule == PipelineSchedule.GPIPE
