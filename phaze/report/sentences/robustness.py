"""How robust the best design is, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report.sentences.designs import accelerator_text
from phaze.runs.robustness import Robustness
from phaze_common.numbers import number, percent


def robustness_sentences(answer: Robustness) -> Iterator[str]:
    """The answer in words."""
    chosen, influences = answer.chosen, answer.influences
    if answer.samples_without_any:
        yield (
            f"in {answer.samples_without_any:,} of {answer.samples:,} samples no design of the "
            "space keeps the limits and holds a plan; shares and regrets are of the others"
        )
    yield (
        f"{accelerator_text(chosen.accelerator)} is the best of the whole space in "
        f"{percent(chosen.wins)} of the samples; choosing it costs "
        f"{percent(chosen.expected_regret)} on average and {percent(chosen.worst_regret)} at worst"
    )
    if chosen.fails:
        yield (
            f"in {percent(chosen.fails)} of the samples it is larger than the space allows, or "
            "nothing fits, which costs all"
        )
    yield _least_regret(answer)
    deciding = [each.name for each in influences if each.switches_at is not None]
    said = f"none of {len(influences)} constants changes the choice to another contender alone"
    if deciding:
        said = (
            f"alone, {deciding[0]} changes the choice most; {len(deciding)} of {len(influences)} "
            "constants change it to another contender"
        )
    yield said
    found = answer.searched
    proven = "all" if found.proven == answer.samples else f"{found.proven:,} of {answer.samples:,}"
    yield (
        f"under each sample {found.designs:,} designs were bounded, on average "
        f"{number(found.scheduled, 3)} of them priced and scheduled and "
        f"{number(found.evaluated, 3)} evaluated besides {len(answer.contenders)} contenders; "
        f"in {proven} samples it is proven that no other design of the space is better than the "
        "best contender"
    )


def _least_regret(answer: Robustness) -> str:
    least, undecided, rest = answer.least_regret, answer.searched.undecided, ""
    if undecided:
        rest = f"; of {undecided:,} other designs it is not known whether they have less"
    if least == answer.chosen:
        return f"no {'contender' if rest else 'design'} has less regret at worst{rest}"
    return (
        f"the least regret at worst has {accelerator_text(least.accelerator)}: "
        f"{percent(least.worst_regret)}, {percent(least.expected_regret)} on average{rest}"
    )


def robustness_caption(answer: Robustness) -> str:
    """The answer in short, for the figure of all constants."""
    chosen, proven, nothing = answer.chosen, answer.searched.proven, answer.samples_without_any
    others = f"; in {nothing} of them nothing works. Of the others" if nothing else ". Of these"
    return (
        f"Under {answer.samples} samples of {len(answer.influences)} constants the whole space was "
        f"searched{others} the chosen design is the best in {percent(chosen.wins)}, and choosing "
        f"it costs {percent(chosen.expected_regret)} on average and {percent(chosen.worst_regret)} "
        f"at worst. In {proven} samples no other design is better than the best that is told. "
        "Bars: each constant alone, from one end of its range to the other."
    )
