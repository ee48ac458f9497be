"""What stands on the page and in its figures, beside the run's own files and beside brute force
over its table."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from itertools import pairwise

import altair as alt
import numpy as np
import pandas as pd
import pytest
from altair.utils.schemapi import validate_jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import simulate
from Estimator.plans.results import Breakdown, PipelineReport, Status
from phaze.report.pages import design_points
from phaze.report.pages.axis_figures import (
    CHARACTER,
    LABEL,
    ROOM_FOR_LABELS,
    Sensitivity,
    _labelled,
    axis_figures,
    axis_table,
    sensitivity_words,
    tornado_figure,
    value_text,
)
from phaze.report.pages.comparison_report import comparison_report
from phaze.report.pages.design_points import thinned
from phaze.report.pages.figures import Figure, Report
from phaze.report.pages.layer_ranges import layer_range
from phaze.report.pages.page import page
from phaze.report.pages.pipeline_figures import MOST_SEGMENTS, pipeline_figures, timeline_of
from phaze.report.pages.placement_figures import load_figure
from phaze.report.pages.schedule_figures import schedule_figure
from phaze.report.pages.search_report import search_report
from phaze.report.pages.stages import stages_of
from phaze.report.pages.theme import DARK, LIGHT
from phaze.report.pages.time_figures import TERMS, limits_figure
from phaze.report.sentences.designs import PARTS, accelerator_text, part_text
from phaze.report.sentences.differences import why
from phaze.report.sentences.explanation import explain
from phaze.report.sentences.glossary import used_in
from phaze.report.sentences.records import Change, Comparison, Exchange, Term
from phaze.report.sentences.utilization import mfu_note
from phaze.report.table import Table
from phaze.runs.finished_run import FinishedRun
from phaze_common.numbers import number, time_text
from phaze_common.units import GIB
from Solver.designs.schedule_records import KeptSchedule, ScheduledOperator
from Solver.plan_report import PlanReport, PlanSummary
from Solver.results import AxisScope, AxisValue, AxisValues, DesignPoint, Limit


class Page(HTMLParser):
    """Text, scripts, tags and identifiers of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: dict[str, str | None] | None = None
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for key, value in attrs if key == "id" and value]
        self._open = dict(attrs) if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.scripts.append((self._open, data))
        else:
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def json(self, name: str) -> dict[str, dict[str, object]]:
        (found,) = [text for attributes, text in self.scripts if attributes.get("id") == name]
        loaded: dict[str, dict[str, object]] = json.loads(found)
        return loaded


def rows_in(figure: Figure, column: str) -> list[dict[str, str]]:
    """Rows of the data of a figure, the largest that has ``column``."""
    whole = figure.spec.get("datasets", {}) | {"": figure.spec.get("data", {}).get("values", "")}
    found = [text for text in whole.values() if column in text.split("\n")[0].split(",")]
    return list(csv.DictReader(io.StringIO(max(found, key=len))))


def figure_of(report: Report, name: str) -> Figure:
    (found,) = [figure for figure in report.figures if figure.name == name]
    return found


def tables_of(report: Report) -> list[Table]:
    parts = [part for section in report.sections for part in section.parts]
    folded = [figure.table for figure in report.figures if figure.table is not None]
    return [table for part in parts for table in part.tables] + folded


def best_of(run: FinishedRun) -> DesignPoint:
    assert run.result.best is not None
    return run.result.best


def plan_of(run: FinishedRun) -> PlanReport:
    (plan,) = best_of(run).models.values()
    return plan


@pytest.fixture(scope="module")
def told(finished: FinishedRun) -> Report:
    return search_report(finished)


@pytest.fixture(scope="module")
def told_of_pair(finished_pair: FinishedRun) -> Report:
    return search_report(finished_pair)


def test_the_page_says_what_best_json_says(finished: FinishedRun, told: Report) -> None:
    seen = Page(page(told))
    best = json.loads((finished.folder / "best.json").read_text())
    (plan,) = best["models"].values()
    expected = [
        accelerator_text(best_of(finished).accelerator),
        f"{best['accelerator']['area_mm2']:.1f} mm²",
        f"{number(plan['throughput_samples_per_s'])} samples/s",
        f"{plan['tp']} x {plan['pp']} x {plan['dp']}",
        f"{plan['speedup_over_expert']:.2f}x",
        f"{min(chip['best_over_reference'] for chip in best['references'] if chip['hbm_bytes'] == best['hbm_bytes']):.2f}x",
        f"{best['counts']['space']:,}",
        f"{best['counts']['pruned']:,}",
        f"{best['counts']['dominated']:,}",
        f"{best['counts']['plans']:,}",
        "proven optimal",
        finished.manifest.versions["numpy"],
        finished.manifest.point_meaning[1:],
        "global_batch_size",
    ]
    for words in expected:
        assert words in seen.text, words
    for chip in best["references"]:
        assert chip["name"] in seen.text
    for limit in best["limits"]:
        assert " ".join(limit["words"].split()) in seen.text
    assert best["limits"]


def test_the_page_asks_for_nothing_from_outside(told: Report) -> None:
    text = page(told)
    seen = Page(text)
    assert not {"link", "img", "iframe", "object", "embed"} & set(seen.tags)
    assert not [
        value
        for key, value in seen.attributes
        if key in {"src", "href"} and not (value or "").startswith("#")
    ]
    assert "default-src 'none'" in text
    assert len(text.encode()) < 3_000_000
    assert text.count("window.vegaEmbed=") == 1


def test_every_identifier_is_its_own_and_every_link_leads_somewhere(
    told: Report, told_of_pair: Report
) -> None:
    assert_linked(Page(page(told)))
    assert_linked(Page(page(told_of_pair)))


def assert_linked(seen: Page) -> None:
    assert len(seen.ids) == len(set(seen.ids))
    links = [
        value for key, value in seen.attributes if key in {"href", "aria-labelledby"} and value
    ]
    assert {link.lstrip("#") for link in links} <= set(seen.ids)
    assert len(seen.json("figures")) == seen.tags.count("figure")


def test_every_model_of_a_run_has_its_figures(told_of_pair: Report) -> None:
    names = {figure.name for figure in told_of_pair.figures}
    for model in ("bertbase", "bertlarge"):
        for figure in (
            "throughput-area-energy",
            "stage-load",
            "stage-memory",
            "iteration-breakdown",
            "pipeline",
        ):
            assert f"{figure}-{model}" in names
        assert f"schedule-block-forward-{model}" in names
    assert "bertbase and bertlarge" in told_of_pair.title


def test_the_scatter_has_every_evaluated_design_and_the_front(
    finished: FinishedRun, told: Report
) -> None:
    figure = figure_of(told, "throughput-area-energy")
    rows = rows_in(figure, "front")
    evaluated = finished.designs[finished.designs["status"] == "evaluated"]
    same = [
        name
        for name in evaluated
        if name not in {"hbm_bytes", "memory_bytes", "throughput_bound_samples_per_s"}
    ]
    once = evaluated.drop_duplicates(same)
    assert (
        len(rows) == len(once) < len(evaluated)
    )  # what more memory does not change stands there once
    assert sum(len(row["hbm"].split(", ")) for row in rows) == len(evaluated)
    assert sum(row["front"] == "1" for row in rows) == int(once["on_front"].sum()) > 0
    for column, key in (
        ("throughput_samples_per_s", "throughput"),
        ("area_mm2", "area"),
        ("energy_per_sample_j", "energy"),
    ):
        drawn = sorted(float(row[key]) for row in rows)
        assert drawn == pytest.approx(sorted(once[column]), rel=1e-6)


def test_the_legend_of_energy_names_stops_evenly_along_its_scale(
    finished: FinishedRun, told: Report
) -> None:
    text = json.dumps(figure_of(told, "throughput-area-energy").spec)
    (stops,) = {
        tuple(json.loads(each))
        for each in re.findall(r'"type": "gradient", "values": (\[[^]]*\])', text)
    }
    assert np.diff(np.log(stops)) == pytest.approx(
        np.full(len(stops) - 1, np.log(stops[-1] / stops[0]) / (len(stops) - 1))
    )
    evaluated = finished.designs[finished.designs["status"] == "evaluated"]["energy_per_sample_j"]
    assert stops[0] <= evaluated.min() * (1 + 1e-9) and stops[-1] >= evaluated.max() * (1 - 1e-9)


def test_thinning_keeps_the_front_and_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_points, "MOST_POINTS", 300)
    throughput = np.random.default_rng(0).permutation(1000.0 + np.arange(1000))
    designs = pd.DataFrame(
        {"throughput_samples_per_s": throughput, "on_front": np.arange(1000) % 10 == 0}
    )
    kept = thinned(designs)
    assert (len(kept), int(kept["on_front"].sum())) == (300, 100)
    others, dominated = (
        each[~each["on_front"]]["throughput_samples_per_s"] for each in (kept, designs)
    )
    assert (others.min(), others.max()) == (dominated.min(), dominated.max())
    assert len(thinned(designs.head(300))) == 300
    assert len(thinned(designs.assign(on_front=True))) == 1000


def test_figures_keep_to_the_schema_of_what_draws_them(told: Report) -> None:
    schema = alt.load_schema()
    assert len(told.figures) > 10
    for figure in told.figures:
        validate_jsonschema(figure.spec, schema)


def test_thinning_is_said(finished: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_points, "MOST_POINTS", 20)
    evaluated = finished.designs[finished.designs["status"] == "evaluated"]
    kept = len(thinned(evaluated))
    assert kept < len(evaluated)
    caption = figure_of(search_report(finished), "throughput-area-energy").caption
    assert f"{kept} of {len(evaluated)} evaluated designs are drawn" in caption


def test_a_panel_has_every_value_of_its_axis_and_the_ring_is_at_the_optimum(
    finished: FinishedRun, told: Report
) -> None:
    best = best_of(finished)
    assert {axis.axis for axis in best.axes if axis.model is None} == {
        "num_tc",
        "num_vc",
        "width",
        "glb_bytes",
        "hbm_bytes",
    }
    for axis in best.axes:
        name = f"best-by-{axis.axis.removesuffix('_bytes').replace('_', '-')}"
        rows = rows_in(figure_of(told, name), "reached")
        fitting = [value for value in axis.values if value.status is not Status.INFEASIBLE]
        assert [row["value"] for row in rows] == [value_text(axis, value) for value in fitting]
        assert [float(row["reached"]) for row in rows] == pytest.approx(
            [value.reached for value in fitting], rel=1e-6
        )
        (ringed,) = [row for row in rows if row["chosen"] == "1"]
        assert ringed["value"] == value_text(axis, axis.optimum)
        assert float(ringed["reached"]) == pytest.approx(best.value, rel=1e-6)
        assert accelerator_text(best.accelerator) in ringed["words"] or axis.model is not None


def test_evaluated_designs_reach_no_more_than_their_axis_says(finished: FinishedRun) -> None:
    designs = finished.designs[finished.designs["status"] == "evaluated"]
    for axis in (each for each in best_of(finished).axes if each.model is None):
        for value in axis.values:
            here = designs[designs[axis.axis] == int(value.value)]["throughput_samples_per_s"]
            assert here.empty or here.max() <= value.reached * (1 + 1e-9)


def test_the_tornado_has_the_worst_and_the_best_other_value_of_every_axis(
    finished: FinishedRun, told: Report
) -> None:
    rows = rows_in(figure_of(told, "tornado-design"), "worst_loss")
    assert rows == sorted(rows, key=lambda row: float(row["worst_loss"]))
    axes = [axis for axis in best_of(finished).axes if axis.model is None]
    for axis in axes:
        others = [
            value.reached
            for value in axis.values
            if value.value != axis.chosen and value.status is not Status.INFEASIBLE
        ]
        losses = (
            [float(row["worst_loss"]) for row in rows],
            [float(row["nearest_loss"]) for row in rows],
        )
        best = best_of(finished).value
        assert any(
            loss == pytest.approx(min(others) / best - 1, rel=1e-5, abs=1e-6) for loss in losses[0]
        )
        assert any(
            loss == pytest.approx(max(others) / best - 1, rel=1e-5, abs=1e-6) for loss in losses[1]
        )
    assert len(rows) == len(axes)
    assert all(
        len(line) <= LABEL for row in rows for line in row["axis"].split("\n")
    )  # as much as a phone shows


def test_values_that_do_not_fit_or_are_not_proven_say_so() -> None:
    summary = PlanSummary(throughput_samples_per_s=90.0, pp=2, dp=4)
    fits, open_ = (AxisValue(str(pp), status, 90.0, bound, None, GIB, {"m": summary}) for pp, status, bound in (
        (2, Status.OPTIMAL, 90.0), (4, Status.FEASIBLE, 99.0),
    ))  # fmt: skip
    nothing = AxisValue("1", Status.INFEASIBLE, 0.0, 0.0, None, GIB, {})
    axis = AxisValues("pp", "m", "2", 3, (nothing, fits, open_))
    sensitivity = Sensitivity((axis,), "plan", "samples/s")
    tornado, panel = axis_figures(sensitivity)
    assert panel.caption == "Nothing fits with 1."
    rows = rows_in(panel, "reached")
    assert [(row["value"], row["bound"], row["proven"]) for row in rows] == [
        ("2", "", "1"),
        ("4", "99", "0"),
    ]
    assert [row[4] for row in axis_table(sensitivity).rows] == [
        "yes",
        "yes",
        "no: at least 90, at most 99",
    ]
    assert "at most" in sensitivity_words(sensitivity)[0]
    assert "another accelerator might be better" not in sensitivity_words(sensitivity)[0]
    on_the_chip = replace(sensitivity, axes=(replace(axis, scope=AxisScope.PLANS_ON_THE_CHIP),))
    assert sensitivity_words(on_the_chip)[0].endswith(
        "with another value another accelerator might be better."
    )
    assert tornado.table is not None and tornado.table.rows == (
        ("pipeline depth pp", "2", "4", "nothing", "4", "nothing"),
    )
    assert (
        tornado_figure(replace(sensitivity, axes=(replace(axis, values=(nothing, fits)),))) is None
    )


def test_the_parts_of_an_iteration_add_up(finished: FinishedRun, told: Report) -> None:
    figure = figure_of(told, "iteration-breakdown")
    rows = rows_in(figure, "term")
    plan = plan_of(finished)
    for name, seconds in {
        "optimum": plan.time_per_batch_s,
        "expert's plan": plan.expert.time_per_batch_s,
    }.items():
        mine = [row for row in rows if row["whose"] == name]
        total = float(mine[0]["total"])
        assert sum(float(row["amount"]) for row in mine) == pytest.approx(total, rel=1e-5)
        assert sum(float(row["share"]) for row in mine) == pytest.approx(1.0, rel=1e-5)
        assert total / 1e3 == pytest.approx(seconds, rel=1e-5) or total == pytest.approx(
            seconds, rel=1e-5
        )
    chips = {chip.name for chip in finished.result.references}
    assert {row["whose"] for row in rows} == {"optimum", "expert's plan", *chips}


def test_stages_carry_their_load_and_memory(finished: FinishedRun, told: Report) -> None:
    plan = plan_of(finished)
    stages = stages_of(plan)
    sent = [stage.seconds["send"] for stage in stages]
    assert (
        sum(sent)
        == pytest.approx(sum(plan.pipeline.transfer_s) + sum(plan.pipeline.backward_transfer_s))
        and sum(sent) > 0
    )
    own = [stage.load_s - seconds for stage, seconds in zip(stages, sent, strict=True)]
    assert own == pytest.approx([stage.load_s for stage in plan.stages])
    assert [stage.total_bytes for stage in stages] == pytest.approx(
        [stage.memory_bytes for stage in plan.stages]
    )
    assert sum((stage.chunks for stage in stages), ()) == tuple(
        stage.layers for stage in plan.stages
    )
    caption = figure_of(told, "stage-memory").caption
    fullest = max(stage.memory_bytes for stage in plan.stages)
    assert f"{number(fullest / GIB)} of {number(plan.hbm_bytes / GIB)} GiB" in caption


def test_runs_of_layers_are_shortened() -> None:
    assert (
        layer_range(["embedding", "block.0", "block.1", "block.2", "head"])
        == "embedding, block.0 to block.2, head"
    )
    assert layer_range(["block.1", "block.3", "other.4"]) == "block.1, block.3, other.4"


@pytest.mark.parametrize("graph", ["forward", "backward"])
def test_a_schedule_shows_each_operator_on_its_cores(finished: FinishedRun, graph: str) -> None:
    chip = best_of(finished).accelerator
    schedule = next(
        each
        for each in finished.schedules
        if (each.layer, each.graph, each.hbm_bytes) == ("block", graph, best_of(finished).hbm_bytes)
    )
    rows = rows_in(schedule_figure(schedule, chip, ""), "lane")
    assert {row["operator"] for row in rows} == {operator.name for operator in schedule.operators}
    by_lane: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        by_lane.setdefault(row["lane"], []).append((float(row["start"]), float(row["end"])))
    for spans in by_lane.values():
        ordered = sorted(spans)
        for (_, end), (start, _) in pairwise(ordered):
            assert start >= end - 1e-5 * abs(end)


def test_cores_that_never_work_are_counted_and_others_have_a_row(finished: FinishedRun) -> None:
    chip = replace(best_of(finished).accelerator, num_tc=8, num_vc=4)
    operators = (
        ScheduledOperator("a.gemm", "gemm", "TC+VC", "single", 2, 3, 0.0, 1e-6),
        ScheduledOperator("b.softmax", "reduction", "VC", "all", None, None, 1e-6, 2e-6),
    )
    schedule = KeptSchedule(2**30, "m", "block", "forward", 3, 2e-6, 2e-6, "native", operators)
    figure = schedule_figure(schedule, chip, "")
    rows = rows_in(figure, "lane")
    assert {(row["lane"], row["operator"]) for row in rows} == {
        ("TC 2", "a.gemm"),
        ("VC 3", "a.gemm"),
        ("VC 3", "b.softmax"),
        ("other 3 VC", "b.softmax"),
    }
    assert "7 of the 8 tensor cores never work." in figure.caption
    assert "3 times per micro-batch" in figure.caption
    idle = schedule_figure(replace(schedule, operators=operators[1:]), chip, "")
    assert "The 8 tensor cores have nothing to do." in idle.caption


SECONDS = st.floats(1e-4, 1e-2)


@st.composite
def pipelines(draw: st.DrawFn) -> PipelineReport:
    chunks = draw(st.sampled_from([1, 1, 2]))
    pp = draw(st.integers(2 if chunks > 1 else 1, 4))
    micro_batches = pp * draw(st.integers(1, 3)) if chunks > 1 else draw(st.integers(1, 7))
    count = pp * chunks

    def seconds(size: int, values: st.SearchStrategy[float] = SECONDS) -> tuple[float, ...]:
        return tuple(draw(st.lists(values, min_size=size, max_size=size)))

    transfers = st.one_of(st.just(0.0), st.floats(1e-5, 1e-3))
    return PipelineReport(
        schedule="interleaved" if chunks > 1 else draw(st.sampled_from(["1f1b", "gpipe"])),
        pp=pp,
        micro_batches=micro_batches,
        forward_s=seconds(count),
        backward_s=seconds(count),
        transfer_s=seconds(count - 1, transfers),
        backward_transfer_s=seconds(count - 1, transfers),
        overlap_transfers=draw(st.booleans()),
        sync_s=seconds(pp, transfers),
        optimizer_s=draw(SECONDS),
    )


@settings(max_examples=25)
@given(pipelines())
def test_the_timeline_is_the_simulation_and_no_stage_does_two_things_at_once(
    report: PipelineReport,
) -> None:
    line = timeline_of(report)
    times = simulate(costs_of(report), PipelineSchedule(report.schedule), report.micro_batches)
    for stage in range(report.pp):
        mine = sorted(
            (each for each in line.segments if each.stage == stage + 1),
            key=lambda each: (each.start_s, each.end_s),
        )
        for first, second in pairwise(each for each in mine if each.micro_batch is not None):
            assert second.start_s >= first.end_s - 1e-9
        passes = [each for each in mine if each.micro_batch is not None and each.what != "send"]
        busy_s = report.micro_batches * sum(
            (*report.forward_s[stage :: report.pp], *report.backward_s[stage :: report.pp])
        )
        assert sum(each.end_s - each.start_s for each in passes) == pytest.approx(busy_s)
        chunks = len(report.forward_s) // report.pp
        assert sum(each.what == "forward" for each in mine) == report.micro_batches * chunks
    ends = [
        float(times[stage :: report.pp].max()) + report.sync_s[stage] for stage in range(report.pp)
    ]
    assert line.end_s == pytest.approx(max(ends) + report.optimizer_s, rel=1e-12)


def test_a_long_pipeline_is_drawn_at_its_ends(finished: FinishedRun) -> None:
    plan = plan_of(finished)
    long = replace(plan, pipeline=replace(plan.pipeline, micro_batches=2000))
    first, last = pipeline_figures(long.pipeline, "")
    assert first.marks + last.marks <= MOST_SEGMENTS * 1.5
    assert "not drawn" in last.caption
    line = timeline_of(long.pipeline)
    rows = rows_in(last, "what")
    assert {"gradient synchronisation", "optimizer"} <= {row["what"] for row in rows}
    unit = line.end_s / max(float(row["end"]) for row in rows)
    assert sum(row["what"] == "optimizer" for row in rows) == plan.pp
    assert max(float(row["end"]) for row in rows_in(first, "what")) * unit < line.end_s / 2


def test_the_drawn_pipeline_ends_with_the_iteration(
    finished: FinishedRun, finished_plans: FinishedRun
) -> None:
    """Passes end the synchronisation and the optimizer's step of the last stage before the
    iteration does."""
    for run in (finished, finished_plans):
        plan = plan_of(run)
        assert plan.pp > 1
        line = timeline_of(plan.pipeline)
        assert line.end_s == pytest.approx(plan.time_per_batch_s, rel=1e-9)
        ends = {
            stage: max(each.end_s for each in line.segments if each.stage == stage and each.chunk)
            for stage in (1, plan.pp)
        }
        for stage, end_s in ends.items():
            assert (
                end_s
                <= plan.time_per_batch_s
                - plan.pipeline.optimizer_s
                - plan.pipeline.sync_s[stage - 1]
                + 1e-12
            )
        (figure, *_) = pipeline_figures(plan.pipeline, "")
        assert "which is the iteration" in figure.caption


def test_names_of_the_users_cannot_break_out(finished: FinishedRun, told: Report) -> None:
    evil = '</script><script>alert("1")</script><!--<script> \u2028 & \'"'
    best = best_of(finished)
    (name,) = best.models
    run = replace(
        finished,
        settings=finished.settings | {"model": [evil], "note": evil},
        designs=finished.designs.assign(
            model=finished.designs["model"].cat.rename_categories({name: evil})
        ),
        plans=finished.plans.assign(model=evil),
        schedules=tuple(replace(each, model=evil, layer=evil) for each in finished.schedules),
        result=replace(
            finished.result,
            study=evil,
            best=replace(best, models={evil: best.models[name]}),
            references=tuple(
                replace(chip, name=evil, source=evil, models={evil: chip.models[name]})
                for chip in finished.result.references
            ),
        ),
    )
    report = search_report(run)
    text = page(report)
    plain = Page(page(told))
    seen = Page(text)
    assert seen.tags.count("script") == plain.tags.count("script")
    assert evil.split("\u2028")[0].strip() in seen.text
    assert "<script>alert" not in text
    figures = seen.json("figures")
    assert any(
        evil.split()[0] in json.dumps(each) or "alert" in json.dumps(each)
        for each in figures.values()
    )
    assert len(figures) == len(report.figures)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", figure.name) for figure in report.figures)


def test_what_does_not_fit_has_a_page_that_says_why(nothing_fits: FinishedRun) -> None:
    report = search_report(nothing_fits)
    seen = Page(page(report))
    assert nothing_fits.result.best is None and nothing_fits.result.reason
    assert nothing_fits.result.reason in seen.text
    assert "fits bertbase" in report.title
    assert not report.figures and not any("vegaEmbed" in script for _, script in seen.scripts)
    assert f"{nothing_fits.result.counts.infeasible:,}" in seen.text


def test_the_best_plan_on_given_devices_has_its_page(finished_plans: FinishedRun) -> None:
    report = search_report(finished_plans)
    seen = Page(page(report))
    best = json.loads((finished_plans.folder / "best.json").read_text())
    (plan,) = best["models"].values()
    assert plan["pp"] > 1
    for words in (
        f"{number(plan['throughput_samples_per_s'])} samples/s",
        f"{plan['tp']} x {plan['pp']} x {plan['dp']}",
        best["hardware"]["title"],
        best["hardware"]["cluster"],
        f"{best['counts']['evaluated']:,}",
    ):
        assert words in seen.text, words
    names = {figure.name for figure in report.figures}
    assert {
        "throughput-memory",
        "best-by-pp",
        "tornado-plan",
        "stage-load",
        "stage-memory",
        "iteration-breakdown",
    } <= names
    assert "throughput-area-energy" not in names and "area of the chip" not in {
        each.what for each in report.numbers
    }
    rows = rows_in(figure_of(report, "throughput-memory"), "micro_batch_size")
    evaluated = finished_plans.designs[finished_plans.designs["status"] == "evaluated"]
    assert sorted(float(row["throughput"]) for row in rows) == pytest.approx(
        sorted(evaluated["throughput_samples_per_s"]), rel=1e-6
    )
    parts = rows_in(figure_of(report, "iteration-breakdown"), "term")
    assert sum(float(row["share"]) for row in parts) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("which", ["finished", "finished_plans"])
def test_a_choice_is_no_slower_than_what_was_evaluated_and_no_faster_than_what_was_proven(
    which: str, request: pytest.FixtureRequest
) -> None:
    run: FinishedRun = request.getfixturevalue(which)
    plan, plans = plan_of(run), run.plans[run.plans["hbm_bytes"] == best_of(run).hbm_bytes]
    mine = {axis.axis: axis for axis in best_of(run).axes if axis.model is not None}
    assert {"pp", "dp", "recompute"} <= mine.keys()
    rows = rows_in(figure_of(search_report(run), "best-by-pp"), "reached")
    assert [int(row["value"]) for row in rows] == [
        int(value.value) for value in mine["pp"].values if value.plans
    ]
    assert set(plans["pp"]) == {int(value.value) for value in mine["pp"].values}
    for value in mine["pp"].values:
        here = plans[
            (plans["pp"] == int(value.value))
            & (plans["status"] == "evaluated")
            & plans["time_per_batch_s"].notna()
        ]
        assert here.empty or value.reached >= plan.global_batch_size / here[
            "time_per_batch_s"
        ].min() * (1 - 1e-9)
        assert (
            value.reached <= value.bound * (1 + 1e-9) <= plan.throughput_samples_per_s * (1 + 1e-8)
        )
    assert mine["pp"].chosen == str(plan.pp)
    assert mine["pp"].optimum.reached == pytest.approx(plan.throughput_samples_per_s, rel=1e-9)


@pytest.mark.parametrize("which", ["finished", "finished_plans"])
def test_the_headline_names_the_largest_part_of_the_iteration(
    which: str, request: pytest.FixtureRequest
) -> None:
    run: FinishedRun = request.getfixturevalue(which)
    plan = plan_of(run)
    largest, seconds = max(
        (
            (name, value)
            for name, value in vars(plan.breakdown_s).items()
            if not name.startswith("hidden_")
        ),
        key=lambda item: item[1],
    )
    (tile,) = [each for each in search_report(run).numbers if each.what == "an iteration"]
    assert tile.note == f"{seconds / plan.time_per_batch_s:.1%} {part_text(largest)}"
    caption = figure_of(search_report(run), "iteration-breakdown").caption
    assert caption.startswith(f"The largest parts (optimum): {part_text(largest)} ")


def test_communication_that_costs_nothing_is_told_apart(finished_plans: FinishedRun) -> None:
    best = best_of(finished_plans)
    ((model, plan),) = best.models.items()
    assert "runs beside computation" not in Page(page(search_report(finished_plans))).text
    hidden = replace(plan, breakdown_s=replace(plan.breakdown_s, hidden_data_communication_s=0.25))
    best = replace(best, models={model: hidden})
    run = replace(finished_plans, result=replace(finished_plans.result, best=best))
    assert (
        "250 ms of data-parallel communication runs beside computation."
        in Page(page(search_report(run))).text
    )


def test_every_part_of_a_breakdown_has_a_name_and_a_colour() -> None:
    parts = {
        field.name.removesuffix("_s")
        for field in fields(Breakdown)
        if not field.name.startswith("hidden_")
    }
    assert parts == PARTS.keys() == TERMS.keys()
    assert (
        len({LIGHT.roles[role] for role in TERMS.values()})
        == len({DARK.roles[role] for role in TERMS.values()})
        == len(TERMS)
    )


def test_plans_that_do_not_fit_have_a_page_that_says_why(finished_plans: FinishedRun) -> None:
    result = replace(
        finished_plans.result,
        best=None,
        per_hbm=(),
        status=Status.INFEASIBLE,
        reason="every plan needs more memory than there is",
    )
    report = search_report(replace(finished_plans, result=result))
    assert "every plan needs more memory than there is" in Page(page(report)).text
    assert report.title.startswith("No plan fits ")


def test_two_runs_are_compared_on_one_page(finished: FinishedRun) -> None:
    plan = plan_of(finished)
    seconds = {"arithmetic": 0.1, "memory_bound": 0.2, "data_communication": 0.3}
    comparison = Comparison(
        before="first <run>",
        after="second",
        changes=(Change("cluster", "slow", "fast"),),
        answers=(Change("num_tc", "4", "16"),),
        terms=tuple(Term("bertlarge", name, value, value / 2) for name, value in seconds.items()),
        exchanges=(Exchange("the cluster alone", 12.5), Exchange("the HBM alone", None)),
        sentences=("The answer moved.", "Because the network is faster."),
    )
    report = comparison_report(finished, finished, comparison)
    seen = Page(page(report))
    for words in (
        "first <run>",
        "slow",
        "fast",
        "num tc",
        "The answer moved.",
        "Because the network is faster.",
        "does not fit",
    ):
        assert words in seen.text, words
    assert number(plan.throughput_samples_per_s) in seen.text
    bars = rows_in(figure_of(report, "iteration-breakdown"), "term")
    totals = {row["whose"]: float(row["total"]) for row in bars}
    assert totals["before"] == pytest.approx(2 * totals["after"])
    drawn = rows_in(figure_of(report, "designs-of-both"), "design")
    assert {row["run"] for row in drawn} == {"before", "after"}
    assert len(drawn) == 2 * int(finished.designs["on_front"].sum())


def test_a_chip_and_a_device_are_compared_by_the_memory_of_their_plans(
    finished: FinishedRun, finished_plans: FinishedRun
) -> None:
    ((model, plan),) = best_of(finished_plans).models.items()
    other = replace(
        finished_plans,
        designs=finished_plans.designs.assign(model="bertlarge"),
        result=replace(
            finished_plans.result, best=replace(best_of(finished_plans), models={"bertlarge": plan})
        ),
    )
    comparison = Comparison("before", "after", (), (), (), (), ())
    drawn = rows_in(
        figure_of(comparison_report(finished, other, comparison), "designs-of-both"), "design"
    )
    for name, run in (("before", finished), ("after", other)):
        evaluated = run.designs[
            (run.designs["model"] == "bertlarge") & (run.designs["status"] == "evaluated")
        ]
        memory = sorted(float(row["across"]) for row in drawn if row["run"] == name)
        assert memory == pytest.approx(sorted(evaluated["memory_bytes"] / GIB), rel=1e-6)
    assert model != "bertlarge"


def test_every_table_is_whole(finished_plans: FinishedRun, told: Report) -> None:
    for table in tables_of(told) + tables_of(search_report(finished_plans)):
        assert table.title and table.rows
        assert table.words <= set(table.columns)
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_why_it_is_this_one_is_said_in_terms_that_the_records_hold(
    finished: FinishedRun, told: Report
) -> None:
    sentences = tuple(why(best_of(finished), finished.result.references))
    plan = plan_of(finished)
    nearest = max(
        finished.result.references,
        key=lambda chip: (chip.hbm_bytes == best_of(finished).hbm_bytes, chip.value),
    )
    gap_s = nearest.models["bertlarge"].time_per_batch_s - plan.time_per_batch_s
    assert nearest.name in sentences[0]
    assert f"{time_text(abs(gap_s))} {'shorter' if gap_s > 0 else 'longer'}" in sentences[0]
    gap_s = plan.expert.time_per_batch_s - plan.time_per_batch_s
    assert f"{time_text(gap_s)} shorter" in sentences[-1]
    seen = Page(page(told))
    for sentence in sentences:
        assert sentence in seen.text


def test_words_are_explained_where_they_stand_on_the_page(
    nothing_fits: FinishedRun, told: Report
) -> None:
    seen = Page(page(told))
    for word in (
        "TC",
        "VC",
        "GLB",
        "HBM",
        "micro-batch",
        "tp",
        "pp",
        "dp",
        "bubble",
        "recomputation",
    ):
        (meaning,) = used_in(word)
        assert f"{word} {meaning.text}" in seen.text
    (bubble,) = used_in("bubble")
    assert (
        bubble.text not in Page(page(search_report(nothing_fits))).text
    )  # nothing waits on this page
    assert [meaning.word for meaning in used_in("TCs of GLBs, http pp.")] == ["pp"]


def test_scores_of_attention_are_not_said_to_be_counted_where_there_are_none() -> None:
    assert "without scores of attention that a causal mask leaves out" in mfu_note(0.4, None, 128)
    assert "attention" not in mfu_note(0.4, None, 1)
    (meaning,) = used_in("MFU")
    assert "where there is any" in meaning.text


def test_the_largest_micro_batch_that_is_best_is_said_to_be_the_largest_searched(
    finished: FinishedRun,
) -> None:
    best = best_of(finished)
    (plan,) = best.models.values()
    rows = [row for row in finished.result.rows if row.hbm_bytes == best.hbm_bytes]
    assert len(rows) > 1
    for size, said in ((max(row.micro_batch_size for row in rows) + 1, True), (0, False)):
        moved = replace(
            best, models={model: replace(plan, micro_batch_size=size) for model in best.models}
        )
        lead = " ".join(
            explain(replace(finished, result=replace(finished.result, best=moved))).lead
        )
        assert (
            f"A micro-batch size of {size}{', the largest searched,' if said else ''} is best"
            in lead
        )


@pytest.mark.parametrize("largest", range(1, 13))
def test_the_last_value_of_a_small_multiple_is_written(largest: int) -> None:
    values = [str(2**power) for power in range(largest)]
    written = json.loads(
        _labelled(values).to_dict()["labelExpr"].partition("(")[2].partition("]")[0] + "]"
    )
    assert written[0] == values[-1]
    steps = {values.index(one) - values.index(two) for one, two in pairwise(written)}
    assert len(steps) <= 1
    assert len(written) == len(values) or sum(map(len, written)) * CHARACTER <= ROOM_FOR_LABELS


@pytest.mark.parametrize(("plenty", "word"), [(0.0, "no"), (0.002, "hardly"), (0.2, "yes")])
def test_what_hardly_binds_is_not_said_to_bind(plenty: float, word: str) -> None:
    figure = limits_figure([Limit("HBM bandwidth", "GB/s", 1200.0, 0.0, plenty, "In words.")])
    assert figure.table is not None
    assert figure.table.rows[0][4] == word
    assert ("What binds: HBM bandwidth." in figure.caption) is (word == "yes")


def test_stages_that_are_equally_slow_are_all_named(finished: FinishedRun) -> None:
    first = stages_of(plan_of(finished))[0]
    loads = (1.0, 2.0, 2.0, 2.0, 1.5)
    stages = [
        replace(first, number=number, seconds=first.seconds | {"forward": load})
        for number, load in enumerate(loads, 1)
    ]
    assert "Stages 2 to 4 are the slowest" in load_figure(stages, "").caption
    assert "Stage 2 is the slowest" in load_figure(stages[:2], "").caption


def luminance(colour: str) -> float:
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_colours_of_text_stand_out(theme) -> None:
    def contrast(first: str, second: str) -> float:
        high, low = sorted(
            (luminance(theme.roles[first]), luminance(theme.roles[second])), reverse=True
        )
        return (high + 0.05) / (low + 0.05)

    for role in ("ink", "muted", "accent"):
        assert contrast(role, "page") >= 4.5, role
    for role in ("gemm", "gather", "collective", "elementwise"):
        assert contrast(role, "label_on_dark") >= 4.5, role
    for role in ("attention", "conv", "reduction", "move"):
        assert contrast(role, "label_on_light") >= 4.5, role


def test_both_themes_know_the_same_colours() -> None:
    assert LIGHT.roles.keys() == DARK.roles.keys()
