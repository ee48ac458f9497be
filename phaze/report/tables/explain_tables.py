"""Explanations in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from GraphExtractor.names import label
from phaze.report.glossary import used_in
from phaze.report.tables.text_tables import (
    TextTable,
    new_table,
    print_lines,
    print_tables,
    screen_width,
    wrap,
)
from phaze.studies.explain.records import Alternative, Explanation, MoldableModel, Term, WhatIf
from phaze.studies.wording import EQUAL, accelerator_text, part_text, summary_text

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
    for title, sentences in sections.items():
        print_lines(_section(title, sentences, line), stream)
    for alternative in explanation.alternatives:
        _print_alternative(alternative, stream, line, wide=wide)
    if explanation.what_ifs:
        print_lines([""], stream)
        print_tables([what_if_table(explanation.what_ifs)], stream, wide=wide)
    for model in explanation.moldable:
        print_lines([""], stream)
        print_tables([moldable_table(model)], stream, wide=wide)
        print_lines(["", *wrap(_moldable_in_words(model), line)], stream)
    print_lines(_section("words", _meanings(explanation), line), stream)


def _meanings(explanation: Explanation) -> list[str]:
    """What the words that were used mean."""
    others = [sentence for each in explanation.alternatives for sentence in each.sentences]
    sentences = [
        explanation.answer,
        *explanation.lead,
        *explanation.limits_in_words,
        *explanation.time_in_words,
        *others,
    ]
    text = " ".join(sentences)
    return [f"{meaning.word}: {meaning.text}" for meaning in used_in(text)]


def _section(title: str, sentences: Sequence[str], line: int) -> Iterator[str]:
    if sentences:
        yield from ("", title, "")
        for sentence in sentences:
            yield from wrap(sentence, line, initial_indent="- ", subsequent_indent="  ")


def _print_alternative(alternative: Alternative, stream: TextIO, line: int, *, wide: bool) -> None:
    title = f"instead: {alternative.asked}"
    if alternative.slower is None:
        print_lines(
            _section(title, [f"Nothing with that fits: {alternative.reason}."], line), stream
        )
        return
    print_lines(_section(title, alternative.sentences, line), stream)
    if any(term.other_s != term.best_s for term in alternative.terms):
        print_lines([""], stream)
        print_tables([terms_table(alternative.terms)], stream, wide=wide)


def what_if_table(answers: Sequence[WhatIf]) -> TextTable:
    """What the design of the run reaches under other circumstances, and the best there is then,
    over what the run found."""
    columns = ("what if", "this design", "the best then", "which is", "plan then")
    table = new_table(
        "under other circumstances, over what the run found",
        columns,
        words={"what if", "which is", "plan then"},
    )
    for each in answers:
        if each.point is None:
            table.add_row(each.asked, "-", each.status.value, each.reason, "")
            continue
        which = "this design" if each.same_design else _hardware(each)
        plans = "; ".join(summary_text(plan) for plan in each.point.models.values())
        own = f"- ({each.not_possible})" if each.not_possible else _ratio(each.same)
        table.add_row(
            each.asked,
            own,
            _ratio(each.best),
            which,
            "the same degrees" if each.same_plan else plans,
        )
    return table


def moldable_table(model: MoldableModel) -> TextTable:
    """What each pass gains if operators may run on groups of cores."""
    columns = (
        "layer",
        "pass",
        "operators",
        "in groups",
        "us",
        "us in groups",
        "gain",
        "proven",
        "ILP",
    )
    table = new_table(
        f"{label(model.model)}: operators on groups of cores",
        columns,
        words={"layer", "pass", "proven", "ILP"},
    )
    for each in model.layers:
        gain = each.makespan_s / each.moldable_s - 1.0
        table.add_row(
            each.layer,
            each.graph,
            str(each.operators),
            str(each.in_groups),
            f"{1e6 * each.makespan_s:,.2f}",
            f"{1e6 * each.moldable_s:,.2f}",
            f"{gain:+.2%}",
            "yes" if each.proven else f"within {1.0 - each.bound_s / each.moldable_s:.2%}",
            {True: "agrees", False: "found a shorter one", None: "undecided"}[each.confirmed],
        )
    return table


def _moldable_in_words(model: MoldableModel) -> str:
    return (
        f"{label(model.model)}: with operators on any number of cores an iteration of this plan "
        "would take "
        f"{1e3 * model.moldable_s:,.3f} instead of {1e3 * model.iteration_s:,.3f} ms, "
        f"{model.gain:.4f} times as fast."
    )


def _hardware(answer: WhatIf) -> str:
    chip = None if answer.point is None else answer.point.accelerator
    return "the same device" if chip is None else accelerator_text(chip)


def _ratio(value: float | None) -> str:
    return "does not fit" if value is None else f"{value:.3f}x"


def terms_table(terms: Sequence[Term], names: tuple[str, str] = ("best", "instead")) -> TextTable:
    """Where an iteration goes in two designs, the difference, and its share of the whole one."""
    columns = (
        "model",
        "part of an iteration",
        f"{names[0]} ms",
        f"{names[1]} ms",
        "difference ms",
        "share of it",
    )
    one = ["model"] if len({term.model for term in terms}) == 1 else []
    spared = (*one, "share of it")
    table = new_table(
        "term by term", columns, words={"model", "part of an iteration"}, spared=spared
    )
    for model in dict.fromkeys(term.model for term in terms):
        mine = [term for term in terms if term.model == model]
        best_s, other_s = sum(term.best_s for term in mine), sum(term.other_s for term in mine)
        mine = [term for term in mine if max(term.best_s, term.other_s) > EQUAL * best_s]
        for term in mine:
            table.add_row(
                label(model),
                part_text(term.name),
                *_cells(term.best_s, term.other_s, other_s - best_s),
            )
        table.add_section()
        table.add_row(label(model), "iteration", *_cells(best_s, other_s, other_s - best_s))
        table.add_section()
    return table


def _cells(best_s: float, other_s: float, gap_s: float) -> tuple[str, str, str, str]:
    difference = other_s - best_s
    share = f"{difference / gap_s:.0%}" if gap_s else "-"
    return f"{1e3 * best_s:,.3f}", f"{1e3 * other_s:,.3f}", f"{1e3 * difference:+,.3f}", share
