"""``config_summary.txt`` read back: a configuration that says of each parameter what it was and
where it came from.

The writer is ``reports.config_summary``. A line is ``name : value unit  # [origin] description``;
what was calculated is again.
"""

from __future__ import annotations

import re
from typing import Any

from phaze_common.echo import clipped
from phaze_common.errors import InputError

from .catalogue import Category

SUMMARY_HEAD = "FULL CONFIGURATION"
HEADINGS = {
    category: f"{number}: {category.replace('_', ' ').upper()}"
    for number, category in enumerate(Category, start=1)
}
_LINE = re.compile(
    r"(?P<name>\S+) *: (?P<value>[^#\n]*?) *# \[(?P<origin>given|looked "
    r"up|calculated|default)\](?P<description>.*)"
)


def document_of_summary(text: str, source: str) -> dict[str, Any]:
    """The configuration document of a summary's text: its values as given, except what was
    calculated. Raises InputError: a line of a category is none of a parameter."""
    categories = {heading: category for category, heading in HEADINGS.items()}
    document: dict[str, Any] = {}
    current: dict[str, Any] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line in categories:
            current = {}
            document[categories[line]] = {"parameters": current}
        elif not line.strip():
            current = None
        elif current is not None:
            found = _LINE.fullmatch(line)
            if found is None:
                raise InputError(
                    f"{source}, line {number}: {clipped(repr(line), 100)} is no parameter; give a "
                    "config_summary.txt as it was written"
                )
            known: dict[str, Any] = {"value": found["value"]}
            if found["origin"] == "calculated":
                known = {"calculated": True}
            current[found["name"]] = known | {"description": found["description"].strip()}
    return document
