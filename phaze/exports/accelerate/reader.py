"""Settings of ``phaze evaluate`` out of a configuration of accelerate, YAML: FSDP of both versions,
DeepSpeed, Megatron-LM.

It says how processes share the model. The model, its sequences and the micro-batch are arguments of
a training script's own objects, so the command line gives them; ``--global-batch-size`` too where
gradients are accumulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from Estimator.plans.offload import Offload
from phaze.exports.deepspeed.reader import INSTEAD_OF_DEEPSPEED, OF_COMMAND_LINE, own_gradients
from phaze.exports.given_keys import (
    flattened,
    is_off,
    known_keys,
    part,
    shown,
    truth,
    whole,
    written,
)
from phaze.exports.launch_batches import accumulation, devices_of_a_replica
from phaze.settings.launched import LaunchReading
from phaze_common.errors import InputError
from phaze_common.yaml_files import parse_yaml

PROGRAM = "accelerate"
FORMATS = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
# of FSDP 1, by name and number (torch.distributed.fsdp.ShardingStrategy), and the ZeRO stage of
# each
STRATEGIES = {
    **{
        "FULL_SHARD": 3,
        "SHARD_GRAD_OP": 2,
        "NO_SHARD": 0,
        "HYBRID_SHARD": 3,
        "HYBRID_SHARD_ZERO2": 2,
    },
    **{"1": 3, "2": 2, "3": 0, "4": 3, "5": 2},
}
HYBRID = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5")
KINDS = (
    "NO",
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_XPU",
    "MULTI_HPU",
    "MULTI_MLU",
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_NEURON",
)
SHARING = ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP")
PARTS = ("fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config")
MARKS = (
    "compute_environment",
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_training_function",
    *PARTS,
)


@dataclass
class _Given:
    content: Mapping[str, object]
    besides: Mapping[str, str]
    untold: dict[str, str] = field(default_factory=dict)
    usual: dict[str, str] = field(default_factory=dict)
    steps: int = 1  # micro-batches of an iteration
    accumulation: str = ""  # the key that says them

    def value(self, home: str, name: str) -> object:
        """A value of a part; that of FSDP and Megatron-LM has the name of its part before its
        own."""
        return part(self.content, home, PROGRAM).get(name)

    def size(self, home: str, name: str) -> int:
        return whole(self.value(home, name), f"{home}.{name}") or 1

    def flag(self, home: str, name: str) -> bool:
        return truth(self.value(home, name), f"{home}.{name}")


def recognises(content: object) -> bool:
    """Whether parsed YAML has accelerate's marks: how processes share a model, and a key beside it
    that only it has."""
    return (
        isinstance(content, dict)
        and "distributed_type" in content
        and any(name in content for name in MARKS)
    )


def read(text: str, given_besides: Mapping[str, str] | None = None) -> LaunchReading:
    """The plan in ``text``, YAML, as settings of ``evaluate``, and what became of its keys; what
    cannot be known is left out.

    Settings ``given_besides`` say the micro-batch of which the file has a number.

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
    keys, known = flattened(content), known_keys("accelerate")
    known.check_spelling(keys)
    given = _Given(content, given_besides or {})
    kind = str(content["distributed_type"] or "NO").strip("'\"").upper()
    kind = "NO" if kind == "FALSE" else kind  # YAML reads a bare NO as false
    if kind in ("MULTI_CPU", "XLA", "TPU") or truth(content.get("use_cpu"), "use_cpu"):
        given.untold[
            "use_cpu" if truth(content.get("use_cpu"), "use_cpu") else "distributed_type"
        ] = (
            "it trains on processors or by XLA, and is priced as replicas on the device that is "
            "given"
        )
    elif kind not in (*KINDS, *SHARING):
        raise InputError(
            f"distributed_type is {written(content.get('distributed_type'))}; give "
            f"{', '.join((*KINDS, *SHARING))}"
        )
    found: dict[str, object] = {"tp": 1, "pp": 1, "cp": 1, "ep": 1} | _axes(given)
    if kind == "FSDP":
        found |= _fsdp(given)
    elif kind == "DEEPSPEED":
        found |= _deepspeed(given)
    elif kind == "MEGATRON_LM":
        found |= _megatron(given)
    else:
        found["zero_stage"] = 0
    if kind not in ("DEEPSPEED", "MEGATRON_LM"):
        found["overlap_gradients"] = True  # torch always reduces them while the backward pass runs
    found |= _precision(given, kind) | _replicas(given, found)
    found |= own_gradients(found, given.besides) if kind == "DEEPSPEED" else {}
    found |= accumulation(given.besides, given.steps, found, given.accumulation, given.untold)
    machines = content.get("num_machines")
    nodes = None if machines in (-1, None) else whole(machines, "num_machines")
    return replace(known.reading(found, keys, given.untold, usual=given.usual), nodes=nodes)


def _axes(given: _Given) -> dict[str, object]:
    home, prefix = "parallelism_config", "parallelism_config_"
    sizes = {
        axis: given.size(home, f"{prefix}{axis}_size")
        for axis in ("tp", "cp", "sp", "dp_replicate", "dp_shard")
    }
    if sizes["cp"] > 1 and sizes["sp"] > 1:
        raise InputError(
            f"{home} has cp_size {sizes['cp']} and sp_size {sizes['sp']}, of which accelerate "
            "takes one; leave one out"
        )
    older = given.size("tp_config", "tp_size")  # of accelerate 1.3 to 1.7
    found: dict[str, object] = {"tp": max(sizes["tp"], older), "cp": max(sizes["cp"], sizes["sp"])}
    if sizes["sp"] > 1:
        found["exchange"] = "ulysses"
    elif sizes["cp"] > 1:
        way = str(given.value(home, f"{prefix}cp_comm_strategy") or "allgather")
        if way not in ("allgather", "alltoall"):
            raise InputError(
                f"{home}.{prefix}cp_comm_strategy is {written(way)}; give allgather or alltoall"
            )
        found["exchange"] = "gather" if way == "allgather" else "ring"
    if sizes["dp_replicate"] > 1 and sizes["dp_shard"] > 1:
        given.untold[f"{home}.{prefix}dp_replicate_size"] = (
            "replicas of shards, hybrid sharding, are no ZeRO stage; all are priced as shards"
        )
    return found


def _fsdp(given: _Given) -> dict[str, object]:
    home, reshard = "fsdp_config", given.value("fsdp_config", "fsdp_reshard_after_forward")
    version = given.size(home, "fsdp_version")
    strategy = given.value(home, "fsdp_sharding_strategy")
    name = "FULL_SHARD" if strategy is None else str(strategy).upper()
    if version == 1 and isinstance(reshard, str) and strategy is None:
        name = reshard.upper()  # the name that later versions give it
    if name not in STRATEGIES:
        raise InputError(
            f"{home}.fsdp_sharding_strategy is {written(strategy or reshard)}; give "
            f"{', '.join(list(STRATEGIES)[:5])}"
        )
    stage = STRATEGIES[name]
    if version > 1 and reshard is not None:
        stage = 3 if truth(reshard, f"{home}.fsdp_reshard_after_forward") else 2
    if name in HYBRID:
        path = "fsdp_sharding_strategy" if strategy is not None else "fsdp_reshard_after_forward"
        given.untold[f"{home}.{path}"] = (
            "replicas of shards, hybrid sharding, are no ZeRO stage; all are priced as shards"
        )
    sizes = [
        given.size("parallelism_config", f"parallelism_config_{axis}_size")
        for axis in ("dp_shard", "cp", "dp_replicate")
    ]
    if sizes[0] * sizes[1] == 1 and sizes[2] > 1:  # replicas that hold everything
        stage = 0
    recomputed = given.flag(home, "fsdp_activation_checkpointing")
    held = float(given.flag(home, "fsdp_offload_params"))
    inputs = float(recomputed and given.flag(home, "fsdp_activation_checkpointing_offload"))
    offload = Offload(held, held, held, inputs)
    found: dict[str, object] = {"zero_stage": stage, "recompute": "full" if recomputed else "none"}
    return found | ({"offload": list(offload.terms)} if offload else {})


def _deepspeed(given: _Given) -> dict[str, object]:
    home = "deepspeed_config"
    file = given.value(home, "deepspeed_config_file")
    if not is_off(file):
        if "zero_stage" in given.besides:
            given.usual[f"{home}.deepspeed_config_file"] = OF_COMMAND_LINE
        else:
            given.untold[f"{home}.deepspeed_config_file"] = (
                f"the plan is in that file: {INSTEAD_OF_DEEPSPEED}"
            )
        if given.value(home, "zero_stage") is None:
            return {}
    stage = given.value(home, "zero_stage")
    stage = 2 if stage is None else stage  # the default of accelerate launch
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        raise InputError(f"{home}.zero_stage is {shown(repr(stage))}; it must be 0, 1, 2 or 3")
    held = dict[str, float]()
    for name in ("offload_optimizer_device", "offload_param_device"):
        device = str(given.value(home, name) or "none").lower()
        if device not in ("cpu", "nvme", "none"):
            raise InputError(
                f"{home}.{name} is {written(given.value(home, name))}; give cpu, nvme or none"
            )
        if device == "nvme":
            given.untold[f"{home}.{name}"] = (
                "it lies on NVMe drives, and is priced as in host memory"
            )
        held[name] = float(device != "none")
    _accumulated(given, home, "gradient_accumulation_steps")
    optimizer = held["offload_optimizer_device"] if stage else 0.0
    offload = Offload(optimizer, optimizer, held["offload_param_device"] if stage == 3 else 0.0)
    return {"zero_stage": stage} | ({"offload": list(offload.terms)} if offload else {})


def _megatron(given: _Given) -> dict[str, object]:
    home, prefix = "megatron_lm_config", "megatron_lm_"
    names = {
        "tp": "tp_degree",
        "pp": "pp_degree",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
    }
    found: dict[str, object] = {
        axis: given.size(home, prefix + name) for axis, name in names.items()
    }
    found["sequence_parallel"] = (
        given.flag(home, f"{prefix}sequence_parallelism") and found["tp"] != 1
    )
    distributed = given.value(home, f"{prefix}use_distributed_optimizer")
    found["zero_stage"] = int(truth(distributed, f"{home}.{prefix}use_distributed_optimizer"))
    recomputed = given.flag(home, f"{prefix}recompute_activations")
    asked = given.value(home, f"{prefix}recompute_granularity")
    granularity = str(asked or ("selective" if recomputed else "none"))
    if granularity not in ("none", "selective", "full"):
        raise InputError(
            f"{home}.{prefix}recompute_granularity is {written(asked)}; give selective or full"
        )
    found["recompute"] = granularity
    backend = given.value(home, f"{prefix}attention_backend")
    found["attention"] = "eager" if backend in ("unfused", "local") else "flash"
    _accumulated(given, home, f"{prefix}num_micro_batches")
    return found


def _accumulated(given: _Given, home: str, name: str) -> None:
    """Keep how many micro-batches an iteration has, and the key that says it."""
    given.steps = whole(given.value(home, name), f"{home}.{name}") or 1
    given.accumulation = f"{home}.{name}"


def _precision(given: _Given, kind: str) -> dict[str, object]:
    value = given.content.get("mixed_precision")
    if value is None and "fp16" in given.content:  # the key of accelerate before 0.8
        return {"precision": "fp16" if truth(given.content["fp16"], "fp16") else "fp32"}
    if value is None:
        own = kind == "DEEPSPEED" and not is_off(
            given.value("deepspeed_config", "deepspeed_config_file")
        )
        return {} if own else {"precision": "fp32"}
    name = "no" if value is False else str(value).lower()  # YAML reads a bare no as false
    if name not in FORMATS:
        raise InputError(f"mixed_precision is {written(value)}; give {', '.join(FORMATS)}")
    return {"precision": FORMATS[name]}


def _replicas(given: _Given, found: Mapping[str, object]) -> dict[str, object]:
    processes = given.content.get("num_processes")
    devices = None if processes in (-1, None) else whole(processes, "num_processes")
    if devices is None:
        return {}
    others = devices_of_a_replica(found)
    if devices % others:
        raise InputError(
            f"num_processes {devices} is no multiple of tp x pp x cp, {others}; correct one of them"
        )
    dp = devices // others
    shares = part(given.content, "parallelism_config", PROGRAM)
    if not is_off(shares.get("parallelism_config_dp_shard_size")) or not is_off(
        shares.get("parallelism_config_dp_replicate_size")
    ):
        names = ("dp_replicate_size", "dp_shard_size")
        own = [given.size("parallelism_config", f"parallelism_config_{name}") for name in names]
        if own[0] * own[1] != dp:
            raise InputError(
                f"num_processes {devices} is not dp_replicate_size {own[0]} x dp_shard_size "
                f"{own[1]} x {others}; correct one of them"
            )
    return {"dp": dp}
