"""Tables and lines for a terminal: as wide as it is, and complete where nobody's screen ends
them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

from phaze_common.echo import on_one_line, say
from phaze_common.numbers import FINE_DIGITS, number

NARROWEST_WORDS = 4  # characters; of a column in which words are wrapped
NARROWEST = 40  # characters; below them a terminal wraps for itself


@dataclass
class TextTable:
    """A table that is filled row by row. Columns among ``words`` go to the left, the others,
    numbers, to the right.

    Where there is no room for all columns, those of ``spared`` are left out, the first first.
    ``sections`` are numbers of rows below which there is a gap.
    """

    title: str
    columns: tuple[str, ...]
    words: frozenset[str]
    spared: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    sections: set[int] = field(default_factory=set)

    def add_row(self, *cells: str) -> None:
        """A row, with a cell for each of the first columns; those that are missing stay empty."""
        self.rows.append((*map(on_one_line, cells), *[""] * (len(self.columns) - len(cells))))

    def add_section(self) -> None:
        """A gap below the rows so far."""
        self.sections.add(len(self.rows))

    def without(self, column: str) -> TextTable:
        """The same without a column."""
        place = self.columns.index(column)
        rows = [(*row[:place], *row[place + 1 :]) for row in self.rows]
        return replace(self, columns=(*self.columns[:place], *self.columns[place + 1 :]), rows=rows)


def new_table(
    title: str, columns: Sequence[str], *, words: Collection[str], spared: Sequence[str] = ()
) -> TextTable:
    """An empty table in the one style of all."""
    heads, first_spared = (
        tuple(map(on_one_line, columns)),
        tuple(on_one_line(each) for each in spared if each in columns),
    )
    return TextTable(on_one_line(title), heads, frozenset(map(on_one_line, words)), first_spared)


def plain_table(
    title: str, rows: Sequence[dict[str, object]], spared: Sequence[str] = ()
) -> TextTable:
    """Rows of equal keys as a table; text to the left, numbers to the right. ``spared`` are
    keys."""
    names = {key: key.replace("_", " ") for row in rows for key in row}
    words = {names[key] for row in rows for key, value in row.items() if isinstance(value, str)}
    table = new_table(
        title, tuple(names.values()), words=words, spared=[key.replace("_", " ") for key in spared]
    )
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    return table


def _cell(value: object) -> str:
    """As a table shows it; what does not apply as a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, FINE_DIGITS)
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def print_tables(tables: Iterable[TextTable], stream: TextIO, *, wide: bool = False) -> None:
    """Write tables: whole into files and pipes or where ``wide`` is asked for, on a terminal as
    much as there is room for."""
    width = None if wide else screen_width(stream)
    for table in tables:
        say(stream, fitted_lines(table, width))


def print_lines(lines: Iterable[str], stream: TextIO) -> None:
    """Write lines, on a terminal wrapped between words."""
    width = screen_width(stream)
    for line in lines:
        line = on_one_line(line)
        say(stream, [line] if width is None else wrap(line, width, subsequent_indent="  ") or [""])


def screen_width(stream: TextIO) -> int | None:
    """Characters in a line of the terminal behind ``stream`` (of COLUMNS, where that is set); None
    of a file or a pipe."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if stream.isatty() else None


def wrap(
    text: str, width: int, *, initial_indent: str = "", subsequent_indent: str = ""
) -> list[str]:
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
    """The lines of a table in at most ``width`` characters where that can be, and below it what was
    left out.

    Heads are wrapped first, then columns are left out, and only where that does not help are cells
    of words wrapped. Numbers are always whole.
    """
    title = [table.title] if width is None else wrap(table.title, width)
    if width is None or _total(_widest(table)) <= width:
        return [*title, *_lines(table, _widest(table))]
    left_out: list[str] = []
    for column in table.spared:
        if _total(_narrow(table)) <= width:
            break
        table = table.without(column)
        left_out.append(column)
    widths = _narrow(table)
    places = range(len(widths))
    if _total(widths) > width:  # cells of words share what numbers leave
        words = [place for place in places if table.columns[place] in table.words]
        room = width - _total([0 if place in words else each for place, each in enumerate(widths)])
        widths = [NARROWEST_WORDS if place in words else each for place, each in enumerate(widths)]
        lines = _lines(
            table, _shared(widths, _widest(table), words, room - NARROWEST_WORDS * len(words))
        )
    else:
        lines = _lines(table, _shared(widths, _widest(table), places, width - _total(widths)))
    if left_out:
        note = f"not shown for lack of room: {', '.join(left_out)}; --wide shows all columns"
        lines += [*wrap(note, width, initial_indent="  ", subsequent_indent="  "), ""]
    return [*title, *lines]


def _widest(table: TextTable) -> list[int]:
    """Characters of each column with nothing wrapped."""
    return [max(len(column), *map(len, cells), 1) for column, cells in _by_column(table)]


def _narrow(table: TextTable) -> list[int]:
    """Characters of each column with its head wrapped."""
    return [max(*map(len, [*column.split(), *cells]), 1) for column, cells in _by_column(table)]


def _by_column(table: TextTable) -> list[tuple[str, list[str]]]:
    return [
        (column, [row[place] for row in table.rows] or [""])
        for place, column in enumerate(table.columns)
    ]


def _total(widths: Sequence[int]) -> int:
    """Characters of the longest line, the rule below the heads."""
    return sum(widths) + 3 * len(widths)


def _shared(
    widths: Sequence[int], wanted: Sequence[int], wider: Sequence[int], room: int
) -> list[int]:
    """``widths`` with ``room`` given to the columns ``wider``, a character each in turn, until they
    are as wide as ``wanted``."""
    given = list(widths)
    while room > 0 and (short := [place for place in wider if given[place] < wanted[place]]):
        for place in short[:room]:
            given[place] += 1
        room -= len(short[:room])
    return given


def _lines(table: TextTable, widths: Sequence[int]) -> list[str]:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(
        width=_total(widths) + 1, color_system=None, force_terminal=False, legacy_windows=False
    )
    drawn = Table(box=SIMPLE_HEAD)
    heads = [
        Text(column).wrap(console, width, overflow="fold")
        for column, width in zip(table.columns, widths, strict=True)
    ]
    highest = max(map(len, heads))
    for column, head, width in zip(table.columns, heads, widths, strict=True):
        shown = Text("\n" * (highest - len(head))) + Text("\n").join(head)  # down to the rule
        drawn.add_column(
            shown,
            justify="left" if column in table.words else "right",
            width=width,
            overflow="fold",
        )
    for place, row in enumerate(table.rows, start=1):
        drawn.add_row(
            *(Text(cell, overflow="fold") for cell in row), end_section=place in table.sections
        )
    with console.capture() as captured:
        console.print(drawn)
    return [line.rstrip() for line in captured.get().splitlines()]
