"""The report of two runs: what changed in their inputs and in their answers, and why."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import altair as alt

from GraphExtractor.names import label
from phaze.report.pages import charts
from phaze.report.pages.design_points import front_rows, memory_rows
from phaze.report.pages.figures import Figure, KeyNumber, Part, Reasons, Report, Section
from phaze.report.pages.front_axes import front_words
from phaze.report.pages.theme import colour
from phaze.report.pages.time_figures import ROOM_FOR_TEXT, TERMS, IterationBar, breakdown_figure
from phaze.report.sentences.designs import unit_of
from phaze.report.sentences.records import Change, Comparison, Exchange
from phaze.report.table import Table
from phaze.runs.finished_run import FinishedRun
from phaze_common.numbers import number, time_text
from phaze_common.units import GIB
from Solver.plan_report import PlanReport

BAR, LINE = 14, 13  # pixels: height of a bar, and of a line of the label above it
LABEL = 52  # characters of such a line


@dataclass(frozen=True)
class Outcome:
    """What a run found: plans by model, value and unit of its objective, a chip's area if known."""

    models: Mapping[str, PlanReport]
    value: float | None = None
    unit: str = ""
    area_mm2: float | None = None


@charts.unvalidated
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
    inputs = ("Inputs and versions that differ", "input", comparison.changes)
    moved = ("What differs in the answer", "part of the answer", comparison.answers)
    tables = tuple(_changes(*each) for each in (inputs, moved) if each[-1])
    same = [] if comparison.changes else ["Nothing in the inputs differs."]
    same += [] if comparison.answers else ["Nothing in the answer differs."]
    yield Section("changes", "What changed", (Part("", tuple(same), (), tables),))
    if comparison.exchanges:
        figure = _exchanges_figure(comparison.exchanges, answers[1].unit)
        yield Section("moves", "What each change does to the objective", (Part("", (), (figure,)),))
    shared = [model for model in answers[0].models if model in answers[1].models]
    headings = {model: label(model) if len(shared) > 1 else "" for model in shared}
    terms = ((each, _terms(comparison, model, answers)) for model, each in headings.items())
    drawn = tuple(Part(heading, (), (figure,)) for heading, figure in terms if figure)
    if drawn:
        yield Section("iteration", "Where the time of an iteration goes", drawn)
    scatters = tuple(
        Part(heading, (), (_scatter(runs, model, answers, names),))
        for model, heading in headings.items()
    )
    if scatters:
        yield Section("designs", "The designs of both runs", scatters)


def _outcome(run: FinishedRun) -> Outcome:
    best = run.result.best
    if best is None:
        return Outcome({})
    area_mm2 = best.accelerator.area_mm2 if best.accelerator else None
    return Outcome(best.models, best.value, unit_of(best), area_mm2)


def _numbers(before: Outcome, after: Outcome) -> Iterator[KeyNumber]:
    for name, each in (("before", before), ("after", after)):
        value = "nothing fits" if each.value is None else f"{number(each.value)} {each.unit}"
        times = ", ".join(time_text(plan.time_per_batch_s) for plan in each.models.values())
        yield KeyNumber(name, value, f"an iteration of {times}" if times else "")
    alike = before.unit == after.unit and before.models.keys() == after.models.keys()
    if before.value and after.value and alike:
        yield KeyNumber("after over before", f"{number(after.value / before.value, 3)}x")


def _changes(title: str, what: str, changes: tuple[Change, ...]) -> Table:
    rows = (
        {what: change.key.replace("_", " "), "before": change.before, "after": change.after}
        for change in changes
    )
    return Table.of(title, rows, words={what, "before", "after"})


def _terms(comparison: Comparison, model: str, answers: tuple[Outcome, Outcome]) -> Figure | None:
    """The iterations of both runs as bars."""
    terms = [term for term in comparison.terms if term.model == model]
    if not terms:
        return None
    unknown = {term.name for term in terms} - TERMS.keys()
    assert not unknown, unknown
    one, two = (answer.models[model].throughput_samples_per_s for answer in answers)
    before = IterationBar("before", {term.name: term.best_s for term in terms}, one)
    after = IterationBar("after", {term.name: term.other_s for term in terms}, two)
    return breakdown_figure([before, after], _suffix(model, answers))


def _exchanges_figure(exchanges: tuple[Exchange, ...], unit: str) -> Figure:
    """The objective as inputs change."""
    wrapped = [textwrap.wrap(exchange.what, LABEL) for exchange in exchanges]
    rows = [
        {
            "what": each.what,
            "value": each.value,
            "text": "does not fit" if each.value is None else number(each.value),
            "label": "\n".join(name),
        }
        for each, name in zip(exchanges, wrapped, strict=True)
    ]
    base = charts.chart_of(rows)
    y = alt.Y("what:N", sort=[exchange.what for exchange in exchanges], axis=None)
    bars = base.mark_bar(color=colour("mark"), height=BAR, yOffset=BAR).encode(
        x=alt.X("value:Q", title=unit, scale=charts.TO_ZERO),
        y=y,
        tooltip=charts.tips({"what:N": "when", "text:N": unit}),
    )
    at_end = base.transform_calculate(at="isValid(datum.value) ? datum.value : 0")
    texts = at_end.mark_text(align="left", dx=5, yOffset=BAR, tooltip=None)
    # labels stand above the bars, where a phone has room for them as well
    look = {"align": "left", "baseline": "bottom", "yOffset": 2, "lineBreak": "\n"}
    labels = base.mark_text(color=colour("muted"), tooltip=None, **look)
    chart = alt.layer(
        bars,
        texts.encode(x="at:Q", y=y, text="text:N"),
        labels.encode(x=alt.datum(0), y=y, text="label:N"),
    )
    row = 2 * BAR + 2 * LINE * max(map(len, wrapped))
    shown = ({"what": each["what"], unit: each["text"]} for each in rows)
    return Figure(
        "moves",
        "What each change does to the objective",
        "The objective of a design when only some of the inputs change.",
        charts.sized(chart, row * len(exchanges), ROOM_FOR_TEXT),
        2 * len(exchanges),
        Table.of("The objective as inputs change", shown, words={"what"}),
    )


def _scatter(
    runs: tuple[FinishedRun, FinishedRun],
    model: str,
    answers: tuple[Outcome, Outcome],
    names: tuple[str, str],
) -> Figure:
    """Designs of both runs: Pareto fronts over area of designed chips, else plans over memory."""
    designed = all(each.area_mm2 is not None for each in answers)
    across = "area of a chip, mm²" if designed else "memory of the fullest stage, GiB"
    rows: list[dict[str, object]] = []
    optima: list[dict[str, object]] = []
    for name, run, answer in zip(("before", "after"), runs, answers, strict=True):
        plan = answer.models[model]
        memory = max(stage.memory_bytes for stage in plan.stages) / GIB
        own = (answer.area_mm2 if designed else memory, plan.throughput_samples_per_s, "optimum")
        points = (front_rows if designed else memory_rows)(run, model)
        keys = ("run", "across", "throughput", "design")
        rows += [dict(zip(keys, (name, *point), strict=True)) for point in points]
        optima.append(dict(zip(keys, (name, *own), strict=True)))
    titles = {"run:N": "run", "design:N": "design", "throughput:Q ,.5~r": "samples/s"}
    tooltip = charts.tips(titles | {"across:Q .4~r": across})
    at = {
        "x": alt.X("across:Q", title=across, scale=charts.TO_ZERO),
        "y": alt.Y("throughput:Q", title=charts.SAMPLES, scale=charts.TO_ZERO),
    }
    colours = charts.by_role("run:N", {"before": "before", "after": "after"})
    shapes = alt.Scale(domain=["before", "after"], range=["square", "circle"])
    shape = alt.Shape("run:N", title=None, scale=shapes)
    best = charts.chart_of(optima)
    halo = charts.HALO | {"strokeWidth": 4}
    texts = [
        best.transform_filter(f"datum.run == '{run}'")
        .transform_calculate(text="'optimum ' + datum.run")
        .mark_text(align="right", dx=-4, dy=dy, fontWeight="bold", tooltip=None, **look)
        .encode(text="text:N", **at)
        for run, dy in (("before", 16), ("after", -12))
        for look in (halo, {})
    ]
    designs = charts.chart_of(rows).mark_point(size=26, filled=True, opacity=0.7)
    rings = best.mark_point(size=240, **charts.RING)
    chart = alt.layer(
        designs.encode(tooltip=tooltip, color=colours, shape=shape, **at),
        rings.encode(color=colours, tooltip=tooltip, **at),
        *texts,
    )
    fronts = list(dict.fromkeys(front_words(run.manifest.front) for run in runs))
    drawn = "Evaluated design points"
    if designed:
        drawn = f"Pareto fronts of {', and of '.join(fronts)}"
    return Figure(
        f"designs-of-both{_suffix(model, answers)}",
        "The designs of both runs",
        f"{drawn} of both runs (before: {names[0]}, after: {names[1]}); rings mark their optima.",
        charts.sized(chart, 380),
        len(rows),
    )


def _suffix(model: str, answers: tuple[Outcome, Outcome]) -> str:
    return f"-{label(model)}" if len(answers[0].models) > 1 else ""
