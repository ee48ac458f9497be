"""Parts of layers that are recomputed by themselves, by the names that Megatron-LM gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from phaze_common.choices import Recompute
from phaze_common.errors import InputError
from phaze_common.setting_values import Form
from phaze_common.suggestions import nearest
from phaze_common.text_in_files import TextInFiles

EXAMPLE = "moe_act+layernorm"


class RecomputeModule(StrEnum):
    """A part of a layer. ``SECOND_PRODUCTS`` is all of it but attention and every second matrix
    product, whose results are kept (torchtitan's selective, by operator), ``BETWEEN_PRODUCTS`` all
    but products with weights, attention too (MaxText's remat_policy minimal)."""

    CORE_ATTENTION = "core_attn"
    LATENT_UP_PROJECTION = "mla_up_proj"
    MLP = "mlp"
    EXPERTS = "moe"
    EXPERT_ACTIVATION = "moe_act"
    NORMS = "layernorm"
    SHARED_EXPERTS = "shared_experts"
    SECOND_PRODUCTS = "second_products"
    BETWEEN_PRODUCTS = "between_products"

    @property
    def of_all_operators(self) -> bool:
        """Whether it chooses from all operators of a layer, so that no other is beside it."""
        return self in _OF_ALL_OPERATORS

    @property
    def without_output(self) -> bool:
        """Whether its result is dropped too, once what follows has read it, and made again before
        that is differentiated (Megatron-Core, ``CheckpointWithoutOutput``)."""
        return self in _WITHOUT_OUTPUT


_WITHOUT_OUTPUT = frozenset(
    {
        RecomputeModule.LATENT_UP_PROJECTION,
        RecomputeModule.EXPERT_ACTIVATION,
        RecomputeModule.NORMS,
        RecomputeModule.SECOND_PRODUCTS,
        RecomputeModule.BETWEEN_PRODUCTS,
    }
)
_OF_ALL_OPERATORS = frozenset({RecomputeModule.SECOND_PRODUCTS, RecomputeModule.BETWEEN_PRODUCTS})
# what a module has within it
_WITHIN = {
    RecomputeModule.EXPERTS: {RecomputeModule.EXPERT_ACTIVATION, RecomputeModule.SHARED_EXPERTS}
}
_OF_FRAMEWORKS = [each.value for each in RecomputeModule if each not in _OF_ALL_OPERATORS]
# further ones of Megatron-Core (transformer_config.py), which no plan says
_OTHERS = ("gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc")
_NAMES = "|".join(RecomputeModule)
_WRITTEN = re.compile(rf"(?:{_NAMES})(?:\+(?:{_NAMES}))*")


@dataclass(frozen=True)
class RecomputedModules(TextInFiles):
    """Modules that are recomputed, in the order of ``RecomputeModule``, none within another."""

    FORM: ClassVar[Form] = Form(_WRITTEN, "modules of layers", EXAMPLE)

    names: tuple[RecomputeModule, ...]

    def __post_init__(self) -> None:
        given = {RecomputeModule(each) for each in self.names}
        if not given:
            raise InputError(f"recompute names no module; give none, or some, as {EXAMPLE}")
        inner = {small for each in given for small in _WITHIN.get(each, ())}
        of_all = sorted(given & _OF_ALL_OPERATORS)
        if of_all and len(given) > 1:
            others = "+".join(sorted(given - {of_all[0]}))
            raise InputError(
                f"recompute {of_all[0]} is of all operators of a layer, {others} among them; "
                "give one of them alone"
            )
        ordered = tuple(each for each in RecomputeModule if each in given - inner)
        object.__setattr__(self, "names", ordered)

    def __str__(self) -> str:
        return "+".join(self.names)

    @property
    def value(self) -> str:
        """As it is given."""
        return str(self)

    @classmethod
    def parsed(cls, text: str) -> RecomputedModules:
        """The modules written as ``moe_act+layernorm``.

        Raises:
            InputError: there is no such module.
        """
        words = text.split("+")
        wrong = [each for each in words if each not in list(RecomputeModule)]
        if wrong:
            raise InputError(
                f"recompute has {wrong[0]!r}; modules are {', '.join(RecomputeModule)}, several "
                f"written as {EXAMPLE}"
            )
        return cls(tuple(RecomputeModule(each) for each in words))

    @classmethod
    def each_alone(cls) -> tuple[RecomputedModules, ...]:
        """Every module by itself; that of core attention is ``Recompute.SELECTIVE``."""
        others = (each for each in RecomputeModule if each is not RecomputeModule.CORE_ATTENTION)
        return tuple(cls((each,)) for each in others)


Recomputation = Recompute | RecomputedModules


BY_OPERATOR = RecomputedModules((RecomputeModule.SECOND_PRODUCTS,))
BETWEEN_PRODUCTS = RecomputedModules((RecomputeModule.BETWEEN_PRODUCTS,))


def of_parts(recompute: Recomputation) -> bool:
    """Whether parts of layers are recomputed, neither nothing nor whole layers."""
    return recompute not in (Recompute.NONE, Recompute.FULL)


def recompute_of(text: str) -> Recomputation:
    """What ``str`` of either gave."""
    known = [each.value for each in Recompute]
    return Recompute(text) if text in known else RecomputedModules.parsed(text)


def known_modules(words: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """What is recomputed where Megatron-Core is told these modules, as it is given, and those of
    its modules that have no name here.

    Raises:
        InputError: a module is none of Megatron-Core's.
    """
    given = tuple(words)
    known = [each for each in given if each in _OF_FRAMEWORKS]
    others = tuple(sorted({*given} - {*known}))
    for other in others:
        if other not in _OTHERS:
            listed = (*_OF_FRAMEWORKS, *_OTHERS)
            hint = nearest(other, listed, f"give {', '.join(listed)}")
            raise InputError(f"{other!r:.60} is no module that Megatron recomputes; {hint}")
    if not known:
        return Recompute.NONE.value, others
    if known == [RecomputeModule.CORE_ATTENTION.value]:
        return Recompute.SELECTIVE.value, others
    return RecomputedModules.parsed("+".join(dict.fromkeys(known))).value, others
