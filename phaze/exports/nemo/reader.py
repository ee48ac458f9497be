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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phaze.exports.given_keys import (
    GivenKeys,
    flattened,
    known_keys,
    refused,
    truth,
    whole,
    written,
)
from phaze.exports.launch_batches import devices_of_a_replica
from phaze.exports.megatron_lm.dispatch import (
    BACKEND,
    BACKENDS,
    BATCHES,
    DELAYED,
    FLEX,
    KIND,
    KINDS,
    SHARED,
    USUAL_BACKEND,
    USUAL_KIND,
    OverlapSwitches,
    dispatcher_of,
)
from phaze.exports.megatron_lm.reader import ATTENTION_BACKENDS, EAGER_BACKENDS
from phaze.exports.nemo.precision import is_recipe, precision_of
from phaze.exports.nemo.settings import TORCH_DTYPES
from phaze.exports.python_files.module import Module
from phaze.exports.python_files.values import Expression, Made, parsed
from phaze.settings.graph_words import graphs_of, older_switches
from phaze.settings.launched import KeyKind, LaunchKey, LaunchReading
from phaze_common.choices import CudaGraphs, ExpertWidth, GroupOrder
from phaze_common.errors import InputError
from phaze_common.recompute_modules import known_modules
from phaze_common.yaml_files import parse_yaml

logger = logging.getLogger(__name__)

# where the same keys stand in other versions: NeMo 2 has an object each for the strategy, the model
# and the optimizer
HOMES = {
    "trainer.strategy.ddp.": "ddp.",
    "trainer.strategy.": "model.",
    "model.config.": "model.",
    "strategy.": "model.",
    "model.optim.sched.": "scheduler.",
    "model.optim.": "optimizer.",
    "optim.config.": "optimizer.",
    "optim.": "optimizer.",
    "trainer.plugins.": "mixed_precision.",
    "model_config.": "model.",
    "model.peft.": "peft.",
}
AXES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}
OF_BATCHES = ("micro_batch_size", "global_batch_size")
SIZES = {  # settings that are a whole number, and the keys that say it
    **{axis: (f"model.{name}",) for axis, name in AXES.items()},
    **{
        name: tuple(f"{home}.{name}" for home in ("train", "data", "model", "dataset"))
        for name in OF_BATCHES
    },
    "sequence_length": (
        "model.seq_length",
        "data.seq_length",
        "dataset.seq_length",
        "dataset.sequence_length",
        "model.data.seq_length",
    ),
}
PARTS: tuple[str, ...] = (
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
ALIASES = {  # names of NeMo 1 and 2 for keys of Megatron-Core
    "model.activations_checkpoint_granularity": "model.recompute_granularity",
    "model.ub_tp_comm_overlap": "model.tp_comm_overlap",
    "model.encoder_seq_length": "model.seq_length",
    "model.bias": "model.add_bias_linear",
}
EXCHANGES = {"allgather": "gather", "all_gather": "gather", "p2p": "ring", "a2a": "ulysses"}
MEGATRON_FSDP, NEMO_FSDP = "ddp.data_parallel_sharding_strategy", "model.fsdp_sharding_strategy"
SHARDING = {  # stages of ZeRO, the first strategy where none is named
    MEGATRON_FSDP: {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3},
    NEMO_FSDP: {"full": 3, "grad": 2, "hybrid": 3},
}
# models of other shapes
OTHERS = ("bert", "t5", "bart", "ul2", "retro", "mamba", "hyena", "griffin", "encoder.", "decoder.")
SWITCHED_OFF = {  # keys that are false where a flag of Megatron-LM is given
    "disable-bias-linear": "add_bias_linear",
    "untie-embeddings-and-output-weights": "share_embeddings_and_output_weights",
}
# formats by torch's names, which may stand without its module
TORCH_FORMATS = {name.rpartition(".")[2]: short for short, name in TORCH_DTYPES.items()}
LAYER_WISE = "optimizer.use_layer_wise_distributed_optimizer"
CHUNKS = "model.virtual_pipeline_model_parallel_size"
LAYOUT = "model.pipeline_model_parallel_layout"
GATED = ("swiglu", "fast-swiglu", "geglu", "fast-geglu", "reglu", "fast-reglu")
CONTAINER = "ConfigContainer"
_RETURNED = re.compile(r"^def .*-> *ConfigContainer:", re.MULTILINE)
# of a repository's name: punctuation, and what says nothing of sizes
_PLAIN = re.compile(r"^meta-|-(base|instruct|hf)$|[^a-z0-9]")
_REFERENCE = re.compile(r"\$\{(\.?)([A-Za-z0-9_.]+)\}")


@dataclass
class _Given(GivenKeys):
    """Values by path in one way of writing."""

    no_model: str = ""
    # by today's path, what is taken for what is not given
    assumed: dict[str, str] = field(default_factory=dict)

    def value(self, path: str) -> object:
        """See base class."""
        return self.content.get(path)

    def size(self, *paths: str) -> int | None:
        """See base class."""
        value = self.first(*paths)
        if isinstance(value, Expression) or (isinstance(value, str) and value.startswith("${")):
            raise InputError(
                f"{paths[0]} is {written(value)}; only whole numbers that are written out can be "
                "read: give one"
            )
        return whole(value, paths[0])

    def text(self, *paths: str) -> str:
        """The word at the first of ``paths`` that is given; empty where there is none."""
        value = self.first(*paths)
        return "" if value is None or value == {} else str(value)

    def named(self, flag: str) -> str:
        """The file's own key for a flag of Megatron-LM."""
        path = f"model.{SWITCHED_OFF.get(flag, flag.replace('-', '_'))}"
        older = [each for each, today in ALIASES.items() if today == path and each in self.content]
        name = older[0] if older else path
        return self.spelled.get(name, name)


def recognises(content: object) -> bool:
    """Whether parsed YAML has such marks: a width by Megatron-Core's name in a section, or batches
    under train beside a model."""
    if not isinstance(content, dict):
        return False
    model, trainer, batches = map(content.get, ("model", "trainer", "train"))
    places = [content.get("strategy"), model]
    if isinstance(model, dict) and isinstance(model.get("config"), dict):
        places = [content.get("strategy"), model["config"]]
    if isinstance(trainer, dict):
        places.append(trainer.get("strategy"))
    if any(isinstance(each, dict) and not each.keys().isdisjoint(AXES.values()) for each in places):
        return True
    return (
        "model" in content
        and isinstance(batches, dict)
        and not batches.keys().isdisjoint(OF_BATCHES)
    )


def recognises_python(text: str) -> bool:
    """Whether a text may be a recipe in Python."""
    return "ConfigContainer(" in text or _RETURNED.search(text) is not None


def read(text: str, command_line: Mapping[str, str] | None = None) -> LaunchReading:
    """The plan in ``text``, YAML, as settings of ``evaluate``, and what became of its keys; what
    cannot be known is left out.

    Raises: InputError: it is no YAML, has no mark of NeMo or Megatron Bridge, or has values that
        these do not take.
    """
    content = parse_yaml(text, "the configuration")
    if not isinstance(content, dict) or not recognises(content):
        raise InputError(
            f"the configuration has no section with {', '.join(AXES.values())}; give one of NeMo "
            "or of Megatron Bridge"
        )
    values = flattened({str(key): value for key, value in content.items()})
    return _reading(_referred(values), command_line)


def read_python(text: str, name: str = "") -> LaunchReading:
    """The plan of a recipe: of a function of a Python file that returns a ``ConfigContainer``, or
    what another file's function makes, with values of its own over it.

    ``name`` is that of the function, where there are several.

    Raises:
        InputError: it is no Python, has none of such functions, or several and none is named.
    """
    module = Module(parsed(text), parts=PARTS, setters={"apply_flex_dispatcher_backend": _flexible})
    returned = {each: module.returned(each) for each in module.functions()}
    found = {
        each: made
        for each, made in returned.items()
        if isinstance(made, Made) and (made.name == CONTAINER or _is_common(made))
    }
    if name in found:
        found = {name: found[name]}
    if len(found) != 1:
        some = "none that does"
        if found:
            some = f"{len(found)} functions that do: {', '.join(list(found)[:20])}"
        raise InputError(
            "a recipe has one function that returns ConfigContainer(...), and this file has "
            f"{some}; give one of them, as FILE.py:NAME"
        )
    config = next(iter(found.values()))
    config.check_told()
    values = dict[str, object]()
    for section, value in config.values.items():
        if not isinstance(value, Made):
            values[section] = value
            continue
        value.check_told(unnamed=1)
        if value.positional:
            values[section] = _word(value.positional[0])
        elif section == "mixed_precision" and is_recipe(value.name):
            values[section] = value.name
        values |= {f"{section}.{key}": _word(inner) for key, inner in value.values.items()}
    if "mixed_precision" in values and values["mixed_precision"] is None:
        values["mixed_precision"] = "32"
    reading = _reading(values)
    if config.name == CONTAINER:
        return reading
    reason = "what this function of another file says was not read"
    key = LaunchKey(f"{config.name}()", "", KeyKind.UNKNOWN, reason)
    return replace(reading, keys=(key, *reading.keys))


def _flexible(given: list[object], named: Mapping[str, object]) -> Mapping[str, object]:
    """What ``apply_flex_dispatcher_backend`` of Megatron Bridge sets on a model, where the device
    has that backend (training/flex_dispatcher_backend.py)."""
    kind, backend, shared = (name.replace("-", "_") for name in (KIND, BACKEND, SHARED))
    asked = next(iter(given), named.get(backend))
    return {} if asked is None else {kind: FLEX, backend: asked, shared: False}


def _is_common(made: Made) -> bool:
    """Whether it is what a function of another file makes, with sections of a recipe."""
    sections = (made.values.get(each) for each in ("model", "train"))
    return made.name.lstrip("_")[:1].islower() and all(isinstance(each, Made) for each in sections)


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


def _reading(
    values: Mapping[str, object], command_line: Mapping[str, str] | None = None
) -> LaunchReading:
    given = _placed(values, command_line or {})
    given.known.check_spelling(given.content)
    sizes = {setting: given.size(*paths) for setting, paths in SIZES.items()}
    found: dict[str, object] = {key: size for key, size in sizes.items() if size is not None}
    if given.value("model.sequence_parallel") is not None:
        split = given.flag("model.sequence_parallel")
        found["sequence_parallel"] = split and found.get("tp", 1) != 1
    for part in (precision_of, _sharding, _recomputed, _optimizer, _overlaps, _model):
        found |= part(given)
    found |= _stages(given, found) | _replicas(given, found)
    if found.get("cp", 1) != 1:
        path = "model.cp_comm_type"
        way = given.text(path) or "p2p"
        if way not in EXCHANGES:
            raise refused("cp_comm_type", given.value(path), ", ".join(EXCHANGES))
        found["exchange"] = EXCHANGES[way]
    if not {"tp", "pp"} <= found.keys():
        logger.info(
            "what these overrides leave out is their recipe's; give it by flags, else widths of 1 "
            "are taken"
        )
    reading = given.reading(found, no_model=given.no_model)
    assumed = (
        LaunchKey(path, "", KeyKind.USUAL, reason, given=False)
        for path, reason in given.assumed.items()
    )
    return replace(reading, keys=(*reading.keys, *assumed))


def _placed(given: Mapping[str, object], command_line: Mapping[str, str]) -> _Given:
    keys, spelled = dict[str, object](), dict[str, str]()
    for path, value in given.items():
        home = next((each for each in HOMES if path.startswith(each)), "")
        place = HOMES.get(home, "") + path.removeprefix(home)
        spelled.setdefault(place, path)
        keys.setdefault(place, value)
    values = dict(keys)
    for older, name in ALIASES.items():
        if values.get(older) is not None:
            values.setdefault(name, values[older])
    return _Given(known_keys("nemo"), values, keys, command_line, spelled)


def _sharding(given: _Given) -> dict[str, object]:
    stage = _zero_stage(given)
    groups = given.size("ddp.num_distributed_optimizer_instances") or 1
    found: dict[str, object] = {} if stage is None else {"zero_stage": stage}
    return found | ({"shard_groups": groups} if groups > 1 and stage else {})


def _zero_stage(given: _Given) -> int | None:
    """What replicas divide; None where nothing says it."""
    by_megatron = given.flag("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp")
    if by_megatron or given.flag("model.fsdp"):
        path = MEGATRON_FSDP if by_megatron else NEMO_FSDP
        stages = SHARDING[path]
        strategy = given.text(path) or next(iter(stages))
        if strategy not in stages:
            raise refused(path, given.value(path), ", ".join(stages))
        if strategy == "hybrid":
            given.note_hybrid(path)
        return stages[strategy]
    names = ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer", LAYER_WISE)
    if given.first(*names) is not None:
        return int(given.flag(*names))
    name = given.text("optimizer.name")
    distributed = name.startswith("distributed_") or name == "mcore_distributed_optim"
    return int(distributed) if name else None


def _recomputed(given: _Given) -> dict[str, object]:
    granularity = given.text("model.recompute_granularity")
    if not granularity:
        return {}
    if granularity not in ("full", "selective"):
        asked = given.value("model.recompute_granularity")
        raise refused("recompute_granularity", asked, "full or selective")
    modules = given.value("model.recompute_modules")
    if granularity == "selective" and isinstance(modules, list):
        known, others = known_modules(map(str, modules))
        if others:
            given.untold["model.recompute_modules"] = f"{', '.join(others)}: computed twice"
        return {"recompute": known}
    return {"recompute": granularity}


def _optimizer(given: _Given) -> dict[str, object]:
    name = given.text("optimizer.optimizer", "optimizer.name")
    if not name:
        return {}
    if name == "sgd":
        still = given.value("optimizer.sgd_momentum") in (0, 0.0)
        return {"optimizer": "sgd" if still else "sgd_momentum"}
    if name in ("muon", "dist_muon"):
        return {"optimizer": "muon"}
    if "adam" not in name and name != "mcore_distributed_optim":
        by_kind = given.value("optimizer.optimizer")
        path = "optimizer.optimizer" if by_kind else "optimizer.name"
        given.untold[path] = "it is priced as Adam"
    return {"optimizer": "adam"}


def _overlaps(given: _Given) -> dict[str, object]:
    found = dict[str, object]()
    switches = {
        "overlap_gradients": (
            "comm_overlap.overlap_grad_reduce",
            "ddp.overlap_grad_reduce",
            "optimizer.overlap_grad_sync",
        ),
        "overlap_tensor": ("comm_overlap.tp_comm_overlap", "model.tp_comm_overlap"),
    }
    for setting, paths in switches.items():
        if given.first(*paths) is not None:
            found[setting] = given.flag(*paths)
    graphs = _cuda_graphs(given)
    if graphs is not CudaGraphs.NONE:
        found["cuda_graphs"] = graphs.value
    found |= _expert_exchange(given)
    backend = given.text("model.attention_backend").rpartition(".")[2]
    if backend and backend not in ATTENTION_BACKENDS:
        raise refused("model.attention_backend", backend, ", ".join(ATTENTION_BACKENDS))
    if backend:
        found["attention"] = "eager" if backend in EAGER_BACKENDS else "flash"
    if given.flag("dist.use_tp_pp_dp_mapping"):
        found["group_order"] = GroupOrder.PIPELINE_INNER.value
    reduced = given.first("mixed_precision.grad_reduce_in_fp32", "ddp.grad_reduce_in_fp32")
    if reduced is not None and not truth(reduced, "grad_reduce_in_fp32"):
        found["gradient_dtype"] = "bf16"
    return found | _expert_width(given) | _state_formats(given)


def _expert_width(given: _Given) -> dict[str, object]:
    """Whether experts are whole where all else is divided."""
    path = "model.expert_tensor_parallel_size"
    width, tp = given.size(path), given.size("model.tensor_model_parallel_size") or 1
    if width is None or width == tp:
        return {}
    if width > 1:
        given.untold[path] = f"experts are cut over {width} devices, not over tp {tp}"
        return {}
    return {"etp": ExpertWidth.ONE.value}


def _state_formats(given: _Given) -> dict[str, object]:
    """Formats of gradients, moments and main weights, which the precision-aware optimizer keeps."""
    if not given.flag("optimizer.use_precision_aware_optimizer"):
        return {}
    found, of_state = dict[str, object](), {}
    for name in ("main_grads", "main_params", "exp_avg", "exp_avg_sq"):
        path = f"optimizer.{name}_dtype"
        word = given.text(path).rpartition(".")[2]
        of_state[name] = TORCH_FORMATS.get(word, word) or "fp32"
        if of_state[name] not in TORCH_FORMATS.values():
            raise refused(path, given.value(path), ", ".join(TORCH_FORMATS))
    if of_state["exp_avg"] != of_state["exp_avg_sq"]:
        given.untold["optimizer.exp_avg_sq_dtype"] = (
            f"the first moment is kept in {of_state['exp_avg']}, the second in "
            f"{of_state['exp_avg_sq']}"
        )
    keys = {"main_grads": "gradient_dtype", "main_params": "main_weight_dtype"}
    for name, key in {**keys, "exp_avg": "moment_dtype"}.items():
        if of_state[name] != "fp32":
            found[key] = of_state[name]
    return found


def _cuda_graphs(given: _Given) -> CudaGraphs:
    """What is replayed, by today's names and by those before."""
    external, enabled = map(given.flag, ("model.external_cuda_graph", "model.enable_cuda_graph"))
    usual = older_switches(external=external, enabled=enabled)
    scope = given.first("model.cuda_graph_modules", "model.cuda_graph_scope")
    parts = scope if isinstance(scope, list) else [scope] if scope else []
    chosen = given.text("model.cuda_graph_impl") or usual
    return graphs_of(chosen, [str(each).rpartition(".")[2] for each in parts])


def _expert_exchange(given: _Given) -> dict[str, object]:
    """How tokens get to their experts, and what runs beside that, where it is said.

    Raises:
        InputError: Megatron-Core has no such dispatcher, or refuses what is to run beside it.
    """
    found = dict[str, object]()
    kind_path, backend_path = (f"model.{name.replace('-', '_')}" for name in (KIND, BACKEND))
    kind, backend = given.text(kind_path), given.text(backend_path) or USUAL_BACKEND
    dispatcher = dispatcher_of(kind, backend)
    if kind and dispatcher is None and kind == FLEX:
        raise refused(backend_path, backend, ", ".join(BACKENDS))
    if kind and dispatcher is None:
        raise refused(kind_path, kind, ", ".join(KINDS))
    if dispatcher is not None:
        found["dispatcher"] = dispatcher.value
    names = [name.replace("-", "_") for name in (BATCHES, DELAYED, SHARED)]
    paths = [(f"comm_overlap.{name}", f"model.{name}") for name in names]
    switches = OverlapSwitches(*(given.flag(*each) for each in paths))
    modules = given.value("model.recompute_modules")
    for name, what in switches.refused(
        whole_blocks=given.text("model.recompute_granularity") == "full",
        experts_again=isinstance(modules, list) and "moe" in modules,
        gathers=kind == USUAL_KIND,
        ep=given.size(f"model.{AXES['ep']}") or 2,
    ):
        said = what.replace("--", "").replace("-", "_")
        raise InputError(
            f"{name.replace('-', '_')} {said}, and Megatron refuses it; correct one of them"
        )
    if any(given.first(*each) is not None for each in paths):
        found["overlap_experts"] = switches.overlap.value
    return found | _expert_load(given)


def _expert_load(given: _Given) -> dict[str, object]:
    """What the busiest experts get over the mean: their capacity, where all are padded to it."""
    capacity = "model.moe_expert_capacity_factor"
    factor = given.first(capacity)
    padded = given.flag("model.moe_pad_expert_input_to_capacity")
    if not isinstance(factor, int | float) or isinstance(factor, bool):
        return {}
    if padded and given.size(f"model.{AXES['ep']}") == 1:
        given.untold[capacity] = "rows that pad experts on a device that has all are not priced"
    if padded and factor >= 1.0:
        return {"expert_load": float(factor)}
    given.untold[capacity] = "experts take so many tokens and drop the rest, which is not priced"
    return {}


def _stages(given: _Given, found: Mapping[str, object]) -> dict[str, object]:
    pp = whole(found.get("pp"), "pp") or 1
    layout = given.value(LAYOUT)
    if pp > 1 and isinstance(layout, str):
        from phaze.exports.megatron_lm.pipeline import layout_chunks, predicts_further

        chunks = layout_chunks(layout)
        if predicts_further(layout):
            given.untold[LAYOUT] = "its layers m predict further tokens"
        if len(chunks) % pp:
            raise InputError(
                f"pipeline_model_parallel_layout has {len(chunks)} stages, which is no multiple "
                f"of pp {pp}; correct one"
            )
        if given.size(CHUNKS) is not None:
            given.usual[CHUNKS] = "not used: the layout says the chunks"
        return {"interleave": len(chunks) // pp, "stage_layers": [len(chunk) for chunk in chunks]}
    if pp > 1 and layout is not None:
        given.untold[LAYOUT] = "stages hold these layers"
    chunks_of_each = given.size(CHUNKS)
    return {"interleave": chunks_of_each} if pp > 1 and chunks_of_each else {}


def _replicas(given: _Given, found: Mapping[str, object]) -> dict[str, object]:
    nodes, each = given.value("trainer.num_nodes"), given.value("trainer.devices")
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
    from phaze.exports.megatron_lm.commands import Command
    from phaze.exports.megatron_lm.flags import Flags
    from phaze.exports.megatron_lm.model import model_of

    if isinstance(given.value("model"), str):
        return _listed_model(given, str(given.value("model")))
    needed = ("num_layers", "hidden_size", "num_attention_heads")
    if not all(isinstance(given.value(f"model.{name}"), int) for name in needed):
        return {}
    others = [
        word
        for word in OTHERS
        if word in given.text("name") or any(f"model.{word}" in path for path in given.content)
    ]
    if others:
        given.no_model = f"it is of another kind: {', '.join(others)}"
        return {}
    flags = Flags(_flags(given, needed), Command())
    try:
        model = model_of(flags)
    except InputError as error:
        given.no_model = str(error)
        return {}
    if flags.untold:
        told = (f"{given.named(flag)}: {reason}" for flag, reason in flags.untold.items())
        given.no_model = "; ".join(told)
        return {}
    for flag, reason in flags.usual.items():
        path = f"model.{flag.replace('-', '_')}"
        (given.usual if path in given.content else given.assumed)[path] = reason
    return {"model": model}


def _listed_model(given: _Given, repository: str) -> dict[str, object]:
    """The listed model whose weights lie in a repository of Hugging Face."""
    from GraphExtractor.models.registry import listed_aliases, listed_models

    own = _PLAIN.sub("", repository.rpartition("/")[2].lower())
    names = {_PLAIN.sub("", name): name for name in (*listed_models(), *listed_aliases())}
    if own not in names:
        given.no_model = (
            f"{repository} is no model that is listed; give --model with its config.json"
        )
        return {}
    given.taken.add("model")
    return {"model": names[own]}


def _flags(given: _Given, needed: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The model as flags of a Megatron-LM command."""
    length = given.size("model.seq_length", "dataset.seq_length") or 1024
    places = given.size("model.max_position_embeddings") or length
    sizes: dict[str, object] = {"seq-length": length, "max-position-embeddings": places}
    experts = ("moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size")
    for name in (*needed, "ffn_hidden_size", "kv_channels", *experts):
        sizes[name.replace("_", "-")] = given.size(f"model.{name}")
    sizes["num-experts"] = given.size("model.num_moe_experts")
    groups = given.size("model.num_query_groups")
    grouped = groups is not None and groups != given.size("model.num_attention_heads")
    sizes["num-query-groups"] = groups if grouped else None
    if given.text("model.normalization").lower() == "rmsnorm":
        sizes["normalization"] = "RMSNorm"
    if given.text("model.position_embedding_type") == "rope":
        sizes["position-embedding-type"] = "rope"
    vocabulary = given.size("tokenizer.vocab_size")
    if vocabulary is not None:
        sizes["tokenizer-type"] = given.text("tokenizer.tokenizer_type") or "NullTokenizer"
    sizes["vocab-size"] = vocabulary or given.size("model.vocab_size")
    gated = given.flag("model.gated_linear_unit") or given.text("model.activation") in GATED
    switches = {
        "group-query-attention": grouped,
        "swiglu": gated,
        **{flag: given.value(f"model.{name}") is False for flag, name in SWITCHED_OFF.items()},
        "qk-layernorm": given.flag("model.qk_layernorm"),
    }
    found = {flag: (str(size),) for flag, size in sizes.items() if size is not None}
    return found | {flag: () for flag, is_on in switches.items() if is_on}
