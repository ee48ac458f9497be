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
from phaze.exports.given_keys import flattened, is_off, known_keys, part, shown, truth, whole
from phaze.exports.launch_batches import ProductRule, given_number, replicas_of
from phaze.exports.launch_keys import KeyKind, LaunchReading
from phaze_common.echo import kind_of
from phaze_common.errors import InputError
from phaze_common.files import parse_json

PROGRAM = "DeepSpeed"
# of a file of DeepSpeed that another file names
INSTEAD_OF_DEEPSPEED = "give it with --from, or its stage with --zero-stage"
AUTO = "left open: the Trainer fills it in from its own arguments, here the command line does"
OF_COMMAND_LINE = (
    "it was not read; its stage is that of the command line, and nothing is held on "
    "the host unless --offload says so"
)
MARKS = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization")
FORMATS = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
}  # keys with a switch ``enabled``, and the precision of each
NAMES = {
    "bf16": "bf16",
    "bfp16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
}
GRADIENTS, MOMENTS, STATE = (
    ("gradient_dtype",),
    ("moment_dtype",),
    ("main_weight_dtype", "gradient_dtype"),
)  # settings of a plan
LARGE_TENSOR = 10**6  # parameters of the least matrix of a block, such as 1024 x 1024
ADAM = ("adam", "adamw", "fusedadam", "cpuadam", "deepspeedcpuadam", "torchadam")
# optimizers with Adam's two moments or fewer, which are priced as it where they are ignored
NEAR_ADAM = {
    "onebitadam": "gradients are compressed to one bit behind a warm-up",
    "zerooneadam": "gradients are compressed to one bit behind a warm-up",
    "onebitlamb": "gradients are compressed to one bit behind a warm-up",
    "lamb": "norms of layers are taken in the step, which is priced as Adam's",
    "fusedlamb": "norms of layers are taken in the step, which is priced as Adam's",
    "muon": "matrices are orthogonalised in the step, which is priced as Adam's",
    "adagrad": "it keeps one moment, and is priced as Adam",
    "lion": "it keeps one moment, and is priced as Adam",
    "fusedlion": "it keeps one moment, and is priced as Adam",
    "cpulion": "it keeps one moment, and is priced as Adam",
}


def recognises(content: object) -> bool:
    """Whether parsed JSON has the marks of such a file: a batch or ZeRO by DeepSpeed's names, or
    formats as it writes them."""
    if not isinstance(content, dict):
        return False
    formats = [content[name] for name in FORMATS if name in content]
    return any(name in content for name in MARKS) or any(
        isinstance(each, dict) and "enabled" in each for each in formats
    )


def read(text: str, given_besides: Mapping[str, str] | None = None) -> LaunchReading:
    """The plan in ``text``, JSON, as settings of ``evaluate``, and what became of its keys; what
    cannot be known is left out.

    Settings ``given_besides`` say the devices among which the file's batch is shared out.

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
    given = flattened(content)
    known_keys("deepspeed").check_spelling(given)
    untold, usual = dict[str, str](), dict[str, str]()
    own, tensor = part(content, "phaze", PROGRAM), part(content, "tensor_parallel", PROGRAM)
    tp = whole(tensor.get("autotp_size"), "tensor_parallel.autotp_size")
    tp = tp or whole(part(tensor, "tp", PROGRAM).get("tp_size"), "tensor_parallel.tp.tp_size") or 1
    stages = whole(part(content, "pipeline", PROGRAM).get("stages"), "pipeline.stages") or 1
    sequences = whole(content.get("sequence_parallel_size"), "sequence_parallel_size") or 1
    found: dict[str, object] = {"tp": tp, "pp": stages, "cp": sequences, "ep": _experts(content)}
    if sequences > 1:
        found["exchange"] = "ulysses"
    found |= _batches(content, own, found, given_besides or {}, usual)
    found |= _precision(content, given)
    found |= _zero(content, untold)
    found |= _recomputed(content, own, tp, untold)
    found |= _optimizer(content, untold)
    if "tp_overlap_comm" in tensor:
        found["overlap_tensor"] = truth(
            tensor["tp_overlap_comm"], "tensor_parallel.tp_overlap_comm"
        )
    taken = set[str]()
    found |= _formats_of_state(content, found.get("precision"), taken)
    found = own_gradients(found, given_besides or {}) | found
    for name in ("model", "attention"):
        if isinstance(own.get(name), str):
            found[name] = own[name]
    if (length := whole(own.get("sequence_length"), "phaze.sequence_length")) is not None:
        found["sequence_length"] = length
    known = known_keys("deepspeed")
    usual |= {
        path: AUTO
        for path, value in given.items()
        if value == "auto" and known.kind_of(path, value)[0] is KeyKind.READ
    }
    return known.reading(found, given, untold, taken, usual)


def _experts(content: Mapping[str, object]) -> int:
    experts = part(content, "expert_parallel", PROGRAM)
    if not truth(experts.get("enabled"), "expert_parallel.enabled"):
        return 1
    return whole(experts.get("autoep_size"), "expert_parallel.autoep_size") or 1


def _batches(
    content: Mapping[str, object],
    own: Mapping[str, object],
    found: Mapping[str, object],
    given: Mapping[str, str],
    usual: dict[str, str],
) -> dict[str, object]:
    """Batches and replicas, and in ``usual`` what the file's batch counts besides."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    batch, micro, steps = (whole(content.get(name), name) for name in names)
    rule = ProductRule(batch, micro, steps, whole(found["tp"], "tp") or 1)
    left = [name for name in names if content.get(name) == "auto"]  # to the command line
    if left == [names[0]] and micro is not None and steps is not None:
        left = []  # the product of the others
    dp = whole(own.get("dp"), "phaze.dp") or (None if left else rule.replicas)
    sizes: dict[str, object] = {} if dp is None else {"dp": dp}
    whole_batch = whole(own.get("global_batch_size"), "phaze.global_batch_size")
    given_batch, replicas = (
        given_number(given, "global_batch_size"),
        replicas_of(given, {**found, **sizes}),
    )
    if (
        batch
        and given_batch
        and replicas
        and micro is None
        and not left
        and "micro_batch_size" not in given
    ):
        rule = replace(
            rule, batch=given_batch * rule.tensor_parallel
        )  # shared out as the file's own would be
        return sizes | rule.settings(replicas)
    if whole_batch or left or "global_batch_size" in given:
        sizes |= {"global_batch_size": whole_batch or batch, "micro_batch_size": micro}
        return {name: value for name, value in sizes.items() if value is not None}
    if (by_command := given_number(given, "micro_batch_size")) is not None:
        rule = replace(rule, micro_batch=by_command, steps=steps if batch is None else None)
    sizes |= rule.settings(replicas)
    if said := rule.note(sizes.get("global_batch_size")):
        usual["train_batch_size"] = said
    return sizes


def _precision(content: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    asked = {name: part(content, name, PROGRAM) for name in FORMATS}
    on = {
        FORMATS[name]
        for name, switch in asked.items()
        if switch.get("enabled") != "auto" and truth(switch.get("enabled"), name)
    }
    if len(on) > 1:
        raise InputError("fp16 and bf16 are both enabled, which DeepSpeed refuses; enable one")
    if on:
        return {"precision": on.pop()}
    left = any(switch.get("enabled") == "auto" for switch in asked.values())
    by_trainer = not any(asked.values()) and "auto" in [
        value for value in given.values() if isinstance(value, str)
    ]
    return {} if left or by_trainer else {"precision": "fp32"}


def _zero(content: Mapping[str, object], untold: dict[str, str]) -> dict[str, object]:
    zero = content.get("zero_optimization", {})
    zero = (
        {"stage": int(zero)}
        if isinstance(zero, bool)
        else part(content, "zero_optimization", PROGRAM)
    )  # true is stage 1
    stage = zero.get("stage", 0)
    if stage == "auto":
        return {}
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        raise InputError(
            f"zero_optimization.stage is {shown(repr(stage))}; it must be 0, 1, 2 or 3"
        )
    found: dict[str, object] = {"zero_stage": int(stage)}
    overlaps = zero.get("overlap_comm")
    if stage and overlaps != "auto":
        found["overlap_gradients"] = (
            stage == 3 if overlaps is None else truth(overlaps, "zero_optimization.overlap_comm")
        )
    _whole_parameters(zero, stage, untold)
    optimizer = _on_host(zero, "offload_optimizer", "cpu_offload", untold) if stage else 0.0
    weights = _on_host(zero, "offload_param", "cpu_offload_param", untold) if stage == 3 else 0.0
    ratio = part(zero, "offload_optimizer", PROGRAM).get("ratio", 1.0)
    if optimizer and ratio != "auto":
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0.0 <= ratio <= 1.0:
            raise InputError(
                f"zero_optimization.offload_optimizer.ratio is {shown(repr(ratio))}; it must lie "
                "between 0 and 1"
            )
        optimizer = float(ratio)
    activations = part(content, "activation_checkpointing", PROGRAM).get("cpu_checkpointing")
    held = Offload(
        optimizer,
        optimizer,
        weights,
        float(truth(activations, "activation_checkpointing.cpu_checkpointing")),
    )
    return found | ({"offload": list(held.terms)} if held else {})


def _whole_parameters(zero: Mapping[str, object], stage: int, untold: dict[str, str]) -> None:
    """A threshold above the tensors of a block leaves whole what stage 3 is said to share out; its
    default is 1e5."""
    for name in ("stage3_param_persistence_threshold", "param_persistence_threshold"):
        threshold = zero.get(name, 0)
        if stage == 3 and isinstance(threshold, int | float) and threshold > LARGE_TENSOR:
            untold[f"zero_optimization.{name}"] = (
                "tensors of up to so many parameters stay whole on every device"
            )


def _on_host(zero: Mapping[str, object], name: str, older: str, untold: dict[str, str]) -> float:
    """1 where what ``name`` says lies in host memory, else 0; null and the device none are
    neither."""
    device = part(zero, name, PROGRAM).get(
        "device", "cpu" if truth(zero.get(older), older) else "none"
    )
    if device == "nvme":
        untold[f"zero_optimization.{name}.device"] = (
            "it lies on NVMe drives, and is priced as in host memory"
        )
    elif device != "cpu" and not is_off(device):
        raise InputError(
            f"zero_optimization.{name}.device is {shown(repr(device))}; DeepSpeed takes cpu, nvme "
            "or none"
        )
    return float(device in ("cpu", "nvme"))


def _recomputed(
    content: Mapping[str, object], own: Mapping[str, object], tp: int, untold: dict[str, str]
) -> dict[str, object]:
    """Whether blocks are recomputed: by what an export says, else where any way to keep their
    inputs is asked for."""
    asked = part(content, "activation_checkpointing", PROGRAM)
    parted = truth(
        asked.get("partition_activations"), "activation_checkpointing.partition_activations"
    )
    if parted and tp > 1:
        untold["activation_checkpointing.partition_activations"] = (
            "inputs of recomputed blocks are cut over tensor-parallel devices"
        )
    if own.get("recompute") in ("full", "none"):
        return {"recompute": own["recompute"]}
    ways = ("cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints")
    interval = part(content, "pipeline", PROGRAM).get("activation_checkpoint_interval")
    return {
        "recompute": "full"
        if parted or not all(is_off(asked.get(way)) for way in ways) or not is_off(interval)
        else "none"
    }


def _optimizer(content: Mapping[str, object], untold: dict[str, str]) -> dict[str, object]:
    optimizer = part(content, "optimizer", PROGRAM)
    name = str(optimizer.get("type", "auto")).lower().replace("_", "")
    if name in ADAM:
        return {"optimizer": "adam"}
    if name == "sgd":
        momentum = part(optimizer, "params", PROGRAM).get("momentum")
        return {"optimizer": "sgd" if is_off(momentum) else "sgd_momentum"}
    if name != "auto":
        untold["optimizer.type"] = NEAR_ADAM.get(
            name, "its state and step are not known, and it is priced as Adam"
        )
        return {"optimizer": "adam"}
    return {}


def own_gradients(found: Mapping[str, object], given: Mapping[str, str]) -> dict[str, object]:
    """The format in which it adds up gradients of bf16 weights where no key says so: fp32 only
    without ZeRO.

    Source: ``DeepSpeedEngine.get_data_types`` (runtime/engine.py).
    """
    stage = str(given.get("zero_stage", found.get("zero_stage", 0)))
    precision = given.get("precision", found.get("precision"))
    return {} if precision != "bf16" else {"gradient_dtype": "fp32" if stage == "0" else "bf16"}


def _formats_of_state(
    content: Mapping[str, object], precision: object, taken: set[str]
) -> dict[str, object]:
    """Formats of gradients, moments and the optimizer's weights, where plans have settings of
    them."""
    found = dict[str, object]()
    asked: list[tuple[str, str | None, tuple[str, ...]]] = [
        (
            "data_types.grad_accum_dtype",
            NAMES.get(str(part(content, "data_types", PROGRAM).get("grad_accum_dtype"))),
            GRADIENTS,
        )
    ]
    for name in ("bf16", "fp16"):
        switch = part(content, name, PROGRAM)
        asked += [
            (
                f"{name}.{key}",
                name
                if not is_off(switch.get(key)) and truth(switch[key], f"{name}.{key}")
                else None,
                settings,
            )
            for key, settings in (
                (f"{name}_master_weights_and_grads", STATE),
                (f"{name}_optimizer_states", MOMENTS),
            )
        ]
    for path, dtype, settings in asked:
        if dtype is not None:
            found |= {setting: found.get(setting, dtype) for setting in settings}
            taken.add(path)
    if (
        NAMES.get(str(content.get("communication_data_type")))
        == found.get("gradient_dtype", precision)
        is not None
    ):
        taken.add("communication_data_type")
    return found
