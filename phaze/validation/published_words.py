"""What published words mean: the first word of a cell that decides, decides. None where none
does."""

import re
from collections.abc import Mapping

from phaze.validation.published_numbers import number_in
from phaze.validation.typed_run import MemoryFigure
from phaze_common.choices import Attention, Optimizer, Precision, Recompute
from phaze_common.recompute_modules import (
    BETWEEN_PRODUCTS,
    BY_OPERATOR,
    Recomputation,
    known_modules,
    recompute_of,
)
from phaze_common.units import GIB

NOTHING = re.compile(
    r"|nan|null|-+|–|—|\?+|n/?a|unknown|unclear|unspecified|tbd|not? "
    r"(?:said|stated|given|reported|known|specified|available)\b.*"
)
_WORD = re.compile(r"[a-z]+|\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NO = _words("no none not non false off disabled without never 0 nothing ddp")
_YES = _words("yes true on enabled with 1 all always y")
# the second half are modules that Megatron-LM recomputes by name
_SELECTIVE = _words(
    "selective selectively partial partially attention attn core sel "
    "norm layernorm act moe mla mlp shared modules"
)
_MODULES = re.compile(
    r"(?<!\w)(?:core_attn|mla_up_proj|mlp|moe_act|moe|layernorm|shared_experts)(?!\w)"
)
_BY_OPERATOR = re.compile(r"\bops?\b|operator|every second product", re.IGNORECASE)
_OFFLOADED_LAYERS = re.compile(r"activation offload (\d+) layers", re.IGNORECASE)
_NO_MODULES = re.compile(r"\[\s*\]|modules empty")
_REMAT = re.compile(r"remat_policy=(\w*)")
MINIMAL_OFFLOADED = "minimal_offloaded"
_KEPT = re.compile(r"(\w+)=(device|offload)")
_FULL = (_YES - {"with"}) | _words(
    "full fully uniform block every layer layers whole checkpoint checkpointing checkpointed "
    "recompute recomputation recomputed ckpt ac"
)
_CHUNKS = re.compile(r"\bv(?:pp?)?\s?[=:]?\s?(\d+)|(\d+)\s?(?:virtual|chunks?|model chunks)")
_STAGE = re.compile(r"(?:zero|stage)[- ]?([0-3])\b")
_ZERO_NUMBER = re.compile(r"\bzero(?:[- ]?stage)?[- ]?([0-3])\b")
# as a word by itself, not among others
_MEGATRON_FSDP = re.compile(r"megatron[- ]fsdp|\bfsdp: yes|(?:^|[,;] ?)fsdp(?=$|[,;])")
_SAMPLES = re.compile(
    r"(?<![\d.])(\d{1,9}(?:\.\d{1,9})?) (?:samples|sequences)(?:/s\b| a second| per second)"
)
_DISTRIBUTED_OPTIMIZER = re.compile(
    r"(?<!no )(?<!without )distributed optimi[sz]er|optimi[sz]er states? (?:sharded )?over "
)
_SHARDED = {
    2: re.compile(r"shard[_ -]?grad"),
    3: re.compile(r"fsdp|fully|full[_ ]shard|hsdp|hybrid"),
    1: re.compile(r"distributed|dist\w*[ -]opt|yes|true|optimizer"),
}
_SCALED = r"(?:fp|float)8[-_ ]*"  # how its numbers are scaled follows
_FORMATS = {  # the first of those that start at one place
    Precision.NVFP4: re.compile(r"nvfp4|(?<!mx)fp4"),
    Precision.MXFP8: re.compile(rf"mx[-_ ]?(?:fp|float)8|{_SCALED}(?:mx|micro)"),
    Precision.FP8_BLOCK: re.compile(rf"{_SCALED}(?:block|sub[-_ ]?channel|sc\b)"),
    Precision.FP8_CURRENT: re.compile(rf"{_SCALED}(?:cs\b|current|tensor[-_ ]?wise)"),
    Precision.FP8: re.compile(r"fp8|float8|e4m3"),
    Precision.BF16: re.compile(r"bf16|bfloat"),
    Precision.FP16: re.compile(r"fp16|(?<!b)float16|\bhalf\b"),
    Precision.FP32: re.compile(r"fp32|float32|tf32|single"),
}
_BLOCKS = re.compile(r"mx|block|nvfp4|subchannel")
_GRADIENTS = re.compile(
    r"\b(?:(fp32|float32)|fp16|bf16|float16|bfloat16)[- ](?:main[- ])?(?:gradients?|grads?)\b"
)
_MEMORY = re.compile(
    r"\bmemory (?:in (?P<unit>gib|gb)\b ?)?(?:as )?(?P<kind>allocated|reserved)?"
    r"(?P<last> on the last stage)?"
)
_NO_FLASH = re.compile(
    r"(?:\bno|without|w/o|\bnon?t?|no fused)[- ]?flash|unfused attention|eager "
    r"attention|attention eager"
)
_FLASH = re.compile(r"flash|\bfa-?[123]\b|memory[- ]efficient attention|fused attention")
_KERNELS = {
    "triton": re.compile(
        r"triton[- ](?:flash|attention|attn)|(?:attention|attn\w*)[: ](?:in |impl\w*[: "
        r"]+)?triton|attn_impl[: ]+triton"
    ),
    "flash_3": re.compile(r"flash[- ]?attention[- ]?(?:v)?3\b|\bfa-?3\b"),
    "flash_2": re.compile(r"flash[- ]?attention[- ]?(?:v)?2\b|\bfa-?2\b"),
    "flash_1": re.compile(r"flash[- ]?attention[- ]?(?:v)?1\b|\bfa-?1\b"),
    "cudnn": re.compile(r"cudnn (?:fused |flash )?attention"),
}
_BLOCKING = re.compile(
    r"cuda_launch_blocking ?= ?1|blocking (?:kernel )?launches|"
    r"kernels (?:launched|issued) one by one"
)

_ADDED_APART = re.compile(
    r"no[- ]gradient[- ]accumulation[- ]fusion|gradients (?:are )?added apart"
)

_MUON = re.compile(r"\boptimi[sz]er\W+(?:dist\w*[ _-])?muon\b|\bmuon optimi[sz]er\b")
_CORES = re.compile(r"tp/pp/dp count cores|degrees count cores")
_SHARED_BY = re.compile(r"(?:sharded )?over (\d+) (?:ranks|replicas)|\bzero1 ?= ?(\d+)")
_INSTANCES = re.compile(r"(\d+) (?:distributed[- ]optimi[sz]er instances|groups of shards)")


def is_nothing(text: str) -> bool:
    """Whether a cell says that nothing is known."""
    return NOTHING.fullmatch(text.strip().lower()) is not None


def _first(text: str, meanings: Mapping[str, bool | Recompute]) -> bool | Recompute | None:
    if is_nothing(text):
        return None
    return next((meanings[word] for word in _WORD.findall(text.lower()) if word in meanings), None)


_RECOMPUTE: Mapping[str, bool | Recompute] = (
    dict.fromkeys(_FULL, Recompute.FULL)
    | dict.fromkeys(_SELECTIVE, Recompute.SELECTIVE)
    | dict.fromkeys(_NO, Recompute.NONE)
)
_FLAG: Mapping[str, bool | Recompute] = dict.fromkeys(_NO, False) | dict.fromkeys(
    _YES | {"sp", "sequence"}, True
)


def recompute_in(text: str) -> Recomputation | None:
    """Recomputation: ``none (mostly)`` is none, ``full (every layer)`` full, ``selective (attention
    only)`` selective; modules by the names of Megatron-LM."""
    number = number_in(text)
    if number is not None:  # of layers that are recomputed
        return Recompute.FULL if number else Recompute.NONE
    remat = _REMAT.search(text)
    # MaxText: of a custom policy only that of the inputs of blocks alone is one of the modes;
    # where all that is kept is in host memory, it is the nearest
    if remat is not None and remat[1] in ("minimal", MINIMAL_OFFLOADED):
        return BETWEEN_PRODUCTS
    if remat is not None:
        kept = [name for name, _ in _KEPT.findall(text)]
        only_inputs = kept == ["decoder_layer_input"] or offloads_all_kept(text)
        custom = remat[1] == "custom" and only_inputs
        return Recompute.FULL if remat[1] == "full" or custom else None
    if _NO_MODULES.search(text):
        return Recompute.NONE
    found = _first(text, _RECOMPUTE)
    if found is Recompute.SELECTIVE:
        if _BY_OPERATOR.search(text):
            return BY_OPERATOR
        modules = _MODULES.findall(text.lower())
        return recompute_of(known_modules(modules)[0]) if modules else found
    return found if isinstance(found, Recompute) else None


def flag_in(text: str) -> bool | None:
    """Yes or no."""
    number = number_in(text)
    if number is not None:
        return number > 0
    found = _first(text, _FLAG)
    return found if isinstance(found, bool) else None


def zero_stage_in(text: str) -> int | None:
    """ZeRO stage by its number, or by what is sharded."""
    words = text.lower()
    number = number_in(words)
    if number is not None:
        return int(number) if number in (0, 1, 2, 3) else None
    if is_nothing(words):
        return None
    if _first(words, _FLAG) is False and not _STAGE.search(words):
        return 0
    found = _STAGE.search(words)
    if found:
        return int(found[1])
    return next((stage for stage, each in _SHARDED.items() if each.search(words)), None)


def stated_stage_in(*texts: str) -> int | None:
    """ZeRO stage that words name by number or as a program's own sharding, where no column says
    it."""
    for text in texts:
        words = text.lower()
        found = _ZERO_NUMBER.search(words)
        if found is not None:
            return int(found[1])
        if _MEGATRON_FSDP.search(words):
            return 3
        if _DISTRIBUTED_OPTIMIZER.search(words):
            return 1
    return None


def precision_in(text: str) -> Precision | None:
    """The number format that is named first."""
    found = {name: pattern.search(text.lower()) for name, pattern in _FORMATS.items()}
    places = [(match.start(), name) for name, match in found.items() if match]
    return min(places, key=lambda place: place[0])[1] if places else None


def scales_blocks(text: str) -> bool:
    """Whether a format of 8 or 4 bits has a scale for each block of numbers."""
    return _BLOCKS.search(text.lower()) is not None


def samples_per_s_in(text: str) -> float | None:
    """Samples that all devices together train on in a second."""
    found = _SAMPLES.search(text.lower())
    return (float(found[1]) or None) if found else None


def gradient_bytes_in(text: str) -> int | None:
    """Bytes of gradients where their format is named."""
    found = _GRADIENTS.search(text.lower())
    return None if found is None else 4 if found[1] else 2


def offloaded_layers_in(text: str) -> int:
    """Layers whose activations are said to be kept in host memory."""
    found = _OFFLOADED_LAYERS.search(text)
    return 0 if found is None else int(found[1])


def offloads_all_kept(text: str) -> bool:
    """Whether all that a policy of MaxText keeps for backward passes is in host memory."""
    remat = _REMAT.search(text)
    if remat is not None and remat[1] == MINIMAL_OFFLOADED:
        return True
    return {place for _, place in _KEPT.findall(text)} == {"offload"}


def without_offloaded_layers(text: str) -> str:
    """A text without these words."""
    return _OFFLOADED_LAYERS.sub("", text)


def memory_in(text: str) -> tuple[float, MemoryFigure | None]:
    """Bytes of a unit of memory over those of a GB, and what the figure counts; None where that is
    not said."""
    for found in _MEMORY.finditer(text.lower()):
        if found["unit"] or found["kind"]:
            kind = None if found["kind"] is None else MemoryFigure(found["kind"])
            if kind is MemoryFigure.ALLOCATED and found["last"]:
                kind = MemoryFigure.LAST_STAGE
            return (GIB / 1e9 if found["unit"] == "gib" else 1.0), kind
    return 1.0, None


def attention_in(*texts: str) -> Attention | None:
    """Attention as the first of ``texts`` says that speaks of it."""
    for text in texts:
        if _NO_FLASH.search(text.lower()):
            return Attention.EAGER
        if _FLASH.search(text.lower()):
            return Attention.FLASH
    return None


def chunks_in(text: str) -> int | bool | None:
    """Model chunks per stage; True for an interleaved schedule of which nothing else is said, None
    where nothing is."""
    words = text.strip().lower()
    if is_nothing(words):
        return None
    named = _CHUNKS.search(words)
    number = float(named[1] or named[2]) if named else number_in(words)
    if number is not None:
        return max(int(min(number, 1e6)), 1)
    found = _first(words.replace("1f1b", "").replace("non-", "non "), _FLAG)
    if found is False:
        return 1
    return True if found or "interleav" in words or "virtual" in words else None


def attention_kernel_in(*texts: str) -> str | None:
    """The kernel of fused attention that the first text which names one names."""
    for text in texts:
        for name, pattern in _KERNELS.items():
            if pattern.search(text.lower()):
                return name
    return None


def blocking_launches_in(text: str) -> bool | None:
    """Whether a text says that the host waited for every kernel; None where it says nothing."""
    return True if _BLOCKING.search(text.lower()) else None


def counts_cores(text: str) -> bool:
    """Whether degrees of parallelism are said to count cores of which a device has several."""
    return _CORES.search(text.lower()) is not None


def fused_gradients_in(text: str) -> bool | None:
    """False where a text says that products do not add to the sums of gradients themselves; None
    where it says nothing."""
    return False if _ADDED_APART.search(text.lower()) else None


def optimizer_in(*texts: str) -> Optimizer | None:
    """Muon where a text says so; None where none does."""
    return Optimizer.MUON if any(_MUON.search(text.lower()) for text in texts) else None


def sharing_in(text: str) -> tuple[int | None, int | None]:
    """Devices over which an optimizer is sharded where these are not all replicas, and the number
    of such groups, as far as a text says them."""
    devices, groups = _SHARED_BY.search(text.lower()), _INSTANCES.search(text.lower())
    return (
        None if devices is None else int(devices[1] or devices[2]),
        None if groups is None else int(groups[1]),
    )
