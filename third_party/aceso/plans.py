"""Plans whose stages differ, operator by operator, read and written as Aceso's configuration
files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from phaze_common.echo import as_given
from phaze_common.errors import InputError
from phaze_common.files import read_json
from third_party.cases import integer

from .models import Model, find_model
from .resharding import Choice

MOST = 2**31
PER_OPERATOR = (
    "model_parallel_size_of_each_op",
    "data_parallel_size_of_each_op",
    "algo_of_each_op",
    "recompute_ops",
)


@dataclass(frozen=True)
class StagePlan:
    """Consecutive operators on the same devices: how each runs, and whether its forward pass is
    repeated in backward."""

    devices: int
    choices: tuple[Choice, ...]
    recomputed: tuple[bool, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that Aceso's cost model prices; ``micro_batch`` is over all data parallel
    replicas."""

    model: Model
    global_batch: int
    micro_batch: int
    stages: tuple[StagePlan, ...]

    @property
    def devices(self) -> int:
        """Of all stages."""
        return sum(stage.devices for stage in self.stages)

    @property
    def operator_ends(self) -> tuple[int, ...]:
        """Operators of all stages before each, and of all."""
        return tuple(accumulate((len(stage.choices) for stage in self.stages), initial=0))

    @property
    def device_ends(self) -> tuple[int, ...]:
        """Devices of all stages before each, and of all."""
        return tuple(accumulate((stage.devices for stage in self.stages), initial=0))


def read_plan(path: Path) -> Plan:
    """A plan from one of Aceso's files. Raises InputError: the file is missing or no plan; says
    what is wrong."""
    return plan_from(read_json(path, "a plan that Aceso wrote"), str(path))


def plan_from(document: Any, source: str) -> Plan:
    """A plan from its JSON document. Raises InputError: a key is missing or wrong, or the parts of
    the plan contradict each other."""
    if not isinstance(document, dict):
        raise InputError(
            f"{source} holds {as_given(document)}; a plan is an object with keys such as "
            "num_stages, num_gpus"
        )
    layers = document.get("num_layers")
    number = None if isinstance(layers, list) else integer(layers, f"{source}: num_layers", 1, MOST)
    model = find_model(str(document.get("model_name")), str(document.get("model_size")), number)
    stages = _whole(document, "num_stages", source)
    gpus, counts = (
        [
            integer(each, f"{source}: {key}", 1, MOST)
            for each in _list(document, key, stages, source)
        ]
        for key in ("num_gpus", "num_ops_in_each_stage")
    )
    lists = [_list(document, key, stages, source) for key in PER_OPERATOR]
    parts = zip(gpus, counts, zip(*lists, strict=True), strict=True)
    return Plan(
        model,
        _whole(document, "global_batch_size", source),
        _whole(document, "micro_batch_size", source),
        tuple(_stage(*each, source) for each in parts),
    )


def _whole(document: Mapping[str, Any], key: str, source: str) -> int:
    if key not in document:
        raise InputError(f"{source}: {key} is missing; give a plan that Aceso wrote")
    return integer(document[key], f"{source}: {key}", 1, MOST)


def _list(document: Mapping[str, Any], key: str, length: int, source: str) -> list[Any]:
    given = document.get(key)
    if not isinstance(given, list) or len(given) != length:
        raise InputError(
            f"{source}: {key} must be a list with one entry for each of the {length} stages"
        )
    return given


def _stage(devices: int, operators: int, parts: Sequence[Any], source: str) -> StagePlan:
    for key, part in zip(PER_OPERATOR, parts, strict=True):
        if not isinstance(part, list) or len(part) != operators:
            raise InputError(
                f"{source}: {key} must have one value for each of the {operators} operators of "
                "its stage"
            )
    widths, degrees, algorithms, recomputed = (
        [integer(value, f"{source}: {key}", least, most) for value in part]
        for key, part, least, most in zip(
            PER_OPERATOR, parts, (1, 1, 0, 0), (MOST, MOST, MOST, 1), strict=True
        )
    )
    for tp, dp in zip(widths, degrees, strict=True):
        if tp * dp != devices:
            raise InputError(
                f"{source}: an operator has tensor parallel width {tp} and data parallel degree "
                f"{dp} in a stage of {devices} GPUs; their product must be the number of GPUs"
            )
    choices = tuple(Choice(*each) for each in zip(widths, degrees, algorithms, strict=True))
    return StagePlan(devices, choices, tuple(map(bool, recomputed)))


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as Aceso's JSON."""
    return {
        "model_name": plan.model.family.name,
        "model_size": plan.model.size,
        **plan.model.facts,
        "global_batch_size": plan.global_batch,
        "micro_batch_size": plan.micro_batch,
        "num_stages": len(plan.stages),
        "num_gpus": [stage.devices for stage in plan.stages],
        "checkpoint_activations": [any(stage.recomputed) for stage in plan.stages],
        "resharding_stages": [
            plan.model.family.reshards and len(set(stage.choices)) > 1 for stage in plan.stages
        ],
        "num_ops_in_each_stage": [len(stage.choices) for stage in plan.stages],
        "model_parallel_size_of_each_op": [
            [each.tp for each in stage.choices] for stage in plan.stages
        ],
        "data_parallel_size_of_each_op": [
            [each.dp for each in stage.choices] for stage in plan.stages
        ],
        "recompute_ops": [[int(each) for each in stage.recomputed] for stage in plan.stages],
        "algo_of_each_op": [[each.algorithm for each in stage.choices] for stage in plan.stages],
    }


def plan_text(plan: Plan) -> str:
    """The plan as the text of one of Aceso's files."""
    return json.dumps(plan_document(plan))
