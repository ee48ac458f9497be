"""Explanations in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TextIO

from GraphExtractor.names import label
from phaze.report.sentences.designs import EQUAL, accelerator_text, part_text, summary_text
from phaze.report.sentences.glossary import used_in
from phaze.report.sentences.records import Alternative, Explanation, Term, WhatIf
from phaze.report.table import GAP, Table, wrap
from phaze.report.terminal import print_lines, print_tables, screen_width

LINE = 120  # characters


def print_explanation(explanation: Explanation, stream: TextIO, *, wide: bool = False) -> None:
    """Write an explanation with its alternatives."""
    line = min(LINE, screen_width(stream) or LINE)
    print_lines(wrap(explanation.answer, line), stream)
    for warning in explanation.warnings:
        print_lines(wrap(f"Warning: {warning}", line), stream)
    sections = {
        "how far it leads": explanation.lead,
        "what limits it": explanation.limits_in_words,
        "where time and memory go": explanation.time_in_words,
    }
    said = [explanation.answer, *chain(*sections.values())]
    said += chain.from_iterable(each.sentences for each in explanation.alternatives)
    for title, sentences in sections.items():
        print_lines(_section(title, sentences, line), stream)
    for alternative in explanation.alternatives:
        _print_alternative(alternative, stream, line, wide=wide)
    if explanation.what_ifs:
        print_lines([""], stream)
        print_tables([what_if_table(explanation.what_ifs)], stream, wide=wide)
    meanings = [f"{each.word}: {each.text}" for each in used_in(" ".join(said))]
    print_lines(_section("words", meanings, line), stream)


def _section(title: str, sentences: Sequence[str], line: int) -> Iterator[str]:
    if sentences:
        yield from ("", title, "")
        for sentence in sentences:
            yield from wrap(sentence, line, initial_indent="- ", subsequent_indent="  ")


def _print_alternative(alternative: Alternative, stream: TextIO, line: int, *, wide: bool) -> None:
    title = f"instead: {alternative.asked}"
    if alternative.slower is None:
        said = [f"Nothing with that fits: {alternative.reason}."]
        print_lines(_section(title, said, line), stream)
        return
    print_lines(_section(title, alternative.sentences, line), stream)
    if any(term.other_s != term.best_s for term in alternative.terms):
        print_lines([""], stream)
        print_tables([terms_table(alternative.terms)], stream, wide=wide)


def what_if_table(answers: Sequence[WhatIf]) -> Table:
    """What this design and the best reach under other circumstances, over what the run found."""
    rows = []
    for each in answers:
        own, best, which, plan = "-", each.status.value, each.reason, ""
        if each.point is not None:
            plans = "; ".join(map(summary_text, each.point.models.values()))
            chip = each.point.accelerator
            own = f"- ({each.not_possible})" if each.not_possible else _ratio(each.same)
            best = _ratio(each.best)
            which = "the same device" if chip is None else accelerator_text(chip)
            which = "this design" if each.same_design else which
            plan = "the same degrees" if each.same_plan else plans
        cells = {"what if": each.asked, "this design": own, "the best then": best}
        rows.append({**cells, "which is": which, "plan then": plan})
    title = "under other circumstances, over what the run found"
    return Table.of(title, rows, words={"what if", "which is", "plan then"})


def _ratio(value: float | None) -> str:
    if value is None:
        return "does not fit"
    return f"{value:.3f}x"


def terms_table(terms: Sequence[Term], names: tuple[str, str] = ("best", "instead")) -> Table:
    """Where an iteration goes in two designs, the difference, and its share of the whole one."""
    models = list(dict.fromkeys(term.model for term in terms))
    rows: list[Mapping[str, object]] = []

    def add(model: str, part: str, best_s: float, other_s: float, gap_s: float) -> None:
        difference_s = other_s - best_s
        rows.append(
            {
                "model": label(model),
                "part of an iteration": part,
                f"{names[0]} ms": f"{1e3 * best_s:,.3f}",
                f"{names[1]} ms": f"{1e3 * other_s:,.3f}",
                "difference ms": f"{1e3 * difference_s:+,.3f}",
                "share of it": f"{difference_s / gap_s:.0%}" if gap_s else "-",
            }
        )

    for model in models:
        mine = [term for term in terms if term.model == model]
        best_s, other_s = sum(term.best_s for term in mine), sum(term.other_s for term in mine)
        for term in mine:
            if max(term.best_s, term.other_s) > EQUAL * best_s:
                add(model, part_text(term.name), term.best_s, term.other_s, other_s - best_s)
        rows.append(GAP)
        add(model, "iteration", best_s, other_s, other_s - best_s)
        rows.append(GAP)
    one = ["model"] if len(models) == 1 else []
    words = {"model", "part of an iteration"}
    return Table.of("term by term", rows, words=words, spared=(*one, "share of it"))
