"""How the weights of a layer lie over the processes that share its products.

Column- and row-parallel products and split heads are those of ``GraphExtractor.tensor_parallel``. A
product that makes queries, keys and values at once holds them one behind the other, so that each
third is divided by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

import torch

from GraphExtractor.models.base import ModelFamily, TransformerFamily
from phaze_common.errors import InputError

_JOINED: Mapping[
    str, tuple[str, int]
] = {  # folder of the family -> parameters that are several matrices, and how many
    "GPT": ("*.attn.c_attn.*", 3),
    "Llama": ("", 1),
    "OPT": ("", 1),
    "Bert": ("", 1),
    "T5": ("", 1),
}


@dataclass(frozen=True)
class Division:
    """A parameter cut along ``dimension`` into parts of each of its ``joined`` matrices."""

    dimension: int
    joined: int

    def part(self, whole: torch.Tensor, parts: int, index: int) -> torch.Tensor:
        """The part of process ``index`` of ``parts``."""
        matrices = whole.chunk(self.joined, self.dimension)
        return torch.cat(
            [each.chunk(parts, self.dimension)[index] for each in matrices], self.dimension
        )

    def whole(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """The parameter put together from its parts."""
        cut = [part.chunk(self.joined, self.dimension) for part in parts]
        return torch.cat(
            [matrix for matrices in zip(*cut, strict=True) for matrix in matrices], self.dimension
        )


def division_of(
    family: ModelFamily, name: str, whole: torch.Size, part: torch.Size
) -> Division | None:
    """How a parameter of shape ``whole`` is divided into parts of shape ``part``; None where every
    process has all of it."""
    if whole == part:
        return None
    dimension = next(
        index
        for index, (all_of_it, mine) in enumerate(zip(whole, part, strict=True))
        if all_of_it != mine
    )
    pattern, joined = _JOINED[family.folder]
    return Division(dimension, joined if fnmatch(name, pattern) else 1)


def divided_family(family: ModelFamily, model: str, tp: int) -> None:
    """Refuse models whose products are not known to divide so, and widths that do not divide their
    sizes.

    Raises:
        InputError: says which can be divided.
    """
    if not isinstance(family, TransformerFamily) or family.folder not in _JOINED:
        known = ", ".join(sorted(_JOINED))
        raise InputError(
            f"{model} cannot be trained with tp {tp}: of its modules it is not known how they "
            f"divide; use tp 1, or one of {known}"
        )
    for name, size in family.divided_sizes.items():
        if size % tp:
            raise InputError(
                f"tp {tp} does not divide the {size} {name} of {model}; give a divisor"
            )
