"""Every model name the framework knows: a line per published configuration, or dimensions spelled out.

Sources of the sizes and parameter counts are given beside the lines; counts of nine and more digits are those of released
checkpoints, rounded ones those of the papers.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType

from Common.errors import InputError
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.bert import Bert, MegatronBert
from GraphExtractor.models.bloom import Bloom
from GraphExtractor.models.dimensions import parse_dimensions
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.models.llama import Llama
from GraphExtractor.models.mpt import Mpt
from GraphExtractor.models.opt import Opt


def _gpt(layers: int, hidden: int, heads: int, published: float, sequence_length: int = 1024, vocabulary: int = 50257) -> Gpt:
    return Gpt(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=vocabulary,
        sequence_length=sequence_length,
        published_parameter_count=round(published),
    )


def _gpt3(layers: int, hidden: int, heads: int, published: float) -> Gpt:
    return _gpt(layers, hidden, heads, published, sequence_length=2048)


def _megatron(layers: int, hidden: int, heads: int, published: float) -> Gpt:
    return _gpt(layers, hidden, heads, published, sequence_length=2048, vocabulary=51200)


def _bert(family: type[Bert], layers: int, hidden: int, heads: int, vocabulary: int, published: int) -> Bert:
    return family(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=vocabulary,
        sequence_length=512,
        published_parameter_count=published,
    )


def _opt(layers: int, hidden: int, heads: int, published: float, word_embedding: int = 0, pre_norm: bool = True) -> Opt:
    return Opt(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=50272,
        sequence_length=2048,
        published_parameter_count=round(published),
        word_embedding=word_embedding,
        pre_norm=pre_norm,
    )


def _llama(
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    published: int,
    sequence_length: int,
    kv_heads: int = 0,
    vocabulary: int = 32000,
) -> Llama:
    return Llama(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocabulary=vocabulary,
        sequence_length=sequence_length,
        published_parameter_count=published,
        kv_heads=kv_heads,
    )


def _bloom(layers: int, hidden: int, heads: int, published: int) -> Bloom:
    return Bloom(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=250880,
        sequence_length=2048,
        published_parameter_count=published,
    )


def _mpt(layers: int, hidden: int, heads: int, published: float = 0) -> Mpt:
    return Mpt(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=50432,
        sequence_length=2048,
        published_parameter_count=round(published),
    )


MODELS: MappingProxyType[str, ModelFamily] = MappingProxyType(
    {
        # Devlin et al. 2018 and its released checkpoints; Shoeybi et al. 2019, tables 1 and 4
        "bertbase": _bert(Bert, 12, 768, 12, 30522, 110_106_428),
        "bertlarge": _bert(Bert, 24, 1024, 16, 30522, 336_226_108),
        "megatronbert": _bert(MegatronBert, 24, 1024, 16, 29056, 336_000_000),
        "gpt2": _gpt(48, 1600, 25, 1_557_611_200),
        "megatrongpt2-xl": _gpt(40, 1536, 16, 1.2e9),
        "megatrongpt2-54": _gpt(54, 1920, 20, 2.5e9),
        "megatrongpt2-72": _gpt(72, 3072, 32, 8.3e9),
        # Brown et al. 2020, table 2.1; of 1.3B and 13B the width and heads that its head width of 128 implies
        "gpt3-125m": _gpt3(12, 768, 12, 125e6),
        "gpt3-350m": _gpt3(24, 1024, 16, 350e6),
        "gpt3-760m": _gpt3(24, 1536, 16, 760e6),
        "gpt3-1.3b": _gpt3(24, 2048, 16, 1.3e9),
        "gpt3-2.7b": _gpt3(32, 2560, 32, 2.7e9),
        "gpt3-6.7b": _gpt3(32, 4096, 32, 6.7e9),
        "gpt3-13b": _gpt3(40, 5120, 40, 13e9),
        "megatrongpt3": _gpt3(96, 12288, 96, 175e9),
        # Narayanan et al. 2021 (SC'21), table 1
        "megatron-1.7b": _megatron(24, 2304, 24, 1.7e9),
        "megatron-3.6b": _megatron(30, 3072, 32, 3.6e9),
        "megatron-7.5b": _megatron(36, 4096, 32, 7.5e9),
        "megatron-18.4b": _megatron(40, 6144, 48, 18.4e9),
        "megatron-39.1b": _megatron(48, 8192, 64, 39.1e9),
        "megatron-76.1b": _megatron(60, 10240, 80, 76.1e9),
        "megatron-145.6b": _megatron(80, 12288, 96, 145.6e9),
        "megatron-310.1b": _megatron(96, 16384, 128, 310.1e9),
        "megatron-529.6b": _megatron(105, 20480, 128, 529.6e9),
        "megatron-1t": _megatron(128, 25600, 160, 1008e9),
        # Korthikanti et al. 2022, table 3; its 530B and 1T are those of SC'21
        "megatron-22b": _megatron(48, 6144, 64, 22e9),
        "megatron-175b": _megatron(96, 12288, 96, 175e9),
        # Smith et al. 2022 (MT-NLG), section 2
        "mt-nlg-530b": _gpt3(105, 20480, 128, 530e9),
        # Zhang et al. 2022, table 1; released checkpoints up to 30B
        "opt-125m": _opt(12, 768, 12, 125_239_296),
        "opt": _opt(24, 1024, 16, 331_196_416, word_embedding=512, pre_norm=False),
        "opt-1.3b": _opt(24, 2048, 32, 1_315_758_080),
        "opt-2.7b": _opt(32, 2560, 32, 2_651_596_800),
        "opt-6.7b": _opt(32, 4096, 32, 6_658_473_984),
        "opt-13b": _opt(40, 5120, 40, 12_853_473_280),
        "opt-30b": _opt(48, 7168, 56, 29_974_540_288),
        "opt-66b": _opt(64, 9216, 72, 66e9),
        "opt-175b": _opt(96, 12288, 96, 175e9),
        # Touvron et al. 2023 (table 2; Llama 2, table 1), Grattafiori et al. 2024 (table 3) and the released checkpoints
        "llama-7b": _llama(32, 4096, 32, 11008, 6_738_415_616, 2048),
        "llama-13b": _llama(40, 5120, 40, 13824, 13_015_864_320, 2048),
        "llama-33b": _llama(60, 6656, 52, 17920, 32_528_943_616, 2048),
        "llama-65b": _llama(80, 8192, 64, 22016, 65_285_660_672, 2048),
        "llama2": _llama(32, 4096, 32, 11008, 6_738_415_616, 4096),
        "llama2-13b": _llama(40, 5120, 40, 13824, 13_015_864_320, 4096),
        "llama2-70b": _llama(80, 8192, 64, 28672, 68_976_648_192, 4096, kv_heads=8),
        "llama3-8b": _llama(32, 4096, 32, 14336, 8_030_261_248, 8192, kv_heads=8, vocabulary=128256),
        "llama3-70b": _llama(80, 8192, 64, 28672, 70_553_706_496, 8192, kv_heads=8, vocabulary=128256),
        "llama3-405b": _llama(126, 16384, 128, 53248, 405_853_388_800, 8192, kv_heads=8, vocabulary=128256),
        # BigScience 2022, table 3 and the released checkpoints
        "bloom-560m": _bloom(24, 1024, 16, 559_214_592),
        "bloom-1b1": _bloom(24, 1536, 16, 1_065_314_304),
        "bloom-1b7": _bloom(24, 2048, 16, 1_722_408_960),
        "bloom-3b": _bloom(30, 2560, 32, 3_002_557_440),
        "bloom-7b1": _bloom(30, 4096, 32, 7_069_016_064),
        "bloom-176b": _bloom(70, 14336, 112, 176_247_271_424),
        # llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml; ALiBi and vocabulary of the released mpt-7b and mpt-30b
        "mpt-125m": _mpt(12, 768, 12),
        "mpt-350m": _mpt(24, 1024, 16),
        "mpt-760m": _mpt(24, 1536, 12),
        "mpt-1b": _mpt(24, 2048, 16),
        "mpt-3b": _mpt(32, 2560, 20),
        "mpt-7b": _mpt(32, 4096, 32, 6_649_286_656),
        "mpt-13b": _mpt(40, 5120, 40),
        "mpt-30b": _mpt(48, 7168, 56, 29.95e9),
        "mpt-70b": _mpt(80, 8192, 64),
    }
)
ALIASES = MappingProxyType(
    {
        "gpt2-xl": "gpt2",
        "gpt3-175b": "megatrongpt3",
        "megatron-530b": "megatron-529.6b",
        "megatron-1008b": "megatron-1t",
        "opt-350m": "opt",
        "llama2-7b": "llama2",
        "bloom": "bloom-176b",
    }
)


def canonical_name(name: str) -> str:
    """Name under which a model's artefacts are kept: a listed one, or dimensions in the order and form of ``dimensions``.

    Raises:
        InputError: no such model, or dimensions that cannot be.
    """
    canonical = ALIASES.get(name, name)
    if canonical in MODELS:
        return canonical
    dimensions = parse_dimensions(name)
    if dimensions is not None:
        return dimensions.name
    known = [*MODELS, *ALIASES]
    close = difflib.get_close_matches(name.lower(), known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "give one of them"
    raise InputError(
        f"unknown model {name!r}; known models are {', '.join(known)}, and dimensions such as "
        f"gpt:layers=24,hidden=2304,heads=24; {hint}"
    )


def find_model(name: str) -> ModelFamily:
    """Return the configuration behind a model name, alias or dimensions.

    Raises:
        InputError: no such model, or dimensions that cannot be.
    """
    canonical = canonical_name(name)
    dimensions = parse_dimensions(canonical)
    return MODELS[canonical] if dimensions is None else dimensions.model()
