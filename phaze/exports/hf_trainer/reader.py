"""Settings of ``phaze evaluate`` out of arguments of Hugging Face's Trainer: a call in Python
(nothing is run), or YAML or JSON.

They say the micro-batch, formats, recomputation and FSDP. How many replicas there are is nowhere
among them, so ``--dp`` or ``--devices`` gives it, and ``--global-batch-size`` the batch where
gradients are accumulated. What shares out the model by a file of DeepSpeed is in that file.
"""

from __future__ import annotations

from collections.abc import Mapping

from Estimator.plans.offload import Offload
from phaze.exports.deepspeed.reader import INSTEAD_OF_DEEPSPEED, OF_COMMAND_LINE
from phaze.exports.given_keys import (
    GivenKeys,
    flattened,
    is_off,
    known_keys,
    refused,
    shown,
    truth,
)
from phaze.exports.launch_batches import accumulation
from phaze.exports.python_files.changes import ABSENT
from phaze.exports.python_files.expressions import Method
from phaze.exports.python_files.module import Module
from phaze.exports.python_files.values import Expression, Made, parsed
from phaze.settings.launched import LaunchReading
from phaze_common.errors import InputError
from phaze_common.yaml_files import parse_yaml

MARK, STEPS = "per_device_train_batch_size", "gradient_accumulation_steps"
CALLS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig")
ADAM = (
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_hf",
    "adamw_apex_fused",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adam",
)
LENGTHS = ("max_length", "max_seq_length", "cutoff_len")  # of TRL and LLaMA-Factory
SETTINGS = {  # of phaze evaluate that say what an argument does
    MARK: "micro_batch_size",
    STEPS: "global_batch_size",
    "bf16": "precision",
    "fp16": "precision",
    "gradient_checkpointing": "recompute",
    "activation_checkpointing": "recompute",
    "optim": "optimizer",
    **dict.fromkeys(LENGTHS, "sequence_length"),
}
# of TrainingArguments in transformers 4 and 5; what they leave out, they set to a default
METHODS: dict[str, Method] = {
    "set_training": (
        ("learning_rate", "learning_rate", 5e-5),
        ("batch_size", MARK, 8),
        ("weight_decay", "weight_decay", 0),
        ("num_epochs", "num_train_epochs", 3),
        ("max_steps", "max_steps", -1),
        ("gradient_accumulation_steps", "gradient_accumulation_steps", 1),
        ("seed", "seed", 42),
        ("activation_checkpointing", "gradient_checkpointing", False),
        ("activation_checkpointing", "activation_checkpointing", ABSENT),
        ("gradient_checkpointing", "gradient_checkpointing", ABSENT),
    ),
    "set_optimizer": (
        ("name", "optim", ADAM[0]),
        ("learning_rate", "learning_rate", 5e-5),
        ("weight_decay", "weight_decay", 0),
        ("beta1", "adam_beta1", 0.9),
        ("beta2", "adam_beta2", 0.999),
        ("epsilon", "adam_epsilon", 1e-8),
        ("args", "optim_args", None),
    ),
    "set_dataloader": (("train_batch_size", MARK, 8),),
}
for kind in ("evaluate", "testing", "save", "logging", "push_to_hub", "lr_scheduler"):
    METHODS[f"set_{kind}"] = ()
STAGES = {  # of ZeRO by the words of fsdp
    "full_shard": 3,
    "shard_grad_op": 2,
    "no_shard": 0,
    "hybrid_shard": 3,
    "hybrid_shard_zero2": 2,
}
NOWHERE = "TrainingArguments(...) in no place that can be followed"
MOST_LISTED = 20


class _Arguments(GivenKeys):
    """Arguments of Trainer by their names; of those of which the command line says the setting, no
    value is taken."""

    def value(self, path: str) -> object:
        """See base class.

        Raises:
            InputError: only running the file would tell it.
        """
        value, setting = self.content.get(path), SETTINGS.get(path, "")
        if setting in self.command_line:
            return None
        if isinstance(value, Expression | Made):
            flag = f"; write its value out, or give --{setting.replace('_', '-')}"
            raise InputError(
                f"{path} is {shown(value)}, which only running the file would tell"
                f"{flag if setting else ''}"
            )
        return value


def recognises(content: object) -> bool:
    """Whether parsed YAML or JSON has the mark of such arguments, the batch by Trainer's name."""
    return isinstance(content, dict) and MARK in content


def recognises_python(text: str) -> bool:
    """Whether a text may be a Python file with such a call."""
    return any(f"{call}(" in text for call in CALLS)


def read(text: str, given: Mapping[str, str] | None = None) -> LaunchReading:
    """The plan in ``text`` as settings of ``evaluate``, and what became of its keys; what cannot be
    known is left out.

    Settings ``given`` besides say the replicas.

    Raises:
        InputError: it has no such arguments, several of them, or values that Trainer does not take.
    """
    if recognises_python(text):
        return _read_python(text, given or {})
    content = parse_yaml(text, "the configuration")
    if not isinstance(content, dict) or not recognises(content):
        raise InputError(
            f"the configuration has no {MARK}; give arguments of Hugging Face's Trainer"
        )
    return _reading({str(key): value for key, value in content.items()}, {}, given or {})


def _read_python(text: str, given: Mapping[str, str]) -> LaunchReading:
    module = Module(parsed(text), main=True, methods=METHODS)
    calls = module.records_of_functions(CALLS)
    if len(calls) != 1:
        what = f"calls {NOWHERE}"
        if calls:
            lines = ", ".join(str(call.line) for call in calls[:MOST_LISTED])
            what = f"makes arguments of {len(calls)} trainings, in lines {lines}"
        raise InputError(f"the file {what}; give one with the arguments of one training")
    calls[0].check_told(unnamed=1)  # the folder of results
    model, length, attention = map(module.constant, ("MODEL", "SEQUENCE_LENGTH", "ATTENTION"))
    untold = module.has("SEQUENCE_LENGTH") and isinstance(length, Expression | Made)
    if untold and "sequence_length" not in given:
        raise InputError(
            f"SEQUENCE_LENGTH is {shown(length)}, which only running the file would tell; write "
            "it out, or give --sequence-length"
        )
    constants = {"model": model, "sequence_length": length}
    own = {key: value for key, value in constants.items() if isinstance(value, str | int)}
    if isinstance(attention, str):
        own["attention"] = "eager" if attention == "eager" else "flash"
        if attention == "flash_attention_3":
            own["attention_kernel"] = "flash_3"
    return _reading(calls[0].values, own, given)


def _reading(
    values: Mapping[str, object], own: Mapping[str, object], command_line: Mapping[str, str]
) -> LaunchReading:
    known = known_keys("hf_trainer")
    given = _Arguments(known, values, flattened(_words(values)), command_line)
    known.check_spelling(given.keys)
    # Trainer's default
    micro = given.size(MARK) or 8
    found: dict[str, object] = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "micro_batch_size": micro}
    steps = given.size(STEPS) or 1
    found |= accumulation(command_line, steps, found, STEPS, given.untold)
    formats = [name for name in ("bf16", "fp16") if given.flag(name)]
    if len(formats) > 1:
        raise InputError("fp16 and bf16 are both true, which Trainer refuses; leave one out")
    found["precision"] = formats[0] if formats else "fp32"
    names = ("gradient_checkpointing", "activation_checkpointing")  # of transformers 5 both
    found["recompute"] = "full" if any(map(given.flag, names)) else "none"
    found |= _optimizer(given) | _sharing(given)
    lengths = (size for name in LENGTHS if (size := given.size(name)) is not None)
    if (length := next(lengths, None)) is not None:
        found["sequence_length"] = length
    found |= own
    hidden = {
        SETTINGS[name]
        for name, value in values.items()
        if name in SETTINGS and isinstance(value, Expression | Made)
    }
    return given.reading(
        {key: value for key, value in found.items() if key not in hidden & command_line.keys()}
    )


def _words(values: Mapping[str, object]) -> dict[str, object]:
    """Values of which records are the text of their call."""
    return {
        name: str(value) if isinstance(value, Made) else value for name, value in values.items()
    }


def _optimizer(given: GivenKeys) -> dict[str, object]:
    name = str(given.value("optim") or ADAM[0]).rpartition(".")[2].lower()
    if name == "sgd":
        return {"optimizer": "sgd"}
    if name not in ADAM:
        given.untold["optim"] = "its state and step are not those of Adam, and it is priced as Adam"
    return {"optimizer": "adam"}


def _sharing(given: GivenKeys) -> dict[str, object]:
    if not is_off(given.content.get("deepspeed")):
        path, *others = (each for each in given.keys if each.split(".")[0] == "deepspeed")
        given.usual |= dict.fromkeys(others, f"not read, as {path}")
        if "zero_stage" in given.command_line:
            given.usual[path] = OF_COMMAND_LINE
        else:
            given.untold[path] = (
                f"its configuration says how DeepSpeed shares out the model: {INSTEAD_OF_DEEPSPEED}"
            )
        return {}
    words = given.content.get("fsdp")
    named = ["full_shard"] if words is True else []
    if isinstance(words, str | list):
        named = words.split() if isinstance(words, str) else [str(word) for word in words]
    stage = next((STAGES[word] for word in named if word in STAGES), None)
    if named and stage is None:
        raise refused("fsdp", words, ", ".join(STAGES))
    if any(word.startswith("hybrid") for word in named):
        given.note_hybrid("fsdp")
    # as torch always does
    found: dict[str, object] = {"zero_stage": stage or 0, "overlap_gradients": True}
    options = given.content.get("fsdp_config")
    options = options if isinstance(options, dict) and named else {}
    older = options.get("fsdp_activation_checkpointing")
    path = "activation_checkpointing"
    if truth(options.get(path, older), f"fsdp_config.{path}"):
        found["recompute"] = "full"
    if "offload" in named:
        found["offload"] = list(Offload(1.0, 1.0, 1.0).terms)
    return found
