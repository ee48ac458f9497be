"""How robust a best design is, in a terminal."""

from __future__ import annotations

from typing import TextIO

from phaze.report.sentences.designs import accelerator_text
from phaze.report.sentences.robustness import robustness_sentences
from phaze.report.table import Table
from phaze.report.terminal import print_lines, print_tables
from phaze.runs.robustness import Influence, Robustness
from phaze_common.numbers import number, share

MOST_CONTENDERS, MOST_CONSTANTS = 8, 16
UNMOVED = 5e-4  # of the value: less is not shown


def print_robustness(answer: Robustness, stream: TextIO, *, wide: bool = False) -> None:
    """Write the contenders, the constants that decide, and what follows."""
    print_tables([contender_table(answer), tornado_table(answer)], stream, wide=wide)
    print_lines(robustness_sentences(answer), stream)


def contender_table(answer: Robustness) -> Table:
    """Designs that win somewhere or lose least, the chosen one first."""
    none_works = f", without {answer.samples_without_any} in which nothing works"
    others = [each for each in answer.contenders if each != answer.chosen]
    spare = MOST_CONTENDERS - sum(each.wins > 0 for each in others)
    losers = [each for each in others if each.wins == 0][: max(spare, 0)]
    shown = [
        each for each in others if each.wins > 0 or each in losers or each == answer.least_regret
    ]
    rows = (
        {
            "design": accelerator_text(each.accelerator),
            "wins": share(each.wins),
            "fails": share(each.fails),
            "expected regret": share(each.expected_regret),
            "worst regret": share(each.worst_regret),
        }
        for each in (answer.chosen, *shown)
    )
    return Table.of(
        f"{answer.samples} samples of what is not known exactly"
        f"{none_works if answer.samples_without_any else ''}",
        rows,
        words={"design"},
    )


def tornado_table(answer: Robustness) -> Table:
    """What every constant does alone, the one that moves the choice most first."""
    columns = ("constant", "range", "value of the choice", "regret", "another is better from")
    rows = []
    for each in [one for one in answer.influences if _matters(one)][:MOST_CONSTANTS]:
        at = each.switches_at
        cells = (
            each.name,
            f"{number(each.low, 3)}x to {number(each.high, 3)}x",
            f"{100 * (each.value_low - 1):+.1f}% to {100 * (each.value_high - 1):+.1f}%",
            share(max(each.regret_low, each.regret_high)),
            "-" if at is None else f"{number(at, 3)}x",
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    title = "each constant alone, between the ends of its range"
    return Table.of(title, rows, columns=columns, words={"constant"})


def _matters(one: Influence) -> bool:
    moves = abs(one.value_low - 1), abs(one.value_high - 1)
    return max(*moves, one.regret_low, one.regret_high) > UNMOVED
