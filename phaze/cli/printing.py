"""Results on standard output, as tables or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from phaze.cli.mode import Command
from phaze_common.echo import say

if TYPE_CHECKING:
    from phaze.report.table import Table

STDOUT = "-"  # as a file to write


def print_rows(
    title: str,
    rows: Sequence[dict[str, object]],
    command: Command,
    spared: Sequence[str] = (),
    json_only: Sequence[str] = (),
) -> None:
    """Write rows of equal keys as one table, or as a JSON list.

    A narrow terminal leaves out columns of ``spared``, the table those of ``json_only``.
    """
    from phaze.report.table import plain_table

    shown = [{key: value for key, value in row.items() if key not in json_only} for row in rows]
    print_answer(json.dumps(rows, indent=2), lambda: [plain_table(title, shown, spared)], command)


def print_shown(as_json: str, show: Callable[..., None], answer: object, command: Command) -> None:
    """Write ``as_json``, or let ``show`` write the ``answer``."""
    if command.output_format == "json":
        say(sys.stdout, as_json.splitlines())
    else:
        show(answer, sys.stdout, wide=command.wide)


def print_answer(as_json: str, tables: Callable[[], Sequence[Table]], command: Command) -> None:
    """Write what ``command`` asked for: ``as_json``, or the ``tables``."""
    from phaze.report.terminal import print_tables

    if command.output_format == "json":
        say(sys.stdout, as_json.splitlines())
    else:
        print_tables(tables(), sys.stdout, wide=command.wide)
