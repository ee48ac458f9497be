"""Bars of points: where the time of an iteration goes, and what fills the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from GraphExtractor.names import label
from phaze.report.pages import charts
from phaze.report.pages.figures import Figure
from phaze.report.pages.points.details import Details
from phaze.report.pages.points.labels import point_label
from phaze.report.pages.stages import MEMORY_PARTS
from phaze.report.pages.theme import colour
from phaze.report.pages.time_figures import ROOM_FOR_TEXT, TERMS
from phaze.report.sentences.designs import NEGLIGIBLE, exposed_s, part_text
from phaze.report.table import Table
from phaze.studies.sweep.points_read import PointSet, ReadPoint, infeasible_text
from phaze_common.numbers import FINE_DIGITS, gib, number, share, time_text, unit_for
from phaze_common.units import GIB

MOST_BARS = 60  # drawn; of more, an even choice by the objective
BAR, ROW = 13, 32  # pixels: a bar, and the room of one with its label above it


@dataclass(frozen=True, eq=False)
class Bar:
    """A stacked bar: label, amounts by part, and the text behind it, which may say why none."""

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
    scaled = []
    for bar in bars:
        parts = {part_text(each): bar.parts.get(each, 0.0) * unit.per_second for each in terms}
        scaled.append(Bar(bar.point, bar.name, parts if bar.parts else {}, bar.text))
    every = [bar for point in points.points for bar in _time_bars(points, point)]
    return Figure(
        "iteration-by-point",
        "Where the time of an iteration goes",
        "Parts of an iteration that add up to it; what runs hidden beside computation is not "
        f"among them.{_left_out(points, chosen)}",
        _stacked(
            scaled, {part_text(each): TERMS[each] for each in terms}, f"{unit.name} per iteration"
        ),
        len(bars) * (len(terms) + 2),
        _time_table(every, terms),
    )


def memory_figure(points: PointSet, details: Sequence[Details]) -> Figure | None:
    """What a device of the fullest stage holds, a bar per point and model, against what it has."""
    drawn = drawn_points(points)
    known = {each.point.number: each for each in details}
    bars: list[Bar] = []
    capacities: dict[int, float] = {}
    for point in points.points:
        own = known.get(point.number)
        if own is not None and own.memories:
            capacities[point.number] = own.capacity_bytes / GIB
        elif point.feasible:
            continue
        bars += _memory_bars(points, point, own)
    if not capacities:
        return None
    parts = [part for part in MEMORY_PARTS if any(bar.parts.get(part, 0.0) > 0.0 for bar in bars)]
    chosen = {point.number for point in drawn}
    shown = [bar for bar in bars if bar.point in chosen]
    least, most = min(capacities.values()), max(capacities.values())
    given = f"{number(least)} GiB"
    if least < most:
        given = f"{number(least)} to {number(most)} GiB, by point"
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
    """All points, or of many an even choice by objective, with the best and some without a plan."""
    if len(points.points) <= MOST_BARS:
        return list(points.points)
    ordered = sorted(points.points, key=lambda point: -point.objective)
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
    several = point.result is not None and len(point.result.plans) > 1
    of = f", {label(model)}" if model and several else ""
    return f"{point.number}: {point_label(points, point)}{of}"


def _time_bars(points: PointSet, point: ReadPoint) -> Iterator[Bar]:
    if not point.feasible or point.result is None:
        yield Bar(point.number, _name(points, point), {}, infeasible_text(point))
        return
    for plan in point.result.plans:
        name, text = _name(points, point, plan.model), time_text(plan.time_per_batch_s)
        yield Bar(point.number, name, exposed_s(plan.breakdown_s), text)


def _memory_bars(points: PointSet, point: ReadPoint, own: Details | None) -> Iterator[Bar]:
    if own is None or not own.memories:
        yield Bar(point.number, _name(points, point), {}, infeasible_text(point))
        return
    for model, parts in own.memories.items():
        sizes, total = {part: size / GIB for part, size in parts.items()}, sum(parts.values())
        text = f"{gib(total)} ({share(total / own.capacity_bytes)})"
        yield Bar(point.number, _name(points, point, model), sizes, text)


def _stacked(
    bars: Sequence[Bar], roles: dict[str, str], title: str, limits: dict[int, float] | None = None
) -> dict[str, Any]:
    """Bars under their labels, so that a phone has room for both."""
    order, limits = [bar.name for bar in bars], limits or {}
    parts = charts.chart_of(
        (
            {
                "point": bar.point,
                "bar": bar.name,
                "part": part,
                "position": place,
                "amount": bar.parts[part],
                "share": bar.parts[part] / bar.total,
            }
            for bar in bars
            for place, part in enumerate(roles)
            if bar.parts.get(part, 0.0) > 0.0
        ),
        exact=True,
    )
    ends = charts.chart_of(
        (
            {
                "point": bar.point,
                "bar": bar.name,
                "total": bar.total,
                "text": bar.text,
                "limit": limits.get(bar.point),
            }
            for bar in bars
        ),
        exact=True,
    )
    longest = max([bar.total for bar in bars] + list(limits.values()))
    bands = alt.Scale(domain=order, paddingInner=0.0, paddingOuter=0.0)
    y = alt.Y("bar:N", sort=order, axis=None, scale=bands)
    titles = {"bar:N": "point", "part:N": "", "amount:Q ,.4~r": title, "share:Q .1%": ""}
    layers = [
        charts.stacked_bars(
            parts,
            "part:N",
            roles,
            legend=charts.legend_above(),
            mark={"height": BAR, "yOffset": 8},
            x=alt.X("amount:Q", title=title, stack="zero", scale=charts.exactly(0, longest)),
            y=y,
            tooltip=charts.tips(titles),
        )
    ]
    if limits:
        fits = ends.transform_filter("isValid(datum.limit)")
        tick = {"color": colour("accent"), "thickness": 2.5, "size": BAR + 6, "yOffset": 8}
        tip = charts.tips({"bar:N": "point", "limit:Q ,.5~r": "memory of a device, GiB"})
        layers.append(fits.mark_tick(**tick).encode(x=alt.X("limit:Q"), y=y, tooltip=tip))
    above = {"align": "left", "baseline": "bottom", "yOffset": 0, "limit": 330, "tooltip": None}
    names = ends.mark_text(color=colour("muted"), **above)
    layers.append(names.encode(x=alt.datum(0), y=y, text="bar:N"))
    for look in (charts.HALO, {}):
        text = ends.mark_text(align="left", dx=5, yOffset=8, tooltip=None, **look)
        layers.append(text.encode(x=alt.X("total:Q"), y=y, text="text:N"))
    return charts.sized(alt.layer(*layers), ROW * len(bars), ROOM_FOR_TEXT)


def _time_table(bars: Sequence[Bar], terms: Sequence[str]) -> Table:
    unit = unit_for(max(bar.total for bar in bars))
    rows = []
    for bar in bars:
        whole = number(bar.total * unit.per_second, FINE_DIGITS) if bar.parts else bar.text
        row = {"point": bar.name, "iteration": whole}
        for term in terms:
            seconds = number(bar.parts.get(term, 0.0) * unit.per_second)
            row[part_text(term)] = seconds if bar.parts else ""
        rows.append(row)
    return Table.of(f"Parts of an iteration by point, {unit.name}", rows, words={"point"})


def _memory_table(bars: Sequence[Bar], parts: Sequence[str], capacities: dict[int, float]) -> Table:
    rows = []
    for bar in bars:
        row = dict.fromkeys(("point", "in use", "given", "share", *parts), "")
        row |= {"point": bar.name, "in use": bar.text}
        if bar.parts:
            capacity = capacities[bar.point]
            row |= {part: f"{bar.parts.get(part, 0.0):.3f}" for part in parts}
            row |= {"in use": f"{bar.total:.3f}", "given": f"{capacity:.3f}"}
            row["share"] = share(bar.total / capacity)
        rows.append(row)
    return Table.of("Memory of the fullest stage by point, GiB", rows, words={"point"})
