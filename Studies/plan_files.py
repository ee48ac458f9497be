"""What ``evaluate`` is asked, from a file (a plan in YAML, or the best.json of a search) and the command line.

Precedence, weakest first: defaults, the file, the command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from Common.errors import InputError
from Common.records import read_yaml
from Studies.annotations import Hardware, Mode
from Studies.config_files import read_config, setting_beside
from Studies.request import Request, request_fields, settings_for
from Studies.resolve import resolve

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


def evaluate_request(path: Path | None, given: Mapping[str, object]) -> Request:
    """The request for one plan, of a file and of what the command line says under any names of the settings.

    Raises:
        InputError: unknown keys, models or hardware, values that are not allowed or contradict each other.
    """
    if path is None:
        return resolve({}, given, Mode.EVALUATE)
    table = settings_for(Mode.EVALUATE)
    above = table.read(given, "command line")
    below = table.read(read_plan(path, above.get("model")), str(path))
    outdated = {old for new, olds in OUTDATES.items() if new in above and above[new] != below.get(new) for old in olds}
    return resolve({key: below[key] for key in below if key not in outdated}, above, Mode.EVALUATE, source=str(path))


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
    return {key: setting_beside(path.parent, str(key), value) for key, value in content.items()}


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
    keys = settings_for(Mode.EVALUATE).keys
    settings: dict[str, object] = {"model": name}
    study = path.with_name(STUDY_FILE)
    if study.is_file():
        stated = read_config(study)
        hardware = [field.key for field in request_fields() if field.about.hardware is Hardware.DEVICES]
        fixed = [*FROM_STUDY, *((*hardware, "cluster") if "device" in stated else ())]  # else the study designed its hardware
        settings |= {key: stated[key] for key in fixed if key in stated and key not in plan}
        lengths = settings.get("sequence_length")
        if isinstance(lengths, list) and len(lengths) == len(plans):  # one for each model
            settings["sequence_length"] = lengths[list(plans).index(name)]
    settings |= {key: value for key, value in plan.items() if key in keys}
    try:
        settings["stage_layers"] = [len(stage["layers"]) for stage in plan["stages"]]
        settings.setdefault("global_batch_size", plan["micro_batches_per_pipeline"] * plan["micro_batch_size"] * plan["dp"])
    except (KeyError, TypeError) as error:
        raise InputError(f"the plan of {name} in {path} is not one that a search wrote; give the best.json of a run") from error
    return settings
