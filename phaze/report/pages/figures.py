"""What a report is made of: sections with figures and tables, and the data inside a figure."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SMALLEST_CANVAS = 1200  # marks from which a canvas draws faster than a tree of shapes


@dataclass(frozen=True)
class PageTable:
    """A table of words; columns among ``words`` go to the left, the others, numbers, to the right.

    The last ``foot`` rows, sums for instance, stay below the others however these are sorted.
    ``links`` are addresses that the first cells of the rows lead to, one per row (empty: none).
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[str]
    foot: int = 0
    links: tuple[str, ...] = ()

    @property
    def body(self) -> tuple[tuple[str, ...], ...]:
        """The rows above the foot."""
        return self.rows[: len(self.rows) - self.foot]


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart with what to see in it. ``name`` is its anchor on the page and its file name,
    ``spec`` Vega-Lite's JSON.

    ``marks`` is about how many shapes it has. ``abreast`` figures stand side by side where there is
    room. The table says the same as the chart.
    """

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    marks: int
    table: PageTable | None = None
    abreast: int = 1

    @property
    def alt(self) -> str:
        """What the chart shows, for those who do not see it."""
        return f"Chart: {self.title}. {self.caption}".rstrip()

    @property
    def renderer(self) -> str:
        """Which of Vega's two renderers draws it."""
        return "canvas" if self.marks >= SMALLEST_CANVAS else "svg"


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a section, under a heading of its own where it has a title."""

    title: str = ""
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[PageTable, ...] = ()


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page; ``anchor`` is its place in links."""

    anchor: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class KeyNumber:
    """A number that belongs at the top, with what it is and a note."""

    what: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Reasons:
    """Sentences that answer one question of the reader."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """A page: its title and what stands under it, the answer, the numbers that matter, the reasons,
    and the rest in sections.

    ``warnings`` are sentences that nobody who acts on the answer should miss.
    """

    title: str
    subtitle: str
    answer: str
    numbers: tuple[KeyNumber, ...]
    reasons: tuple[Reasons, ...]
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return tuple(
            figure for section in self.sections for part in section.parts for figure in part.figures
        )


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Iterable[str],
    foot: int = 0,
) -> PageTable:
    """A table from rows of any kind, the last ``foot`` of them sums and the like."""
    return PageTable(
        title, tuple(columns), tuple(tuple(row) for row in rows), frozenset(words), foot
    )


def inline_data(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    words: Iterable[str] = (),
    exact: bool = False,
) -> Any:
    """Altair data of rows, all numbers but the columns among ``words``; as CSV, a quarter of the
    size of JSON.

    None, and numbers that are not finite, become missing values; ``exact`` ones keep all digits,
    others seven.
    """
    import altair as alt

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value, exact=exact) for value in row] for row in rows)
    words = set(words)
    parse = {column: "string" if column in words else "number" for column in columns}
    return alt.InlineData(values=text.getvalue(), format=alt.CsvDataFormat(type="csv", parse=parse))


def _cell(value: object, *, exact: bool) -> object:
    if isinstance(value, float):
        return (repr(value) if exact else f"{value:.7g}") if math.isfinite(value) else ""
    return "" if value is None else int(value) if isinstance(value, bool) else value
