"""The parameters that a configuration may give: their categories, units, ranges and defaults
(``parameters.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from phaze_common.errors import InputError
from phaze_common.yaml_files import read_yaml

from .calculated import calculated_parameters
from .mapping import INTER, INTRA, MappingQuantities
from .network import NetworkQuantities
from .system import SystemQuantities
from .units import Kind, parse_quantity, written

DEGREE_NAMES = (*INTRA, *INTER)
PRODUCTS = tuple(calculated_parameters(MappingQuantities))  # of the degrees, so never given
LARGEST_CALCULATED = 1e18


class Category(StrEnum):
    """The four parts of a configuration, by AMPeD's names."""

    TRAINING = "neural_network_training_parameters"
    MAPPING = "mapping_parameters"
    SYSTEM = "system_architecture_parameters"
    ACCELERATOR = "accelerator_architecture_parameters"

    @property
    def short(self) -> str:
        """The name that is taken for it too."""
        return self.name.lower()

    @property
    def lookup_table(self) -> str:
        """The table that its lookups are in where the configuration names none; empty for those
        without one."""
        tables = {
            Category.TRAINING: "transformer_network_parameters",
            Category.ACCELERATOR: "accelerator_specifications",
        }
        return tables.get(self, "")


@dataclass(frozen=True)
class Parameter:
    """What may be given under a name; values in the base unit of ``kind``."""

    name: str
    category: Category
    kind: Kind = Kind.NUMBER
    whole: bool = False
    least: float = 0.0
    most: float = LARGEST_CALCULATED
    default: float | None = None
    description: str = ""

    def parse(self, given: object, source: str) -> float:
        """A value of a file in the base unit. Raises InputError: it is not of this kind or not in
        the range."""
        name = f"{source}: {self.name}"
        value = parse_quantity(given, self.kind, name)
        if (self.whole and not value.is_integer()) or not self.least <= value <= self.most:
            number = "whole number" if self.whole else "number"
            unit = "" if self.kind is Kind.NUMBER else f" {self.kind.value}"
            raise InputError(
                f"{name} is {written(value)}{unit}; it must be a {number} from {self.least:g} to "
                f"{self.most:g}{unit}; correct it"
            )
        return value


@cache
def parameters() -> Mapping[str, Parameter]:
    """All parameters that a configuration may give, by name: those of ``parameters.yaml``, then
    calculated ones."""
    given: dict[str, Parameter] = {}
    for category, entries in read_yaml(Path(__file__).with_name("parameters.yaml")).items():
        for name, fields in entries.items():
            kind = Kind(fields.pop("kind", Kind.NUMBER))
            given[name] = Parameter(name, Category(category), kind, **fields)
    of_network = calculated_parameters(NetworkQuantities)
    for name, each in (of_network | calculated_parameters(SystemQuantities)).items():
        if name not in given:
            category = Category.TRAINING if name in of_network else Category.SYSTEM
            if name in PRODUCTS:
                category = Category.MAPPING
            elif name.startswith("peak_"):
                category = Category.ACCELERATOR
            given[name] = Parameter(name, category, each.kind, description=each.description)
    return given


@cache
def calculable() -> frozenset[str]:
    """Names of the parameters that are calculated where they are not given."""
    of_times = {"zero_DP_overhead"}  # the only one of them that is a parameter
    return frozenset(calculated_parameters(SystemQuantities)) | of_times
