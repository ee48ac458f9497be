"""Figures of where the time of an iteration goes, and of what more of a resource would bring."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from phaze.report.pages import charts
from phaze.report.pages.figures import Figure
from phaze.report.sentences.designs import NEGLIGIBLE, part_text
from phaze.report.sentences.gains import binds, gained
from phaze.report.table import Table
from phaze_common.numbers import FINE_DIGITS, number, share, time_text, unit_for
from Solver.results import Limit

LABEL = 15  # characters of a line of a resource's name, so that it fits beside the bars of a phone
ROOM_FOR_TEXT = charts.room_right(60)
TERMS = {  # colours of the parts of an iteration, by role
    "arithmetic": "backward",
    "memory_bound": "forward",
    "launch": "launch",
    "recompute": "recompute",
    "tensor_communication": "tensor",
    "sequence_communication": "sequence",
    "context_communication": "context",
    "expert_communication": "expert",
    "pipeline_communication": "transfer",
    "data_communication": "sync",
    "host_communication": "host",
    "site_communication": "site",
    "bubble": "bubble",
    "optimizer": "optimizer",
}


@dataclass(frozen=True)
class IterationBar:
    """An iteration to draw: whose it is, its seconds by term, samples per second, and a note."""

    name: str
    seconds: dict[str, float]
    throughput_samples_per_s: float
    note: str = ""

    @property
    def total_s(self) -> float:
        """The iteration."""
        return sum(self.seconds.values())


def terms_of(bars: Sequence[IterationBar]) -> list[str]:
    """The parts that any of ``bars`` has, those that the first one spends most on first."""
    found = [
        term
        for term in TERMS
        if any(bar.seconds.get(term, 0.0) > NEGLIGIBLE * bar.total_s for bar in bars)
    ]
    return sorted(found, key=lambda term: -bars[0].seconds.get(term, 0.0))


def breakdown_figure(bars: Sequence[IterationBar], suffix: str) -> Figure:
    """Where the time of an iteration goes, a bar each."""
    first, terms, longest_s = bars[0], terms_of(bars), max(bar.total_s for bar in bars)
    unit = unit_for(longest_s)
    parts = charts.chart_of(
        {
            "whose": bar.name,
            "term": part_text(term),
            "position": position,
            "amount": bar.seconds[term] * unit.per_second,
            "share": bar.seconds[term] / bar.total_s,
            "total": bar.total_s * unit.per_second,
        }
        for bar in bars
        for position, term in enumerate(terms)
        if bar.seconds.get(term, 0.0) > 0.0
    )
    scale, title = charts.exactly(0, longest_s * unit.per_second), f"{unit.name} per iteration"
    y = charts.names_axis("whose:N", [bar.name for bar in bars], labelPadding=8)
    shown = charts.stacked_bars(
        parts,
        "term:N",
        {part_text(term): TERMS[term] for term in terms},
        legend=charts.legend_above(),
        x=alt.X("amount:Q", title=title, stack="zero", scale=scale),
        y=y,
        tooltip=charts.tips(
            {
                "whose:N": "iteration of",
                "term:N": "part",
                "amount:Q .4~r": unit.name,
                "share:Q .1%": "share",
                "total:Q .4~r": f"in all, {unit.name}",
            }
        ),
    )
    totals = charts.chart_of(
        {"whose": bar.name, "total": bar.total_s * unit.per_second, "text": time_text(bar.total_s)}
        for bar in bars
    )
    ends = totals.mark_text(align="left", dx=5).encode(x=alt.X("total:Q"), y=y, text="text:N")
    largest = sorted(first.seconds.items(), key=lambda item: -item[1])[:3]
    said = ", ".join(
        f"{part_text(term)} {share(seconds / first.total_s)}"
        for term, seconds in largest
        if seconds > 0
    )
    return Figure(
        f"iteration-breakdown{suffix}",
        "Where the time of an iteration goes",
        f"The largest parts ({first.name}): {said}.",
        charts.sized(alt.layer(shown, ends), 34 * len(bars), ROOM_FOR_TEXT),
        len(bars) * len(terms),
        iterations_table(bars),
    )


def iterations_table(bars: Sequence[IterationBar]) -> Table:
    """Seconds and shares of every term."""
    unit = unit_for(max(bar.total_s for bar in bars))

    def cell(bar: IterationBar, term: str) -> str:
        seconds = bar.seconds.get(term, 0.0)
        of_all = f" ({share(seconds / bar.total_s)})"
        return number(seconds * unit.per_second) + of_all if seconds else ""

    rows = (
        {"part": part_text(term), **{bar.name: cell(bar, term) for bar in bars}}
        for term in terms_of(bars)
    )
    foot = {
        "iteration": [number(bar.total_s * unit.per_second) for bar in bars],
        "samples per second": [number(bar.throughput_samples_per_s, FINE_DIGITS) for bar in bars],
        "plan": [bar.note for bar in bars],
    }
    names = [bar.name for bar in bars]
    return Table.of(
        f"Time of an iteration, {unit.name}",
        rows,
        foot=[
            {"part": what, **dict(zip(names, cells, strict=True))}
            for what, cells in foot.items()
            if any(cells)
        ],
        words={"part"},
    )


def limits_figure(limits: Sequence[Limit]) -> Figure:
    """What one more unit, and any amount, of each resource would bring."""
    roles = {"one unit more": "accent", "any amount": "faint"}
    names = {
        limit.resource: textwrap.fill(
            limit.resource if limit.unit in limit.resource else f"{limit.resource}, {limit.unit}",
            LABEL,
        )
        for limit in limits
    }
    base = charts.chart_of(
        {
            "resource": names[limit.resource],
            "how": how,
            "gain": gain,
            "text": gained(gain).removesuffix(" as much"),
            "words": limit.words,
        }
        for limit in limits
        for how, gain in zip(roles, (limit.one_more_gain, limit.unlimited_gain), strict=True)
    )
    times = alt.Axis(labelExpr="format(1 + datum.value, '.4~r')")
    title, from_zero = "the objective, times what it is", alt.Scale(domainMin=0)
    broken = {"labelPadding": 8, "labelExpr": "split(datum.label, '\\n')"}
    placed = {
        "x": alt.X("gain:Q", title=title, axis=times, scale=from_zero),
        "y": charts.names_axis("resource:N", list(names.values()), **broken),
        "yOffset": alt.YOffset("how:N", sort=list(roles)),
    }
    titles = {"resource:N": "resource", "how:N": "given"}
    bars = base.mark_bar().encode(
        color=charts.by_role("how:N", roles, legend=charts.legend_above()),
        tooltip=charts.tips(titles | {"text:N": "gain", "words:N": "that is"}),
        **placed,
    )
    look = base.mark_text(align="left", dx=4, fontSize=10, tooltip=None)
    chart = alt.layer(bars, look.encode(text="text:N", **placed))
    binding = ", ".join(limit.resource for limit in limits if _binding(limit) == "yes")
    caption = (
        "What more of each resource would add to the objective on the same chip, with the plan "
        f"chosen anew. {f'What binds: {binding}' if binding else 'None of them binds'}."
    )
    return Figure(
        "limits",
        "What limits the optimum",
        caption,
        charts.sized(chart, 44 * len(limits), charts.room_right(80)),
        2 * len(limits),
        limits_table(limits),
    )


def _binding(limit: Limit) -> str:
    """Yes, hardly or no, just as the limit's own words say."""
    if not limit.binds:
        return "no"
    if binds(limit.unlimited_gain) == "binds":
        return "yes"
    return "hardly"


def limits_table(limits: Sequence[Limit]) -> Table:
    """The limits in words and numbers."""
    rows = (
        {
            "resource": limit.resource,
            "given": f"{number(limit.amount)} {limit.unit}",
            "one unit more": "too little to be of use"
            if limit.binds and not limit.one_more_gain
            else gained(limit.one_more_gain),
            "any amount": gained(limit.unlimited_gain),
            "binds": _binding(limit),
            "in words": limit.words,
        }
        for limit in limits
    )
    words = {"resource", "one unit more", "any amount", "binds", "in words"}
    return Table.of("Limits of the optimum", rows, words=words)
