"""Tables and lines on a terminal: as wide as it is, and complete where no screen ends them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TextIO

from phaze.report.table import Table, wrap
from phaze_common.echo import on_one_line, say

NARROWEST = 40  # characters; below them a terminal wraps for itself


def print_tables(tables: Iterable[Table], stream: TextIO, *, wide: bool = False) -> None:
    """Write tables: whole into files and where ``wide``, on a terminal what it has room for."""
    width = None if wide else screen_width(stream)
    for table in tables:
        say(stream, table.text(width))


def print_lines(lines: Iterable[str], stream: TextIO) -> None:
    """Write lines, on a terminal wrapped between words."""
    width = screen_width(stream)
    for line in map(on_one_line, lines):
        say(stream, [line] if width is None else wrap(line, width, subsequent_indent="  ") or [""])


def screen_width(stream: TextIO) -> int | None:
    """Characters in a line of the terminal of ``stream`` (or COLUMNS); None of a file or pipe."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if stream.isatty() else None
