"""A table: built once for a terminal, a page and a notebook, and as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from phaze_common.echo import on_one_line
from phaze_common.numbers import FINE_DIGITS, number

NARROWEST_WORDS = 4  # characters; of a column in which words are wrapped
GAP: Mapping[str, object] = {}  # among rows: a gap below those before it
Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Cells of text. Columns among ``words`` go to the left, the others, numbers, to the right.

    The rows of ``foot``, sums for instance, stay below the others however these are sorted. Where
    a terminal has no room for all columns, those of ``spared`` are left out, the first first; it
    shows a gap below as many rows as a number of ``gaps`` says. ``links`` are addresses that the
    first cells of the rows lead to, one per row (empty: none).
    """

    title: str
    columns: Row
    rows: tuple[Row, ...]
    foot: tuple[Row, ...] = ()
    words: frozenset[str] = frozenset()
    spared: Row = ()
    gaps: frozenset[int] = frozenset()
    links: Row = ()

    @staticmethod
    def of(
        title: str,
        rows: Iterable[Mapping[str, object]],
        *,
        foot: Iterable[Mapping[str, object]] = (),
        columns: Sequence[str] = (),
        words: Iterable[str] | None = None,
        spared: Sequence[str] = (),
        links: Sequence[str] = (),
    ) -> Table:
        """A table of rows by column; a cell that a row does not have stays empty.

        Without ``columns`` it has those of the rows, without ``words`` those that hold text.
        """
        body, last = list(rows), list(foot)
        every = [*body, *((GAP, *last) if body and last else last)]
        heads = tuple(columns) or tuple(dict.fromkeys(key for row in every for key in row))
        if words is None:
            words = {key for row in every for key, value in row.items() if isinstance(value, str)}
        cells = [tuple(_cell(row.get(head, "")) for head in heads) for row in every if row]
        ends = [sum(map(bool, every[:place])) for place, row in enumerate(every) if not row]
        above = sum(map(bool, body))
        return Table(
            title,
            heads,
            tuple(cells[:above]),
            tuple(cells[above:]),
            frozenset(words) & frozenset(heads),
            tuple(column for column in spared if column in heads),
            frozenset(ends),
            tuple(links),
        )

    def without(self, *columns: str) -> Table:
        """The same without some columns."""
        left = [place for place, column in enumerate(self.columns) if column not in columns]
        heads, *rows = (
            tuple(row[place] for place in left) for row in (self.columns, *self.rows, *self.foot)
        )
        above = len(self.rows)
        return replace(self, columns=heads, rows=tuple(rows[:above]), foot=tuple(rows[above:]))

    def merged(self, column: str) -> Table:
        """Rows that differ in one column alone as one, with all its values, where the first is."""
        place, alike = self.columns.index(column), dict[Row, list[str]]()
        for row in self.rows:
            alike.setdefault((*row[:place], *row[place + 1 :]), []).append(row[place])
        rows = (
            (*rest[:place], ", ".join(dict.fromkeys(values)), *rest[place:])
            for rest, values in alike.items()
        )
        return replace(self, rows=tuple(rows))

    def text(self, width: int | None = None) -> list[str]:
        """Its lines in at most ``width`` characters where that can be, below what was left out.

        Heads are wrapped first, then columns are left out, and only where that does not help are
        cells of words wrapped. Numbers are always whole.
        """
        shown = self
        title = on_one_line(self.title)
        if width is None:
            return [title, *_lines(self, _widest(self))]
        lines = wrap(title, width)
        if _total(_widest(self)) <= width:
            return [*lines, *_lines(self, _widest(self))]
        left_out: list[str] = []
        for column in self.spared:
            if _total(_narrow(shown)) <= width:
                break
            shown = shown.without(column)
            left_out.append(column)
        widths, places = _narrow(shown), list(range(len(shown.columns)))
        if _total(widths) > width:  # cells of words share what numbers leave
            places = [place for place in places if shown.columns[place] in shown.words]
            widths = [NARROWEST_WORDS if at in places else wide for at, wide in enumerate(widths)]
        lines += _lines(shown, _shared(widths, _widest(shown), places, width - _total(widths)))
        if left_out:
            note = f"not shown for lack of room: {', '.join(left_out)}; --wide shows all columns"
            lines += [*wrap(note, width, initial_indent="  ", subsequent_indent="  "), ""]
        return lines

    def html(self) -> str:
        """As an HTML table in a region that scrolls."""
        kinds = ["" if column in self.words else ' class="number"' for column in self.columns]
        links = self.links or ("",) * len(self.rows)
        parts = [
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(self.title)}">',
            '<table class="sorts">' if len(self.rows) > 1 else "<table>",
            f"<caption>{escape(self.title)}</caption>",
            f"<thead>{_html_row(self.columns, kinds, 'col')}</thead>",
            "<tbody>",
            *(_html_row(row, kinds, link=link) for row, link in zip(self.rows, links, strict=True)),
            "</tbody>",
            *_html_foot(self.foot, kinds),
            "</table>",
            "</div>",
        ]
        return "\n".join(parts)

    def csv(self) -> str:
        """Heads, rows and foot as comma-separated values."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((self.columns, *self.rows, *self.foot))
        return text.getvalue()

    def json(self) -> str:
        """Rows and foot as a list of objects by column."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in (*self.rows, *self.foot)]
        return json.dumps(rows, indent=2, ensure_ascii=False)


def plain_table(
    title: str, rows: Sequence[Mapping[str, object]], spared: Sequence[str] = ()
) -> Table:
    """Rows of equal keys as a table; text to the left, numbers to the right."""
    named = [{key.replace("_", " "): value for key, value in row.items()} for row in rows]
    return Table.of(title, named, spared=[key.replace("_", " ") for key in spared])


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


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cell(value: object) -> str:
    """As a table shows it; what does not apply as a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, FINE_DIGITS)
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _html_foot(foot: Sequence[Row], kinds: Sequence[str]) -> list[str]:
    return ["<tfoot>", *(_html_row(row, kinds) for row in foot), "</tfoot>"] if foot else []


def _html_row(cells: Row, kinds: Sequence[str], first: str = "row", link: str = "") -> str:
    texts = list(map(escape, cells))
    if link:
        texts[0] = f'<a class="to-point" href="{escape(link)}">{texts[0]}</a>'
    shown = []
    for place, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        head = first == "col" or place == 0
        shown.append(f'<th scope="{first}"{kind}>{text}</th>' if head else f"<td{kind}>{text}</td>")
    return f"<tr>{''.join(shown)}</tr>"


def _by_column(table: Table) -> list[list[str]]:
    """Head and cells of each column."""
    rows = (table.columns, *table.rows, *table.foot)
    return [[on_one_line(row[place]) for row in rows] for place in range(len(table.columns))]


def _widest(table: Table) -> list[int]:
    """Characters of each column with nothing wrapped."""
    return [max(*map(len, cells), 1) for cells in _by_column(table)]


def _narrow(table: Table) -> list[int]:
    """Characters of each column with its head wrapped."""
    return [max(*map(len, [*head.split(), *cells]), 1) for head, *cells in _by_column(table)]


def _total(widths: Sequence[int]) -> int:
    """Characters of the longest line, the rule below the heads."""
    return sum(widths) + 3 * len(widths)


def _shared(
    widths: Sequence[int], wanted: Sequence[int], wider: Sequence[int], room: int
) -> list[int]:
    """``widths`` with ``room`` given in turn to the columns ``wider``, up to ``wanted``."""
    given = list(widths)
    while room > 0 and (short := [place for place in wider if given[place] < wanted[place]]):
        for place in short[:room]:
            given[place] += 1
        room -= len(short[:room])
    return given


def _lines(table: Table, widths: Sequence[int]) -> list[str]:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(
        width=_total(widths) + 1, color_system=None, force_terminal=False, legacy_windows=False
    )
    drawn = RichTable(box=SIMPLE_HEAD)
    heads = [
        Text(on_one_line(column)).wrap(console, width, overflow="fold")
        for column, width in zip(table.columns, widths, strict=True)
    ]
    highest = max(map(len, heads), default=0)
    for column, head, width in zip(table.columns, heads, widths, strict=True):
        shown = Text("\n" * (highest - len(head))) + Text("\n").join(head)  # down to the rule
        words = column in table.words
        drawn.add_column(shown, justify="left" if words else "right", width=width, overflow="fold")
    for place, row in enumerate((*table.rows, *table.foot), start=1):
        cells = (Text(on_one_line(cell), overflow="fold") for cell in row)
        drawn.add_row(*cells, end_section=place in table.gaps)
    with console.capture() as captured:
        console.print(drawn)
    return [line.rstrip() for line in captured.get().splitlines()]
