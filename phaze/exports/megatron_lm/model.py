"""The model of a Megatron-LM command: its dimensions or, where dimensions cannot say it, a listed
model of the same shape."""

from __future__ import annotations

import re
from dataclasses import replace

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


ONE_HEAD = ("gpt", "megatronbert")  # families whose heads are hidden / heads wide


def blocks_of(flags: Flags) -> int:
    """Number of blocks.

    Raises:
        InputError: it is not given.
    """
    alternating = _alternating(flags)
    if alternating is not None:
        return len(alternating) // 2
    return flags.number(flags.named("num-layers", "encoder-num-layers"))


def model_of(flags: Flags) -> str:
    """The model of a command by a name that ``phaze`` knows; noted are flags that change what it
    has not, and what is taken for one that is missing.

    Raises:
        InputError: a size is missing, or there is no such model here; says how to give one.
    """
    _check_family(flags)
    if flags.has("multi-latent-attention"):
        return _latent(flags)
    shape = _shape(flags)
    places = _places(flags)
    pattern = expert_blocks(flags, shape.layers) if shape.experts else ()
    mixed = "" if all(pattern) else mixture(shape, pattern)
    family = "megatronbert" if flags.program == "pretrain_bert.py" else shape.family
    flags.usual.update(_normalization(flags, shape) | _groups(flags))
    hinted = () if shape.vocabulary else _tokenizers_in(flags.source)
    if len(hinted) == 1:  # one tokenizer is named in the file, though not as that of the command
        shape = replace(shape, vocabulary=_taken(flags, hinted[0]))
    words = shape.vocabulary
    alike = _listed_like(shape)
    if not alike and family in LISTED_FIRST and not flags.has("vocab-size", "padded-vocab-size"):
        alike = _listed_like(replace(shape, vocabulary=0))
        words = 0 if alike else words  # it is listed with another version of its tokenizer
    listed = bool(alike) and (not family or family in LISTED_FIRST)
    differing: dict[str, str] = {}
    if alike and not words and (listed or family == "llama"):
        listed = bool(_taken(flags, find_model(alike[0]).vocabulary))
    if not listed and not family:
        family, differing = _nearest_family(flags, shape)
        shape = _dense(shape) if "num-experts" in differing else shape
        for name in list(differing)[-1:]:  # says once how to give the model itself
            differing[name] += f"; or {GIVE}"
    flags.untold.update(differing | ({"moe-layer-freq": mixed} if mixed else {}))
    if listed:
        return alike[0]
    if not family:
        counted = f" ({mixed})" if mixed else ""
        raise InputError(
            "the model of the Megatron-LM command is none that dimensions can say or that 'phaze "
            f"models' lists{counted}; {GIVE}"
        )
    if not words and family in USUAL_WORDS:
        words = _taken(flags, USUAL_WORDS[family])
    return _dimensions(family, replace(shape, vocabulary=words), places)


def _listed_like(shape: DecoderShape) -> list[str]:
    """Listed models of that shape."""
    return [name for name in listed_models() if _is_like(decoder_shape(name), shape)]


def _nearest_family(flags: Flags, shape: DecoderShape) -> tuple[str, dict[str, str]]:
    """The family whose blocks have the same products, but for what flags change; none where a block
    has others."""
    own_head = f"{shape.vocabulary * shape.hidden / 1e6:,.0f}M parameters"
    rotary, experts = shape.positions is Positions.ROTARY, shape.experts
    table = "positions are a table, and are priced as rotary ones"
    kind, untied = "position-embedding-type", "untie-embeddings-and-output-weights"
    differing: dict[str, str] = {}
    if shape.biases and shape.gated:
        differing["disable-bias-linear"] = "linear layers have biases"
    if shape.activation == "geglu":
        differing["quick-geglu"] = "it is priced as SwiGLU"
    if experts is not None and not shape.gated:
        whole, changed = _nearest_family(flags, _dense(shape))
        ungated = "phaze lists none that are not gated; a dense block as wide as one is priced"
        return whole, changed | {"num-experts": ungated}
    if experts is not None and experts.shared_width:
        differing["moe-shared-expert-intermediate-size"] = (
            f"all tokens meet shared experts of width {experts.shared_width:,} in each block, "
            f"beside those of {experts.ffn:,}"
        )
    if shape.gated and not rotary:
        differing[kind] = table
    if experts is not None and shape.tied:
        differing[untied] = "the head is priced with weights of its own"
    if experts is not None:
        return "qwen3moe" if shape.query_norm else "mixtral", differing
    if shape.gated:
        return "qwen3" if shape.query_norm else "llama", differing
    if shape.head_width * shape.heads != shape.hidden:
        return "", {}
    if rotary:
        name = flags.named(kind, "use-rotary-position-embeddings")
        differing[name] = "positions are rotary, and are priced as a table"
    if not shape.biases:
        differing["disable-bias-linear"] = "linear layers have no biases"
    if not shape.tied:
        differing[untied] = f"the head has its own weights, {own_head}"
    if shape.query_norm:
        differing["qk-layernorm"] = "queries and keys are normalised"
    if shape.activation == "relu2":
        differing["squared-relu"] = "it is priced as GELU"
    return "gpt", differing


def _dense(shape: DecoderShape) -> DecoderShape:
    """The same with one expert in each block, which all tokens meet."""
    ffn = shape.ffn if shape.experts is None else shape.experts.ffn
    return replace(shape, ffn=ffn, experts=None)


def _dimensions(family: str, shape: DecoderShape, places: int) -> str:
    experts = shape.experts
    sizes = {
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "ffn": experts.ffn if experts else shape.ffn,
        "kv_heads": shape.kv_heads,
        "vocabulary": shape.vocabulary,
        "sequence_length": places,
    }
    if family not in ONE_HEAD:
        sizes |= {"head_width": shape.head_width, "tied": int(shape.tied and not experts)}
    if experts:
        sizes |= {"experts": experts.count, "chosen": experts.chosen}
    listed = ",".join(f"{key}={size}" for key, size in sizes.items() if size)
    dimensions = parse_dimensions(f"{family}:{listed}")
    assert dimensions is not None  # it is of that form
    return dimensions.name


def _places(flags: Flags) -> int:
    """Tokens of the longest sequence; of rotary positions that of the launch, where a variable says
    another."""
    text = flags.text("max-position-embeddings", "")
    if text.isdecimal() or not _is_rotary(flags):
        return flags.number("max-position-embeddings", flags.number("seq-length", 1))
    return flags.number("seq-length", 1)


def _taken(flags: Flags, words: int) -> int:
    """A vocabulary that is taken where none is given."""
    taken = f"not given, nor known of the tokenizer; {words:,} tokens are taken"
    flags.usual["vocab-size"] = taken
    return words


def _normalization(flags: Flags, shape: DecoderShape) -> dict[str, str]:
    stated = flags.text("normalization", "LayerNorm")
    usual = "RMSNorm" if shape.gated else "LayerNorm"
    what = f"{stated:.20} is priced as {usual}, which such models have"
    return {} if stated == usual else {"normalization": what}


def _groups(flags: Flags) -> dict[str, str]:
    """What Megatron-LM makes of one of the two flags of grouped queries without the other."""
    name, other = "num-query-groups", "group-query-attention"
    if flags.has(other) == flags.has(name):
        return {}
    if flags.has(name):
        return {name: f"has no effect in Megatron-LM without --{other}"}
    return {name: f"not given; Megatron-LM takes 1 group beside --{other}"}


def _count_of(whole: int, width: int) -> int | float:
    """How many of that width; a part of one where it does not come out."""
    return whole // width if whole % width == 0 else whole / width


def _check_family(flags: Flags) -> None:
    """Refuse what is no decoder of blocks alike, by the program that is started and by flags of
    hybrids.

    Raises:
        InputError: says what it is.
    """
    hybrid = [name for name in HYBRID_FLAGS if flags.has(name)]
    if not hybrid and re.search("mamba|hybrid", " ".join(flags.words("spec"))):
        hybrid = ["spec"]
    what, by = OTHER_MODELS.get(flags.program), flags.program
    if _alternating(flags) is not None:
        what = None if flags.program in HYBRIDS else what
    elif flags.program in HYBRIDS or hybrid:
        what = OTHER_MODELS[HYBRIDS[0]]
        if hybrid:
            pattern = flags.text(hybrid[0]) if flags.words(hybrid[0]) else ""
            by = f"--{hybrid[0]} {pattern:.40}".rstrip()
    if what is not None:
        raise _not_said(f"{what} ({by})")
    kind = flags.text("position-embedding-type", "learned_absolute")
    none = flags.has("no-position-embedding") and not _is_rotary(flags)
    if none or kind in ("relative", "none"):
        raise _not_said("a model with no positions or relative ones")


def _not_said(what: str) -> InputError:
    return InputError(f"the Megatron-LM command trains {what}, which dimensions cannot say; {GIVE}")


def _alternating(flags: Flags) -> str | None:
    """A hybrid's pattern that is one of attention followed by an MLP (or by experts) throughout:
    blocks of a decoder."""
    name = flags.named("hybrid-layer-pattern", "hybrid-override-pattern")
    pattern = flags.text(name).split("/")[0].replace("|", "") if flags.has(name) else ""
    return pattern if re.fullmatch(r"(\*-)+|(\*E)+", pattern) else None


def _is_like(listed: DecoderShape | None, shape: DecoderShape) -> bool:
    """Whether a listed model has that shape, whatever its family is called; a vocabulary of 0 was
    not given.

    Where all blocks have experts, no block has the width of a dense one.
    """
    if listed is None or shape.vocabulary not in (0, listed.vocabulary):
        return False
    same = replace(
        listed,
        family=shape.family,
        vocabulary=shape.vocabulary,
        activation=shape.activation,
        dropout=shape.dropout,
        ffn=listed.ffn if shape.experts is None else shape.ffn,
    )
    return same == shape


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
    wide = int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden
    ffn = flags.number("ffn-hidden-size", wide)
    width = flags.number("kv-channels", hidden // heads)
    rotary, query_norm = _is_rotary(flags), flags.has("qk-layernorm")
    biases = not flags.has("disable-bias-linear")
    tied = not flags.has("untie-embeddings-and-output-weights")
    kinds = {"squared-relu": "relu2", "quick-geglu": "geglu", "swiglu": "silu"}
    activation = next((kind for flag, kind in kinds.items() if flags.has(flag)), "gelu")
    experts = _experts(flags, ffn)
    plain = activation == "gelu" and not rotary and not query_norm and not experts
    family = ""
    if plain and biases and tied and width * heads == hidden:
        family = "gpt"
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
    kind = flags.text("position-embedding-type")
    return kind in ROTARY or flags.has("use-rotary-position-embeddings")


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
    named = (*flags.words("tokenizer-type"), *flags.words("tokenizer-model"))
    return next(iter(_tokenizers_in(" ".join(named))), 0)


def _tokenizers_in(text: str) -> tuple[int, ...]:
    """Vocabularies of known tokenizers that a text names, in the order of their list."""
    known, named = known_arguments().tokenizers, text.lower()
    return tuple(dict.fromkeys(words for part, words in known.items() if part.lower() in named))


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
    listed = listed_models().items()
    differing = {
        name: [
            f"{key} {value} for {getattr(model, key)}"
            for key, value in told.items()
            if getattr(model, key) != value
        ]
        for name, model in listed
        if isinstance(model, DeepseekV3)
    }
    name = min(differing, key=lambda each: len(differing[each]), default="")
    if name and not differing[name]:
        return name
    others = ", ".join(differing.get(name, ())).replace("_", " ")
    nearest = f"; of {name} it has another {others}" if name else ""
    raise InputError(
        "the Megatron-LM command trains latent attention of sizes that 'phaze models' does not "
        f"list{nearest}; {GIVE}"
    )
