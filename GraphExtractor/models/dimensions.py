"""A model by its dimensions, as a name:
``gpt:layers=24,hidden=2304,heads=24,vocabulary=51200,sequence_length=2048``.

Mixtures of experts have two sizes more, as in
``mixtral:layers=32,hidden=4096,heads=32,ffn=14336,experts=8,chosen=2``. The canonical name is safe
in file names, leaves out what is the family's default and is itself accepted as a name:
``gpt-layers24-hidden2304-heads24-vocabulary51200-sequence_length2048``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

from GraphExtractor.models.base import LlamaLikeFamily, ModelFamily
from GraphExtractor.models.bert import Bert, MegatronBert
from GraphExtractor.models.bloom import Bloom
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.models.gpt_moe import GptMoe
from GraphExtractor.models.llama import Llama
from GraphExtractor.models.mixtral import Mixtral
from GraphExtractor.models.mpt import Mpt
from GraphExtractor.models.opt import Opt
from GraphExtractor.models.qwen3 import Qwen3
from GraphExtractor.models.qwen3_moe import Qwen3Moe
from GraphExtractor.models.resnet_dimensions import FAMILY as RESNET
from GraphExtractor.names import split_dimensions
from phaze_common.errors import InputError

SHARED_LAYERS = 4  # of the trace that models of all depths share: two ends and two between
# far beyond any model, far from what a machine holds
_MOST = {"layers": 10_000, "vocabulary": 2**28, "sequence_length": 2**22}
_MOST_WIDE = 2**24  # of every other size
_REQUIRED = ("layers", "hidden", "heads")
_SETTING = re.compile(r"(?P<key>[a-z_]+)=(?P<value>[0-9]{1,12})")


@dataclass(frozen=True)
class _Family:
    """A family with dimensions, and vocabulary and sequence length of its published models.

    ``own`` are sizes that not every family has, with those of its models where none is given; a
    head_width of 0 stands for hidden / heads.
    """

    name: str
    model: type[ModelFamily]
    vocabulary: int
    sequence_length: int
    grouped_queries: bool = False
    own: Mapping[str, int] = field(default_factory=dict)

    @property
    def like_llama(self) -> bool:
        """Whether its heads are turned by pairs of columns and its MLPs are gated."""
        return issubclass(self.model, LlamaLikeFamily)

    @property
    def keys(self) -> tuple[str, ...]:
        """The sizes that its models have."""
        return tuple(key for key in _KEYS if key in self.own or key not in _OWN)

    def ffn(self, hidden: int) -> int:
        """4·hidden; a gated MLP has 8/3·hidden in multiples of 256 (Touvron et al. 2023)."""
        return -(-8 * hidden // (3 * 256)) * 256 if self.like_llama else 4 * hidden


_FAMILIES = (
    _Family("gpt", Gpt, 50257, 1024, True),
    _Family("llama", Llama, 32000, 4096, True, {"tied": 0, "head_width": 0}),
    _Family("opt", Opt, 50272, 2048),
    _Family("bloom", Bloom, 250880, 2048),
    _Family("mpt", Mpt, 50432, 2048),
    _Family("bert", Bert, 30522, 512),
    _Family("megatronbert", MegatronBert, 29056, 512),
    _Family("qwen3", Qwen3, 151936, 4096, True, {"tied": 0, "head_width": 128}),
    _Family("gptmoe", GptMoe, 50257, 1024, True, {"experts": 8, "chosen": 1}),
    _Family("mixtral", Mixtral, 32000, 4096, True, {"head_width": 0, "experts": 8, "chosen": 2}),
    _Family(
        "qwen3moe", Qwen3Moe, 151936, 4096, True, {"head_width": 128, "experts": 128, "chosen": 8}
    ),
)


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """A family and the sizes of one of its models."""

    family: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    kv_heads: int
    vocabulary: int
    sequence_length: int
    # 1: the head has the weights of the embedding, of a family whose heads have their own as a rule
    tied: int = 0
    head_width: int = 0  # of a family whose heads need not be hidden / heads wide
    experts: int = 0  # in each block, each of ``ffn`` columns; 0: an MLP
    chosen: int = 0  # of the experts, by each token

    @property
    def name(self) -> str:
        """The canonical name."""
        default = _defaults(_family(self.family), self.layers, self.hidden, self.heads)
        given = [self.family]
        for key in _KEYS:
            if key in _REQUIRED or getattr(self, key) != getattr(default, key):
                given.append(f"{key}{getattr(self, key)}")
        return "-".join(given)

    @property
    def shared_trace(self) -> Dimensions:
        """The model whose trace serves all models that differ from this one in depth only."""
        return replace(self, layers=SHARED_LAYERS)

    def model(self) -> ModelFamily:
        """The model of these dimensions."""
        family = _family(self.family)
        sizes = {key: getattr(self, key) for key in family.keys}
        if "tied" in sizes:
            sizes["tied"] = bool(self.tied)
        return family.model(**sizes, published_parameter_count=0)


def dimensions_of(model: ModelFamily) -> Dimensions | None:
    """Dimensions that spell ``model`` out; None where they cannot say everything about it."""
    family = next((each for each in _FAMILIES if each.model is type(model)), None)
    if family is None:
        return None
    sizes = {key: getattr(model, key, None) for key in family.keys}
    if "head_width" in sizes:
        sizes["head_width"] = getattr(model, "width_of_heads", None)
    if sizes["kv_heads"] is None:
        sizes["kv_heads"] = sizes["heads"]
    if not all(isinstance(size, int) for size in sizes.values()):
        return None
    found = Dimensions(family=family.name, **{key: int(size or 0) for key, size in sizes.items()})
    made = found.model()
    compared = [each.name for each in fields(model) if each.compare]
    alike = all(
        getattr(model, name) == getattr(made, name)
        for name in compared
        if not name.startswith("published_")
    )
    return found if alike else None


_KEYS = tuple(each.name for each in fields(Dimensions) if each.name != "family")
_OWN = ("tied", "head_width", "experts", "chosen")  # sizes that not every family has
_NAMES = "|".join(each.name for each in _FAMILIES)
_CANONICAL = re.compile(rf"({_NAMES})((?:-(?:{'|'.join(_KEYS)})[0-9]+)+)")


def family_names(*, mixtures: bool = True) -> tuple[str, ...]:
    """Families of transformers whose models can be named so, with or without ``mixtures``."""
    return tuple(family.name for family in _FAMILIES if mixtures or "experts" not in family.own)


@lru_cache(maxsize=256)  # of every graph the name is read again and again
def parse_dimensions(name: str) -> Dimensions | None:
    """Dimensions a model name spells out, in either form; None for any other name.

    Raises: InputError: the name is of this form, but a family, key or value is not possible or a
        required key is missing.
    """
    family, pairs = split_dimensions(name, _CANONICAL)
    return _checked(name, _family(family), _settings(name, pairs)) if pairs else None


def _settings(name: str, pairs: list[str]) -> dict[str, int]:
    settings: dict[str, int] = {}
    for pair in pairs:
        setting = _SETTING.fullmatch(pair)
        if setting is None or setting["key"] not in _KEYS or int(setting["value"]) < 1:
            raise InputError(
                f"{pair!r} in model {name!r} is no dimension; give {', '.join(_REQUIRED)} and, "
                "where the family's do not fit, "
                f"{', '.join(key for key in _KEYS if key not in _REQUIRED)}, each as key=positive "
                "whole number"
            )
        most = _MOST.get(setting["key"], _MOST_WIDE)
        if int(setting["value"]) > most:
            raise InputError(
                f"{pair!r} in model {name!r:.200} is too large; give a {setting['key']} of at "
                f"most {most:,}"
            )
        if setting["key"] in settings:
            raise InputError(f"model {name!r} gives {setting['key']} twice; give it once")
        settings[setting["key"]] = int(setting["value"])
    missing = [key for key in _REQUIRED if key not in settings]
    if missing:
        lacking = " and ".join(missing)
        raise InputError(f"model {name!r} lacks {lacking}; give {', '.join(_REQUIRED)}")
    return settings


def _checked(name: str, family: _Family, settings: dict[str, int]) -> Dimensions:
    default = _defaults(family, *(settings[key] for key in _REQUIRED))
    for key in settings.keys() & {*_OWN} - family.own.keys():
        having = " or a ".join(each.name for each in _FAMILIES if key in each.own)
        what = "tied=1" if key == "tied" else key
        raise InputError(
            f"{family.name} models have no {key}; leave it out of {name!r}, or give {what} to a "
            f"{having}"
        )
    found = Dimensions(
        family=family.name, **{key: settings.get(key, getattr(default, key)) for key in _KEYS}
    )
    if found.hidden % found.heads and "head_width" not in settings:
        raise InputError(
            f"heads {found.heads} do not divide hidden {found.hidden} of model {name!r}; give "
            "heads that do"
        )
    if found.heads % found.kv_heads:
        raise InputError(
            f"kv_heads {found.kv_heads} do not divide heads {found.heads} of model {name!r}; give "
            "kv_heads that do"
        )
    if found.kv_heads != found.heads and not family.grouped_queries:
        raise InputError(
            f"every head of a {family.name} model has its own keys and values; leave kv_heads out "
            f"of {name!r}"
        )
    if found.tied > 1:
        raise InputError(
            f"tied in model {name!r} is {found.tied}; give tied=1 to a {family.name} whose head "
            "has its embedding's weights"
        )
    if found.chosen > found.experts:
        raise InputError(
            f"a token of model {name!r} meets {found.chosen} of {found.experts} experts; give no "
            "more chosen than experts"
        )
    if family.like_llama and (found.head_width or found.hidden // found.heads) % 2:
        raise InputError(
            f"rotary positions need heads of even width; give model {name!r} other heads"
        )
    return found


def _family(name: str) -> _Family:
    found = next((each for each in _FAMILIES if each.name == name), None)
    if found is None:
        raise InputError(
            f"{name!r} is no family of models; use one of {', '.join([*family_names(), RESNET])}"
        )
    return found


def _defaults(family: _Family, layers: int, hidden: int, heads: int) -> Dimensions:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads, **family.own}
    if "head_width" in sizes:
        sizes["head_width"] = sizes["head_width"] or hidden // heads
    return Dimensions(
        family=family.name,
        ffn=family.ffn(hidden),
        vocabulary=family.vocabulary,
        sequence_length=family.sequence_length,
        **sizes,
    )
