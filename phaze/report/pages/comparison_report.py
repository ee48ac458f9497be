"""The report of two runs beside each other: what changed in their inputs and in their answers, and
why."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from GraphExtractor.names import label
from phaze.report.pages.charts import SAMPLES, sized
from phaze.report.pages.design_points import front_rows, memory_rows
from phaze.report.pages.figures import (
    Figure,
    KeyNumber,
    PageTable,
    Part,
    Reasons,
    Report,
    Section,
    inline_data,
    table,
)
from phaze.report.pages.formats import duration
from phaze.report.pages.front_axes import front_words
from phaze.report.pages.theme import colour
from phaze.report.pages.time_figures import ROOM_FOR_TEXT, TERMS, IterationBar, breakdown_figure
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.records import Change, Comparison, Exchange
from phaze.studies.wording import unit_of
from phaze_common.numbers import number
from phaze_common.units import GIB
from Solver.results import ModelPlan

BAR, LINE = 14, 13  # pixels: height of a bar, and of a line of the label above it
LABEL = 52  # characters of such a line


@dataclass(frozen=True)
class Outcome:
    """What a run found, by model, the value of its objective its unit, and the area of a chip
    (None: not known)."""

    models: Mapping[str, ModelPlan]
    value: float | None
    unit: str
    area_mm2: float | None


def comparison_report(before: FinishedRun, after: FinishedRun, comparison: Comparison) -> Report:
    """The page of two runs."""
    answers = (_outcome(before), _outcome(after))
    names = (comparison.before, comparison.after)
    first, *others = comparison.sentences or ("Both runs have the same answer.",)
    return Report(
        "What changed between two runs",
        f"Before: {comparison.before}. After: {comparison.after}.",
        first,
        tuple(_numbers(*answers)),
        (Reasons("Why the answer moved", tuple(others)),) if others else (),
        tuple(_sections(comparison, (before, after), answers, names)),
    )


def _sections(
    comparison: Comparison,
    runs: tuple[FinishedRun, FinishedRun],
    answers: tuple[Outcome, Outcome],
    names: tuple[str, str],
) -> Iterator[Section]:
    changed = (
        [_changes("Inputs and versions that differ", "input", comparison.changes)]
        if comparison.changes
        else []
    )
    moved = (
        [_changes("What differs in the answer", "part of the answer", comparison.answers)]
        if comparison.answers
        else []
    )
    same = [] if changed else ["Nothing in the inputs differs."]
    same += [] if moved else ["Nothing in the answer differs."]
    yield Section("changes", "What changed", (Part("", tuple(same), (), tuple(changed + moved)),))
    if comparison.exchanges:
        figure = _exchanges_figure(comparison.exchanges, answers[1].unit)
        yield Section("moves", "What each change does to the objective", (Part("", (), (figure,)),))
    shared = [model for model in answers[0].models if model in answers[1].models]
    several = len(shared) > 1
    terms = tuple(
        Part(label(model) if several else "", (), (terms_figure,))
        for model in shared
        if (terms_figure := _terms(comparison, model, answers))
    )
    if terms:
        yield Section("iteration", "Where the time of an iteration goes", terms)
    scatters = tuple(
        Part(label(model) if several else "", (), (_scatter(runs, model, answers, names),))
        for model in shared
    )
    if scatters:
        yield Section("designs", "The designs of both runs", scatters)


def _outcome(run: FinishedRun) -> Outcome:
    best = run.result.best
    if best is None:
        return Outcome({}, None, "", None)
    return Outcome(
        best.models,
        best.value,
        unit_of(best),
        best.accelerator.area_mm2 if best.accelerator else None,
    )


def _numbers(before: Outcome, after: Outcome) -> Iterator[KeyNumber]:
    for name, answers in (("before", before), ("after", after)):
        value = (
            "nothing fits" if answers.value is None else f"{number(answers.value)} {answers.unit}"
        )
        times = ", ".join(duration(each.time_per_batch_s) for each in answers.models.values())
        yield KeyNumber(name, value, f"an iteration of {times}" if times else "")
    if (
        before.value
        and after.value
        and before.unit == after.unit
        and before.models.keys() == after.models.keys()
    ):
        yield KeyNumber("after over before", f"{number(after.value / before.value, 3)}x")


def _changes(title: str, what: str, changes: tuple[Change, ...]) -> PageTable:
    rows = ((change.key.replace("_", " "), change.before, change.after) for change in changes)
    return table(title, (what, "before", "after"), rows, words={what, "before", "after"})


def _terms(comparison: Comparison, model: str, answers: tuple[Outcome, Outcome]) -> Figure | None:
    """The iterations of both runs as bars."""
    terms = [term for term in comparison.terms if term.model == model]
    if not terms:
        return None
    unknown = {term.name for term in terms} - TERMS.keys()
    assert not unknown, unknown
    bars = [
        IterationBar(
            name,
            {term.name: getattr(term, field) for term in terms},
            each.models[model].throughput_samples_per_s,
        )
        for name, field, each in zip(
            ("before", "after"), ("best_s", "other_s"), answers, strict=True
        )
    ]
    return breakdown_figure(bars, _suffix(model, answers))


def _exchanges_figure(exchanges: tuple[Exchange, ...], unit: str) -> Figure:
    """The objective as inputs change."""
    import altair as alt

    rows = [
        (
            exchange.what,
            exchange.value,
            "does not fit" if exchange.value is None else number(exchange.value),
        )
        for exchange in exchanges
    ]
    names = [textwrap.wrap(exchange.what, LABEL) for exchange in exchanges]
    data = inline_data(
        ("what", "value", "text", "label"),
        ((*row, "\n".join(name)) for row, name in zip(rows, names, strict=True)),
        words={"what", "text", "label"},
    )
    y = alt.Y("what:N", sort=[exchange.what for exchange in exchanges], axis=None)
    bars = (
        alt.Chart(data)
        .mark_bar(color=colour("mark"), height=BAR, yOffset=BAR)
        .encode(
            x=alt.X("value:Q", title=unit, scale=alt.Scale(zero=True)),
            y=y,
            tooltip=[alt.Tooltip("what:N", title="when"), alt.Tooltip("text:N", title=unit)],
        )
    )
    texts = (
        alt.Chart(data)
        .transform_calculate(at="isValid(datum.value) ? datum.value : 0")
        .mark_text(align="left", dx=5, yOffset=BAR, tooltip=None)
    )
    labels = (  # above the bars, where a phone has room for them as well
        alt.Chart(data)
        .mark_text(
            align="left",
            baseline="bottom",
            yOffset=2,
            lineBreak="\n",
            color=colour("muted"),
            tooltip=None,
        )
        .encode(x=alt.datum(0), y=y, text="label:N")
    )
    chart = alt.layer(bars, texts.encode(x="at:Q", y=y, text="text:N"), labels).properties(
        padding=ROOM_FOR_TEXT
    )
    row = 2 * BAR + 2 * LINE * max(map(len, names))
    columns = ("what", unit)
    shown = table(
        "The objective as inputs change",
        columns,
        ((what, text) for what, _, text in rows),
        words={"what"},
    )
    caption = "The objective of a design when only some of the inputs change."
    return Figure(
        "moves",
        "What each change does to the objective",
        caption,
        sized(chart, row * len(exchanges)),
        2 * len(exchanges),
        shown,
    )


def _scatter(
    runs: tuple[FinishedRun, FinishedRun],
    model: str,
    answers: tuple[Outcome, Outcome],
    names: tuple[str, str],
) -> Figure:
    """Designs of both runs in one chart: Pareto fronts over area where both designed chips, else
    plans over their memory."""
    import altair as alt

    designed = all(each.area_mm2 is not None for each in answers)
    plans = [each.models[model] for each in answers]
    optima = [
        each.area_mm2 if designed else max(stage.memory_bytes for stage in plan.stages) / GIB
        for each, plan in zip(answers, plans, strict=True)
    ]
    across = "area of a chip, mm²" if designed else "memory of the fullest stage, GiB"
    rows = [
        (name, *row)
        for name, run in zip(("before", "after"), runs, strict=True)
        for row in (front_rows if designed else memory_rows)(run, model)
    ]
    data = inline_data(("run", "across", "throughput", "design"), rows, words={"run", "design"})
    scale = alt.Scale(domain=["before", "after"], range=[colour("before"), colour("after")])
    shapes = alt.Scale(domain=["before", "after"], range=["square", "circle"])
    tooltip = [
        alt.Tooltip("run:N", title="run"),
        alt.Tooltip("design:N", title="design"),
        alt.Tooltip("throughput:Q", title="samples/s", format=",.5~r"),
        alt.Tooltip("across:Q", title=across, format=".4~r"),
    ]
    x = alt.X("across:Q", title=across, scale=alt.Scale(zero=True))
    y = alt.Y("throughput:Q", title=SAMPLES, scale=alt.Scale(zero=True))
    coded: dict[str, Any] = {
        "color": alt.Color("run:N", title=None, scale=scale),
        "shape": alt.Shape("run:N", title=None, scale=shapes),
    }
    best = inline_data(
        ("run", "across", "throughput", "design"),
        (
            (name, optimum, plan.throughput_samples_per_s, "optimum")
            for name, optimum, plan in zip(("before", "after"), optima, plans, strict=True)
        ),
        words={"run", "design"},
    )
    rings = alt.Chart(best).mark_point(size=240, filled=False, strokeWidth=2.5)
    halo = {
        "stroke": colour("page"),
        "strokeWidth": 4,
    }  # behind the words, so that points do not run through them
    texts = [
        alt.Chart(best)
        .transform_filter(f"datum.run == '{run}'")
        .transform_calculate(text="'optimum ' + datum.run")
        .mark_text(align="right", dx=-4, dy=dy, fontWeight="bold", tooltip=None, **look)
        .encode(x=x, y=y, text="text:N")
        for run, dy in (("before", 16), ("after", -12))
        for look in (halo, {})
    ]
    chart = alt.layer(
        alt.Chart(data)
        .mark_point(size=26, filled=True, opacity=0.7)
        .encode(x=x, y=y, tooltip=tooltip, **coded),
        rings.encode(x=x, y=y, color=coded["color"], tooltip=tooltip),
        *texts,
    )
    fronts = list(dict.fromkeys(front_words(run.manifest.front) for run in runs))
    drawn = (
        f"Pareto fronts of {', and of '.join(fronts)}" if designed else "Evaluated design points"
    )
    caption = (
        f"{drawn} of both runs (before: {names[0]}, after: {names[1]}); rings mark their optima."
    )
    return Figure(
        f"designs-of-both{_suffix(model, answers)}",
        "The designs of both runs",
        caption,
        sized(chart, 380),
        len(rows),
    )


def _suffix(model: str, answers: tuple[Outcome, Outcome]) -> str:
    return f"-{label(model)}" if len(answers[0].models) > 1 else ""
