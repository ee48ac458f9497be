"""Settings of ``phaze evaluate`` out of a configuration of DeepSpeed, a JSON file.

A value ``"auto"`` follows the convention of Hugging Face's Trainer, which fills it in from its own
arguments: it is left out here, for the command line to say. So is the precision of a file that has
any such value and names no format, since Trainer and accelerate give one then; DeepSpeed itself
trains in fp32 what names none.

What an export wrote beside DeepSpeed's own keys, under ``phaze``, is read too: the model, its
sequences, its replicas and whether blocks are recomputed. Files of others have no word for them;
how many replicas there are is then what the product rule leaves, or the command line says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from Estimator.plans.offload import Offload
from phaze.exports.deepspeed.exporter import MICS
from phaze.exports.given_keys import GivenKeys, is_off, shown, truth
from phaze.exports.launch_batches import (
    ProductRule,
    devices_of_a_replica,
    given_number,
    replicas_of,
)
from phaze.settings.launched import KeyKind, LaunchReading
from phaze_common.echo import kind_of
from phaze_common.errors import InputError
from phaze_common.files import parse_json

# of a file of DeepSpeed that another file names
INSTEAD_OF_DEEPSPEED = "give it with --from, or its stage with --zero-stage"
AUTO = "left open: the Trainer fills it in from its own arguments, here the command line does"
OF_COMMAND_LINE = (
    "it was not read; its stage is that of the command line, and nothing is held on "
    "the host unless --offload says so"
)
MARKS = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization")
# keys with a switch ``enabled``, and the precision of each
FORMATS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16"}
NAMES = {
    **dict.fromkeys(("bf16", "bfp16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16"), "fp16"),
    **dict.fromkeys(("fp32", "float32"), "fp32"),
}
STATE = {  # keys of a format, and the settings of a plan that they give
    "_master_weights_and_grads": ("main_weight_dtype", "gradient_dtype"),
    "_optimizer_states": ("moment_dtype",),
}
LARGE_TENSOR = 10**6  # parameters of the least matrix of a block, such as 1024 x 1024
ADAM = ("adam", "adamw", "fusedadam", "cpuadam", "deepspeedcpuadam", "torchadam")
# optimizers with Adam's two moments or fewer, which are priced as it where they are ignored
NEAR_ADAM = {
    **dict.fromkeys(
        ("onebitadam", "zerooneadam", "onebitlamb"),
        "gradients are compressed to one bit behind a warm-up",
    ),
    **dict.fromkeys(
        ("lamb", "fusedlamb"), "norms of layers are taken in the step, which is priced as Adam's"
    ),
    **dict.fromkeys(
        ("adagrad", "lion", "fusedlion", "cpulion"), "it keeps one moment, and is priced as Adam"
    ),
}
INTERVAL = "pipeline.activation_checkpoint_interval"
ON_NVME = "it lies on NVMe drives, and is priced as in host memory"


def recognises(content: object) -> bool:
    """Whether parsed JSON has the marks of such a file: a batch or ZeRO by DeepSpeed's names, or
    formats as it writes them."""
    if not isinstance(content, dict):
        return False
    formats = [content[name] for name in FORMATS if name in content]
    return any(name in content for name in MARKS) or any(
        isinstance(each, dict) and "enabled" in each for each in formats
    )


def read(text: str, command_line: Mapping[str, str] | None = None) -> LaunchReading:
    """The plan in ``text``, JSON, as settings of ``evaluate``, and what became of its keys; what
    cannot be known is left out.

    Settings ``command_line`` say the devices among which the file's batch is shared out.

    Raises: InputError: it is no JSON object, has no mark of DeepSpeed, has values that DeepSpeed
        does not take, or a batch that
            says nothing without the number of devices.
    """
    content = parse_json(text, "the configuration")
    if not isinstance(content, dict):
        raise InputError(
            f"the configuration holds {kind_of(content)}; DeepSpeed reads an object of keys"
        )
    if not recognises(content):
        raise InputError(
            f"the configuration has none of DeepSpeed's keys {', '.join(MARKS)}, bf16 and fp16; "
            "give one that has"
        )
    given = GivenKeys.of("deepspeed", content, command_line)
    own = given.part("phaze")
    tp = given.size("tensor_parallel.autotp_size") or given.size("tensor_parallel.tp.tp_size") or 1
    sequences = given.size("sequence_parallel_size") or 1
    divided = given.flag("expert_parallel.enabled")
    found: dict[str, object] = {
        "tp": tp,
        "pp": given.size("pipeline.stages") or 1,
        "cp": sequences,
        "ep": (given.size("expert_parallel.autoep_size") or 1) if divided else 1,
    }
    if sequences > 1:
        found["exchange"] = "ulysses"
    found |= _batches(given, tp, found)
    found |= _precision(given) | _zero(given) | _recomputed(given, own, tp)
    found |= _groups(given, found) | _optimizer(given)
    if "tp_overlap_comm" in given.part("tensor_parallel"):
        found["overlap_tensor"] = given.flag("tensor_parallel.tp_overlap_comm")
    found |= _formats_of_state(given, found.get("precision"))
    found = own_gradients(found, given.command_line) | found
    found |= {key: own[key] for key in ("model", "attention") if isinstance(own.get(key), str)}
    if (length := given.size("phaze.sequence_length")) is not None:
        found["sequence_length"] = length
    given.usual |= {
        path: AUTO
        for path, value in given.keys.items()
        if value == "auto" and given.known.kind_of(path, value)[0] is KeyKind.READ
    }
    return given.reading(found)


def _batches(given: GivenKeys, tp: int, found: Mapping[str, object]) -> dict[str, object]:
    """Batches and replicas, and in ``usual`` what the file's batch counts besides."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    batch, micro, steps = map(given.size, names)
    rule, command_line = ProductRule(batch, micro, steps, tp), given.command_line
    left = [name for name in names if given.value(name) == "auto"]  # to the command line
    if left == [names[0]] and micro is not None and steps is not None:
        left = []  # the product of the others
    dp = given.size("phaze.dp") or (None if left else rule.replicas)
    sizes: dict[str, object] = {} if dp is None else {"dp": dp}
    whole_batch = given.size("phaze.global_batch_size")
    given_batch = given_number(command_line, "global_batch_size")
    replicas = replicas_of(command_line, {**found, **sizes})
    open_micro = micro is None and not left and "micro_batch_size" not in command_line
    if batch and given_batch and replicas and open_micro:
        # shared out as the file's own would be
        rule = replace(rule, batch=given_batch * rule.tensor_parallel)
        return sizes | rule.settings(replicas)
    if whole_batch or left or "global_batch_size" in command_line:
        sizes |= {"global_batch_size": whole_batch or batch, "micro_batch_size": micro}
        return {name: value for name, value in sizes.items() if value is not None}
    if (by_command := given_number(command_line, "micro_batch_size")) is not None:
        rule = replace(rule, micro_batch=by_command, steps=steps if batch is None else None)
    sizes |= rule.settings(replicas)
    if said := rule.note(sizes.get("global_batch_size")):
        given.usual["train_batch_size"] = said
    return sizes


def _precision(given: GivenKeys) -> dict[str, object]:
    asked = {name: given.part(name) for name in FORMATS}
    switches = {name: switch.get("enabled") for name, switch in asked.items()}
    on = {FORMATS[name] for name, each in switches.items() if each != "auto" and truth(each, name)}
    if len(on) > 1:
        raise InputError("fp16 and bf16 are both enabled, which DeepSpeed refuses; enable one")
    if on:
        return {"precision": on.pop()}
    by_trainer = not any(asked.values()) and "auto" in given.keys.values()
    return {} if "auto" in switches.values() or by_trainer else {"precision": "fp32"}


def zero_stage(stage: object, path: str) -> int:
    """The stage of ZeRO at ``path``.

    Raises:
        InputError: it is none.
    """
    if isinstance(stage, bool) or not isinstance(stage, int | float) or stage not in (0, 1, 2, 3):
        raise InputError(f"{path} is {shown(repr(stage))}; it must be 0, 1, 2 or 3")
    return int(stage)


def _zero(given: GivenKeys) -> dict[str, object]:
    if isinstance(switch := given.content.get("zero_optimization"), bool):  # true is stage 1
        zero = {"stage": int(switch)}
        given = replace(given, content={**given.content, "zero_optimization": zero})
    home = given.part("zero_optimization")
    if home.get("stage") == "auto":
        return {}
    stage = zero_stage(home.get("stage", 0), "zero_optimization.stage")
    found: dict[str, object] = {"zero_stage": stage}
    overlaps = home.get("overlap_comm")
    if stage and overlaps != "auto":
        usual = stage == 3 if overlaps is None else given.flag("zero_optimization.overlap_comm")
        found["overlap_gradients"] = usual
    # a threshold above the tensors of a block leaves whole what stage 3 is said to share out; its
    # default is 1e5
    for name in ("stage3_param_persistence_threshold", "param_persistence_threshold"):
        threshold = home.get(name)
        if stage == 3 and isinstance(threshold, int | float) and threshold > LARGE_TENSOR:
            given.untold[f"zero_optimization.{name}"] = (
                "tensors of up to so many parameters stay whole on every device"
            )
    optimizer = _on_host(given, "offload_optimizer", "cpu_offload") if stage else 0.0
    weights = _on_host(given, "offload_param", "cpu_offload_param") if stage == 3 else 0.0
    ratio = given.part("zero_optimization.offload_optimizer").get("ratio", 1.0)
    if optimizer and ratio != "auto":
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0.0 <= ratio <= 1.0:
            raise InputError(
                f"zero_optimization.offload_optimizer.ratio is {shown(repr(ratio))}; it must lie "
                "between 0 and 1"
            )
        optimizer = float(ratio)
    inputs = float(given.flag("activation_checkpointing.cpu_checkpointing"))
    held = Offload(optimizer, optimizer, weights, inputs)
    return found | ({"offload": list(held.terms)} if held else {})


def _groups(given: GivenKeys, found: Mapping[str, object]) -> dict[str, object]:
    """Groups of replicas that share shards (MiCS), where it is known how many there are."""
    shards = given.value(MICS)
    if is_off(shards) or shards == -1 or found.get("zero_stage") != 3:
        return {}
    size, replicas = given.size(MICS) or 1, replicas_of(given.command_line, found)
    if replicas is None or "shard_groups" in given.command_line:
        given.note_hybrid(MICS)
        return {}
    devices = replicas * devices_of_a_replica(found, given.command_line)
    if devices % size or given.size("tensor_parallel.autotp_size"):
        given.untold[MICS] = (
            f"groups of shards are no whole number of the replicas on {devices} devices"
        )
        return {}
    given.taken.add(MICS)
    return {"shard_groups": devices // size}


def _on_host(given: GivenKeys, name: str, older: str) -> float:
    """1 where what ``name`` says lies in host memory, else 0; null and the device none are
    neither."""
    path = f"zero_optimization.{name}"
    usual = "cpu" if truth(given.part("zero_optimization").get(older), older) else "none"
    device = given.part(path).get("device", usual)
    if device == "nvme":
        given.untold[f"{path}.device"] = ON_NVME
    elif device != "cpu" and not is_off(device):
        asked = shown(repr(device))
        raise InputError(f"{path}.device is {asked}; DeepSpeed takes cpu, nvme or none")
    return float(device in ("cpu", "nvme"))


def _recomputed(given: GivenKeys, own: Mapping[str, object], tp: int) -> dict[str, object]:
    """Whether blocks are recomputed: by what an export says, else where any way to keep their
    inputs is asked for."""
    parted = given.flag("activation_checkpointing.partition_activations")
    if parted and tp > 1:
        given.untold["activation_checkpointing.partition_activations"] = (
            "inputs of recomputed blocks are cut over tensor-parallel devices"
        )
    if own.get("recompute") in ("full", "none"):
        return {"recompute": own["recompute"]}
    ways = ("cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints")
    paths = [*(f"activation_checkpointing.{way}" for way in ways), INTERVAL]
    asked = parted or any(not is_off(given.value(path)) for path in paths)
    return {"recompute": "full" if asked else "none"}


def _optimizer(given: GivenKeys) -> dict[str, object]:
    kind = given.part("optimizer").get("type", "auto")
    name = str(kind).lower().replace("_", "")
    if name == "sgd":
        momentum = given.value("optimizer.params.momentum")
        return {"optimizer": "sgd" if is_off(momentum) else "sgd_momentum"}
    if name == "auto":
        return {}
    if name == "muon":
        return {"optimizer": "muon"}
    if name not in ADAM:
        unknown = "its state and step are not known, and it is priced as Adam"
        given.untold["optimizer.type"] = NEAR_ADAM.get(name, unknown)
    return {"optimizer": "adam"}


def own_gradients(found: Mapping[str, object], given: Mapping[str, str]) -> dict[str, object]:
    """The format in which it adds up gradients of bf16 weights where no key says so: fp32 only
    without ZeRO.

    Source: ``DeepSpeedEngine.get_data_types`` (runtime/engine.py).
    """
    stage = str(given.get("zero_stage", found.get("zero_stage", 0)))
    precision = given.get("precision", found.get("precision"))
    return {} if precision != "bf16" else {"gradient_dtype": "fp32" if stage == "0" else "bf16"}


def _formats_of_state(given: GivenKeys, precision: object) -> dict[str, object]:
    """Formats of gradients, moments and the optimizer's weights, where plans have settings of
    them."""
    found = dict[str, object]()
    path = "data_types.grad_accum_dtype"
    if (dtype := NAMES.get(str(given.value(path)))) is not None:
        found["gradient_dtype"] = dtype
        given.taken.add(path)
    for name in ("bf16", "fp16"):
        for key, settings in STATE.items():
            path = f"{name}.{name}{key}"
            if not is_off(given.value(path)) and given.flag(path):
                found |= {setting: found.get(setting, name) for setting in settings}
                given.taken.add(path)
    sent = NAMES.get(str(given.content.get("communication_data_type")))
    if sent is not None and sent == found.get("gradient_dtype", precision):
        given.taken.add("communication_data_type")
    return found
