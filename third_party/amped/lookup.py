"""AMPeD's lookup tables: rows of values by name, ours (``lookup_tables.yaml``) and those of a
user's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phaze_common.echo import as_given, clipped
from phaze_common.errors import InputError
from phaze_common.files import read_json
from phaze_common.ranges import check_ranges
from phaze_common.suggestions import nearest
from phaze_common.yaml_files import read_yaml

MOST_NAMED = 20


@dataclass(frozen=True)
class LookupTables:
    """Table -> row -> property -> value as its file has it."""

    tables: Mapping[str, Mapping[str, Mapping[str, Any]]]
    source: str

    def has_row(self, table: str, row: str) -> bool:
        """Whether a table has a row of that name."""
        return row in self.tables.get(table, {})

    def value(self, table: str, row: str, name: str, wanted_by: str) -> Any:
        """A value as written. Raises InputError: there is no such table, row or property; says
        which there are."""
        rows = self._found(self.tables, table, "lookup table", wanted_by)
        properties = self._found(rows, row, f"row of lookup table {table!r}:", wanted_by)
        return self._found(
            properties, name, f"property of row {row!r} of lookup table {table!r}:", wanted_by
        )

    def _found(self, among: Mapping[str, Any], name: str, what: str, wanted_by: str) -> Any:
        if name not in among:
            names = ", ".join(clipped(each, 60) for each in list(among)[:MOST_NAMED])
            close = nearest(
                name, among, f"there are {names}; or add it to a file of --lookup-tables"
            )
            raise InputError(f"{wanted_by}: unknown {what} {as_given(name)}; {close}")
        return among[name]


@cache
def shipped_tables() -> LookupTables:
    """The tables that ship."""
    path = Path(__file__).with_name("lookup_tables.yaml")
    return LookupTables(read_yaml(path), path.name)


def with_tables_of(path: Path) -> LookupTables:
    """The shipped tables with the rows of a user's JSON file, which replace those of the same name.
    Raises InputError: the file cannot be read or is not made of tables of rows."""
    document = read_json(path, "a JSON file of lookup tables")
    if not isinstance(document, dict):
        raise InputError(
            f"{path} is not an object of lookup tables; give {{table: {{row: {{property: "
            "value}}}"
        )
    check_ranges(document, str(path))
    merged = {name: dict(rows) for name, rows in shipped_tables().tables.items()}
    for table, rows in document.items():
        if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
            raise InputError(
                f"{path}: lookup table {as_given(table)} is not made of rows; give {{row: "
                "{property: value}}"
            )
        merged.setdefault(table, {}).update(rows)
    return LookupTables(merged, str(path))
