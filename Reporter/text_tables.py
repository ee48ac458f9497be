"""Tables and lines for a terminal: as wide as it is, and complete where nobody's screen ends them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

WIDEST = 2000  # characters; of a file or a pipe, whose tables keep their lines whole
NARROWEST = 40  # characters; below them a terminal wraps for itself


@dataclass
class TextTable:
    """A table that is filled row by row. Columns among ``words`` go to the left, the others, numbers, to the right.

    Where there is no room for all columns, those of ``spared`` are left out, the first first. ``sections`` are numbers of rows
    below which there is a gap.
    """

    title: str
    columns: tuple[str, ...]
    words: frozenset[str]
    spared: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    sections: set[int] = field(default_factory=set)

    def add_row(self, *cells: str) -> None:
        """A row, with a cell for each of the first columns; those that are missing stay empty."""
        self.rows.append((*cells, *[""] * (len(self.columns) - len(cells))))

    def add_section(self) -> None:
        """A gap below the rows so far."""
        self.sections.add(len(self.rows))

    def without(self, column: str) -> TextTable:
        """The same without a column."""
        place = self.columns.index(column)
        rows = [(*row[:place], *row[place + 1 :]) for row in self.rows]
        return replace(self, columns=(*self.columns[:place], *self.columns[place + 1 :]), rows=rows)


def new_table(title: str, columns: Sequence[str], *, words: Collection[str], spared: Sequence[str] = ()) -> TextTable:
    """An empty table in the one style of all."""
    return TextTable(title, tuple(columns), frozenset(words), tuple(column for column in spared if column in columns))


def plain_table(title: str, rows: Sequence[dict[str, object]], spared: Sequence[str] = ()) -> TextTable:
    """Rows of equal keys as a table; text to the left, numbers to the right. ``spared`` are keys."""
    columns = {key.replace("_", " "): value for row in rows for key, value in row.items()}
    words = {name for name, value in columns.items() if isinstance(value, str)}
    table = new_table(title, tuple(columns), words=words, spared=[key.replace("_", " ") for key in spared])
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
    return table


def print_tables(tables: Iterable[TextTable], stream: TextIO, *, wide: bool = False) -> None:
    """Write tables: whole into files and pipes or where ``wide`` is asked for, on a terminal as much as there is room for."""
    width = None if wide else screen_width(stream)
    for table in tables:
        stream.writelines(f"{line}\n" for line in fitted_lines(table, width))


def print_lines(lines: Iterable[str], stream: TextIO) -> None:
    """Write lines, on a terminal wrapped between words."""
    width = screen_width(stream)
    for line in lines:
        wrapped = [line] if width is None else wrap(line, width, subsequent_indent="  ") or [""]
        stream.writelines(f"{each}\n" for each in wrapped)


def screen_width(stream: TextIO) -> int | None:
    """Characters in a line of the terminal behind ``stream`` (of COLUMNS, where that is set); None of a file or a pipe."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if stream.isatty() else None


def wrap(text: str, width: int, *, initial_indent: str = "", subsequent_indent: str = "") -> list[str]:
    """Lines of at most ``width`` characters; names and paths stay whole."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=initial_indent,
        subsequent_indent=subsequent_indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitted_lines(table: TextTable, width: int | None) -> list[str]:
    """The lines of a table in at most ``width`` characters where that can be, and below it what was left out.

    Cells of words are wrapped only where leaving out columns does not help.
    """
    lines = _lines(table, WIDEST)
    if width is None or _fits(lines, width):
        return lines
    left_out: list[str] = []
    for column in table.spared:
        table = table.without(column)
        left_out.append(column)
        lines = _lines(table, WIDEST)
        if _fits(lines, width):
            break
    if not _fits(lines, width):
        lines = _lines(table, width)
    if left_out:
        note = f"not shown for lack of room: {', '.join(left_out)}; --wide shows all columns"
        lines += wrap(note, width, initial_indent="  ", subsequent_indent="  ")
    return [*lines, ""] if left_out else lines


def _fits(lines: Sequence[str], width: int) -> bool:
    return max(map(len, lines)) <= width


def _lines(table: TextTable, width: int) -> list[str]:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(table.title), title_justify="left", box=SIMPLE_HEAD)
    for column in table.columns:
        left = column in table.words
        drawn.add_column(Text(column), justify="left" if left else "right", no_wrap=not left or width == WIDEST, overflow="fold")
    for number, row in enumerate(table.rows, start=1):
        drawn.add_row(*map(Text, row), end_section=number in table.sections)
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(drawn)
    return [line.rstrip() for line in captured.get().splitlines()]
