"""The settings of a Megatron-LM command or script, as flags of ``phaze evaluate``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from Common.errors import InputError
from GraphExtractor.models.dimensions import parse_dimensions
from GraphExtractor.models.registry import listed_models
from Plans.plan import GroupOrder
from third_party.exports.megatron_flags import Flags, flags_of
from third_party.exports.shape import DecoderShape, Experts, Positions, decoder_shape

EXCHANGES = {"allgather": "gather", "all_gather": "gather", "p2p": "ring", "a2a": "ulysses"}  # --cp-comm-type
ZERO_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}  # --data-parallel-sharding-strategy
EAGER_BACKENDS = ("unfused", "local")  # --attention-backend
_PIECE = re.compile(r"(?P<group>\((?P<inner>[^()]+)\)\*(?P<times>[0-9]+))|(?P<token>[EtmL|])(?:\*(?P<repeats>[0-9]+))?")
MOST_LAYERS = 100_000  # characters of a layout written out, far beyond any pipeline


def settings_of(text: str) -> dict[str, object]:
    """Settings of the plan that a Megatron-LM command or bash script means, as flags of ``phaze evaluate``.

    Read are flags with values behind them or behind ``=``, over continued lines, in arrays and in variables that the text
    assigns, comments left out; what is computed or branches is not. ``dp`` is there where processes are counted (those of
    torchrun), the model is its dimensions or, where dimensions cannot say it, a listed model of the same shape.

    Raises:
        InputError: a needed flag is missing or is no number, or the command asks for what no plan has.
    """
    flags, variables = flags_of(text)
    tp, cp = flags.number("tensor-model-parallel-size", 1), flags.number("context-parallel-size", 1)
    pp = flags.number("pipeline-model-parallel-size", 1)
    if pp > flags.number("num-layers") + 2:
        raise InputError(f"pp {pp} of the Megatron-LM command are more stages than its model has layers; correct one")
    micro_batch = flags.number("micro-batch-size")
    found: dict[str, object] = {
        "model": _model(flags),
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": flags.number("expert-model-parallel-size", 1),
        "micro_batch_size": micro_batch,
        "sequence_length": flags.number("seq-length" if flags.has("seq-length") else "encoder-seq-length"),
        "recompute": _recompute(flags),
        "sequence_parallel": flags.has("sequence-parallel") and tp > 1,
        "zero_stage": _zero_stage(flags),
        "precision": _precision(flags),
        "attention": "eager" if flags.text("attention-backend", "auto") in EAGER_BACKENDS else "flash",
        "overlap_gradients": flags.has("overlap-grad-reduce"),
        "optimizer": _optimizer(flags),
    }
    if tp > 1:
        found["overlap_tensor"] = flags.has("tp-comm-overlap")
    if cp > 1:
        found["exchange"] = _exchange(flags)
    if flags.has("use-tp-pp-dp-mapping"):
        found["group_order"] = GroupOrder.PIPELINE_INNER.value
    chunks = _chunks(flags, pp)
    found["interleave"] = max(1, len(chunks) // pp)
    if len({*_blocks(chunks)}) > 1 or not (chunks[0].startswith("E") and chunks[-1].endswith("L")):
        found["stage_layers"] = [len(chunk) for chunk in chunks]
    dp = _replicas(flags, variables, tp * pp * cp)
    if dp is not None:
        found["dp"] = dp
    if flags.has("global-batch-size") or dp is not None:
        found["global_batch_size"] = flags.number("global-batch-size", None if dp is None else micro_batch * dp)
    flags.check_spelling()
    return found


def _model(flags: Flags) -> str:
    shape = _shape(flags)
    places = flags.number("max-position-embeddings")
    family = {"gpt": "gpt", "llama": "llama"}.get(shape.family)
    if family is not None:
        sizes = f"layers={shape.layers},hidden={shape.hidden},heads={shape.heads},ffn={shape.ffn}"
        grouped = f",kv_heads={shape.kv_heads}" if shape.kv_heads != shape.heads else ""
        words = f",vocabulary={shape.vocabulary}" if shape.vocabulary else ""
        name = f"{family}:{sizes}{grouped}{words},sequence_length={places}"
        dimensions = parse_dimensions(name)
        assert dimensions is not None  # it is of that form
        return dimensions.name
    alike = [name for name in listed_models() if _is_like(decoder_shape(name), shape)]
    if not alike:
        raise InputError(
            "the model of the Megatron-LM command is none that dimensions can say or that 'phaze models' lists; give --model "
            "with the path of its config.json"
        )
    return alike[0]


def _is_like(listed: DecoderShape | None, shape: DecoderShape) -> bool:
    """Whether a listed model has that shape, whatever its family is called; a vocabulary of 0 was not given."""
    if listed is None:
        return False
    told = ("layers", "hidden", "heads", "kv_heads", "head_width", "ffn", "positions", "gated", "biases", "tied", "query_norm")
    alike = all(getattr(listed, name) == getattr(shape, name) for name in told) and listed.experts == shape.experts
    return alike and shape.vocabulary in (0, listed.vocabulary)


def _shape(flags: Flags) -> DecoderShape:
    layers, hidden = flags.number("num-layers"), flags.number("hidden-size")
    heads, gated = flags.number("num-attention-heads"), flags.has("swiglu")
    if hidden % heads and not flags.has("kv-channels"):
        raise InputError(f"--hidden-size {hidden} of the Megatron-LM command is no multiple of its {heads} heads; correct one")
    kv_heads = flags.number("num-query-groups", heads) if flags.has("group-query-attention") else heads
    ffn = flags.number("ffn-hidden-size", int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden)
    width = flags.number("kv-channels", hidden // heads)
    rotary = flags.has("use-rotary-position-embeddings") or flags.text("position-embedding-type") == "rope"
    biases, tied = not flags.has("disable-bias-linear"), not flags.has("untie-embeddings-and-output-weights")
    query_norm = flags.has("qk-layernorm")
    like_llama = gated and rotary and not biases and flags.text("normalization") == "RMSNorm"
    like_gpt = not gated and not rotary and biases and tied
    plain = not query_norm and width * heads == hidden and not flags.has("num-experts", "multi-latent-attention")
    family = "llama" if plain and like_llama and not tied else "gpt" if plain and like_gpt else ""
    if flags.has("multi-latent-attention"):
        raise InputError("the Megatron-LM command trains latent attention, which dimensions cannot say; give --model by its name")
    return DecoderShape(
        family, layers, hidden, heads, kv_heads, width, ffn, _vocabulary(flags),
        positions=Positions.ROTARY if rotary else Positions.LEARNED,
        gated=gated, activation="silu" if gated else "gelu", biases=biases, tied=tied, query_norm=query_norm,
        experts=_experts(flags, ffn),
    )  # fmt: skip


def _experts(flags: Flags, ffn: int) -> Experts | None:
    if not flags.has("num-experts"):
        return None
    width = flags.number("moe-ffn-hidden-size", ffn)
    shared = flags.number("moe-shared-expert-intermediate-size", width) // width
    shared = shared if flags.has("moe-shared-expert-intermediate-size") else 0
    return Experts(flags.number("num-experts"), flags.number("moe-router-topk", 2), width, shared)


def _vocabulary(flags: Flags) -> int:
    """Tokens before padding; 0 where a tokenizer of files says it. The null tokenizer adds the end of a document."""
    if not flags.has("vocab-size"):
        return 0
    return flags.number("vocab-size") + (flags.text("tokenizer-type") == "NullTokenizer")


def _recompute(flags: Flags) -> str:
    granularity = flags.text("recompute-granularity", "selective" if flags.has("recompute-activations") else "none")
    if granularity == "full" and flags.text("recompute-method") == "block":
        raise InputError(
            "the Megatron-LM command recomputes some of the blocks of a stage (--recompute-method block), which a plan by its "
            "degrees cannot; give uniform"
        )
    return granularity


def _zero_stage(flags: Flags) -> int:
    if flags.has("use-torch-fsdp2"):
        return 3
    if flags.has("use-megatron-fsdp", "use-custom-fsdp"):
        strategy = flags.text("data-parallel-sharding-strategy", "no_shard")
        if strategy not in ZERO_STAGES:
            raise InputError(f"--data-parallel-sharding-strategy is {strategy!r:.60}; give {', '.join(ZERO_STAGES)}")
        return ZERO_STAGES[strategy]
    return int(flags.has("use-distributed-optimizer"))


def _precision(flags: Flags) -> str:
    if flags.has("bf16") and flags.has("fp16"):
        raise InputError("the Megatron-LM command asks for --bf16 and for --fp16; leave one out")
    if flags.has("fp8-format"):
        return "fp8"
    return "bf16" if flags.has("bf16") else "fp16" if flags.has("fp16") else "fp32"


def _optimizer(flags: Flags) -> str:
    name = flags.text("optimizer", "adam")
    if name not in ("adam", "sgd"):
        raise InputError(f"--optimizer of the Megatron-LM command is {name!r:.60}, whose memory is not known; give adam or sgd")
    still = re.fullmatch(r"0*\.?0*", flags.text("sgd-momentum", "0.9"))
    return "sgd_momentum" if name == "sgd" and not still else name


def _exchange(flags: Flags) -> str:
    kind = flags.text("cp-comm-type", "p2p")
    if kind not in EXCHANGES:
        raise InputError(f"--cp-comm-type of the Megatron-LM command is {kind!r:.60}; plans have {', '.join(EXCHANGES)}")
    return EXCHANGES[kind]


def _replicas(flags: Flags, variables: Mapping[str, str], others: int) -> int | None:
    """Data-parallel size, where the processes are known; by torchrun's flags or the environment of one."""
    processes = next((name for name in ("nproc-per-node", "nproc_per_node") if flags.has(name)), None)
    if processes is not None:
        devices = flags.number(processes) * flags.number("nnodes", 1)
    elif "WORLD_SIZE" in variables and variables["WORLD_SIZE"].isdecimal():
        devices = int(variables["WORLD_SIZE"])
    else:
        return None
    if devices % others:
        raise InputError(f"{devices} processes of the Megatron-LM command are no multiple of tp x pp x cp, {others}; correct one")
    return devices // others


def _blocks(chunks: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(chunk.count("t") for chunk in chunks)


def _chunks(flags: Flags, pp: int) -> tuple[str, ...]:
    """Layers of the chunks of a pipeline in model order, by tokens of a layout."""
    layers = flags.number("num-layers")
    if flags.has("pipeline-model-parallel-layout"):
        chunks = layout_chunks(flags.text("pipeline-model-parallel-layout"))
        if len(chunks) % pp or "".join(chunks) != "E" + "t" * layers + "L":
            raise InputError(
                f"--pipeline-model-parallel-layout has {len(chunks)} stages and {sum(_blocks(chunks))} blocks; give a multiple "
                f"of pp {pp} and {layers} blocks between one E and one L"
            )
        return chunks
    stages = _stage_blocks(flags, layers, pp)
    ahead, behind = flags.has("account-for-embedding-in-pipeline-split"), flags.has("account-for-loss-in-pipeline-split")
    interleave = flags.number("num-virtual-stages-per-pipeline-rank", 1)
    if flags.has("num-layers-per-virtual-pipeline-stage"):
        interleave = stages[0] // flags.number("num-layers-per-virtual-pipeline-stage")
    if interleave < 1 or any(blocks % interleave for blocks in stages):
        raise InputError(f"{interleave} chunks do not divide the blocks {list(stages)} of the stages of the Megatron-LM command")
    blocks = [stages[chunk % pp] // interleave for chunk in range(pp * interleave)]
    blocks[0] -= ahead
    blocks[-1] -= behind
    return tuple("E" * (place == 0) + "t" * count + "L" * (place == len(blocks) - 1) for place, count in enumerate(blocks))


def _stage_blocks(flags: Flags, layers: int, pp: int) -> tuple[int, ...]:
    """Blocks of every stage without a layout, the embedding and the loss among them where Megatron is told to count them."""
    first = flags.number("decoder-first-pipeline-num-layers", 0) if flags.has("decoder-first-pipeline-num-layers") else None
    last = flags.number("decoder-last-pipeline-num-layers", 0) if flags.has("decoder-last-pipeline-num-layers") else None
    counted = layers + flags.has("account-for-embedding-in-pipeline-split") + flags.has("account-for-loss-in-pipeline-split")
    middle, rest = pp - (first is not None) - (last is not None), counted - (first or 0) - (last or 0)
    if (rest % middle if middle > 0 else rest) or rest < 0 or middle < 0 or (middle and not rest):
        raise InputError(f"{layers} blocks of the Megatron-LM command do not come out even over {pp} stages; give a layout")
    ahead, behind = () if first is None else (first,), () if last is None else (last,)
    return (*ahead, *((rest // middle,) * middle if middle else ()), *behind)


def layout_chunks(layout: str) -> tuple[str, ...]:
    """Stages of a layout such as ``Et*3|(tt|)*4L`` written out.

    Raises:
        InputError: it has other tokens, or layers that predict several tokens.
    """
    written = _expanded(layout.replace(",", ""))
    if "m" in written:
        raise InputError("the layout of the Megatron-LM command has multi-token prediction, which no plan has; leave m out")
    return tuple(written.split("|"))


def _expanded(text: str) -> str:
    made, place = "", 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            shown = repr(text[place : place + 20])
            raise InputError(f"{shown} in the layout of the Megatron-LM command is none of E, t, m, L, | and ( )*n; correct it")
        unit = _expanded(piece["inner"]) if piece["inner"] else piece["token"]
        times = int((piece["times"] or piece["repeats"] or "1")[:7])
        if len(made) + times * len(unit) > MOST_LAYERS:
            raise InputError(f"the layout of the Megatron-LM command has more than {MOST_LAYERS:,} layers; correct it")
        made += unit * times
        place = piece.end()
    return made
