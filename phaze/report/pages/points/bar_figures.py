"""Bars of points: where the time of an iteration goes, and what fills the memory of the fullest
device against what it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from GraphExtractor.names import label
from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration, unit_for
from phaze.report.pages.points.details import Details
from phaze.report.pages.points.labels import point_label
from phaze.report.pages.stages import MEMORY_PARTS
from phaze.report.pages.theme import BELOW_LEGEND, colour
from phaze.report.pages.time_figures import ROOM_FOR_TEXT, TERMS
from phaze.studies.sweep.points_read import PointSet, ReadPoint, infeasible_text
from phaze.studies.wording import NEGLIGIBLE, exposed_s, part_text
from phaze_common.numbers import FINE_DIGITS, gib, number, share
from phaze_common.units import GIB

MOST_BARS = 60  # drawn; of more, an even choice by the objective
BAR, ROW = 13, 32  # pixels: a bar, and the room of one with its label above it


@dataclass(frozen=True, eq=False)
class Bar:
    """A stacked bar: its label, its amounts by part, and what stands behind it. Without parts that
    says why."""

    point: int
    name: str
    parts: dict[str, float]
    text: str

    @property
    def total(self) -> float:
        """All parts."""
        return sum(self.parts.values())


def time_figure(points: PointSet) -> Figure | None:
    """Where an iteration goes, a bar per point and model; None where no point has a plan."""
    chosen = drawn_points(points)
    bars = [bar for point in chosen for bar in _time_bars(points, point)]
    if not any(bar.parts for bar in bars):
        return None
    unit = unit_for(max(bar.total for bar in bars))
    terms = [
        term
        for term in TERMS
        if any(bar.parts.get(term, 0.0) > NEGLIGIBLE * bar.total for bar in bars if bar.parts)
    ]
    scaled = [
        Bar(
            b.point,
            b.name,
            {part_text(t): b.parts.get(t, 0.0) * unit.per_second for t in terms} if b.parts else {},
            b.text,
        )
        for b in bars
    ]
    roles = {part_text(term): TERMS[term] for term in terms}
    caption = (
        "Parts of an iteration that add up to it; what runs hidden beside computation is "
        "not among them."
    )
    return Figure(
        "iteration-by-point",
        "Where the time of an iteration goes",
        f"{caption}{_left_out(points, chosen)}",
        _stacked(scaled, roles, f"{unit.name} per iteration", None),
        len(bars) * (len(terms) + 2),
        _time_table([bar for point in points.points for bar in _time_bars(points, point)], terms),
    )


def memory_figure(points: PointSet, details: Sequence[Details]) -> Figure | None:
    """What a device of the fullest stage holds, a bar per point and model, against the memory it
    has."""
    drawn = drawn_points(points)
    chosen = {point.number for point in drawn}
    known = {each.point.number: each for each in details}
    bars: list[Bar] = []
    capacities: dict[int, float] = {}
    for point in points.points:
        own = known.get(point.number)
        if point.feasible and (own is None or not own.memories):
            continue
        bars += _memory_bars(points, point, own)
        if own is not None and own.memories:
            capacities[point.number] = own.capacity_bytes / GIB
    if not capacities:
        return None
    parts = [part for part in MEMORY_PARTS if any(bar.parts.get(part, 0.0) > 0.0 for bar in bars)]
    shown = [bar for bar in bars if bar.point in chosen]
    least, most = min(capacities.values()), max(capacities.values())
    given = (
        f"{number(least)} GiB"
        if least == most
        else f"{number(least)} to {number(most)} GiB, by point"
    )
    return Figure(
        "memory-by-point",
        "Memory of the fullest stage",
        "What a device of the fullest stage holds; the upright mark is what it has, "
        f"{given}.{_left_out(points, drawn)}",
        _stacked(shown, {part: MEMORY_PARTS[part] for part in parts}, "GiB per device", capacities),
        len(shown) * (len(parts) + 3),
        _memory_table(bars, parts, capacities),
    )


def drawn_points(points: PointSet) -> list[ReadPoint]:
    """All points where these are few, else an even choice by objective, the best and those without
    a plan among them."""
    if len(points.points) <= MOST_BARS:
        return list(points.points)
    ordered = sorted(
        points.points, key=lambda point: -((point.result.value or 0.0) if point.result else 0.0)
    )
    places = {round(place * (len(ordered) - 1) / (MOST_BARS - 1)) for place in range(MOST_BARS)}
    chosen = {ordered[place].number for place in places}
    return [point for point in points.points if point.number in chosen]


def _left_out(points: PointSet, chosen: Sequence[ReadPoint]) -> str:
    if len(chosen) == len(points.points):
        return ""
    return (
        f" {len(chosen)} of {len(points.points):,} points are drawn, an even choice by what "
        "they reach; the table has all."
    )


def _name(points: PointSet, point: ReadPoint, model: str = "") -> str:
    several = (
        f", {label(model)}"
        if model and point.result is not None and len(point.result.plans) > 1
        else ""
    )
    return f"{point.number}: {point_label(points, point)}{several}"


def _time_bars(points: PointSet, point: ReadPoint) -> Iterator[Bar]:
    if not point.feasible or point.result is None:
        yield Bar(point.number, _name(points, point), {}, infeasible_text(point))
        return
    for plan in point.result.plans:
        text = duration(plan.time_per_batch_s)
        yield Bar(point.number, _name(points, point, plan.model), exposed_s(plan.breakdown_s), text)


def _memory_bars(points: PointSet, point: ReadPoint, own: Details | None) -> Iterator[Bar]:
    if own is None or not own.memories:
        yield Bar(point.number, _name(points, point), {}, infeasible_text(point))
        return
    for model, parts in own.memories.items():
        sizes = {part: size / GIB for part, size in parts.items()}
        total = sum(parts.values())
        yield Bar(
            point.number,
            _name(points, point, model),
            sizes,
            f"{gib(total)} ({share(total / own.capacity_bytes)})",
        )


def _stacked(
    bars: Sequence[Bar], roles: dict[str, str], title: str, limits: dict[int, float] | None
) -> dict[str, Any]:
    """Bars under their labels, so that a phone has room for both."""
    import altair as alt

    order = [bar.name for bar in bars]
    names = list(roles)
    rows = [
        (bar.point, bar.name, part, place, bar.parts[part], bar.parts[part] / bar.total)
        for bar in bars
        for place, part in enumerate(names)
        if bar.parts.get(part, 0.0) > 0.0
    ]
    data = inline_data(
        ("point", "bar", "part", "position", "amount", "share"),
        rows,
        words={"bar", "part"},
        exact=True,
    )
    ends = inline_data(
        ("point", "bar", "total", "text", "limit"),
        ((bar.point, bar.name, bar.total, bar.text, (limits or {}).get(bar.point)) for bar in bars),
        words={"bar", "text"},
        exact=True,
    )
    longest = max([bar.total for bar in bars] + list((limits or {}).values()))
    x = alt.X(
        "amount:Q", title=title, stack="zero", scale=alt.Scale(domain=[0, longest], nice=False)
    )
    y = alt.Y(
        "bar:N",
        sort=order,
        axis=None,
        scale=alt.Scale(domain=order, paddingInner=0.0, paddingOuter=0.0),
    )
    colours = alt.Scale(domain=names, range=[colour(roles[part]) for part in names])
    tooltip = [
        alt.Tooltip("bar:N", title="point"),
        alt.Tooltip("part:N"),
        alt.Tooltip("amount:Q", title=title, format=",.4~r"),
        alt.Tooltip("share:Q", format=".1%"),
    ]
    drawn = (
        alt.Chart(data)
        .mark_bar(height=BAR, yOffset=8, stroke=colour("page"), strokeWidth=0.5)
        .encode(
            x=x,
            y=y,
            order=alt.Order("position:Q"),
            color=alt.Color(
                "part:N", title=None, scale=colours, legend=alt.Legend(offset=BELOW_LEGEND)
            ),
            tooltip=tooltip,
        )
    )
    base = alt.Chart(ends)
    halo = {"stroke": colour("page"), "strokeWidth": 3}
    layers = [
        drawn,
        base.mark_text(
            align="left",
            baseline="bottom",
            yOffset=0,
            limit=330,
            color=colour("muted"),
            tooltip=None,
        ).encode(x=alt.datum(0), y=y, text="bar:N"),
        *(
            base.mark_text(align="left", dx=5, yOffset=8, tooltip=None, **look).encode(
                x=alt.X("total:Q"), y=y, text="text:N"
            )
            for look in (halo, {})
        ),
    ]
    if limits:
        tip = [
            alt.Tooltip("bar:N", title="point"),
            alt.Tooltip("limit:Q", title="memory of a device, GiB", format=",.5~r"),
        ]
        fits = base.transform_filter("isValid(datum.limit)")
        layers.insert(
            1,
            fits.mark_tick(color=colour("accent"), thickness=2.5, size=BAR + 6, yOffset=8).encode(
                x=alt.X("limit:Q"), y=y, tooltip=tip
            ),
        )
    return sized(alt.layer(*layers).properties(padding=ROOM_FOR_TEXT), ROW * len(bars))


def _time_table(bars: Sequence[Bar], terms: Sequence[str]) -> PageTable:
    unit = unit_for(max(bar.total for bar in bars))
    rows = [
        (
            bar.name,
            number(bar.total * unit.per_second, FINE_DIGITS) if bar.parts else bar.text,
            *(
                number(bar.parts.get(term, 0.0) * unit.per_second) if bar.parts else ""
                for term in terms
            ),
        )
        for bar in bars
    ]
    columns = ("point", "iteration", *(part_text(term) for term in terms))
    return table(f"Parts of an iteration by point, {unit.name}", columns, rows, words={"point"})


def _memory_table(
    bars: Sequence[Bar], parts: Sequence[str], capacities: dict[int, float]
) -> PageTable:
    rows = [
        (
            bar.name,
            f"{bar.total:.3f}" if bar.parts else bar.text,
            f"{capacities[bar.point]:.3f}" if bar.parts else "",
            share(bar.total / capacities[bar.point]) if bar.parts else "",
            *(f"{bar.parts.get(part, 0.0):.3f}" if bar.parts else "" for part in parts),
        )
        for bar in bars
    ]
    columns = ("point", "in use", "given", "share", *parts)
    return table("Memory of the fullest stage by point, GiB", columns, rows, words={"point"})
