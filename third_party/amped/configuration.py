"""AMPeD's configuration file: four categories of parameters, each given, looked up or calculated.

{"neural_network_training_parameters": {
     "lookup_config": {"lookup_table_name": "transformer_network_parameters",
                       "lookup_table_row": "GPT-3 175B"},
     "parameters": {"layers": {"from_lookup_table": true},  # "lookup_name": another property
                    "batch_size": {"value": 1536, "description": "sequences"},
                    "minibatch_size": {"calculated": true}}},
 "mapping_parameters": {...}, "system_architecture_parameters": {...},
 "accelerator_architecture_parameters": {...}}

Taken too: the categories' short names (training, mapping, system, accelerator), parameters directly
in their category, a bare value in place of {"value": ...}, and the row of a lookup as its
"lookup_name". What is not there is calculated or has its default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from phaze_common.echo import as_given, clipped, on_one_line
from phaze_common.errors import InputError
from phaze_common.files import parse_json, read_text
from phaze_common.ranges import check_ranges
from phaze_common.suggestions import nearest

from .catalogue import PRODUCTS, Category, Parameter, calculable, parameters
from .lookup import LookupTables
from .summary import SUMMARY_HEAD, document_of_summary

MOST_BATCH_SIZES = 10_000
_FIELDS = frozenset(
    {"value", "calculated", "from_lookup_table", "lookup_name", "description", "unit"}
)
_LOOKUP_FIELDS = ("lookup_table_name", "lookup_table_row")


class Origin(StrEnum):
    """Where a value comes from."""

    GIVEN = "given"
    LOOKED_UP = "looked up"
    CALCULATED = "calculated"
    DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """A parameter of a configuration; ``values`` in its base unit, none where it is calculated,
    several for a search."""

    parameter: Parameter
    origin: Origin
    values: tuple[float, ...]
    description: str


@dataclass(frozen=True)
class Configuration:
    """What a file says, in its order, and the rows its lookups are of."""

    settings: tuple[Setting, ...]
    transformer: str
    accelerator: str
    source: str

    def values(self, name: str) -> tuple[float, ...]:
        """Values of a parameter that has some; else none."""
        return next((each.values for each in self.settings if each.parameter.name == name), ())

    @property
    def calculated(self) -> tuple[str, ...]:
        """Names of the parameters that the file asks to be calculated."""
        return tuple(
            each.parameter.name for each in self.settings if each.origin is Origin.CALCULATED
        )


@dataclass(frozen=True)
class Rows:
    """Rows to look up instead of those a file names; empty for the file's."""

    transformer: str = ""
    accelerator: str = ""

    def of(self, category: Category) -> str:
        """The row of a category."""
        return {Category.TRAINING: self.transformer, Category.ACCELERATOR: self.accelerator}.get(
            category, ""
        )


def read_configuration(path: Path, tables: LookupTables, rows: Rows = Rows()) -> Configuration:
    """The configuration in a JSON file, or in a ``config_summary.txt`` that an earlier run wrote.
    Raises InputError: the file cannot be read, or as ``configuration_of``."""
    text = read_text(path, "a configuration, a JSON file")
    if text.startswith(SUMMARY_HEAD):
        document = document_of_summary(text, str(path))
    else:
        document = parse_json(text, str(path))
    return configuration_of(document, tables, str(path), rows)


def configuration_of(
    document: object, tables: LookupTables, source: str, rows: Rows = Rows()
) -> Configuration:
    """The configuration in a parsed file; ``source`` names it in refusals. Raises InputError: a
    category is missing; a category, parameter, table, row, property or unit is unknown; a value
    cannot be."""
    check_ranges(document, source)
    categories = _categories(document, source)
    settings: dict[str, Setting] = {}
    looked_up: dict[Category, str] = {}
    for category, content in categories.items():
        lookup = _Lookup.of(category, content, rows.of(category), tables, source)
        looked_up[category] = lookup.row
        for name, given in _entries(content, category, source):
            if name in settings:
                raise InputError(f"{source}: {name} is given in two categories; leave one out")
            settings[name] = _setting(name, given, lookup, source)
    for name, parameter in parameters().items():
        if name not in settings and parameter.default is not None:
            settings[name] = Setting(
                parameter, Origin.DEFAULT, (parameter.default,), parameter.description
            )
    row_of = {category: looked_up.get(category, "") for category in Category}
    return Configuration(
        tuple(settings.values()), row_of[Category.TRAINING], row_of[Category.ACCELERATOR], source
    )


def _categories(document: object, source: str) -> dict[Category, Mapping[str, Any]]:
    names = ", ".join(Category)
    if not isinstance(document, Mapping):
        raise InputError(
            f"{source} is {as_given(document)}; give an object with the categories {names}"
        )
    found: dict[Category, Mapping[str, Any]] = {}
    for name, content in document.items():
        category = next((each for each in Category if name in (each.value, each.short)), None)
        if category is None or category in found:
            reason = "unknown category" if category is None else "a second time the category"
            raise InputError(f"{source}: {reason} {as_given(name)}; the categories are {names}")
        if not isinstance(content, Mapping):
            raise InputError(
                f"{source}: {name} is {as_given(content)}; give an object of parameters"
            )
        found[category] = content
    if missing := [each for each in Category if each not in found]:
        raise InputError(
            f"{source} has no {' and no '.join(missing)}; add what is missing, each an object of "
            "parameters"
        )
    return {category: found[category] for category in Category}


def _entries(
    content: Mapping[str, Any], category: Category, source: str
) -> Iterator[tuple[str, object]]:
    inner = content.get(
        "parameters", {key: value for key, value in content.items() if key != "lookup_config"}
    )
    if not isinstance(inner, Mapping):
        raise InputError(
            f"{source}: parameters of {category} is {as_given(inner)}; give an object of parameters"
        )
    if "parameters" in content and (
        others := content.keys() - {"parameters", "lookup_config", "description"}
    ):
        raise InputError(
            f"{source}: {category} has {as_given(min(others))} beside its parameters; it may have "
            "parameters and lookup_config"
        )
    yield from inner.items()


@dataclass(frozen=True)
class _Lookup:
    tables: LookupTables
    table: str
    row: str

    @classmethod
    def of(
        cls,
        category: Category,
        content: Mapping[str, Any],
        row: str,
        tables: LookupTables,
        source: str,
    ) -> _Lookup:
        config = content.get("lookup_config", {})
        if not isinstance(config, Mapping) or not all(
            isinstance(config.get(each, ""), str) for each in _LOOKUP_FIELDS
        ):
            raise InputError(
                f"{source}: lookup_config of {category} is {as_given(config)}; give "
                f"{' and '.join(_LOOKUP_FIELDS)}"
            )
        if unknown := config.keys() - {*_LOOKUP_FIELDS, "description"}:
            raise InputError(
                f"{source}: lookup_config of {category} has {as_given(min(unknown))}; give "
                f"{' and '.join(_LOOKUP_FIELDS)}"
            )
        return cls(
            tables,
            config.get("lookup_table_name", category.lookup_table),
            row or config.get("lookup_table_row", ""),
        )

    def value(self, name: str, given: Mapping[str, Any], wanted_by: str) -> object:
        lookup_name, row = given.get("lookup_name", name), self.row
        if not isinstance(lookup_name, str):
            raise InputError(
                f"{wanted_by} has the lookup_name {as_given(lookup_name)}; give the name of a "
                "property, a text"
            )
        if not row and self.tables.has_row(self.table, lookup_name):
            lookup_name, row = name, lookup_name
        if not row:
            raise InputError(
                f"{wanted_by} is looked up but its category names no row; add lookup_config with "
                f"{' and '.join(_LOOKUP_FIELDS)}"
            )
        return self.tables.value(self.table, row, lookup_name, wanted_by)


def _with_unit(value: object, unit: object, where: str) -> object:
    """A value with the unit that is said beside it, as one text."""
    if unit is None:
        return value
    if not isinstance(unit, str) or isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(
            f"{where} has the unit {as_given(unit)} beside {as_given(value)}; give a number and "
            "its unit, such as '8 GB'"
        )
    return f"{value!r} {unit}"


def _setting(name: str, given: object, lookup: _Lookup, source: str) -> Setting:
    parameter = parameters().get(name)
    if parameter is None:
        close = nearest(
            name, parameters(), "see third_party/amped/parameters.yaml for those there are"
        )
        raise InputError(f"{source}: unknown parameter {clipped(repr(name))}; {close}")
    where = f"{source}: {name}"
    fields = given if isinstance(given, Mapping) else {"value": given}
    if unknown := fields.keys() - _FIELDS:
        raise InputError(
            f"{where} has {as_given(min(unknown))}; it may have value, calculated, "
            "from_lookup_table, lookup_name, description"
        )
    for flag in ("calculated", "from_lookup_table"):
        if not isinstance(fields.get(flag, False), bool | None):
            raise InputError(
                f"{where} has {flag} {as_given(fields[flag])}; it must be true or false"
            )
    described = fields.get("description") or parameter.description
    if not isinstance(described, str):
        raise InputError(f"{where} has the description {as_given(described)}; give a text")
    described = on_one_line(described)
    if fields.get("from_lookup_table"):
        value = lookup.value(name, fields, where)
        value = parameter.parse(value, f"{source}, looked up in {lookup.tables.source}")
        return Setting(parameter, Origin.LOOKED_UP, (value,), described)
    if fields.get("calculated"):
        if name not in calculable():
            raise InputError(
                f"{where} is marked calculated, but there is no formula for it; give it a value "
                "or look it up"
            )
        return Setting(parameter, Origin.CALCULATED, (), described)
    if name in PRODUCTS:
        raise InputError(
            f"{where} is always calculated from the degrees inside and between nodes; leave it "
            "out, or mark it calculated"
        )
    value = _with_unit(fields.get("value"), fields.get("unit"), where)
    if value is None:
        raise InputError(
            f"{where} has no value; give one, or mark it calculated or from_lookup_table"
        )
    several = value if isinstance(value, list) and name == "batch_size" else [value]
    if not 0 < len(several) <= MOST_BATCH_SIZES:
        raise InputError(
            f"{where} lists {len(several):,} values; give from 1 to {MOST_BATCH_SIZES:,}"
        )
    return Setting(
        parameter, Origin.GIVEN, tuple(parameter.parse(each, source) for each in several), described
    )
