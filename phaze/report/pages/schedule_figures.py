"""Figures of operator schedules: which operator of a layer runs on which cores, when."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import altair as alt

from Estimator.chips.accelerator import Accelerator
from phaze.report.pages import charts
from phaze.report.pages.figures import Figure
from phaze.report.pages.layer_ranges import layer_range
from phaze.report.pages.theme import colour
from phaze.report.sentences.designs import listed
from phaze.report.table import Table
from phaze_common.numbers import number, time_text, unit_for
from Solver.designs.schedule_records import KeptSchedule, ScheduledOperator

MOST_ROWS = 32  # of single cores of a type; operators on others are summed up in words
ALL = "all"
LETTER = 6  # pixels of a letter of an operator's name: names are written where they fit
GRADIENTS = ("dx", "dw")
DARK_KINDS = ("gemm", "gather", "collective", "elementwise")
TYPES = {"TC": "tensor core", "VC": "vector core"}
PASSES = {
    "forward": "forward",
    "backward": "backward",
    "backward_selective": "backward with selective recomputation",
}


@dataclass(frozen=True)
class Lane:
    """A row of the chart: one core, or the rest of a type's cores, which work only when all do."""

    title: str
    core_type: str
    core: int | None


@dataclass(frozen=True)
class Lanes:
    """Rows of a chart in their order, and sentences on the cores that have none."""

    rows: tuple[Lane, ...]
    words: tuple[str, ...]


def schedule_figures(
    schedules: Sequence[KeptSchedule], chip: Accelerator, suffix: str
) -> tuple[Figure, ...]:
    """Schedules as charts, one each; figures of one name are numbered.

    Layers of one name that differ, such as the first decoder and the others, say in their titles
    which they are.
    """
    seen = Counter[str]()
    alike = Counter((schedule.layer, schedule.graph) for schedule in schedules)
    figures = []
    for schedule in schedules:
        figure = schedule_figure(schedule, chip, suffix)
        if alike[schedule.layer, schedule.graph] > 1 and schedule.layers:
            figure = replace(figure, title=_title(layer_range(schedule.layers), schedule.graph))
        seen[figure.name] += 1
        times = seen[figure.name]
        figures.append(replace(figure, name=f"{figure.name}-{times}") if times > 1 else figure)
    return tuple(figures)


def schedule_figure(schedule: KeptSchedule, chip: Accelerator, suffix: str) -> Figure:
    """The schedule of one pass of a layer as a Gantt chart by core."""
    lanes, unit = _lanes(schedule, chip), unit_for(schedule.makespan_s)
    kinds = list(dict.fromkeys(operator.kind for operator in schedule.operators))
    rows = [
        {
            "lane": lane.title,
            "operator": operator.name,
            "short": _short(operator),
            "kind": operator.kind,
            "start": operator.start_s * unit.per_second,
            "end": operator.end_s * unit.per_second,
            "takes": (operator.end_s - operator.start_s) * unit.per_second,
            "where": _where(operator),
        }
        for operator in schedule.operators
        for lane in lanes.rows
        if _occupies(operator, lane)
    ]
    end = schedule.makespan_s * unit.per_second
    scale, base = charts.exactly(0, end), charts.chart_of(rows)
    y = charts.names_axis("lane:N", [lane.title for lane in lanes.rows])
    titles = {"operator:N": "operator", "kind:N": "kind", "where:N": "runs on"}
    times = {f"{name}:Q .4~r": f"{name}, {unit.name}" for name in ("start", "end", "takes")}
    bars = base.mark_bar(stroke=colour("page"), strokeWidth=0.75).encode(
        x=alt.X("start:Q", title=unit.name, scale=scale),
        x2="end:Q",
        y=y,
        color=charts.by_role(
            "kind:N", {kind: kind for kind in kinds}, legend=charts.legend_above()
        ),
        tooltip=charts.tips({**titles, **times}),
    )
    names = base.transform_filter(
        f"(datum.end - datum.start) / {end} * width > {LETTER} * length(datum.short) + {LETTER}"
    ).transform_calculate(middle="(datum.start + datum.end) / 2")
    texts = []
    for role, dark in (("label_on_dark", True), ("label_on_light", False)):
        mine = [kind for kind in kinds if (kind in DARK_KINDS) is dark]
        if mine:
            of_kinds = alt.FieldOneOfPredicate(field="kind", oneOf=mine)
            mark = {"fontSize": 10, "color": colour(role), "tooltip": None}
            at = alt.X("middle:Q", scale=scale, title=unit.name)
            text = names.transform_filter(of_kinds).mark_text(**mark)
            texts.append(text.encode(x=at, y=y, text="short:N"))
    often = f", {schedule.repeats} times per micro-batch" if schedule.repeats > 1 else ""
    proven = schedule.bound_s >= schedule.makespan_s * (1 - 1e-9)
    proof = "" if proven else f"; not proven, at least {time_text(schedule.bound_s)}"
    caption = f"{time_text(schedule.makespan_s)}{often}{proof}. {' '.join(lanes.words)}".strip()
    return Figure(
        f"schedule-{_safe(schedule.layer)}-{schedule.graph.replace('_', '-')}{suffix}",
        _title(schedule.layer, schedule.graph),
        caption,
        charts.sized(
            alt.layer(bars, *texts), len(lanes.rows) * (30 if len(lanes.rows) < 8 else 16)
        ),
        len(rows),
        _operator_table(schedule),
        abreast=2,
    )


def _title(layers: str, graph: str) -> str:
    return f"{layers[0].upper()}{layers[1:]}, {PASSES.get(graph, graph)}"


def _lanes(schedule: KeptSchedule, chip: Accelerator) -> Lanes:
    rows: list[Lane] = []
    words: list[str] = []
    for core_type, total in (("TC", chip.num_tc), ("VC", chip.num_vc)):
        mine = [each for each in schedule.operators if core_type in each.cores.split("+")]
        plural = f"{total} {TYPES[core_type]}s" if total > 1 else f"one {TYPES[core_type]}"
        if not mine:
            words.append(f"The {plural} {'have' if total > 1 else 'has'} nothing to do.")
            continue
        cores = {_core(operator, core_type) for operator in mine if operator.mode != ALL}
        single = sorted(core for core in cores if core is not None)
        shown = single[:MOST_ROWS]
        rows += [Lane(f"{core_type} {core}", core_type, core) for core in shown]
        others = total - len(single)
        together = any(operator.mode == ALL for operator in mine)
        if len(single) > len(shown):
            more = f"{len(single) - len(shown)} more {TYPES[core_type]}s"
            words.append(f"{more} run single operators and are left out.")
        if together and others:
            rows.append(Lane(_rest_title(core_type, others, total), core_type, None))
        elif others:
            words.append(f"{others} of the {plural} never work.")
    return Lanes(tuple(rows), tuple(words))


def _rest_title(core_type: str, others: int, total: int) -> str:
    if others == total:
        return f"all {total} {core_type}" if total > 1 else f"{core_type} 0"
    return f"other {others} {core_type}" if others > 1 else f"other {core_type}"


def _core(operator: ScheduledOperator, core_type: str) -> int | None:
    return operator.tc if core_type == "TC" else operator.vc


def _occupies(operator: ScheduledOperator, lane: Lane) -> bool:
    if lane.core_type not in operator.cores.split("+"):
        return False
    return operator.mode == ALL or (
        lane.core is not None and _core(operator, lane.core_type) == lane.core
    )


def _where(operator: ScheduledOperator) -> str:
    types = operator.cores.split("+")
    if operator.mode == ALL:
        return f"all {' and '.join(types)}"
    return listed([f"{core_type} {_core(operator, core_type)}" for core_type in types])


def _operator_table(schedule: KeptSchedule) -> Table:
    unit = unit_for(schedule.makespan_s)
    rows = (
        {
            "operator": each.name,
            "kind": each.kind,
            "runs on": _where(each),
            f"start {unit.name}": number(each.start_s * unit.per_second),
            f"end {unit.name}": number(each.end_s * unit.per_second),
            f"takes {unit.name}": number((each.end_s - each.start_s) * unit.per_second),
        }
        for each in sorted(schedule.operators, key=lambda each: (each.start_s, each.end_s))
    )
    words = {"operator", "kind", "runs on"}
    return Table.of("Operators in the order of their start", rows, words=words)


def _short(operator: ScheduledOperator) -> str:
    """The module that an operator's dotted name speaks of, and which gradient it makes."""
    *modules, last = operator.name.split("+")[0].split(".")
    if operator.kind == "attention":
        return last.replace("_", " ")
    if last in GRADIENTS:
        return f"{modules[-2] if len(modules) > 1 else modules[-1]} {last}"
    return modules[-1] if modules else last


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
