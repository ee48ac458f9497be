"""Tables and texts as Markdown has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, its cells as they are but for what would end them."""
    lines = [heads, ["---"] * len(heads), *([_cell(each) for each in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plain(text: str) -> str:
    """A docstring or help text: on one line, double backticks as single ones, and nothing that is
    taken for a tag."""
    return " ".join(text.split()).replace("``", "`").replace("<", "&lt;").replace("*", r"\*")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
