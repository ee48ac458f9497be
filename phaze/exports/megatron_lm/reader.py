"""A Megatron-LM command or script as settings of ``phaze evaluate``, and what became of each of its
flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from GraphExtractor.models.base import LanguageModelFamily
from GraphExtractor.models.registry import find_model, listed_models
from phaze.exports.bash.simple_commands import DECLARING
from phaze.exports.megatron_lm.commands import COUNTED_BY, PROCESSES
from phaze.exports.megatron_lm.contradictions import INSTANCES, check_together
from phaze.exports.megatron_lm.dispatch import (
    BACKEND,
    BACKENDS,
    BATCHES,
    DELAYED,
    DISPATCHED,
    FLEX,
    KIND,
    KINDS,
    OF_EXCHANGE,
    OTHER_BACKENDS,
    SHARED,
    USUAL_BACKEND,
    USUAL_KIND,
    OverlapSwitches,
    dispatcher_of,
)
from phaze.exports.megatron_lm.flags import SETTINGS, Flags, flags_of
from phaze.exports.megatron_lm.formats import PRECISION_OF
from phaze.exports.megatron_lm.known_arguments import known_arguments
from phaze.exports.megatron_lm.model import blocks_of, model_of
from phaze.exports.megatron_lm.pipeline import blocks_of_chunks, chunks_of, predicts_further
from phaze.settings.graph_words import graphs_of, older_switches
from phaze.settings.launched import KeyKind, LaunchKey, LaunchReading
from phaze_common.choices import CudaGraphs, ExpertWidth, GroupOrder, Precision
from phaze_common.errors import InputError
from phaze_common.recompute_modules import known_modules

PROGRAM = "Megatron-LM"
MTP = "mtp-num-layers"
# --cp-comm-type
EXCHANGES = {"allgather": "gather", "all_gather": "gather", "p2p": "ring", "a2a": "ulysses"}
# --data-parallel-sharding-strategy
ZERO_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
EAGER_BACKENDS = ("unfused", "local")
ATTENTION_BACKENDS = ("flash", "fused", "auto", *EAGER_BACKENDS)  # --attention-backend
DIVIDED_MUON = "dist_muon"  # as --use-distributed-optimizer made it until 2026
OPTIMIZERS = {
    **dict.fromkeys(("adam", "fusedadam", "adamw", "fusedadamw"), "adam"),
    "sgd": "sgd",
    "muon": "muon",
    DIVIDED_MUON: "muon",
}
# the first that is given counts
PRECISIONS = {"fp4-format": "nvfp4", "fp8-format": "fp8", "bf16": "bf16", "fp16": "fp16"}
PRECISIONS |= dict.fromkeys(("fp8-hybrid", "fp8-e4m3"), "fp8")  # of Megatron-LM before 2024
OF_FORMATS = {  # values that Megatron takes
    "fp8-format": ("hybrid", "e4m3"),
    "fp4-format": ("e2m1",),
    "fp8-recipe": (*PRECISION_OF, "custom"),
    "fp4-recipe": ("nvfp4", "custom"),
}
MARKS: tuple[str, ...] = (
    "--micro-batch-size",
    "--tensor-model-parallel-size",
    "--num-layers",
    "--hidden-size",
    "--hybrid-layer-pattern",
)
OF_STATE = ("main-grads-dtype", "main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype")
CHUNKS = ("num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage")
IMAGES = "a vision encoder beside the language model"
ENCODERS = {"pretrain_vlm.py": IMAGES, "train.py": IMAGES}  # programs of Megatron-LM's examples
_NO_TRAINING = re.compile(
    r".*(text_generation|inference|generat|server|convert|preprocess|prompting|evaluate).*\.py"
)
_PART = re.compile(r"0*\.[0-9]{1,9}|[01](\.0*)?")


def is_megatron(text: str) -> bool:
    """Whether a text has the marks of a Megatron-LM command or of a YAML file of its arguments."""
    return any(mark in text for mark in MARKS)


def read(
    text: str,
    given: Mapping[str, str] | None = None,
    beside: Callable[[str], str | None] = lambda name: None,
) -> LaunchReading:
    """Settings of the plan that a Megatron-LM command or bash script means, as flags of ``phaze
    evaluate``, and its flags' kinds.

    Read are flags with values behind them or behind ``=``, over continued lines, in lists, in
    variables that the text assigns, and in arithmetic of whole numbers; nothing is run. ``dp`` is
    there where processes are counted (those of torchrun or Slurm), the model is its dimensions or,
    where dimensions cannot say it, a listed model of the same shape. Settings ``given`` besides
    count before what the text says. ``beside`` are texts of files beside it by their names, which a
    script may read.

    Raises: InputError: a needed flag is missing or is no number, or the command asks for what no
        plan has.
    """
    flags = flags_of(text, given or {}, beside)
    flags.check_spelling()
    settings = dict[str, object]()
    tp = flags.number(flags.named("tensor-model-parallel-size", "model-parallel-size"), 1)
    pp = flags.number("pipeline-model-parallel-size", 1)
    cp = flags.number("context-parallel-size", 1)
    if "model" not in flags.given:
        settings["model"] = model_of(flags)
    _further(flags, flags.given.get("model", str(settings.get("model"))))
    settings |= {"tp": tp, "pp": pp, "cp": cp, "ep": flags.number("expert-model-parallel-size", 1)}
    settings |= _pipeline(flags, pp) | _batch(flags, tp * pp * cp)
    settings["sequence_length"] = _length(flags)
    settings["recompute"] = _recompute(flags, pp)
    settings["sequence_parallel"] = flags.has("sequence-parallel") and tp > 1
    settings["zero_stage"] = _zero_stage(flags)
    check_together(flags, flags.number("expert-model-parallel-size", 1), settings["zero_stage"])
    groups = flags.number(INSTANCES, 1)
    if groups > 1 and settings["zero_stage"] != 0:
        settings["shard_groups"] = groups
    settings |= _formats(flags)
    settings["attention"] = "eager" if _is_eager(flags) else "flash"
    settings["overlap_gradients"] = flags.has("overlap-grad-reduce")
    settings |= _optimizer(flags)
    if tp > 1:
        settings["overlap_tensor"] = flags.has("tp-comm-overlap")
    graphs = _cuda_graphs(flags)
    if graphs is not CudaGraphs.NONE:
        settings["cuda_graphs"] = graphs.value
    divided = settings["ep"] != 1 or "ep" in flags.given
    settings |= _expert_exchange(flags, divided=divided)
    settings |= _expert_load(flags, divided=divided)
    if cp > 1 and "exchange" not in flags.given:
        settings["exchange"] = _exchange(flags)
    if flags.has("use-tp-pp-dp-mapping"):
        settings["group_order"] = GroupOrder.PIPELINE_INNER.value
    width = flags.number("expert-tensor-parallel-size", tp)
    if width == 1 and tp > 1:
        settings["etp"] = ExpertWidth.ONE.value
    elif width != tp and flags.has("num-experts"):
        flags.untold["expert-tensor-parallel-size"] = (
            f"experts are cut over {width} devices, not over tp {tp}"
        )
    settings = {key: value for key, value in settings.items() if key not in flags.given}
    return LaunchReading(PROGRAM, settings, (*_keys(flags), *_other_keys(flags)), _nodes(flags))


def _pipeline(flags: Flags, pp: int) -> dict[str, object]:
    """Chunks of the stages, and their layers where these differ or the ends are not with the
    embedding and the head."""
    found, layout = _chunks(flags, pp), "pipeline-model-parallel-layout"
    if flags.has(layout):
        unused = filter(flags.has, CHUNKS)
        flags.usual.update(dict.fromkeys(unused, "not used: the layout says the chunks"))
    own_stages = {"pp", "stage_layers"} & flags.given.keys()
    before_last = predicts_further(flags.text(layout, "").rpartition("|")[0])
    counted = MTP in flags.values and not (MTP in flags.usual and before_last)
    if predicts_further(flags.text(layout, "")) and not own_stages and not counted:
        flags.untold[layout] = "its layers m predict further tokens; or give --stage-layers"
    return found


def _further(flags: Flags, model: str) -> None:
    """Note whether modules that predict further tokens are as many as ``model`` has, and which
    listed model has them."""
    count = " ".join(flags.values.get(MTP, ("0",)))
    if count == "0":
        return
    family = find_model(model)
    if str(getattr(family, "further", 0)) == count:
        flags.usual[MTP] = f"priced as {model} has it"
        return
    sizes = ("layers", "hidden", "heads", "experts", "vocabulary")
    alike = (
        name
        for name, each in listed_models().items()
        if type(each) is type(family)
        and str(getattr(each, "further", 0)) == count
        and all(getattr(each, size) == getattr(family, size) for size in sizes)
    )
    if name := next(alike, ""):
        flags.untold[MTP] = (
            f"layers that predict further tokens, not as many in {model}; give --model {name}"
        )


def _chunks(flags: Flags, pp: int) -> dict[str, object]:
    if {"stage_layers", "interleave"} & flags.given.keys():
        return {}
    layers = _layers(flags)
    if layers is None:
        return {"interleave": flags.number("num-virtual-stages-per-pipeline-rank", 1)}
    if pp > layers + 2:
        raise InputError(
            f"pp {pp} of the Megatron-LM command are more stages than its model has layers; "
            "correct one or give --pp"
        )
    if "pp" in flags.given and flags.has("pipeline-model-parallel-layout"):
        return {}  # the layout is of another number of stages
    chunks = chunks_of(flags, layers, pp)
    found: dict[str, object] = {"interleave": max(1, len(chunks) // pp)}
    ends = chunks[0].startswith("E") and chunks[-1].endswith("L")
    if not ends or len({*blocks_of_chunks(chunks)}) > 1:
        found["stage_layers"] = [len(chunk) for chunk in chunks]
    return found


def _layers(flags: Flags) -> int | None:
    """Blocks of the model: of that on the command line, where it is one of blocks alike."""
    if "model" not in flags.given:
        return blocks_of(flags)
    family = find_model(flags.given["model"])
    return family.layers if isinstance(family, LanguageModelFamily) and family.layers else None


def _batch(flags: Flags, others: int) -> dict[str, object]:
    micro_batch = flags.number(flags.named("micro-batch-size", "batch-size"))
    found: dict[str, object] = {"micro_batch_size": micro_batch}
    dp = _replicas(flags, others)
    if dp is not None:
        found["dp"] = dp
    elif not {"devices", "dp"} & flags.given.keys():
        flags.usual["nproc-per-node"] = (
            f"not given; {others} devices, one replica, unless --devices or --dp says more"
        )
    if flags.has("global-batch-size") or dp is not None:
        usual = None if dp is None else micro_batch * dp
        found["global_batch_size"] = flags.number("global-batch-size", usual)
    return found


def _replicas(flags: Flags, others: int) -> int | None:
    """Data-parallel size, where the processes are known: by torchrun's flags, by Slurm's or by the
    environment of one."""
    if {"devices", "dp"} & flags.given.keys():
        return None
    devices = _processes(flags)
    if devices is None:
        return None
    if devices % others:
        raise InputError(
            f"{devices} processes of the Megatron-LM command are no multiple of tp x pp x cp, "
            f"{others}; correct one or give --devices"
        )
    return devices // others


def _processes(flags: Flags) -> int | None:
    def counted(name: str, default: int | None = None) -> int:
        try:
            return flags.number(name, default)
        except InputError as error:
            raise InputError(f"{error}, or give --devices") from error

    flags.asked.update(COUNTED_BY)
    for processes, nodes in (("nproc-per-node", "nnodes"), ("num-gpus", "num-nodes")):
        if flags.has(processes):
            return counted(processes) * counted(nodes, 1)
    world = flags.script.variables.get("WORLD_SIZE", "")
    if re.fullmatch("[0-9]{1,9}", world) and int(world):
        return int(world)
    per_node = flags.named("ntasks-per-node", "gpus-per-node")
    if flags.has(per_node) and flags.has("nodes"):
        return counted("nodes") * counted(per_node)
    return counted("ntasks") if flags.has("ntasks") else None


def _nodes(flags: Flags) -> int | None:
    words = [
        flags.values[name][0] for name in ("nnodes", "num-nodes", "nodes") if flags.values.get(name)
    ]
    return int(words[0]) if words and re.fullmatch("[1-9][0-9]{0,6}", words[0]) else None


def _length(flags: Flags) -> int:
    beside_images = flags.program in ENCODERS or flags.has("language-model-type")
    if beside_images and flags.has("decoder-seq-length"):
        return flags.number("decoder-seq-length")  # the other length is that of an image
    length = flags.number(flags.named("seq-length", "encoder-seq-length"))
    if flags.number("decoder-seq-length", length) != length:
        flags.untold["decoder-seq-length"] = "the decoder reads sequences of another length"
    return length


def _recompute(flags: Flags, pp: int) -> str:
    """What is recomputed; of modules and numbers of blocks that no plan says, why."""
    old = flags.has("checkpoint-activations") or flags.has("activations-checkpoint-method")
    granularity = "selective" if flags.has("recompute-activations") else ""
    name = "recompute-granularity"
    granularity = granularity or flags.text(name, "full" if old else "none")
    method = flags.text("recompute-method", "uniform")
    modules = flags.listed("recompute-modules") or ("core_attn",)
    count = flags.number("recompute-num-layers", 1, least=0)
    if "recompute" in flags.given:
        return flags.given["recompute"]
    if granularity not in ("none", "selective", "full"):
        others = "selective or full, or leave it out, or give --recompute"
        raise flags.refused(name, granularity, others)
    if granularity == "selective":
        known, unknown = known_modules(modules)
        if unknown:
            flags.untold["recompute-modules"] = f"{', '.join(unknown)}: computed twice"
        return known
    if granularity == "full" and method == "block":
        if not flags.has("recompute-num-layers"):
            raise InputError(
                "--recompute-method block of the Megatron-LM command needs "
                "--recompute-num-layers; add it or give --recompute"
            )
        layers = _layers(flags)
        if count == 0:
            return "none"
        if layers is None or count < -(-layers // pp):
            only = f"only {count} blocks of each stage are computed twice"
            flags.untold["recompute-num-layers"] = only
    elif granularity == "full" and count > 1:
        flags.untold["recompute-num-layers"] = (
            f"inputs of every {count} blocks are saved, not of each"
        )
    return granularity


def _zero_stage(flags: Flags) -> int:
    if flags.has("zero-stage") and "zero_stage" not in flags.given:  # of Megatron-DeepSpeed
        stage = flags.number("zero-stage", least=0)
        if stage > 3:
            raise InputError(
                f"--zero-stage of the Megatron-LM command is {stage}; give 0, 1, 2 or 3, or "
                "--zero-stage of phaze"
            )
        return stage
    if flags.has("use-torch-fsdp2"):
        return 3
    if flags.has("use-megatron-fsdp", "use-custom-fsdp"):
        # what each of them begins with
        usual = "optim_grads_params" if flags.has("use-megatron-fsdp") else "no_shard"
        name = "data-parallel-sharding-strategy"
        strategy = flags.text(name, usual)
        if strategy not in ZERO_STAGES:
            raise InputError(f"--{name} is {strategy!r:.60}; give {', '.join(ZERO_STAGES)}")
        return ZERO_STAGES[strategy]
    divided = flags.text("optimizer", "adam") == DIVIDED_MUON
    return int(divided or flags.has("use-distributed-optimizer"))


def _formats(flags: Flags) -> dict[str, object]:
    """The precision, and the formats of weights, gradients and moments where the command says other
    than usual ones."""
    if flags.has("bf16") and flags.has("fp16") and "precision" not in flags.given:
        raise InputError(
            "the Megatron-LM command asks for --bf16 and for --fp16; leave one out or give "
            "--precision"
        )
    reduced = _reduced(flags)
    precision = reduced or next(
        (word for flag, word in PRECISIONS.items() if flags.has(flag)), "fp32"
    )
    found: dict[str, object] = {"precision": precision}
    if precision == "fp32":
        if "precision" not in flags.given:
            flags.usual["bf16"] = "not given, nor --fp16; Megatron-LM then trains in fp32"
        return found
    flags.usual.update(_unstarted(flags))
    whole = flags.has("accumulate-allreduce-grads-in-fp32")
    gradients = flags.text("main-grads-dtype", "fp32" if whole else "")
    gradients = "bf16" if flags.has("grad-reduce-in-bf16") else gradients
    if gradients:
        found["gradient_dtype"] = gradients
    first, second = flags.text("exp-avg-dtype", "fp32"), flags.text("exp-avg-sq-dtype", "fp32")
    if first != second:
        name = flags.named("exp-avg-sq-dtype", "exp-avg-dtype")
        kept = f"the first moment is kept in {first:.20}, the second in {second:.20}"
        flags.untold[name] = kept
    if first != "fp32":
        found["moment_dtype"] = first
    aware, main = "use-precision-aware-optimizer", flags.text("main-params-dtype", "fp32")
    if main != "fp32":
        found["main_weight_dtype"] = main
    elif flags.has(aware) and aware not in flags.usual:
        flags.usual[aware] = (
            "main weights are counted with 4 bytes; Transformer Engine 2.1 on keeps only the 16 "
            "bits that bf16 weights lack"
        )
    if flags.has("fp8-param-gather") and Precision(precision).reads_fp8:
        found["fp8_weights"] = True
    elif flags.has("fp8-param-gather"):
        flags.usual["fp8-param-gather"] = "has no effect without --fp8-format"
    return found


def _reduced(flags: Flags) -> str:
    """The precision of fewer bits that is asked for; empty where none is."""
    for name, taken in OF_FORMATS.items():
        value = flags.text(name, taken[0])
        if value not in taken and "precision" not in flags.given:
            raise flags.refused(name, value, f"{', '.join(taken)}, or give --precision")
        if value == "custom":
            flags.untold[name] = "it is a recipe written by hand"
    fp4, fp8 = flags.has("fp4-format"), flags.has("fp8-format", "fp8-hybrid", "fp8-e4m3")
    if fp4 and fp8 and "precision" not in flags.given:
        raise InputError(
            "the Megatron-LM command asks for --fp4-format and for --fp8-format, of which Megatron "
            "takes one; leave one out or give --precision"
        )
    for bits, asked in (("fp8", fp8), ("fp4", fp4)):
        if flags.has(f"{bits}-recipe") and not asked:
            flags.usual[f"{bits}-recipe"] = f"has no effect without --{bits}-format"
    if fp4:
        return Precision.NVFP4.value
    recipe = flags.text("fp8-recipe", "delayed")
    return PRECISION_OF.get(recipe, Precision.FP8).value if fp8 else ""


def _unstarted(flags: Flags) -> dict[str, str]:
    """Flags beside which Megatron-LM wants another one (core/optimizer/__init__.py and
    optimizer_config.py), with that."""
    aware, found = "use-precision-aware-optimizer", dict[str, str]()
    if not flags.has(aware):
        narrow = [name for name in OF_STATE if flags.text(name, "fp32") != "fp32"]
        offload = ["optimizer-cpu-offload"] if flags.has("optimizer-cpu-offload") else []
        found |= dict.fromkeys([*narrow, *offload], aware)
    elif not flags.has("use-distributed-optimizer", "use-megatron-fsdp"):
        found[aware] = "use-distributed-optimizer"
    return {
        name: f"read, although Megatron-LM starts it only with --{other}, not given here"
        for name, other in found.items()
    }


def _is_eager(flags: Flags) -> bool:
    """Whether scores are kept in memory: by the backend, or by modules of Megatron's own without
    flash attention."""
    own = flags.text("transformer-impl", "transformer_engine") == "local"
    own = own and not flags.has("use-flash-attn")
    backend = flags.text("attention-backend", "unfused" if own else "auto").rpartition(".")[2]
    if backend not in ATTENTION_BACKENDS and "attention" not in flags.given:
        raise flags.refused(
            "attention-backend", backend, f"{', '.join(ATTENTION_BACKENDS)}, or give --attention"
        )
    return backend in EAGER_BACKENDS


def _optimizer(flags: Flags) -> dict[str, object]:
    found: dict[str, object] = {}
    name = flags.text("optimizer", "adam")
    still = re.fullmatch(r"0*\.?0*", flags.text("sgd-momentum", "0.9"))
    if "optimizer" not in flags.given:
        if name not in OPTIMIZERS:
            raise InputError(
                f"--optimizer of the Megatron-LM command is {name!r:.60}, whose memory is not "
                "known; give adam, sgd or muon, here or with --optimizer"
            )
        found["optimizer"] = "sgd_momentum" if name == "sgd" and not still else OPTIMIZERS[name]
    part = flags.text("optimizer-offload-fraction", "1")
    if flags.has("optimizer-cpu-offload") and "offload" not in flags.given:
        if not _PART.fullmatch(part):
            others = "a part from 0 to 1, or give --offload"
            raise flags.refused("optimizer-offload-fraction", part, others)
        found["offload"] = ["optimizer" if float(part) == 1.0 else f"optimizer={float(part)!r}"]
    return found


def _cuda_graphs(flags: Flags) -> CudaGraphs:
    """What is replayed, by today's names and by those before; where no plan says it, why."""
    external, enabled = map(flags.has, ("external-cuda-graph", "enable-cuda-graph"))
    usual = older_switches(external=external, enabled=enabled)
    name = flags.named("cuda-graph-modules", "cuda-graph-scope")
    chosen, scope = flags.text("cuda-graph-impl", usual), flags.listed(name)
    found = graphs_of(chosen, scope)
    if chosen == "none" and scope:
        flags.usual[name] = "has no effect without --cuda-graph-impl"
    elif found is CudaGraphs.NONE and chosen != "none":
        flags.usual[name] = "replays a part that is not told apart; priced without graphs"
    return found


def _expert_exchange(flags: Flags, *, divided: bool) -> dict[str, object]:
    """How tokens get to their experts, where these are ``divided``, and what runs beside that."""
    kind, backend = flags.text(KIND, USUAL_KIND), flags.text(BACKEND, USUAL_BACKEND)
    dispatcher = dispatcher_of(kind, backend)
    name = BACKEND if kind == FLEX else KIND
    if dispatcher is None and "dispatcher" not in flags.given:
        others = f"{', '.join(BACKENDS if kind == FLEX else KINDS)}, or give --dispatcher"
        raise flags.refused(name, backend if kind == FLEX else kind, others)
    if kind == FLEX and backend in OTHER_BACKENDS:
        flags.usual[BACKEND] = f"priced as {dispatcher}, the dispatcher most like it"
    in_fp8 = flags.text(DISPATCHED, "bf16") != "bf16"
    if not divided:
        nothing = "no tokens are exchanged"
        flags.usual.update(dict.fromkeys({*OF_EXCHANGE} & flags.values.keys(), nothing))
        return {}
    overlap = OverlapSwitches(*map(flags.has, (BATCHES, DELAYED, SHARED))).overlap
    found: dict[str, object] = {"overlap_experts": overlap.value}
    if dispatcher is not None:
        found["dispatcher"] = dispatcher.value
    if in_fp8:
        found["dispatch_fp8"] = True
    return found


def _expert_load(flags: Flags, *, divided: bool) -> dict[str, object]:
    """What the busiest experts get over the mean: their capacity, where all are padded to it."""
    capacity, padded = "moe-expert-capacity-factor", flags.has("moe-pad-expert-input-to-capacity")
    factor, forced = flags.text(capacity), flags.has("moe-router-force-load-balancing")
    if not factor or "expert_load" in flags.given:
        return {}
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", factor) or float(factor) <= 0.0:
        raise flags.refused(capacity, factor, "a factor above 0, or give --expert-load")
    if padded and float(factor) >= 1.0:
        says = "tokens beyond an expert's capacity are dropped, and not trained on"
        alone = "; rows that pad experts on a device that has all are not priced"
        flags.usual[capacity] = says if divided else says + alone
        return {"expert_load": float(factor)}
    what = "balanced, which forcing it makes" if forced else "balanced"
    flags.usual[capacity] = f"priced with routing {what}; of another give --expert-load"
    return {}


def _exchange(flags: Flags) -> str:
    kinds = {*flags.words("cp-comm-type")} or {"p2p"}
    kind = " ".join(sorted(kinds))
    if kind not in EXCHANGES:
        raise InputError(
            f"--cp-comm-type of the Megatron-LM command is {kind!r:.60}; plans have "
            f"{', '.join(EXCHANGES)}: give one of them, or "
            f"--exchange {'|'.join(dict.fromkeys(EXCHANGES.values()))}"
        )
    return EXCHANGES[kind]


def _keys(flags: Flags) -> Iterator[LaunchKey]:
    known = known_arguments()
    for name, words in flags.values.items():
        value, meaning = " ".join(words), known.meaning(name)
        kind, reason = meaning.kind, meaning.reason
        instead = _said_instead(name, value, flags.given)
        if instead:
            kind, reason = KeyKind.USUAL, f"not read: the command line gives {instead}"
        elif name in flags.untold:
            kind, reason = KeyKind.NOT_EXPRESSIBLE, flags.untold[name]
        elif name in flags.usual:
            kind, reason = KeyKind.USUAL, flags.usual[name]
        elif kind is KeyKind.NOT_EXPRESSIBLE and value in meaning.off:
            kind, reason = KeyKind.NO_EFFECT, "its usual value"
        yield LaunchKey(f"--{name}", value, kind, reason)
    # not given, and its usual value differs
    for name in [each for each in flags.untold if each not in flags.values]:
        yield LaunchKey(f"--{name}", "", KeyKind.NOT_EXPRESSIBLE, flags.untold[name], given=False)
    for name, earlier in flags.command.repeated.items():
        if known.meaning(name).kind in (KeyKind.READ, KeyKind.NOT_EXPRESSIBLE):
            reason = "given again with another value, which holds, as in Megatron-LM"
            yield LaunchKey(f"--{name}", " and ".join(earlier), KeyKind.USUAL, reason)
    for word, reason in flags.command.stray.items():
        yield LaunchKey(word, "", KeyKind.UNKNOWN, reason)
    for name, words in flags.command.perhaps.items():
        counts = known.meaning(name).kind not in (KeyKind.NO_EFFECT, KeyKind.USUAL)
        if counts and flags.values.get(name) != words:
            reason = "stands in a branch that may not run, and was not read"
            yield LaunchKey(f"--{name}", " ".join(words), KeyKind.UNKNOWN, reason)


def _said_instead(name: str, value: str, given: Mapping[str, str]) -> str:
    """What the command line gives instead of a flag; empty where it gives nothing else."""
    if name in PROCESSES or name in COUNTED_BY:
        return next((f"--{key} {given[key]}" for key in ("devices", "dp") if key in given), "")
    key = SETTINGS.get(name, "")
    return f"--{key.replace('_', '-')} {given[key]}" if given.get(key, value) != value else ""


def _other_keys(flags: Flags) -> Iterator[LaunchKey]:
    for name, reason in flags.usual.items():
        if name not in flags.values:
            yield LaunchKey(f"--{name}", "", KeyKind.USUAL, reason, given=False)
    if flags.program in ENCODERS and "model" not in flags.given:
        yield LaunchKey(flags.program, "", KeyKind.NOT_EXPRESSIBLE, ENCODERS[flags.program])
    elif _NO_TRAINING.fullmatch(flags.program):
        reason = "trains nothing; an iteration of training is priced"
        yield LaunchKey(flags.program, "", KeyKind.USUAL, reason)
    for name in flags.script.unread:
        if name.startswith(DECLARING):
            reason = "what that sets is not known from the file, and was not read"
            yield LaunchKey(name, "", KeyKind.UNKNOWN, reason)
        else:
            reason = "no such file lies beside the script; what that sets was not read"
            yield LaunchKey(f"source {name}", "", KeyKind.UNKNOWN, reason)
    for name in flags.script.assumed:
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            reason = "a branch was chosen as if it were not set"
            yield LaunchKey(f"${name}", "", KeyKind.USUAL, reason, given=False)
