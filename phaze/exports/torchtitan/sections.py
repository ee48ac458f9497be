"""Settings of a plan out of the sections of a torchtitan configuration, whichever way they were
written and by either names.

Names of 0.1.0 to 0.3.0 count samples (``seq_len``, ``local_batch_size``); those of main since
2026-08-20 count tokens (``max_context_length``, ``num_tokens_per_microbatch_per_dp_rank``) and say
micro-batches of a pipeline by their number. What is left out has torchtitan's own default, which is
the same in both: samples of 2,048 tokens, eight of them.

Its selective recomputation repeats single operators and every second product of a block. It is read
as the plan's ``selective``, the nearest there is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from phaze.exports.given_keys import GivenKeys, refused, shown, written
from phaze.exports.launch_batches import OF_REPLICAS, given_number, replicas_of
from phaze.exports.python_files.values import Expression
from phaze.exports.refusals import ON_HOST
from phaze.exports.torchtitan.files import BACKENDS, SCHEDULES
from phaze_common.choices import ExpertWidth, PipelineSchedule, Precision
from phaze_common.errors import InputError
from phaze_common.recompute_modules import BY_OPERATOR

FLAVORS = {  # of model_registry(...) and [model], by folder and name, as phaze calls the same sizes
    ("llama3", "debugmodel"): "llama:layers=6,hidden=256,heads=16,ffn=768,vocabulary=2048",
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "8B_flex"): "llama3-8b",
    ("llama3", "8B_varlen"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
    ("qwen3", "0.6B"): "qwen3-0.6b",
    ("qwen3", "1.7B"): "qwen3-1.7b",
    ("qwen3", "4B"): "qwen3-4b",
    ("qwen3", "8B"): "qwen3-8b",
    ("qwen3", "14B"): "qwen3-14b",
    ("qwen3", "32B"): "qwen3-32b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
}
# names of two generations of the keys of training, which say the batches
OF_TOKENS = (
    "max_context_length",
    "num_tokens_per_microbatch_per_dp_rank",
    "num_tokens_per_train_step",
)
OF_SAMPLES = ("seq_len", "local_batch_size", "batch_size", "global_batch_size")
LENGTH, SAMPLES = 2048, 8  # defaults of both generations
DTYPES = {"bfloat16": "bf16", "float32": "fp32"}
POLICIES = {name: name for name in ("full", "selective", "none")}
POLICIES |= {"FullAC": "full", "SelectiveAC": "selective"}
# what converts products, by the format
FORMATS = {
    Precision.FP8: (
        "Float8LinearConverter",
        "Float8GroupedMMConverter",
        "Float8GroupedExpertsConverter",
        "float8",
        "quantize.linear.float8",
        "quantize.grouped_mm.float8",
    ),
    Precision.MXFP8: (
        "MXFP8LinearConverter",
        "MXFP8GroupedExpertsConverter",
        "MXFP8Converter",
        "MXLinearConverter",
        "MXGroupedMMConverter",
        "mx",
        "quantize.linear.mx",
        "quantize.grouped_mm.mx",
    ),
    Precision.NVFP4: ("NVFP4LinearConverter",),
}
CONVERTERS = {name: precision for precision, names in FORMATS.items() for name in names}
RECIPE = "recipe_name"  # of a converter
RECIPES = {  # of torchao, as torchtitan names them
    Precision.FP8: re.compile("tensorwise|rowwise"),
    Precision.MXFP8: re.compile("mxfp8(_cublas)?(_rceil)?|mxfp8_floor"),
}
# gradients of weights are computed in 16 bits, or all of it only imitated
OTHER_RECIPES = re.compile("(rowwise|mxfp8).*(_hp|_emulated).*")
DEGREES = {  # by the keys of parallelism
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
}
STAGES, STEP_TOKENS = "parallelism.pipeline_parallel_degree", "training.num_tokens_per_train_step"
REPLICAS = "parallelism.data_parallel_replicate_degree"
SHARDS = "parallelism.data_parallel_shard_degree"
BACKEND = "parallelism.expert_parallel_comm_backend"
BALANCED = ("debug.moe_force_load_balance", "training.debug_moe_force_load_balance")
RESHARD = "parallelism.fsdp_reshard_after_forward"
SCHEDULE = "parallelism.pipeline_parallel_schedule"
NOT_ADAM = "its state and step are not known, and it is priced as Adam"
GATHERS_FP8 = "enable_fsdp_float8_all_gather"
OPTION = "selective_ac_option"
EVERY_SECOND = "2"  # blocks that are recomputed by default, up to the policies of June 2026


@dataclass
class Sections(GivenKeys):
    """Values by ``section.key``; ``alone`` where there is no command line that could say more."""

    converters: tuple[str, ...] = ()
    alone: bool = False

    def value(self, path: str) -> object:
        """See base class."""
        return self.content.get(path)

    def has(self, path: str) -> bool:
        """Whether it is given, and not null."""
        return self.value(path) is not None

    def number(self, path: str, default: int) -> int:
        """A whole number.

        Raises:
            InputError: it is none that is written out.
        """
        value = self.content.get(path, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _hidden(path, value, "whole numbers that are written out", "one")
        return value

    def degree(self, path: str, default: int = 1) -> int:
        """A whole number of at least 1."""
        value = self.number(path, default)
        if value < 1:
            raise InputError(f"{path} is {value}; it must be at least 1")
        return value

    def text(self, path: str, default: str) -> str:
        """A word.

        Raises:
            InputError: it is none that is written out.
        """
        value = self.content.get(path, default)
        if isinstance(value, Expression):
            raise _hidden(path, value, "a word that is written out", "one")
        return str(value)

    def switch(self, path: str, default: bool = False) -> bool:
        """A switch.

        Raises:
            InputError: it is none that is written out.
        """
        value = self.content.get(path, default)
        if not isinstance(value, bool):
            raise _hidden(path, value, "true or false that is written out", "one of them")
        return value


def _hidden(path: str, value: object, what: str, which: str) -> InputError:
    return InputError(f"{path} is {written(value)}; only {what} can be read: give {which}")


def settings_of(given: Sections) -> dict[str, object]:
    """The plan as settings of ``evaluate``, without the model; what cannot be known is left out.

    Raises:
        InputError: a value is none that torchtitan takes, or only running the file would tell it.
    """
    found: dict[str, object] = {
        **{axis: given.degree(f"parallelism.{name}") for axis, name in DEGREES.items()},
        "sequence_parallel": given.switch("parallelism.enable_sequence_parallel", True),
        "optimizer": "adam",
        "attention": "flash",
        "overlap_gradients": True,  # it always reduces them while the backward pass runs
    }
    found |= _sharding(given, found)
    dp = replicas_of(given.command_line, found)
    found |= _batches(given, dp) | _stages(given) | _arithmetic(given) | _recomputed(given)
    rotation = "parallelism.context_parallel_rotate_method"
    if found["cp"] != 1 and given.text(rotation, "allgather") == "alltoall":
        found["exchange"] = "ring"
    found |= _experts(given)
    kind = given.text("optimizer", "default_adamw")  # of a Python file: what makes it
    name = given.text("optimizer.name", "AdamW")
    if "muon" in f"{kind} {name}".lower():
        found["optimizer"] = "muon"  # which forks have
    elif "adam" not in kind.lower() and not kind.endswith("OptimizersContainer"):
        given.untold["optimizer"] = NOT_ADAM
    elif name not in ("Adam", "AdamW"):
        given.untold["optimizer.name"] = NOT_ADAM
    return found


@dataclass(frozen=True)
class NamedModel:
    """A model of torchtitan as a setting of ``evaluate``; without one, ``why`` it is not read."""

    settings: Mapping[str, object] = field(default_factory=dict)
    why: str = ""


def named_model(homes: Collection[str], flavor: object) -> NamedModel:
    """The model of a registry's ``flavor``, where phaze has its sizes; its folder is one of
    ``homes``."""
    known = {name for (home, size), name in FLAVORS.items() if size == flavor and home in homes}
    if len(known) == 1:
        return NamedModel({"model": known.pop()})
    if flavor is None:
        return NamedModel()
    sizes = [f"{home} {size}" for home, size in FLAVORS if home in homes]
    return NamedModel(
        why=f"{shown(flavor)} is none of the sizes that phaze has: "
        f"{', '.join(sizes or map(' '.join, FLAVORS))}"
    )


def _sharding(given: Sections, degrees: Mapping[str, object]) -> dict[str, object]:
    replicas, shards = given.degree(REPLICAS), given.number(SHARDS, -1)
    cp = given.degree("parallelism.context_parallel_degree")
    policy = given.text(RESHARD, "default")
    if policy not in ("default", "always", "never"):
        raise refused(RESHARD, given.value(RESHARD), "default, always or never")
    if shards != -1 and shards < 1:
        raise InputError(f"{SHARDS} is {shards}; it must be at least 1, or -1 for what is left")
    stage = _stage(policy, given.degree(STAGES) > 1)
    groups: dict[str, object] = {"shard_groups": replicas} if replicas > 1 else {}
    if shards == -1:  # all ranks that are left: the file does not say how many
        if not given.alone and replicas_of(given.command_line, degrees) is None:
            raise InputError(
                f"{SHARDS} is -1, also by default: all devices that are left share the weights, "
                f"and the file does not say how many there are; {OF_REPLICAS}"
            )
        return {"zero_stage": stage} | groups
    found: dict[str, object] = {"dp": replicas * shards}
    if shards * cp > 1:
        return found | {"zero_stage": stage} | groups
    return found | ({"zero_stage": 0} if replicas > 1 else {})


def _stage(policy: str, pipelined: bool) -> int:
    """In a pipeline weights and gradients stay whole between micro-batches, whatever the policy."""
    if pipelined:
        return 1
    return 2 if policy == "never" else 3


def _batches(given: Sections, dp: int | None) -> dict[str, object]:
    tokens = [name for name in OF_TOKENS if given.has(f"training.{name}")]
    samples = [name for name in OF_SAMPLES if given.has(f"training.{name}")]
    if tokens and samples:
        raise InputError(
            f"training has {tokens[0]} and {samples[0]}, names of two versions of torchtitan; "
            "leave those of one out"
        )
    by_number = given.has("parallelism.num_pp_microbatches") and not samples
    return _of_tokens(given, dp) if tokens or by_number else _of_samples(given, dp)


def _of_tokens(given: Sections, dp: int | None) -> dict[str, object]:
    length = given.degree("training.max_context_length", LENGTH)
    tokens = given.degree("training.num_tokens_per_microbatch_per_dp_rank", LENGTH * SAMPLES)
    micro, left = divmod(tokens, length)
    if left or not micro:
        raise InputError(
            f"training.num_tokens_per_microbatch_per_dp_rank {tokens} is no multiple of "
            f"max_context_length {length}, and a plan has whole samples; correct one of them"
        )
    whole = given.number(STEP_TOKENS, -1)
    pipelined = given.degree(STAGES) > 1
    passes = given.degree("parallelism.num_pp_microbatches") if pipelined else 1
    if whole > 0 and whole % length:
        raise InputError(
            f"{STEP_TOKENS} {whole} is no multiple of max_context_length {length}; correct it"
        )
    found: dict[str, object] = {"sequence_length": length, "micro_batch_size": micro}
    batch = whole // length if whole > 0 else 0
    return found | _global_batch(given, STEP_TOKENS, batch, micro * passes, dp)


def _of_samples(given: Sections, dp: int | None) -> dict[str, object]:
    names = ("training.local_batch_size", "training.batch_size")
    local = given.degree(names[not given.has(names[0])], SAMPLES)
    path = "training.global_batch_size"
    batch = given.number(path, -1)
    pipelined = given.degree(STAGES) > 1
    micro = given.degree("parallelism.pipeline_parallel_microbatch_size") if pipelined else local
    found: dict[str, object] = {"micro_batch_size": micro}
    if not given.has("training.img_size"):  # images have lengths of their own
        found["sequence_length"] = given.degree("training.seq_len", LENGTH)
    return found | _global_batch(given, path, max(batch, 0), local, dp)


def _global_batch(
    given: Sections, path: str, batch: int, each: int, dp: int | None
) -> dict[str, object]:
    """The ``batch`` that ``path`` says (0: none), else one of ``each`` for every replica.

    Gradients of several rounds are summed by ``Trainer.train_step``, each of which fills and
    empties the pipeline. A batch of the command line counts before that of the file.
    """
    whole = given_number(given.command_line, "global_batch_size") or batch
    rounds = 1 if dp is None or given.degree(STAGES) == 1 else whole // (each * dp)
    if rounds > 1 and dp is not None:
        given.untold[path if batch else STAGES] = (
            f"gradients are accumulated over {rounds} rounds of {each * dp} sequences, each of "
            "which fills and empties the pipeline; it is priced as one round of all"
        )
    if batch:
        return {"global_batch_size": batch}
    return {} if dp is None else {"global_batch_size": each * dp}


def _stages(given: Sections) -> dict[str, object]:
    pp = given.degree(STAGES)
    if pp == 1:
        return {}
    name = given.text(SCHEDULE, "1F1B").lower()
    schedule = next((each for each, called in SCHEDULES.items() if called.lower() == name), None)
    if schedule is None:
        given.untold[SCHEDULE] = f"plans have {', '.join(SCHEDULES.values())}; it is priced as 1F1B"
        schedule = PipelineSchedule.ONE_F_ONE_B
    path = "parallelism.module_fqns_per_model_part"
    parts = given.value(path)
    if parts is None:
        # torchtitan itself makes two chunks where a schedule has several
        chunks = 1 + (schedule is PipelineSchedule.INTERLEAVED)
        return {"schedule": schedule.value, "interleave": chunks}
    listed = isinstance(parts, list) and all(isinstance(part, list) and part for part in parts)
    if not isinstance(parts, list) or not listed or not parts or len(parts) % pp:
        raise InputError(f"{path} must list the modules of a multiple of {pp} parts")
    # the norm and the head are one layer
    counts = [sum(name != "norm" for name in part) for part in parts]
    return {"schedule": schedule.value, "interleave": len(parts) // pp, "stage_layers": counts}


def _arithmetic(given: Sections) -> dict[str, object]:
    usual = {"training.dtype": "float32", "training.mixed_precision_param": "bfloat16"}
    master, computed = (given.text(path, default) for path, default in usual.items())
    for path, dtype in zip(usual, (master, computed), strict=True):
        if dtype not in DTYPES:
            raise refused(path, given.value(path), " or ".join(DTYPES))
    found: dict[str, object] = {"precision": DTYPES[computed]} | _converted(given)
    if master == "bfloat16":
        found |= {"gradient_dtype": "bf16", "moment_dtype": "bf16", "main_weight_dtype": "bf16"}
    if given.switch("training.enable_cpu_offload"):
        found["offload"] = list(ON_HOST.terms)
    overlaps = [f"{section}.enable_async_tensor_parallel" for section in ("compile", "parallelism")]
    if any(map(given.has, (*overlaps, "compile"))):
        found["overlap_tensor"] = any(map(given.switch, overlaps))
    return found


def _converted(given: Sections) -> dict[str, object]:
    """The format into which products are converted, where they are."""
    home = "model.converters" if given.has("model.converters") else "model_spec"
    formats = {name: CONVERTERS[name] for name in given.converters if name in CONVERTERS}
    for name in given.converters:
        if name not in formats:
            given.untold[home] = f"{name} changes the model, and is left out"
    if not formats:
        return {}
    precision = next(iter(formats.values()))
    if {*formats.values()} != {precision}:
        given.untold[home] = "products are converted to several formats: " + ", ".join(
            sorted({*formats.values()})
        )
    homes = dict.fromkeys((*formats, *FORMATS[precision]))  # one converter has several names
    for name in homes:
        _check_recipe(given, name, precision)
    found: dict[str, object] = {"precision": precision.value}
    paths = (f"{home}.{GATHERS_FP8}" for home in homes)
    gathers = [path for path in paths if given.switch(path)]
    given.taken.update(gathers)
    return found | ({"fp8_weights": True} if gathers else {})


def _check_recipe(given: Sections, converter: str, precision: Precision) -> None:
    """Note a recipe of a converter that no plan says.

    Raises:
        InputError: there is none of its name.
    """
    path = f"{converter}.{RECIPE}"
    if not given.has(path) or precision not in RECIPES:
        return
    recipe = given.text(path, "")
    if OTHER_RECIPES.fullmatch(recipe):
        given.untold[path] = "some of its products are in 16 bits or only imitated"
    elif not RECIPES[precision].fullmatch(recipe):
        known = (
            "tensorwise or rowwise" if precision is Precision.FP8 else "mxfp8_rceil or mxfp8_cublas"
        )
        raise refused(path, recipe, known)
    given.taken.add(path)


def _recomputed(given: Sections) -> dict[str, object]:
    if given.content.get("activation_checkpoint", "") is None:
        return {"recompute": "none"}
    path, policy = "activation_checkpoint", given.text("activation_checkpoint", "SelectiveAC")
    # up to June 2026
    if given.has("activation_checkpoint.mode") or policy == "ActivationCheckpointConfig":
        path = "activation_checkpoint.mode"
        policy = given.text(path, "selective")
    if policy in ("MemoryBudgetAC", "memory_budget"):
        given.untold[path] = (
            "the compiler chooses what is recomputed within a budget; it is priced as selective"
        )
        return {"recompute": "selective"}
    if policy not in POLICIES:
        raise refused(path, given.value(path), "full, selective, memory_budget or none")
    if POLICIES[policy] != "selective":
        return {"recompute": POLICIES[policy]}
    by_mode, option_path = path == "activation_checkpoint.mode", f"activation_checkpoint.{OPTION}"
    option = str(given.content.get(option_path, EVERY_SECOND if by_mode else "op"))
    if option != "op" and not option.isdecimal():
        raise refused(option_path, option, "op, or one of how many blocks is recomputed")
    if option in ("0", "1"):
        return {"recompute": "full"}
    if option != "op":
        given.untold[option_path if given.has(option_path) else path] = (
            f"one of {option} blocks is recomputed; it is priced as every second product kept"
        )
    return {"recompute": BY_OPERATOR.value}


def _experts(given: Sections) -> dict[str, object]:
    names = ("tensor_parallel", "expert_parallel", "expert_tensor_parallel")
    tp, ep, own = (given.degree(f"parallelism.{name}_degree") for name in names)
    if ep == 1:
        return {}
    found: dict[str, object] = {}
    if tp > 1 and own != tp:
        found["etp"] = ExpertWidth.ONE.value
    if any(map(given.switch, BALANCED)):
        found["expert_load"] = 1.0
    if given.has(BACKEND):
        backend = given.text(BACKEND, "")
        known = {name: dispatcher.value for dispatcher, name in BACKENDS.items()}
        if backend not in known:
            others = f"{', '.join(known)}, or give --dispatcher"
            raise refused(BACKEND, given.value(BACKEND), others)
        found["dispatcher"] = known[backend]
    return found
