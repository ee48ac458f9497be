"""What a report is made of: sections with figures and tables."""

from dataclasses import dataclass
from typing import Any

from phaze.report.table import Table

SMALLEST_CANVAS = 1200  # marks from which a canvas draws faster than a tree of shapes


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart with its caption; ``name`` is its anchor and file name, ``spec`` Vega-Lite's JSON.

    ``marks`` is about how many shapes it has. ``abreast`` figures stand side by side where there is
    room. The table says the same as the chart.
    """

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    marks: int
    table: Table | None = None
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
    tables: tuple[Table, ...] = ()


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
    """A page: title, answer, the numbers that matter, the reasons, and the rest in sections.

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
