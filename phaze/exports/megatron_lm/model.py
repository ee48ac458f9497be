"""The model of a Megatron-LM command: its dimensions or, where dimensions cannot say it, a listed
model of the same shape."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from GraphExtractor.models.deepseek_v3 import DeepseekV3
from GraphExtractor.models.dimensions import parse_dimensions
from GraphExtractor.models.registry import find_model, listed_models
from phaze.exports.megatron_lm.flags import Flags
from phaze.exports.megatron_lm.known_arguments import known_arguments
from phaze.exports.megatron_lm.mixtures import expert_blocks, mixture
from phaze.exports.shape import DecoderShape, Experts, Positions, decoder_shape
from phaze_common.errors import InputError

# of their tokenizers
USUAL_WORDS = {"gpt": 50257, "llama": 32000, "mixtral": 32000, "qwen3": 151936, "qwen3moe": 151936}
LISTED_FIRST = ("qwen3", "qwen3moe", "mixtral")  # whose listed models are called by their names
ROTARY = ("rope", "yarn", "mrope")  # --position-embedding-type
OTHER_MODELS = {  # what a program trains that is no decoder of blocks alike
    "pretrain_mamba.py": "a hybrid of Mamba, attention and MLP blocks",
    "pretrain_hybrid.py": "a hybrid of Mamba, attention and MLP blocks",
    "pretrain_t5.py": "an encoder and a decoder",
    "pretrain_retro.py": "a language model with a retriever",
    "pretrain_ict.py": "two encoders",
    "pretrain_vision_classify.py": "a model of images",
    "pretrain_vision_dino.py": "a model of images",
    "pretrain_vision_inpaint.py": "a model of images",
}
HYBRIDS = ("pretrain_mamba.py", "pretrain_hybrid.py")
HYBRID_FLAGS = (
    "hybrid-layer-pattern",
    "hybrid-override-pattern",
    "hybrid-attention-ratio",
    "hybrid-mlp-ratio",
    "is-hybrid-model",
)
GIVE = "give --model with its name or the path of its config.json"


@dataclass(frozen=True)
class ModelReading:
    """The model by a name that ``phaze`` knows.

    ``inexpressible`` says of flags what they change that the model has not; ``taken`` what was
    taken for a flag that is missing.
    """

    name: str
    inexpressible: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)


def blocks_of(flags: Flags) -> int:
    """Number of blocks.

    Raises:
        InputError: it is not given.
    """
    alternating = _alternating(flags)
    if alternating is not None:
        return len(alternating) // 2
    return flags.number(
        "num-layers"
        if flags.has("num-layers") or not flags.has("encoder-num-layers")
        else "encoder-num-layers"
    )


def model_of(flags: Flags) -> ModelReading:
    """The model of a command.

    Raises:
        InputError: a size is missing, or there is no such model here; says how to give one.
    """
    _check_family(flags)
    if flags.has("multi-latent-attention"):
        return ModelReading(_latent(flags))
    shape = _shape(flags)
    places = _places(flags)
    pattern = expert_blocks(flags, shape.layers) if shape.experts else ()
    mixed = {"moe-layer-freq": mixture(shape, pattern)} if not all(pattern) else {}
    family = "megatronbert" if flags.program == "pretrain_bert.py" else shape.family
    words, taken = shape.vocabulary, _normalization(flags, shape) | _groups(flags)
    hinted = () if words else _tokenizers_in(flags.source)
    if len(hinted) == 1:  # one tokenizer is named in the file, though not as that of the command
        words = hinted[0]
        shape = replace(shape, vocabulary=words)
        taken |= _taken(words)
    alike = [name for name in listed_models() if _is_like(decoder_shape(name), shape)]
    if not alike and family in LISTED_FIRST and not flags.has("vocab-size", "padded-vocab-size"):
        alike = [
            name
            for name in listed_models()
            if _is_like(decoder_shape(name), replace(shape, vocabulary=0))
        ]
        words = 0 if alike else words  # it is listed with another version of its tokenizer
    if alike and (family in LISTED_FIRST or not family or (family == "llama" and not words)):
        return ModelReading(
            alike[0], mixed, taken if words else taken | _taken(find_model(alike[0]).vocabulary)
        )
    if not family:
        family, differing = _nearest_family(flags, shape)
        shape = _dense(shape) if "num-experts" in differing else shape
        last = list(differing)[-1:]  # says once how to give the model itself
        mixed = differing | {name: f"{differing[name]}; or {GIVE}" for name in last} | mixed
    if not family:
        counted = f" ({mixed['moe-layer-freq']})" if "moe-layer-freq" in mixed else ""
        raise InputError(
            "the model of the Megatron-LM command is none that dimensions can say or that 'phaze "
            f"models' lists{counted}; {GIVE}"
        )
    if not words and family in USUAL_WORDS:
        words = USUAL_WORDS[family]
        taken |= _taken(words)
    return ModelReading(_dimensions(family, replace(shape, vocabulary=words), places), mixed, taken)


def _nearest_family(flags: Flags, shape: DecoderShape) -> tuple[str, dict[str, str]]:
    """The family whose blocks have the same products, but for what flags change; none where a block
    has others."""
    rotary = (
        "position-embedding-type"
        if flags.has("position-embedding-type")
        else "use-rotary-position-embeddings"
    )
    own_head = (
        f"the head has its own weights, {shape.vocabulary * shape.hidden / 1e6:,.0f}M parameters"
    )
    like_llama = shape.gated and shape.positions is Positions.ROTARY
    differing: dict[str, str] = {}
    if shape.biases and shape.gated:
        differing["disable-bias-linear"] = "linear layers have biases"
    if shape.activation == "geglu":
        differing["quick-geglu"] = "it is priced as SwiGLU"
    if shape.experts is not None:
        if not shape.gated:
            whole, changed = _nearest_family(flags, _dense(shape))
            return whole, changed | {
                "num-experts": "phaze lists none that are not gated; a dense block as wide as one "
                "is priced"
            }
        if shape.experts.shared_width:
            width = (
                f"of width {shape.experts.shared_width:,} in each block, beside those of "
                f"{shape.experts.ffn:,}"
            )
            differing["moe-shared-expert-intermediate-size"] = (
                f"all tokens meet shared experts {width}"
            )
        if not like_llama:
            differing["position-embedding-type"] = (
                "positions are a table, and are priced as rotary ones"
            )
        if shape.tied:
            differing["untie-embeddings-and-output-weights"] = (
                "the head is priced with weights of its own"
            )
        return "qwen3moe" if shape.query_norm else "mixtral", differing
    if shape.gated:
        if not like_llama:
            differing["position-embedding-type"] = (
                "positions are a table, and are priced as rotary ones"
            )
        return "qwen3" if shape.query_norm else "llama", differing
    if shape.head_width * shape.heads != shape.hidden:
        return "", {}
    if shape.positions is Positions.ROTARY:
        differing[rotary] = "positions are rotary, and are priced as a table"
    if not shape.biases:
        differing["disable-bias-linear"] = "linear layers have no biases"
    if not shape.tied:
        differing["untie-embeddings-and-output-weights"] = own_head
    if shape.query_norm:
        differing["qk-layernorm"] = "queries and keys are normalised"
    if shape.activation == "relu2":
        differing["squared-relu"] = "it is priced as GELU"
    return "gpt", differing


def _dense(shape: DecoderShape) -> DecoderShape:
    """The same with one expert in each block, which all tokens meet."""
    return replace(
        shape, ffn=shape.ffn if shape.experts is None else shape.experts.ffn, experts=None
    )


def _dimensions(family: str, shape: DecoderShape, places: int) -> str:
    experts = shape.experts
    sizes = {
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "ffn": experts.ffn if experts else shape.ffn,
    }
    sizes |= {"kv_heads": shape.kv_heads, "vocabulary": shape.vocabulary, "sequence_length": places}
    if family not in ("gpt", "megatronbert"):
        sizes |= {"head_width": shape.head_width, "tied": int(shape.tied and not experts)}
    if experts:
        sizes |= {"experts": experts.count, "chosen": experts.chosen}
    dimensions = parse_dimensions(
        f"{family}:{','.join(f'{key}={size}' for key, size in sizes.items() if size)}"
    )
    assert dimensions is not None  # it is of that form
    return dimensions.name


def _places(flags: Flags) -> int:
    """Tokens of the longest sequence; of rotary positions that of the launch, where a variable says
    another."""
    text = flags.text("max-position-embeddings", "")
    if text.isdecimal() or not _is_rotary(flags):
        return flags.number("max-position-embeddings", flags.number("seq-length", 1))
    return flags.number("seq-length", 1)


def _taken(words: int) -> dict[str, str]:
    return {"vocab-size": f"not given, nor known of the tokenizer; {words:,} tokens are taken"}


def _normalization(flags: Flags, shape: DecoderShape) -> dict[str, str]:
    stated, usual = (
        flags.text("normalization", "LayerNorm"),
        "RMSNorm" if shape.gated else "LayerNorm",
    )
    if stated == usual:
        return {}
    return {"normalization": f"{stated:.20} is priced as {usual}, which such models have"}


def _groups(flags: Flags) -> dict[str, str]:
    """What Megatron-LM makes of one of the two flags of grouped queries without the other."""
    if flags.has("group-query-attention") == flags.has("num-query-groups"):
        return {}
    name, what = (
        "num-query-groups",
        "not given; Megatron-LM takes 1 group beside --group-query-attention",
    )
    return {
        name: "has no effect in Megatron-LM without --group-query-attention"
        if flags.has(name)
        else what
    }


def _count_of(whole: int, width: int) -> int | float:
    """How many of that width; a part of one where it does not come out."""
    return whole // width if whole % width == 0 else whole / width


def _check_family(flags: Flags) -> None:
    """Refuse what is no decoder of blocks alike, by the program that is started and by flags of
    hybrids.

    Raises:
        InputError: says what it is.
    """
    what = OTHER_MODELS.get(flags.program)
    spec = " ".join(flags.words("spec"))
    hybrid = [name for name in HYBRID_FLAGS if flags.has(name)] or (
        ["spec"] if re.search("mamba|hybrid", spec) else []
    )
    if (flags.program in HYBRIDS or hybrid) and _alternating(flags) is None:
        pattern = flags.text(hybrid[0]) if hybrid and flags.words(hybrid[0]) else ""
        by = f"--{hybrid[0]} {pattern:.40}".rstrip() if hybrid else flags.program
        raise InputError(
            f"the Megatron-LM command trains {OTHER_MODELS[HYBRIDS[0]]} ({by}), which dimensions "
            f"cannot say; {GIVE}"
        )
    if what is not None and flags.program not in HYBRIDS:
        raise InputError(
            f"the Megatron-LM command trains {what} ({flags.program}), which dimensions cannot "
            f"say; {GIVE}"
        )
    kind = flags.text("position-embedding-type", "learned_absolute")
    none = flags.has("no-position-embedding") and not _is_rotary(flags)
    if none or kind in ("relative", "none"):
        raise InputError(
            "the Megatron-LM command trains a model with no positions or relative ones, which "
            f"dimensions cannot say; {GIVE}"
        )


def _alternating(flags: Flags) -> str | None:
    """A hybrid's pattern that is one of attention followed by an MLP (or by experts) throughout:
    blocks of a decoder."""
    name = next(
        (each for each in ("hybrid-layer-pattern", "hybrid-override-pattern") if flags.has(each)),
        None,
    )
    pattern = "" if name is None else flags.text(name).split("/")[0].replace("|", "")
    return pattern if re.fullmatch(r"(\*-)+|(\*E)+", pattern) else None


def _is_like(listed: DecoderShape | None, shape: DecoderShape) -> bool:
    """Whether a listed model has that shape, whatever its family is called; a vocabulary of 0 was
    not given.

    Where all blocks have experts, no block has the width of a dense one.
    """
    if listed is None:
        return False
    told = (
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_width",
        "positions",
        "gated",
        "biases",
        "tied",
        "query_norm",
        "experts",
    )
    alike = all(getattr(listed, name) == getattr(shape, name) for name in told)
    return (
        alike
        and (shape.experts is not None or listed.ffn == shape.ffn)
        and shape.vocabulary in (0, listed.vocabulary)
    )


def _shape(flags: Flags) -> DecoderShape:
    layers, hidden = blocks_of(flags), flags.number("hidden-size")
    heads = flags.number("num-attention-heads")
    gated = flags.has("swiglu") or flags.has("quick-geglu")
    if hidden % heads and not flags.has("kv-channels"):
        raise InputError(
            f"--hidden-size {hidden} of the Megatron-LM command is no multiple of its {heads} "
            f"heads; correct one or {GIVE}"
        )
    # as Megatron-LM has it
    kv_heads = flags.number("num-query-groups", 1) if flags.has("group-query-attention") else heads
    ffn = flags.number(
        "ffn-hidden-size", int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden
    )
    width = flags.number("kv-channels", hidden // heads)
    rotary = _is_rotary(flags)
    biases, tied = (
        not flags.has("disable-bias-linear"),
        not flags.has("untie-embeddings-and-output-weights"),
    )
    query_norm = flags.has("qk-layernorm")
    activation = (
        "relu2"
        if flags.has("squared-relu")
        else "geglu"
        if flags.has("quick-geglu")
        else "silu"
        if gated
        else "gelu"
    )
    experts = _experts(flags, ffn)
    like_gpt = (
        activation == "gelu" and not rotary and biases and tied and not query_norm and not experts
    )
    family = "gpt" if like_gpt and width * heads == hidden else ""
    if activation == "silu" and rotary and not biases:
        family = "qwen3" if query_norm else "llama"
        if experts:
            family = "" if tied or experts.shared_width else "qwen3moe" if query_norm else "mixtral"
    return DecoderShape(
        family, layers, hidden, heads, kv_heads, width, ffn, _vocabulary(flags),
        positions=Positions.ROTARY if rotary else Positions.LEARNED,
        gated=gated, activation=activation, biases=biases, tied=tied, query_norm=query_norm,
        experts=experts,
    )  # fmt: skip


def _is_rotary(flags: Flags) -> bool:
    return (
        flags.has("use-rotary-position-embeddings")
        or flags.text("position-embedding-type") in ROTARY
    )


def _experts(flags: Flags, ffn: int) -> Experts | None:
    if not flags.has("num-experts"):
        return None
    width = flags.number("moe-ffn-hidden-size", ffn)
    shared = flags.number("moe-shared-expert-intermediate-size", 0, least=0)
    return Experts(flags.number("num-experts"), flags.number("moe-router-topk", 2), width, shared)


def _vocabulary(flags: Flags) -> int:
    """Tokens before padding; 0 where neither a flag nor a known tokenizer says it. The null
    tokenizer adds one of its own."""
    if flags.has("padded-vocab-size"):
        return flags.number("padded-vocab-size")
    if flags.has("vocab-size"):
        return flags.number("vocab-size") + (flags.text("tokenizer-type") == "NullTokenizer")
    sizes = _tokenizers_in(
        " ".join((*flags.words("tokenizer-type"), *flags.words("tokenizer-model")))
    )
    return sizes[0] if sizes else 0


def _tokenizers_in(text: str) -> tuple[int, ...]:
    """Vocabularies of known tokenizers that a text names, in the order of their list."""
    named = text.lower()
    return tuple(
        dict.fromkeys(
            words for part, words in known_arguments().tokenizers.items() if part.lower() in named
        )
    )


def _latent(flags: Flags) -> str:
    """A listed model of latent attention with the sizes of a command.

    Raises:
        InputError: there is none; says in what the nearest differs.
    """
    layers = blocks_of(flags)
    hidden = flags.number("hidden-size")
    ffn = flags.number("ffn-hidden-size", 4 * hidden)
    experts = _experts(flags, ffn)
    blocks = expert_blocks(flags, layers) if experts else (False,) * layers
    dense = blocks.index(True) if True in blocks else layers
    told = {
        "layers": layers,
        "hidden": hidden,
        "heads": flags.number("num-attention-heads"),
        "query_rank": flags.number("q-lora-rank", 0),
        "key_rank": flags.number("kv-lora-rank", 32),
        "plain_width": flags.number("qk-head-dim", 128),
        "rotary_width": flags.number("qk-pos-emb-head-dim", 64),
        "value_width": flags.number("v-head-dim", 128),
        "dense_layers": dense if all(blocks[dense:]) else -1,
        "experts": experts.count if experts else 0,
        "chosen": experts.chosen if experts else 0,
        "shared": _count_of(experts.shared_width, experts.ffn) if experts else 0,
        "expert_ffn": experts.ffn if experts else 0,
        "ffn": ffn if dense else 0,
    }
    listed = {
        name: model for name, model in listed_models().items() if isinstance(model, DeepseekV3)
    }
    differing = {
        name: [
            f"{key} {value} for {getattr(model, key)}"
            for key, value in told.items()
            if getattr(model, key) != value
        ]
        for name, model in listed.items()
    }
    alike = [name for name, others in differing.items() if not others]
    if alike:
        return alike[0]
    name = min(differing, key=lambda each: len(differing[each]), default="")
    nearest = (
        f"; of {name} it has another {', '.join(differing[name]).replace('_', ' ')}" if name else ""
    )
    raise InputError(
        "the Megatron-LM command trains latent attention of sizes that 'phaze models' does not "
        f"list{nearest}; {GIVE}"
    )
