"""How robust a best design is, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from Common.numbers import number, percent, share
from Reporter.text_tables import TextTable, new_table, print_lines, print_tables
from Studies.robust.records import Contender, Influence, Robustness
from Studies.wording import accelerator_text

MOST_CONTENDERS, MOST_CONSTANTS = 8, 16
UNMOVED = 5e-4  # of the value: less is not shown


def print_robustness(answer: Robustness, stream: TextIO, *, wide: bool = False) -> None:
    """Write the contenders, the constants that decide, and what follows."""
    print_tables([contender_table(answer), tornado_table(answer)], stream, wide=wide)
    print_lines(sentences(answer), stream)


def contender_table(answer: Robustness) -> TextTable:
    """Contenders that win somewhere or lose least, the chosen one first."""
    columns = ("design", "wins", "expected regret", "worst regret")
    table = new_table(f"{answer.samples} samples of what is not known exactly", columns, words={"design"})
    others = [each for each in answer.contenders if each != answer.chosen]
    spare = MOST_CONTENDERS - sum(each.wins > 0 for each in others)
    losers = [each for each in others if each.wins == 0][: max(spare, 0)]
    for each in (answer.chosen, *(each for each in others if each.wins > 0 or each in losers)):
        table.add_row(accelerator_text(each.accelerator), share(each.wins), share(each.expected_regret), share(each.worst_regret))
    return table


def tornado_table(answer: Robustness) -> TextTable:
    """What every constant does alone, the one that moves the choice most first."""
    columns = ("constant", "range", "value of the choice", "regret", "another is better from")
    table = new_table("each constant alone, between the ends of its range", columns, words={"constant"})
    for each in [one for one in answer.influences if _matters(one)][:MOST_CONSTANTS]:
        table.add_row(
            each.name,
            f"{number(each.low, 3)}x to {number(each.high, 3)}x",
            f"{100 * (each.value_low - 1):+.1f}% to {100 * (each.value_high - 1):+.1f}%",
            f"{share(max(each.regret_low, each.regret_high))}",
            "-" if each.switches_at is None else f"{number(each.switches_at, 3)}x",
        )
    return table


def _matters(one: Influence) -> bool:
    return max(abs(one.value_low - 1), abs(one.value_high - 1), one.regret_low, one.regret_high) > UNMOVED


def sentences(answer: Robustness) -> Iterator[str]:
    """The answer in words."""
    chosen = answer.chosen
    yield (
        f"{accelerator_text(chosen.accelerator)} is the best of {len(answer.contenders)} contenders in {percent(chosen.wins)} of "
        f"the samples; choosing it costs {percent(chosen.expected_regret)} on average and {percent(chosen.worst_regret)} at worst"
    )
    yield _least_regret(answer.least_regret, chosen)
    deciding = [each.name for each in answer.influences if each.switches_at is not None]
    if deciding:
        several = f"{len(deciding)} of {len(answer.influences)} constants"
        yield f"alone, {deciding[0]} changes the choice most; {several} change it at all"
    else:
        yield f"none of {len(answer.influences)} constants changes the choice alone"
    if answer.left_out:
        yield (
            f"{answer.left_out:,} of {answer.considered:,} designs were left out, which are at least {percent(answer.behind)} "
            "behind with the constants as stated"
        )


def _least_regret(least: Contender, chosen: Contender) -> str:
    if least == chosen:
        return "no contender has less regret at worst"
    return (
        f"the least regret at worst has {accelerator_text(least.accelerator)}: {percent(least.worst_regret)}, "
        f"{percent(least.expected_regret)} on average"
    )
