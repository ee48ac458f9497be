"""Settings of ``phaze evaluate`` out of a configuration of accelerate, YAML: FSDP of both versions,
DeepSpeed, Megatron-LM.

It says how processes share the model. The model, its sequences and the micro-batch are arguments of
a training script's own objects, so the command line gives them; ``--global-batch-size`` too where
gradients are accumulated.
"""

from __future__ import annotations

from collections.abc import Mapping

from Estimator.plans.offload import Offload
from phaze.exports.deepspeed.reader import (
    INSTEAD_OF_DEEPSPEED,
    OF_COMMAND_LINE,
    ON_NVME,
    own_gradients,
    zero_stage,
)
from phaze.exports.given_keys import GivenKeys, is_off, refused, truth
from phaze.exports.launch_batches import accumulation, devices_of_a_replica
from phaze.settings.launched import LaunchReading
from phaze_common.errors import InputError
from phaze_common.yaml_files import parse_yaml

FORMATS = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
# of FSDP 1 (torch.distributed.fsdp.ShardingStrategy), in the order of their numbers, and the ZeRO
# stage of each
STRATEGIES = {
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "NO_SHARD": 0,
    "HYBRID_SHARD": 3,
    "HYBRID_SHARD_ZERO2": 2,
}
REPLICATED = (
    "NO",
    *(f"MULTI_{kind}" for kind in ("GPU", "NPU", "XPU", "HPU", "MLU")),
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_NEURON",
)
KINDS = (*REPLICATED, "FSDP", "DEEPSPEED", "MEGATRON_LM", "TP")
MARKS = (
    "compute_environment",
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_training_function",
    "fsdp_config",
    "deepspeed_config",
    "megatron_lm_config",
    "parallelism_config",
)
SHARES = "parallelism_config.parallelism_config_"  # before the name of a size
FSDP = "fsdp_config.fsdp_"
DEEPSPEED = "deepspeed_config."
MEGATRON = "megatron_lm_config.megatron_lm_"
STEPS = {  # micro-batches of an iteration
    "DEEPSPEED": f"{DEEPSPEED}gradient_accumulation_steps",
    "MEGATRON_LM": f"{MEGATRON}num_micro_batches",
}


def recognises(content: object) -> bool:
    """Whether parsed YAML has accelerate's marks: how processes share a model, and a key beside it
    that only it has."""
    return (
        isinstance(content, dict)
        and "distributed_type" in content
        and any(name in content for name in MARKS)
    )


def read(text: str, command_line: Mapping[str, str] | None = None) -> LaunchReading:
    """The plan in ``text``, YAML, as settings of ``evaluate``, and what became of its keys; what
    cannot be known is left out.

    Settings ``command_line`` say the micro-batch of which the file has a number.

    Raises: InputError: it is no YAML, has no mark of accelerate, or has values that accelerate does
        not take.
    """
    content = parse_yaml(text, "the configuration")
    if not isinstance(content, dict) or not recognises(content):
        raise InputError(
            f"the configuration has no distributed_type beside one of {', '.join(MARKS)}; give "
            "one of accelerate"
        )
    content = {str(key): value for key, value in content.items()}
    given = GivenKeys.of("accelerate", content, command_line)
    kind = _kind(given)
    found: dict[str, object] = {"tp": 1, "pp": 1, "cp": 1, "ep": 1} | _axes(given)
    if kind == "FSDP":
        found |= _fsdp(given)
    elif kind == "DEEPSPEED":
        found |= _deepspeed(given)
    elif kind == "MEGATRON_LM":
        found |= _megatron(given)
    else:
        found["zero_stage"] = 0
    if kind not in STEPS:
        found["overlap_gradients"] = True  # torch always reduces them while the backward pass runs
    steps = STEPS.get(kind, "") if "zero_stage" in found else ""
    count = (given.size(steps) or 1) if steps else 1
    found |= _precision(given, kind) | _replicas(given, found)
    found |= own_gradients(found, given.command_line) if kind == "DEEPSPEED" else {}
    found |= accumulation(given.command_line, count, found, steps, given.untold)
    return given.reading(found, nodes=_count(given, "num_machines"))


def _kind(given: GivenKeys) -> str:
    """How processes share the model."""
    kind = str(given.content["distributed_type"] or "NO").strip("'\"").upper()
    kind = "NO" if kind == "FALSE" else kind  # YAML reads a bare NO as false
    of_processors = given.flag("use_cpu")
    if of_processors or kind in ("MULTI_CPU", "XLA", "TPU"):
        given.untold["use_cpu" if of_processors else "distributed_type"] = (
            "it trains on processors or by XLA, and is priced as replicas on the device that is "
            "given"
        )
    elif kind not in KINDS:
        raise refused("distributed_type", given.value("distributed_type"), ", ".join(KINDS))
    return kind


def _count(given: GivenKeys, path: str) -> int | None:
    """A number of machines or processes; None where accelerate is to find it."""
    return None if given.value(path) == -1 else given.size(path)


def _axes(given: GivenKeys) -> dict[str, object]:
    names = ("tp", "cp", "sp", "dp_replicate", "dp_shard")
    tp, cp, sp, replicas, shards = (given.size(f"{SHARES}{name}_size") or 1 for name in names)
    if cp > 1 and sp > 1:
        raise InputError(
            f"parallelism_config has cp_size {cp} and sp_size {sp}, of which accelerate "
            "takes one; leave one out"
        )
    older = given.size("tp_config.tp_size") or 1  # of accelerate 1.3 to 1.7
    found: dict[str, object] = {"tp": max(tp, older), "cp": max(cp, sp)}
    if sp > 1:
        found["exchange"] = "ulysses"
    elif cp > 1:
        ways = {"allgather": "gather", "alltoall": "ring"}
        found["exchange"] = ways[given.word(f"{SHARES}cp_comm_strategy", ways, "allgather")]
    if replicas > 1 and shards * cp > 1:
        found["shard_groups"] = replicas
    return found


def _fsdp(given: GivenKeys) -> dict[str, object]:
    path, by_reshard = f"{FSDP}sharding_strategy", f"{FSDP}reshard_after_forward"
    strategy, reshard = given.value(path), given.value(by_reshard)
    version = given.size(f"{FSDP}version") or 1
    name = "FULL_SHARD" if strategy is None else str(strategy).upper()
    if version == 1 and isinstance(reshard, str) and strategy is None:
        name = reshard.upper()  # the name that later versions give it
    names = list(STRATEGIES)
    if name in ("1", "2", "3", "4", "5"):
        name = names[int(name) - 1]
    if name not in names:
        raise refused(path, strategy or reshard, ", ".join(names))
    stage = STRATEGIES[name]
    if version > 1 and reshard is not None:
        stage = 3 if truth(reshard, by_reshard) else 2
    shards, cp, replicas = (
        given.size(f"{SHARES}{axis}_size") or 1 for axis in ("dp_shard", "cp", "dp_replicate")
    )
    if shards * cp == 1 and replicas > 1:  # replicas that hold everything
        stage = 0
    recomputed = given.flag(f"{FSDP}activation_checkpointing")
    held = float(given.flag(f"{FSDP}offload_params"))
    inputs = float(recomputed and given.flag(f"{FSDP}activation_checkpointing_offload"))
    offload = Offload(held, held, held, inputs)
    found: dict[str, object] = {"zero_stage": stage, "recompute": "full" if recomputed else "none"}
    nodes = _count(given, "num_machines")
    if name.startswith("HYBRID") and nodes is None:
        given.note_hybrid(path if strategy is not None else by_reshard)
    elif name.startswith("HYBRID"):
        found["shard_groups"] = nodes  # shards lie within a node
    return found | ({"offload": list(offload.terms)} if offload else {})


def _deepspeed(given: GivenKeys) -> dict[str, object]:
    file, path = f"{DEEPSPEED}deepspeed_config_file", f"{DEEPSPEED}zero_stage"
    stage = given.value(path)
    if not is_off(given.value(file)):
        if "zero_stage" in given.command_line:
            given.usual[file] = OF_COMMAND_LINE
        else:
            given.untold[file] = f"the plan is in that file: {INSTEAD_OF_DEEPSPEED}"
        if stage is None:
            return {}
    stage = zero_stage(2 if stage is None else stage, path)  # the default of accelerate launch
    held = dict[str, float]()
    for name in ("optimizer", "param"):
        path = f"{DEEPSPEED}offload_{name}_device"
        device = str(given.value(path) or "none").lower()
        if device not in ("cpu", "nvme", "none"):
            raise refused(path, given.value(path), "cpu, nvme or none")
        if device == "nvme":
            given.untold[path] = ON_NVME
        held[name] = float(device != "none")
    optimizer = held["optimizer"] if stage else 0.0
    offload = Offload(optimizer, optimizer, held["param"] if stage == 3 else 0.0)
    return {"zero_stage": stage} | ({"offload": list(offload.terms)} if offload else {})


def _megatron(given: GivenKeys) -> dict[str, object]:
    names = {
        "tp": "tp_degree",
        "pp": "pp_degree",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
    }
    found: dict[str, object] = {
        axis: given.size(MEGATRON + name) or 1 for axis, name in names.items()
    }
    parallel = given.flag(f"{MEGATRON}sequence_parallelism")
    found["sequence_parallel"] = parallel and found["tp"] != 1
    found["zero_stage"] = int(given.flag(f"{MEGATRON}use_distributed_optimizer"))
    usual = "selective" if given.flag(f"{MEGATRON}recompute_activations") else "none"
    path = f"{MEGATRON}recompute_granularity"
    found["recompute"] = granularity = str(given.value(path) or usual)
    if granularity not in ("none", "selective", "full"):
        raise refused(path, given.value(path), "selective or full")
    backend = given.value(f"{MEGATRON}attention_backend")
    found["attention"] = "eager" if backend in ("unfused", "local") else "flash"
    return found


def _precision(given: GivenKeys, kind: str) -> dict[str, object]:
    value = given.value("mixed_precision")
    if value is None and "fp16" in given.content:  # the key of accelerate before 0.8
        return {"precision": "fp16" if given.flag("fp16") else "fp32"}
    if value is None:
        own = kind == "DEEPSPEED" and not is_off(given.value(f"{DEEPSPEED}deepspeed_config_file"))
        return {} if own else {"precision": "fp32"}
    name = "no" if value is False else str(value).lower()  # YAML reads a bare no as false
    if name not in FORMATS:
        raise refused("mixed_precision", value, ", ".join(FORMATS))
    return {"precision": FORMATS[name]}


def _replicas(given: GivenKeys, found: Mapping[str, object]) -> dict[str, object]:
    devices = _count(given, "num_processes")
    if devices is None:
        return {}
    others = devices_of_a_replica(found)
    if devices % others:
        raise InputError(
            f"num_processes {devices} is no multiple of tp x pp x cp, {others}; correct one of them"
        )
    dp = devices // others
    paths = (f"{SHARES}dp_replicate_size", f"{SHARES}dp_shard_size")
    if not all(is_off(given.value(path)) for path in paths):
        replicas, shards = (given.size(path) or 1 for path in paths)
        if replicas * shards != dp:
            raise InputError(
                f"num_processes {devices} is not dp_replicate_size {replicas} x dp_shard_size "
                f"{shards} x {others}; correct one of them"
            )
    return {"dp": dp}
