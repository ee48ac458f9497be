"""Explanations in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from GraphExtractor.names import label
from Reporter.glossary import used_in
from Reporter.text_tables import TextTable, new_table, print_lines, print_tables, screen_width, wrap
from Studies.explain.records import Alternative, Explanation, Term
from Studies.wording import EQUAL, part_text

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
    print_lines(_section("words", _meanings(explanation), line), stream)


def _meanings(explanation: Explanation) -> list[str]:
    """What the words that were used mean."""
    others = [sentence for each in explanation.alternatives for sentence in each.sentences]
    sentences = [explanation.answer, *explanation.lead, *explanation.limits_in_words, *explanation.time_in_words, *others]
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
        print_lines(_section(title, [f"Nothing with that fits: {alternative.reason}."], line), stream)
        return
    print_lines(_section(title, alternative.sentences, line), stream)
    if any(term.other_s != term.best_s for term in alternative.terms):
        print_lines([""], stream)
        print_tables([terms_table(alternative.terms)], stream, wide=wide)


def terms_table(terms: Sequence[Term], names: tuple[str, str] = ("best", "instead")) -> TextTable:
    """Where an iteration goes in two designs, the difference, and its share of the whole one."""
    columns = ("model", "part of an iteration", f"{names[0]} ms", f"{names[1]} ms", "difference ms", "share of it")
    one = ["model"] if len({term.model for term in terms}) == 1 else []
    spared = (*one, "share of it")
    table = new_table("term by term", columns, words={"model", "part of an iteration"}, spared=spared)
    for model in dict.fromkeys(term.model for term in terms):
        mine = [term for term in terms if term.model == model]
        best_s, other_s = sum(term.best_s for term in mine), sum(term.other_s for term in mine)
        mine = [term for term in mine if max(term.best_s, term.other_s) > EQUAL * best_s]
        for term in mine:
            table.add_row(label(model), part_text(term.name), *_cells(term.best_s, term.other_s, other_s - best_s))
        table.add_section()
        table.add_row(label(model), "iteration", *_cells(best_s, other_s, other_s - best_s))
        table.add_section()
    return table


def _cells(best_s: float, other_s: float, gap_s: float) -> tuple[str, str, str, str]:
    difference = other_s - best_s
    share = f"{difference / gap_s:.0%}" if gap_s else "-"
    return f"{1e3 * best_s:,.3f}", f"{1e3 * other_s:,.3f}", f"{1e3 * difference:+,.3f}", share
