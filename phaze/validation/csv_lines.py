"""Lines of a CSV file one by one: one that is no CSV is told with its number, and those behind it
are read all the same."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_RECORD = (
    64  # physical lines of one record: a quote that closes no sooner was never meant to open
)


@dataclass(frozen=True)
class CsvLine:
    """Cells of a record and the number of its first line in the file; ``wrong`` says why a line is
    no record."""

    number: int
    cells: tuple[str, ...]
    wrong: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self.wrong and not any(cell.strip() for cell in self.cells)


def csv_lines(text: str) -> Iterator[CsvLine]:
    """All records of ``text`` but empty ones."""
    lines = io.StringIO(text.lstrip("\ufeff")).readlines()
    place = 0
    while place < len(lines):
        reader = csv.reader(lines[place : place + LONGEST_RECORD], strict=True)
        try:
            cells = next(reader, [])
            found, taken = CsvLine(place + 1, tuple(cells)), max(reader.line_num, 1)
        except csv.Error as error:  # of this line alone: what follows begins behind it
            found, taken = CsvLine(place + 1, (), f"is not CSV: {error}; correct it"), 1
        if not found.empty:
            yield found
        place += taken
