"""Settings of ``phaze evaluate`` out of configurations of NeMo 1 and 2 and of Megatron Bridge.

Those of NeMo and overrides of a recipe of Bridge are YAML; the recipe that an export wrote is
Python, of which nothing is run.

They give Megatron-Core's own names in sections of their own. Overrides change a recipe, which the
file does not name: what they leave out is the recipe's, and is left to the command line here. Sizes
of a model are read as those of a Megatron-LM command.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from phaze.exports.given_keys import flattened, is_off, known_keys, truth, whole, written
from phaze.exports.launch_batches import devices_of_a_replica
from phaze.exports.python_files.module import Module
from phaze.exports.python_files.values import Expression, Made, parsed
from phaze.settings.launched import KeyKind, LaunchKey, LaunchReading
from phaze_common.choices import GroupOrder
from phaze_common.errors import InputError
from phaze_common.yaml_files import parse_yaml

logger = logging.getLogger(__name__)

PROGRAM = "NeMo or Megatron Bridge"
# where the same keys stand in other versions: NeMo 2 has an object each for the strategy, the model
# and the optimizer
HOMES = (
    *(
        ("trainer.strategy.ddp.", "ddp."),
        ("trainer.strategy.", "model."),
        ("model.config.", "model."),
        ("strategy.", "model."),
    ),
    *(
        ("model.optim.sched.", "scheduler."),
        ("model.optim.", "optimizer."),
        ("optim.config.", "optimizer."),
        ("optim.", "optimizer."),
    ),
    *(
        ("trainer.plugins.", "mixed_precision."),
        ("model_config.", "model."),
        ("model.peft.", "peft."),
    ),
)
MARKS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
)
PARTS = (
    "model",
    "train",
    "optimizer",
    "scheduler",
    "ddp",
    "dist",
    "dataset",
    "comm_overlap",
    "mixed_precision",
    "checkpoint",
)
BATCHES = ("micro_batch_size", "global_batch_size")
ALIASES = {  # names of NeMo 1 and 2 for keys of Megatron-Core
    "model.activations_checkpoint_granularity": "model.recompute_granularity",
    "model.ub_tp_comm_overlap": "model.tp_comm_overlap",
    "model.encoder_seq_length": "model.seq_length",
    "model.bias": "model.add_bias_linear",
}
EXCHANGES = {"allgather": "gather", "all_gather": "gather", "p2p": "ring", "a2a": "ulysses"}
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
MEGATRON_FSDP, NEMO_FSDP = "ddp.data_parallel_sharding_strategy", "model.fsdp_sharding_strategy"
NEMO_SHARDING = {"full": 3, "grad": 2, "hybrid": 3}
PRECISIONS = {
    "bf16": "bf16",
    "bf16-mixed": "bf16",
    "16": "fp16",
    "16-mixed": "fp16",
    "fp16": "fp16",
    "32": "fp32",
    "32-true": "fp32",
}
PRECISIONS |= {
    "bf16-true": "bf16",
    "16-true": "fp16",
    "fp8": "fp8",
    "float32": "fp32",
    "bfloat16": "bf16",
}
FP8_OR_LESS = re.compile(r"nvfp4|mxfp4|fp4")
# models of other shapes
OTHERS = ("bert", "t5", "bart", "ul2", "retro", "mamba", "hyena", "griffin", "encoder.", "decoder.")
# flags of which something usual is taken
OF_THE_MODEL = ("normalization", "vocab-size", "num-query-groups")
SWITCHED_OFF = {  # keys that are false where a flag of Megatron-LM is given
    "disable-bias-linear": "add_bias_linear",
    "untie-embeddings-and-output-weights": "share_embeddings_and_output_weights",
}
CHUNKS = "model.virtual_pipeline_model_parallel_size"
RECIPES = ("mixed_precision", "trainer.precision", "precision", "mixed_precision.precision")
GATED = ("swiglu", "fast-swiglu", "geglu", "fast-geglu", "reglu", "fast-reglu")
_REFERENCE = re.compile(r"\$\{(\.?)([A-Za-z0-9_.]+)\}")


@dataclass
class _Given:
    """Values by path in one way of writing; ``spelled`` has the path of each as the file has it."""

    values: dict[str, object]
    spelled: dict[str, str]
    untold: dict[str, str] = field(default_factory=dict)
    usual: dict[str, str] = field(default_factory=dict)  # by today's path, what is taken for it
    no_model: str = ""
    assumed: dict[str, str] = field(default_factory=dict)  # the same of paths that are not given

    def first(self, *paths: str) -> object:
        """The first value that is given and not null."""
        return next((value for path in paths if (value := self.values.get(path)) is not None), None)

    def size(self, *paths: str) -> int | None:
        value = self.first(*paths)
        if isinstance(value, Expression) or (isinstance(value, str) and value.startswith("${")):
            raise InputError(
                f"{paths[0]} is {written(value)}; only whole numbers that are written out can be "
                "read: give one"
            )
        return whole(value, paths[0])

    def flag(self, *paths: str) -> bool:
        return truth(self.first(*paths), paths[0])

    def text(self, *paths: str) -> str:
        value = self.first(*paths)
        return "" if value is None or value == {} else str(value)

    def named(self, flag: str) -> str:
        """The file's own key for a flag of Megatron-LM."""
        path = f"model.{SWITCHED_OFF.get(flag, flag.replace('-', '_'))}"
        older = next(
            (each for each, today in ALIASES.items() if today == path and each in self.values), path
        )
        return self.spelled.get(older, older)

    def tell(self, path: str, reason: str) -> None:
        self.untold[self.spelled.get(path, path)] = reason


def recognises(content: object) -> bool:
    """Whether parsed YAML has such marks: a width by Megatron-Core's name in a section, or batches
    under train beside a model."""
    if not isinstance(content, dict):
        return False
    for name, section in content.items():
        if name in ("model", "strategy", "trainer") and isinstance(section, dict):
            inner = section.get("strategy") if name == "trainer" else section
            inner = (
                section.get("config", section)
                if name == "model" and isinstance(section.get("config"), dict)
                else inner
            )
            if isinstance(inner, dict) and any(mark in inner for mark in MARKS):
                return True
    batches = content.get("train")
    return (
        "model" in content
        and isinstance(batches, dict)
        and any(name in batches for name in BATCHES)
    )


def recognises_python(text: str) -> bool:
    """Whether a text may be a recipe in Python."""
    return "ConfigContainer(" in text


def read(text: str) -> LaunchReading:
    """The plan in ``text``, YAML, as settings of ``evaluate``, and what became of its keys; what
    cannot be known is left out.

    Raises: InputError: it is no YAML, has no mark of NeMo or Megatron Bridge, or has values that
        these do not take.
    """
    content = parse_yaml(text, "the configuration")
    if not isinstance(content, dict) or not recognises(content):
        raise InputError(
            f"the configuration has no section with {', '.join(MARKS)}; give one of NeMo or of "
            "Megatron Bridge"
        )
    return _reading(_referred(flattened({str(key): value for key, value in content.items()})))


def read_python(text: str) -> LaunchReading:
    """The plan of a recipe, a Python file with one function that returns a ``ConfigContainer``.

    Raises:
        InputError: it is no Python, or has none or several of such functions.
    """
    module = Module(parsed(text), parts=PARTS)
    found = {
        name: made for name in module.functions() if isinstance(made := module.returned(name), Made)
    }
    found = {name: made for name, made in found.items() if made.name == "ConfigContainer"}
    if len(found) != 1:
        some = (
            f"{len(found)} functions that do: {', '.join(list(found)[:20])}"
            if found
            else "none that does"
        )
        raise InputError(
            "a recipe has one function that returns ConfigContainer(...), and this file has "
            f"{some}; give one of them"
        )
    config = next(iter(found.values()))
    config.check_told()
    values = dict[str, object]()
    for section, value in config.values.items():
        if isinstance(value, Made):
            value.check_told(unnamed=1)
        if isinstance(value, Made) and not value.positional:
            values |= {f"{section}.{name}": _word(inner) for name, inner in value.values.items()}
        else:
            values[section] = _word(value.positional[0] if isinstance(value, Made) else value)
            if isinstance(value, Made):
                values |= {
                    f"{section}.{name}": _word(inner) for name, inner in value.values.items()
                }
    if "mixed_precision" in values and values["mixed_precision"] is None:
        values["mixed_precision"] = "32"
    return _reading(values)


def _word(value: object) -> object:
    return Expression(str(value)) if isinstance(value, Made) else value


def _referred(values: dict[str, object]) -> dict[str, object]:
    """Values with references such as ``${model.seq_length}`` or ``${.hidden_size}`` in place of
    which stands what they name."""

    def named(path: str, value: object, depth: int = 0) -> object:
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None or depth > 8:
            return value
        home = path.rpartition(".")[0]
        other = f"{home}.{found[2]}" if found[1] else found[2]
        return named(other, values[other], depth + 1) if other in values else value

    return {path: named(path, value) for path, value in values.items()}


def _reading(given: Mapping[str, object]) -> LaunchReading:
    placed = _placed(given)
    known_keys("nemo").check_spelling(placed.values)
    found: dict[str, object] = {}
    sizes = {
        **{
            "tp": "tensor_model_parallel_size",
            "pp": "pipeline_model_parallel_size",
            "cp": "context_parallel_size",
        },
        **{"ep": "expert_model_parallel_size"},
    }
    found |= {
        axis: size
        for axis, name in sizes.items()
        if (size := placed.size(f"model.{name}")) is not None
    }
    homes = ("train", "data", "model", "dataset")
    for name in BATCHES:
        if (size := placed.size(*(f"{home}.{name}" for home in homes))) is not None:
            found[name] = size
    lengths = (
        "model.seq_length",
        "data.seq_length",
        "dataset.seq_length",
        "dataset.sequence_length",
        "model.data.seq_length",
    )
    if (length := placed.size(*lengths)) is not None:
        found["sequence_length"] = length
    if placed.first("model.sequence_parallel") is not None:
        found["sequence_parallel"] = (
            placed.flag("model.sequence_parallel") and found.get("tp", 1) != 1
        )
    parts: tuple[Callable[[_Given], dict[str, object]], ...] = (
        _precision,
        _sharding,
        _recomputed,
        _optimizer,
        _overlaps,
        _model,
    )
    for part in parts:
        found |= part(placed)
    found |= _stages(placed, found) | _replicas(placed, found)
    if found.get("cp", 1) != 1:
        way = placed.text("model.cp_comm_type") or "p2p"
        if way not in EXCHANGES:
            raise InputError(
                f"cp_comm_type is {written(placed.first('model.cp_comm_type'))}; give "
                f"{', '.join(EXCHANGES)}"
            )
        found["exchange"] = EXCHANGES[way]
    if not {"tp", "pp"} <= found.keys():
        logger.info(
            "what these overrides leave out is their recipe's; give it by flags, else widths of 1 "
            "are taken"
        )
    return _sorted(placed, given, found)


def _sorted(
    placed: _Given, given: Mapping[str, object], found: Mapping[str, object]
) -> LaunchReading:
    """Keys are named as the file has them, and sorted by where they stand in the list."""
    known = known_keys("nemo")
    of_place = placed.spelled
    untold = {
        place: placed.untold[original]
        for place, original in of_place.items()
        if original in placed.untold
    }
    values = {place: given[original] for place, original in of_place.items()}
    sorted_keys = known.reading(found, values, untold, usual=placed.usual)
    keys = tuple(
        LaunchKey(of_place[key.name], key.value, key.kind, key.reason) for key in sorted_keys.keys
    )
    assumed = [
        LaunchKey(path, "", KeyKind.USUAL, reason, given=False)
        for path, reason in placed.assumed.items()
    ]
    return replace(sorted_keys, keys=(*keys, *assumed), no_model=placed.no_model)


def _placed(given: Mapping[str, object]) -> _Given:
    values, spelled = dict[str, object](), dict[str, str]()
    for path, value in given.items():
        place = path
        for home, other in HOMES:
            if place.startswith(home):
                place = other + place[len(home) :]
                break
        spelled.setdefault(place, path)
        values.setdefault(place, value)
    for older, name in ALIASES.items():
        if values.get(older) is not None:
            values.setdefault(name, values[older])
    return _Given(values, spelled)


def _precision(given: _Given) -> dict[str, object]:
    if (
        given.flag("mixed_precision.fp8", "model.fp8")
        if isinstance(given.first("mixed_precision.fp8", "model.fp8"), bool)
        else (not is_off(given.first("mixed_precision.fp8", "model.fp8")))
    ):
        return {"precision": "fp8"} | _fp8_weights(given)
    recipe = given.text(*RECIPES)
    if recipe:
        if FP8_OR_LESS.search(recipe):
            given.tell(
                next(path for path in RECIPES if given.text(path)),
                "products are in 4 bits, and are priced in 8",
            )
            return {"precision": "fp8"}
        if "fp8" in recipe:
            return {"precision": "fp8"} | _fp8_weights(given)
        name = recipe.removesuffix("_mixed").replace("_", "-")
        if name not in PRECISIONS:
            raise InputError(
                f"the precision is {written(given.first(*RECIPES))}; give bf16_mixed, fp16_mixed, "
                "one with fp8, or 32"
            )
        return {"precision": PRECISIONS[name]}
    for name in ("bf16", "fp16", "fp32"):
        if given.flag(f"mixed_precision.{name}", f"model.{name}"):
            return {"precision": name}
    return {}


def _fp8_weights(given: _Given) -> dict[str, object]:
    return {"fp8_weights": True} if given.flag("mixed_precision.fp8_param_gather") else {}


def _sharding(given: _Given) -> dict[str, object]:
    if given.flag("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"):
        strategy = given.text(MEGATRON_FSDP) or "no_shard"
        if strategy not in SHARDING:
            raise InputError(
                f"{MEGATRON_FSDP} is {written(given.first(MEGATRON_FSDP))}; give "
                f"{', '.join(SHARDING)}"
            )
        return {"zero_stage": SHARDING[strategy]}
    if given.flag("model.fsdp"):
        strategy = given.text(NEMO_FSDP) or "full"
        if strategy not in NEMO_SHARDING:
            raise InputError(
                f"{NEMO_FSDP} is {written(given.first(NEMO_FSDP))}; give {', '.join(NEMO_SHARDING)}"
            )
        if strategy == "hybrid":
            given.tell(
                NEMO_FSDP,
                "replicas of shards, hybrid sharding, are no ZeRO stage; all are priced as shards",
            )
        return {"zero_stage": NEMO_SHARDING[strategy]}
    names = ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer")
    if given.first(*names) is not None:
        return {"zero_stage": int(given.flag(*names))}
    name = given.text("optimizer.name")
    if name:
        return {
            "zero_stage": int(name.startswith("distributed_") or name == "mcore_distributed_optim")
        }
    return {}


def _recomputed(given: _Given) -> dict[str, object]:
    granularity = given.text("model.recompute_granularity")
    if not granularity:
        return {}
    if granularity not in ("full", "selective"):
        asked = written(given.first("model.recompute_granularity"))
        raise InputError(f"recompute_granularity is {asked}; give full or selective")
    modules = given.first("model.recompute_modules")
    if granularity == "selective" and isinstance(modules, list) and modules != ["core_attn"]:
        given.tell(
            "model.recompute_modules",
            "these modules are recomputed; core attention alone is priced so",
        )
    return {"recompute": granularity}


def _optimizer(given: _Given) -> dict[str, object]:
    name = given.text("optimizer.optimizer", "optimizer.name")
    if not name:
        return {}
    if "adam" in name or name == "mcore_distributed_optim":
        return {"optimizer": "adam"}
    if name == "sgd":
        return {
            "optimizer": "sgd"
            if given.first("optimizer.sgd_momentum") in (0, 0.0)
            else "sgd_momentum"
        }
    given.tell(
        "optimizer.optimizer" if given.first("optimizer.optimizer") else "optimizer.name",
        "it is priced as Adam",
    )
    return {"optimizer": "adam"}


def _overlaps(given: _Given) -> dict[str, object]:
    found = dict[str, object]()
    gradients = (
        "comm_overlap.overlap_grad_reduce",
        "ddp.overlap_grad_reduce",
        "optimizer.overlap_grad_sync",
    )
    if given.first(*gradients) is not None:
        found["overlap_gradients"] = given.flag(*gradients)
    tensor = ("comm_overlap.tp_comm_overlap", "model.tp_comm_overlap")
    if given.first(*tensor) is not None:
        found["overlap_tensor"] = given.flag(*tensor)
    backend = given.text("model.attention_backend").rpartition(".")[2]
    if backend:
        found["attention"] = "eager" if backend in ("unfused", "local") else "flash"
    if given.flag("dist.use_tp_pp_dp_mapping"):
        found["group_order"] = GroupOrder.PIPELINE_INNER.value
    reduced = given.first("mixed_precision.grad_reduce_in_fp32", "ddp.grad_reduce_in_fp32")
    if reduced is not None and not truth(reduced, "grad_reduce_in_fp32"):
        found["gradient_dtype"] = "bf16"
    return found


def _stages(given: _Given, found: Mapping[str, object]) -> dict[str, object]:
    pp = whole(found.get("pp"), "pp") or 1
    layout = given.first("model.pipeline_model_parallel_layout")
    if pp > 1 and isinstance(layout, str):
        from phaze.exports.megatron_lm.pipeline import layout_chunks, predicts_further

        chunks = layout_chunks(layout)
        if predicts_further(layout):
            given.tell(
                "model.pipeline_model_parallel_layout", "its layers m predict further tokens"
            )
        if len(chunks) % pp:
            raise InputError(
                f"pipeline_model_parallel_layout has {len(chunks)} stages, which is no multiple "
                f"of pp {pp}; correct one"
            )
        if given.size(CHUNKS) is not None:
            given.usual[CHUNKS] = "not used: the layout says the chunks"
        return {"interleave": len(chunks) // pp, "stage_layers": [len(chunk) for chunk in chunks]}
    if pp > 1 and layout is not None:
        given.tell("model.pipeline_model_parallel_layout", "stages hold these layers")
    chunks_of_each = given.size(CHUNKS)
    return {"interleave": chunks_of_each} if pp > 1 and chunks_of_each else {}


def _replicas(given: _Given, found: Mapping[str, object]) -> dict[str, object]:
    nodes, each = given.first("trainer.num_nodes"), given.first("trainer.devices")
    if each in (-1, "-1", "auto"):
        given.usual["trainer.devices"] = (
            "all of a node, of which the file does not say how many; --devices says it"
        )
    if nodes is None or each in (None, -1, "-1", "auto"):
        return {}
    devices = (whole(nodes, "trainer.num_nodes") or 1) * (whole(each, "trainer.devices") or 1)
    others = devices_of_a_replica(found)
    if devices % others:
        logger.info(
            "%d devices of the trainer are no multiple of tp x pp x cp, %d; give --devices or --dp",
            devices,
            others,
        )
        return {}
    return {"dp": devices // others}


def _model(given: _Given) -> dict[str, object]:
    """The model by the words of a Megatron-LM command, where its sizes are all there and such a
    command can say it."""
    from phaze.exports.megatron_lm.reader import read as read_command

    needed = ("num_layers", "hidden_size", "num_attention_heads")
    sizes = [given.first(f"model.{name}") for name in needed]
    if any(not isinstance(size, int) for size in sizes):
        return {}
    others = [
        word
        for word in OTHERS
        if word in given.text("name") or any(f"model.{word}" in path for path in given.values)
    ]
    if others:
        given.no_model = f"it is of another kind: {', '.join(others)}"
        return {}
    length = given.size("model.seq_length", "dataset.seq_length") or 1024
    words = ["--micro-batch-size 1", f"--seq-length {length}"]
    places = given.size("model.max_position_embeddings") or length
    words.append(f"--max-position-embeddings {places}")
    numbers = {
        name: given.size(f"model.{name}") for name in (*needed, "ffn_hidden_size", "kv_channels")
    }
    experts = ("moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size")
    numbers |= {name: given.size(f"model.{name}") for name in experts} | {
        "num_experts": given.size("model.num_moe_experts")
    }
    words += [
        f"--{name.replace('_', '-')} {size}" for name, size in numbers.items() if size is not None
    ]
    groups = given.size("model.num_query_groups")
    if groups is not None and groups != given.size("model.num_attention_heads"):
        words.append(f"--group-query-attention --num-query-groups {groups}")
    activation = given.text("model.activation")
    if given.flag("model.gated_linear_unit") or activation in GATED:
        words.append("--swiglu")
    if given.text("model.normalization").lower() == "rmsnorm":
        words.append("--normalization RMSNorm")
    if given.text("model.position_embedding_type") == "rope":
        words.append("--position-embedding-type rope")
    words += [
        f"--{flag}" for flag, name in SWITCHED_OFF.items() if given.first(f"model.{name}") is False
    ]
    if given.flag("model.qk_layernorm"):
        words.append("--qk-layernorm")
    words += _vocabulary(given)
    try:
        command = read_command(" ".join(words))
        told = command.of_kind(KeyKind.NOT_EXPRESSIBLE)
        if told:
            given.no_model = "; ".join(f"{given.named(key.bare)}: {key.reason}" for key in told)
            return {}
        for key in command.of_kind(KeyKind.USUAL):
            path = f"model.{key.bare.replace('-', '_')}"
            if key.bare in OF_THE_MODEL:
                (given.usual if path in given.values else given.assumed)[path] = key.reason
        return {"model": command.settings["model"]}
    except InputError as error:
        given.no_model = str(error)
        return {}


def _vocabulary(given: _Given) -> list[str]:
    words = given.size("tokenizer.vocab_size")
    if words is not None:
        return [
            f"--vocab-size {words} --tokenizer-type "
            f"{given.text('tokenizer.tokenizer_type') or 'NullTokenizer'}"
        ]
    words = given.size("model.vocab_size")
    return [] if words is None else [f"--vocab-size {words}"]
