"""Every model name the framework knows: a line per published configuration."""

from __future__ import annotations

import difflib
from types import MappingProxyType

from Common.errors import InputError
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.bert import Bert, MegatronBert
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.models.llama import Llama
from GraphExtractor.models.opt import Opt


def _gpt(layers: int, hidden: int, heads: int, published: int, sequence_length: int = 1024) -> Gpt:
    return Gpt(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=50257,
        sequence_length=sequence_length,
        published_parameter_count=published,
    )


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


def _opt(hidden: int, heads: int, published: int, word_embedding: int = 0, pre_norm: bool = True) -> Opt:
    return Opt(
        layers=24,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=50272,
        sequence_length=2048,
        published_parameter_count=published,
        word_embedding=word_embedding,
        pre_norm=pre_norm,
    )


# Parameter counts: released checkpoints (BERT, GPT2-XL, OPT, Llama 2), Shoeybi et al. 2019 tables 1 and 4 (Megatron),
# Brown et al. 2020 table 2.1 (GPT-3).
MODELS: MappingProxyType[str, ModelFamily] = MappingProxyType(
    {
        "bertbase": _bert(Bert, 12, 768, 12, 30522, 110_106_428),
        "bertlarge": _bert(Bert, 24, 1024, 16, 30522, 336_226_108),
        "megatronbert": _bert(MegatronBert, 24, 1024, 16, 29056, 336_000_000),
        "gpt2": _gpt(48, 1600, 25, 1_557_611_200),
        "megatrongpt2-xl": _gpt(40, 1536, 16, 1_200_000_000),
        "megatrongpt2-54": _gpt(54, 1920, 20, 2_500_000_000),
        "megatrongpt2-72": _gpt(72, 3072, 32, 8_300_000_000),
        "megatrongpt3": _gpt(96, 12288, 96, 175_000_000_000, sequence_length=2048),
        "opt": _opt(1024, 16, 331_196_416, word_embedding=512, pre_norm=False),
        "opt-1.3b": _opt(2048, 32, 1_315_758_080),
        "llama2": Llama(
            layers=32,
            hidden=4096,
            heads=32,
            ffn=11008,
            vocabulary=32000,
            sequence_length=4096,
            published_parameter_count=6_738_415_616,
        ),
    }
)
ALIASES = MappingProxyType({"gpt2-xl": "gpt2", "opt-350m": "opt", "llama2-7b": "llama2"})


def canonical_name(name: str) -> str:
    """Name under which a model's artefacts are kept.

    Raises:
        InputError: no such model.
    """
    canonical = ALIASES.get(name, name)
    if canonical not in MODELS:
        known = [*MODELS, *ALIASES]
        close = difflib.get_close_matches(name.lower(), known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "give one of them"
        raise InputError(f"unknown model {name!r}; known models are {', '.join(known)}; {hint}")
    return canonical


def find_model(name: str) -> ModelFamily:
    """Return the configuration behind a model name or alias.

    Raises:
        InputError: no such model.
    """
    return MODELS[canonical_name(name)]
