"""Recipes of trainings in fewer than 16 bits: formats of their products, bytes of operands, and
what casting to them moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from Estimator.quantity import Quantity, quantity_problems
from phaze_common.choices import Precision
from phaze_common.records import read_yaml, to_record

_FILE = Path(__file__).with_name("recipes.yaml")
WIDE = "bfloat16"  # format of all but products with weights
REDUCED = frozenset(each.matrix_format for each in Precision if each.is_reduced)


@dataclass(frozen=True)
class Recipe:
    """How products with weights run in fewer than 16 bits.

    ``units`` is the format of the matrix units, ``operand`` the bytes of an element with its part
    of the scales, ``cast`` what is moved for an element of an input or gradient beyond what the
    software's ``quantisation`` says.
    """

    title: str
    units: str
    operand: Annotated[Quantity, "bytes"]
    cast: Annotated[Quantity, "bytes"]


@cache
def recipes() -> Mapping[str, Recipe]:
    """All of them, by the format of products."""
    read = read_yaml(_FILE)
    found = {name: to_record(Recipe, read[name], f"{_FILE} ({name})") for name in sorted(REDUCED)}
    for each in found.values():
        for problem in quantity_problems(each):
            raise problem
    return MappingProxyType(found)


def unit_of(number_format: str) -> str:
    """The format of the matrix units that multiply in a format."""
    return recipes()[number_format].units if number_format in REDUCED else number_format


def operand_bytes(number_format: str, element_bytes: float) -> float:
    """Bytes of an element of what products read in a format, whose tensors have ``element_bytes``
    otherwise."""
    if number_format not in REDUCED:
        return element_bytes
    return min(recipes()[number_format].operand.value, element_bytes)
