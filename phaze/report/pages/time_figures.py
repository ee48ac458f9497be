"""Figures of where the time of an iteration goes, and of what more of a resource would bring."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration, share, unit_for
from phaze.report.pages.theme import BELOW_LEGEND, colour
from phaze.studies.limits.gains import binds, gained
from phaze.studies.wording import NEGLIGIBLE, part_text
from phaze_common.numbers import FINE_DIGITS, number
from Solver.results import Limit

LABEL = 15  # characters of a line of a resource's name, so that it fits beside the bars of a phone
ROOM_FOR_GAIN = {"left": 5, "top": 5, "right": 80, "bottom": 5}  # pixels
ROOM_FOR_TEXT = {
    "left": 5,
    "top": 5,
    "right": 60,
    "bottom": 5,
}  # pixels; for what is written behind the longest bar


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
    first = bars[0].seconds
    found = [
        term
        for term in TERMS
        if any(bar.seconds.get(term, 0.0) > NEGLIGIBLE * bar.total_s for bar in bars)
    ]
    return sorted(found, key=lambda term: -first.get(term, 0.0))


def breakdown_figure(bars: Sequence[IterationBar], suffix: str) -> Figure:
    """Where the time of an iteration goes, a bar each."""
    import altair as alt

    unit = unit_for(max(bar.total_s for bar in bars))
    terms = terms_of(bars)
    names = [part_text(term) for term in terms]
    data = inline_data(
        ("whose", "term", "position", "amount", "share", "total"),
        (
            (
                bar.name,
                part_text(term),
                position,
                bar.seconds.get(term, 0.0) * unit.per_second,
                bar.seconds.get(term, 0.0) / bar.total_s,
                bar.total_s * unit.per_second,
            )
            for bar in bars
            for position, term in enumerate(terms)
            if bar.seconds.get(term, 0.0) > 0.0
        ),
        words={"whose", "term"},
    )
    longest = max(bar.total_s for bar in bars) * unit.per_second
    x = alt.X(
        "amount:Q",
        title=f"{unit.name} per iteration",
        stack="zero",
        scale=alt.Scale(domain=[0, longest], nice=False),
    )
    y = alt.Y(
        "whose:N",
        title=None,
        sort=[bar.name for bar in bars],
        axis=alt.Axis(ticks=False, grid=False, labelPadding=8),
    )
    order = alt.Order("position:Q")
    base = alt.Chart(data)
    shown = base.mark_bar(stroke=colour("page"), strokeWidth=0.5).encode(
        x=x,
        y=y,
        order=order,
        color=alt.Color(
            "term:N",
            title=None,
            legend=alt.Legend(offset=BELOW_LEGEND),
            scale=alt.Scale(domain=names, range=[colour(TERMS[term]) for term in terms]),
        ),
        tooltip=[
            alt.Tooltip("whose:N", title="iteration of"),
            alt.Tooltip("term:N", title="part"),
            alt.Tooltip("amount:Q", title=unit.name, format=".4~r"),
            alt.Tooltip("share:Q", title="share", format=".1%"),
            alt.Tooltip("total:Q", title=f"in all, {unit.name}", format=".4~r"),
        ],
    )
    totals = inline_data(
        ("whose", "total", "text"),
        ((bar.name, bar.total_s * unit.per_second, duration(bar.total_s)) for bar in bars),
        words={"whose", "text"},
    )
    ends = (
        alt.Chart(totals)
        .mark_text(align="left", dx=5)
        .encode(x=alt.X("total:Q"), y=y, text="text:N")
    )
    first = bars[0]
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
        sized(alt.layer(shown, ends).properties(padding=ROOM_FOR_TEXT), 34 * len(bars)),
        len(bars) * len(terms),
        breakdown_table(bars),
    )


def breakdown_table(bars: Sequence[IterationBar]) -> PageTable:
    """Seconds and shares of every term."""
    unit = unit_for(max(bar.total_s for bar in bars))
    terms = terms_of(bars)

    def cell(bar: IterationBar, term: str) -> str:
        seconds = bar.seconds.get(term, 0.0)
        return (
            f"{number(seconds * unit.per_second)} ({share(seconds / bar.total_s)})"
            if seconds
            else ""
        )

    rows = [(part_text(term), *(cell(bar, term) for bar in bars)) for term in terms]
    parts = len(rows)
    rows.append(("iteration", *(number(bar.total_s * unit.per_second) for bar in bars)))
    rows.append(
        ("samples per second", *(number(bar.throughput_samples_per_s, FINE_DIGITS) for bar in bars))
    )
    if any(bar.note for bar in bars):
        rows.append(("plan", *(bar.note for bar in bars)))
    columns = ("part", *(bar.name for bar in bars))
    return table(
        f"Time of an iteration, {unit.name}", columns, rows, words={"part"}, foot=len(rows) - parts
    )


def limits_figure(limits: Sequence[Limit]) -> Figure:
    """What one more unit, and any amount, of each resource would bring."""
    import altair as alt

    amounts = ("one unit more", "any amount")
    names = {
        limit.resource: textwrap.fill(
            limit.resource if limit.unit in limit.resource else f"{limit.resource}, {limit.unit}",
            LABEL,
        )
        for limit in limits
    }
    data = inline_data(
        ("resource", "how", "gain", "text", "words"),
        (
            (names[limit.resource], how, gain, gained(gain).removesuffix(" as much"), limit.words)
            for limit in limits
            for how, gain in zip(amounts, (limit.one_more_gain, limit.unlimited_gain), strict=True)
        ),
        words={"resource", "how", "text", "words"},
    )
    times = alt.Axis(labelExpr="format(1 + datum.value, '.4~r')")
    x = alt.X(
        "gain:Q", title="the objective, times what it is", axis=times, scale=alt.Scale(domainMin=0)
    )
    axis = alt.Axis(grid=False, ticks=False, labelPadding=8, labelExpr="split(datum.label, '\\n')")
    y = alt.Y("resource:N", title=None, sort=list(names.values()), axis=axis)
    offset = alt.YOffset("how:N", sort=list(amounts))
    base = alt.Chart(data)
    bars = base.mark_bar().encode(
        x=x,
        y=y,
        yOffset=offset,
        color=alt.Color(
            "how:N",
            title=None,
            legend=alt.Legend(offset=BELOW_LEGEND),
            scale=alt.Scale(domain=list(amounts), range=[colour("accent"), colour("faint")]),
        ),
        tooltip=[
            alt.Tooltip("resource:N", title="resource"),
            alt.Tooltip("how:N", title="given"),
            alt.Tooltip("text:N", title="gain"),
            alt.Tooltip("words:N", title="that is"),
        ],
    )
    gains = base.mark_text(align="left", dx=4, fontSize=10, tooltip=None).encode(
        x=x, y=y, yOffset=offset, text="text:N"
    )
    chart = alt.layer(bars, gains).properties(padding=ROOM_FOR_GAIN)
    binding = [limit.resource for limit in limits if _binding(limit) == "yes"]
    caption = (
        "What more of each resource would add to the objective on the same chip, with the plan "
        "chosen anew. "
        + (f"What binds: {', '.join(binding)}." if binding else "None of them binds.")
    )
    return Figure(
        "limits",
        "What limits the optimum",
        caption,
        sized(chart, 44 * len(limits)),
        2 * len(limits),
        limits_table(limits),
    )


def _binding(limit: Limit) -> str:
    """Yes, hardly or no, just as the limit's own words say."""
    return (
        "no" if not limit.binds else "yes" if binds(limit.unlimited_gain) == "binds" else "hardly"
    )


def limits_table(limits: Sequence[Limit]) -> PageTable:
    """The limits in words and numbers."""
    rows = (
        (
            limit.resource,
            f"{number(limit.amount)} {limit.unit}",
            "too little to be of use"
            if limit.binds and not limit.one_more_gain
            else gained(limit.one_more_gain),
            gained(limit.unlimited_gain),
            _binding(limit),
            limit.words,
        )
        for limit in limits
    )
    columns = ("resource", "given", "one unit more", "any amount", "binds", "in words")
    words = {"resource", "one unit more", "any amount", "binds", "in words"}
    return table("Limits of the optimum", columns, rows, words=words)
