"""Settings of ``phaze evaluate`` out of a configuration of DeepSpeed, a JSON file.

What an export wrote beside DeepSpeed's own keys, under ``phaze``, is read too: the model, its sequences and its replicas. Files
of others have no word for them; how many replicas there are is then what the product rule leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

from Common.errors import InputError
from Common.files import parse_json
from Plans.offload import Offload


def settings_of(text: str) -> dict[str, object]:
    """The plan in ``text``, JSON, as settings of ``evaluate``; what cannot be known, such as a value ``"auto"``, is left out.

    Raises:
        InputError: it is no JSON object, or has values that DeepSpeed does not take.
    """
    try:
        content = parse_json(text, "the configuration")
    except InputError as error:
        raise InputError(f"the configuration is no JSON ({error}); give a file that DeepSpeed reads") from error
    if not isinstance(content, dict):
        raise InputError(f"the configuration holds a {type(content).__name__}; DeepSpeed reads an object of keys")
    own = _part(content, "phaze")
    tensor = _part(content, "tensor_parallel")
    tp = _size(tensor, "autotp_size") or _size(_part(tensor, "tp"), "tp_size") or 1
    found: dict[str, object] = {"tp": tp, "pp": 1, "cp": 1, "ep": 1}
    found |= _batches(content, own, tp) | _zero(content) | _rest(content, tensor)
    for name in ("model", "attention"):
        if isinstance(own.get(name), str):
            found[name] = own[name]
    if (length := _size(own, "sequence_length")) is not None:
        found["sequence_length"] = length
    return found


def _part(content: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = content.get(name, {})
    if not isinstance(part, dict):
        raise InputError(f"{name} holds a {type(part).__name__}; DeepSpeed takes an object of keys")
    return part


def _size(content: Mapping[str, object], name: str) -> int | None:
    value = content.get(name, "auto")
    if value in ("auto", None, 0):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {value!r:.60}; give a whole number of at least 1, or auto")
    return value


def _flag(content: Mapping[str, object], name: str) -> bool:
    return content.get(name) is True


def _batches(content: Mapping[str, object], own: Mapping[str, object], tp: int) -> dict[str, object]:
    batch, micro = _size(content, "train_batch_size"), _size(content, "train_micro_batch_size_per_gpu")
    steps = _size(content, "gradient_accumulation_steps")
    dp = _size(own, "dp")
    if dp is None and batch and micro:
        dp, left = divmod(batch, micro * (steps or 1))
        if left or dp == 0:
            raise InputError(
                f"train_batch_size {batch} is no multiple of train_micro_batch_size_per_gpu {micro} x "
                f"gradient_accumulation_steps {steps or 1}; correct one of them"
            )
        if dp % tp == 0:  # DeepSpeed counts tensor-parallel devices in the product while it reads a file
            dp //= tp
            batch //= tp
    found: dict[str, object] = {"dp": dp, "micro_batch_size": micro}
    found["global_batch_size"] = _size(own, "global_batch_size") or (micro * (steps or 1) * dp if micro and dp else batch)
    return {name: value for name, value in found.items() if value is not None}


def _zero(content: Mapping[str, object]) -> dict[str, object]:
    zero = _part(content, "zero_optimization")
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        raise InputError(f"zero_optimization.stage is {stage!r:.60}; it must be 0, 1, 2 or 3")
    found: dict[str, object] = {"zero_stage": stage}
    if stage:
        found["overlap_gradients"] = zero.get("overlap_comm", stage == 3) is True
    on_host = {name: _part(zero, name).get("device") in ("cpu", "nvme") for name in ("offload_optimizer", "offload_param")}
    held = Offload(
        optimizer=float(on_host["offload_optimizer"]),
        gradients=float(on_host["offload_optimizer"]),
        weights=float(on_host["offload_param"]),
        activations=float(_flag(_part(content, "activation_checkpointing"), "cpu_checkpointing")),
    )
    return found | ({"offload": list(held.terms)} if held else {})


def _rest(content: Mapping[str, object], tensor: Mapping[str, object]) -> dict[str, object]:
    fp16, bf16 = (_flag(_part(content, name), "enabled") for name in ("fp16", "bf16"))
    if fp16 and bf16:
        raise InputError("fp16 and bf16 are both enabled, which DeepSpeed refuses; enable one")
    found: dict[str, object] = {"precision": "fp16" if fp16 else "bf16" if bf16 else "fp32"}
    found["recompute"] = "full" if "activation_checkpointing" in content else "none"
    if "tp_overlap_comm" in tensor:
        found["overlap_tensor"] = _flag(tensor, "tp_overlap_comm")
    optimizer = _part(content, "optimizer")
    name = str(optimizer.get("type", "")).lower()
    if "adam" in name:
        found["optimizer"] = "adam"
    elif name == "sgd":
        found["optimizer"] = "sgd_momentum" if _part(optimizer, "params").get("momentum") else "sgd"
    return found
