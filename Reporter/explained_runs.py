"""What the errors of predictions come from, as tables, and how often intervals hold what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from Common.numbers import number
from Reporter.text_tables import TextTable, new_table
from Validation.explained import ErrorExplanation
from Validation.intervals import Coverage

MOST_GROUPS = 16


def explanation_tables(explained: ErrorExplanation) -> list[TextTable]:
    """Errors by setting, by part, and contradictions in what was measured."""
    tables = [group_table(explained), part_table(explained)]
    return [*tables, contradiction_table(explained)] if explained.contradictions else tables


def group_table(explained: ErrorExplanation) -> TextTable:
    """What runs that are off have in common: settings between whose values errors differ most."""
    table = new_table(
        "errors by what runs have in common, the widest apart first",
        ("setting", "value", "runs", "bias", "MAPE"),
        words={"setting", "value"},
    )
    for group in explained.groups[:MOST_GROUPS]:
        table.add_row(group.setting, group.value, str(group.runs), f"{group.bias:+.1%}", f"{group.mape:.1%}")
    return table


def part_table(explained: ErrorExplanation) -> TextTable:
    """What is left of the errors if one part takes another time: as it would be best, and as far as its constant may be off."""
    columns = ("part", "constant", "times as long", "MAPE then", "within its range", "MAPE within")
    title = f"one part at a time, of a mean error of {explained.mape:.1%}"
    table = new_table(title, columns, words={"part", "constant"}, spared=("constant",))
    for move in explained.moves:
        table.add_row(
            move.part.name,
            move.part.constant,
            f"{number(move.factor, 3)}x",
            f"{move.mape:.1%}",
            f"{number(move.within, 3)}x",
            f"{move.within_mape:.1%}",
        )
    return table


def contradiction_table(explained: ErrorExplanation) -> TextTable:
    """Lines with the same plan on the same hardware whose measured times differ."""
    table = new_table(
        "one plan, other times: no prediction can be right for all", ("lines", "model", "measured s"), words={"model"}
    )
    for each in explained.contradictions:
        table.add_row(", ".join(map(str, each.lines)), each.model, f"{number(each.low_s)} to {number(each.high_s)}")
    return table


def coverage_table(found: Sequence[Coverage]) -> TextTable:
    """How often intervals hold what was measured, each source left out in turn."""
    columns = ("interval", "sources held", "runs held", "mean width")
    table = new_table("intervals of a source from the errors of all others", columns, words=set())
    for each in found:
        sources, runs = f"{each.sources_held} of {each.sources}", f"{each.runs_held} of {each.runs}"
        table.add_row(f"{each.nominal:.0%}", sources, runs, f"{each.width:.0%} of the prediction")
    return table
