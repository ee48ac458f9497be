"""Settings of ``phaze evaluate`` out of a configuration of torchtitan 0.3.0, a Python file, by its syntax tree: nothing is run.

What is read are the arguments of ``ParallelismConfig(...)``, ``TrainingConfig(...)`` and their like where they are written out or
named by a constant at the top of the file. An argument that is left out has torchtitan's own default.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from Common.choices import PipelineSchedule
from Common.errors import InputError
from third_party.exports.refusals import ON_HOST
from third_party.exports.torchtitan_files import SCHEDULES

FLAVORS = {  # of model_registry(...), by folder and name, as phaze calls the same sizes
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3-405b",
    ("qwen3", "0.6B"): "qwen3-0.6b",
    ("qwen3", "1.7B"): "qwen3-1.7b",
    ("qwen3", "4B"): "qwen3-4b",
    ("qwen3", "8B"): "qwen3-8b",
    ("qwen3", "14B"): "qwen3-14b",
    ("qwen3", "32B"): "qwen3-32b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
}

UNKNOWN = "an expression"  # in place of a value that only running the file would tell


@dataclass(frozen=True)
class _Arguments:
    """Arguments of a call that are known, by name."""

    values: Mapping[str, object]
    call: str

    def size(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{self.call} has {name}={value!s:.60}; only whole numbers that are written out can be read")
        return value

    def text(self, name: str, default: str) -> str:
        return str(self.values.get(name, default))


def settings_of(text: str) -> dict[str, object]:
    """The plan in ``text``, a Python file, as settings of ``evaluate``; what cannot be known is left out.

    Raises:
        InputError: it is no Python, configures nothing, or configures what no plan of phaze is.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the configuration is no Python file ({error}); give one that torchtitan loads") from error
    calls = _calls(tree)
    if "ParallelismConfig" not in calls and "TrainingConfig" not in calls:
        raise InputError(
            "the file has neither ParallelismConfig(...) nor TrainingConfig(...); give a configuration of torchtitan 0.3"
        )
    parallel = calls.get("ParallelismConfig", _Arguments({}, "ParallelismConfig"))
    training = calls.get("TrainingConfig", _Arguments({}, "TrainingConfig"))
    found: dict[str, object] = {
        "tp": parallel.size("tensor_parallel_degree", 1),
        "pp": parallel.size("pipeline_parallel_degree", 1),
        "cp": parallel.size("context_parallel_degree", 1),
        "ep": parallel.size("expert_parallel_degree", 1),
        "sequence_parallel": bool(parallel.values.get("enable_sequence_parallel", True)),
        "sequence_length": training.size("seq_len", 2048),
        "optimizer": "adam",
        "attention": "flash",
    }
    found |= _sharding(parallel) | _batches(parallel, training) | _stages(parallel) | _arithmetic(calls, training)
    found |= _recomputed(tree) | _model(tree)
    return found


def _sharding(parallel: _Arguments) -> dict[str, object]:
    replicas, shards = parallel.size("data_parallel_replicate_degree", 1), parallel.size("data_parallel_shard_degree", -1)
    cp, pipelined = parallel.size("context_parallel_degree", 1), parallel.size("pipeline_parallel_degree", 1) > 1
    policy = parallel.text("fsdp_reshard_after_forward", "default")
    if shards == -1:  # all ranks that are left: the file does not say how many
        return {"zero_stage": _stage(policy, pipelined)}
    if replicas > 1 and shards * cp > 1:
        raise InputError(
            f"data_parallel_replicate_degree {replicas} with {shards * cp} shards is hybrid sharding, which no zero_stage is; "
            "give one of them"
        )
    stage: dict[str, object] = {"zero_stage": _stage(policy, pipelined) if shards * cp > 1 else 0}
    return {"dp": replicas * shards} | (stage if replicas * shards * cp > 1 else {})


def _stage(policy: str, pipelined: bool) -> int:
    """In a pipeline weights and gradients stay whole between micro-batches, whatever the policy."""
    if pipelined:
        return 1
    return 2 if policy == "never" else 3


def _batches(parallel: _Arguments, training: _Arguments) -> dict[str, object]:
    local, batch = training.size("local_batch_size", 8), training.size("global_batch_size", -1)
    pipelined = parallel.size("pipeline_parallel_degree", 1) > 1
    micro = parallel.size("pipeline_parallel_microbatch_size", 1) if pipelined else local
    if batch > 0:
        return {"micro_batch_size": micro, "global_batch_size": batch}
    shards = parallel.size("data_parallel_shard_degree", -1)
    found: dict[str, object] = {"micro_batch_size": micro}
    if shards > 0:
        found["global_batch_size"] = local * shards * parallel.size("data_parallel_replicate_degree", 1)
    return found


def _stages(parallel: _Arguments) -> dict[str, object]:
    pp = parallel.size("pipeline_parallel_degree", 1)
    if pp == 1:
        return {}
    name = parallel.text("pipeline_parallel_schedule", "1F1B")
    schedule = next((each for each, called in SCHEDULES.items() if called.lower() == name.lower()), None)
    if schedule is None:
        raise InputError(f"schedule {name!r:.60} is none that phaze prices; give one of {', '.join(SCHEDULES.values())}")
    parts = parallel.values.get("module_fqns_per_model_part")
    if parts is None:
        # torchtitan itself makes two chunks where a schedule has several
        whole: dict[str, object] = {"schedule": schedule.value, "interleave": 1 + (schedule is PipelineSchedule.INTERLEAVED)}
        return whole
    if not isinstance(parts, list) or not parts or not all(isinstance(part, list) and part for part in parts) or len(parts) % pp:
        raise InputError(f"module_fqns_per_model_part must list the modules of a multiple of {pp} parts")
    counts = [sum(name != "norm" for name in part) for part in parts]  # the norm and the head are one layer
    return {"schedule": schedule.value, "interleave": len(parts) // pp, "stage_layers": counts}


def _arithmetic(calls: Mapping[str, _Arguments], training: _Arguments) -> dict[str, object]:
    width = {"bfloat16": "bf16", "float32": "fp32"}.get(training.text("mixed_precision_param", "bfloat16"))
    if any(name.startswith("Float8LinearConverter") for name in calls):
        width = "fp8"
    found: dict[str, object] = {} if width is None else {"precision": width}
    if training.values.get("enable_cpu_offload") is True:
        found["offload"] = list(ON_HOST.terms)
    if "CompileConfig" in calls:
        found["overlap_tensor"] = calls["CompileConfig"].values.get("enable_async_tensor_parallel", False) is True
    return found


def _recomputed(tree: ast.Module) -> dict[str, object]:
    given = next(
        (each.value for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg == "activation_checkpoint"), None
    )
    if isinstance(given, ast.Constant) and given.value is None:
        return {"recompute": "none"}
    name = _called(given) if isinstance(given, ast.Call) else ""
    return (
        {"recompute": "full"} if name == "FullAC" else {}
    )  # selective of single operators, torchtitan's default, has no name here


def _model(tree: ast.Module) -> dict[str, object]:
    constants = _constants(tree)
    if isinstance(constants.get("MODEL"), str):
        return {"model": constants["MODEL"]}
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call) and _called(each) == "model_registry"):
        flavor = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        known = [name for (folder, size), name in FLAVORS.items() if size == flavor and _imports(tree, folder)]
        if len(known) == 1:
            return {"model": known[0]}
    return {}


def _imports(tree: ast.Module, folder: str) -> bool:
    homes = (each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom))
    return any(folder in home.split(".") for home in homes)


def _constants(tree: ast.Module) -> dict[str, object]:
    return {
        target.id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _called(call: ast.Call) -> str:
    """Name of what is called; of ``FullAC.Config(...)`` its class."""
    function = call.func
    if isinstance(function, ast.Attribute):
        home = function.value
        own = home.id if isinstance(home, ast.Name) else home.attr if isinstance(home, ast.Attribute) else ""
        return own if function.attr == "Config" else function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _calls(tree: ast.Module) -> dict[str, _Arguments]:
    """The arguments of the first call of each name."""
    constants, found = _constants(tree), dict[str, _Arguments]()
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        name = _called(call)
        if name and name not in found:
            found[name] = _Arguments(dict(_literals(call, constants)), name)
    return found


def _literals(call: ast.Call, constants: Mapping[str, object]) -> list[tuple[str, object]]:
    """Arguments that are written out or constants of the file; others are ``UNKNOWN``."""
    known = list[tuple[str, object]]()
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        value: object
        if isinstance(keyword.value, ast.Name):
            value = constants.get(keyword.value.id, UNKNOWN)
        else:
            try:
                value = ast.literal_eval(keyword.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                value = UNKNOWN
        known.append((keyword.arg, value))
    return known
