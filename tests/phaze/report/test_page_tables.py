"""The numbers at the top of the page, its warnings and its tables."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markupsafe import escape

from phaze.report.pages.design_points import chip_text
from phaze.report.pages.figures import Report
from phaze.report.pages.page import page
from phaze.report.pages.scatter_figure import FRONT_ROWS
from phaze.report.pages.search_report import search_report
from phaze.report.sentences.designs import tight_memory_text
from phaze.report.table import Table
from phaze.runs.finished_run import FinishedRun
from phaze_common.numbers import number, rate
from phaze_common.units import GIB
from Solver.results import TightMemory
from tests.phaze.report.test_report_content import Page, best_of, figure_of, plan_of, tables_of


@pytest.fixture(scope="module")
def told(finished: FinishedRun) -> Report:
    return search_report(finished)


@pytest.fixture(scope="module")
def told_of_pair(finished_pair: FinishedRun) -> Report:
    return search_report(finished_pair)


def test_utilisation_and_memory_come_right_after_the_answer(
    finished: FinishedRun, told: Report, told_of_pair: Report
) -> None:
    plan = plan_of(finished)
    assert [each.what for each in told.numbers[:3]] == ["throughput", "MFU", "memory used"]
    assert told.numbers[1].value == f"{plan.model_flops_utilization:.1%}"
    assert "nothing recomputed" in told.numbers[1].note
    assert told.numbers[2].value == f"{number(plan.memory_bytes / GIB)} GiB"
    assert f"{plan.memory_bytes / plan.hbm_bytes:.1%}" in told.numbers[2].note
    shown = ["share of own best of bertbase", "MFU of bertbase", "memory used of bertbase"]
    assert [each.what for each in told_of_pair.numbers[1:4]] == shown


def test_an_optimum_that_fills_the_memory_is_a_warning_on_the_page(
    finished: FinishedRun, told: Report
) -> None:
    assert told.warnings == ()
    assert 'class="warning"' not in page(told)
    best = best_of(finished)
    room = TightMemory(0.981, 0.95, replace(best, value=0.9 * best.value))
    full = search_report(replace(finished, result=replace(finished.result, tight_memory=room)))
    assert full.warnings == (f"T{tight_memory_text(room, best)[1:]}.",)
    assert f"Warning: {full.warnings[0]}" in Page(page(full)).text
    (number_of_it,) = [
        each for each in full.numbers if each.what == "best within 95% of the memory"
    ]
    assert number_of_it.value.startswith(number(0.9 * best.value))


def test_no_number_of_a_table_has_an_exponent(
    told: Report, told_of_pair: Report, finished_plans: FinishedRun
) -> None:
    reports = (told, told_of_pair, search_report(finished_plans))
    cells = [
        cell
        for report in reports
        for table in tables_of(report)
        for row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
        if column not in table.words and column != "gap"
    ]
    assert len(cells) > 500
    assert [cell for cell in cells if re.search(r"\d[eE][-+]?\d", cell)] == []
    assert [cell for cell in cells if re.search(r"(?<![.\d])\d{4}", cell)] == []  # without a comma


def test_the_front_has_a_row_for_each_chip_with_the_memory_it_holds_for(
    finished: FinishedRun, told: Report
) -> None:
    front = finished.designs[finished.designs["on_front"]]
    chips = chip_text(front)
    table = figure_of(told, "throughput-area-energy").table
    assert table is not None
    names = [row[0] for row in table.rows]
    assert len(names) == len(set(names)) == min(len(set(chips)), FRONT_ROWS)
    assert len(chips) > len(set(chips))
    assert f"{len(set(chips)):,} chip" in table.title
    for row in table.rows:
        mine = front[[chip == row[0] for chip in chips]]
        fastest = mine[mine["throughput_samples_per_s"] == mine["throughput_samples_per_s"].max()]
        shown = dict(zip(table.columns, row, strict=True))
        assert shown["samples/s"] == rate(fastest["throughput_samples_per_s"].iloc[0])
        assert shown["HBM GiB"] == ", ".join(
            number(size / GIB) for size in sorted(set(fastest["hbm_bytes"]))
        )
        assert shown["J/sample"] == number(fastest["energy_per_sample_j"].min(), aligned=True)


def test_every_figure_says_what_it_shows_to_those_who_do_not_see_it(told: Report) -> None:
    text = page(told)
    for figure in told.figures:
        assert figure.alt.startswith(f"Chart: {figure.title}.")
        assert figure.alt == figure.alt.strip()
        assert f'data-figure="{figure.name}" role="img" aria-label="{escape(figure.alt)}"' in text


def test_sums_stay_below_the_rows_that_are_sorted() -> None:
    rows = [{"part": "a", "ms": "1"}, {"part": "b", "ms": "2"}]
    table = Table.of("t", rows, foot=[{"part": "all", "ms": "3"}], words={"part"})
    assert table.rows == (("a", "1"), ("b", "2")) and table.foot == (("all", "3"),)
    assert Table.of("t", [{"part": "a"}]).foot == ()


def test_the_iteration_is_the_foot_of_its_parts(told: Report) -> None:
    table = figure_of(told, "iteration-breakdown").table
    tables = [each for each in tables_of(told) if each.title.startswith("Time of an iteration")]
    assert table in (None, *tables)
    assert tables
    for each in tables:
        assert [row[0] for row in each.foot][:2] == [
            "iteration",
            "samples per second",
        ]
        assert "iteration" not in [row[0] for row in each.rows]


def test_a_section_is_named_for_what_it_compares(told: Report, finished_plans: FinishedRun) -> None:
    titles = {each.anchor: each.title for each in told.sections}
    assert titles["comparisons"] == "Known chips, expert plans, HBM sizes and micro-batch sizes"
    of_plans = search_report(finished_plans)
    assert {each.anchor: each.title for each in of_plans.sections}[
        "comparisons"
    ] == "Micro-batch sizes"
    assert all(
        "design of" not in figure.caption
        for figure in of_plans.figures
        if figure.name.startswith("throughput-by-micro")
    )
