"""What was measured of the machine that a run prices plans on: its operators and its exchanges."""

from __future__ import annotations

from collections.abc import Sequence

from Estimator.profiled.database import ProfileDatabase
from Estimator.profiled.rows import CollectiveRow, Exchange, OperatorRow
from Estimator.profiled.sources import SourceCounts
from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, Part, Section, inline_data, table
from phaze.report.pages.formats import duration, share
from phaze.report.pages.theme import SERIES, colour
from phaze_common.numbers import number, size_text

SHOWN = 20  # operators in the table
WAYS = {
    Exchange.ALL_REDUCE: "one",
    Exchange.ALL_GATHER: "two",
    Exchange.REDUCE_SCATTER: "three",
    Exchange.ALL_TO_ALL: "four",
    Exchange.BROADCAST: "five",
    Exchange.SEND: "six",
}
assert set(WAYS.values()) == set(SERIES)


def profile_section(
    database: ProfileDatabase, prices: SourceCounts | None, models: Sequence[str]
) -> Section:
    """The section of a run on a profiled machine; of its operators those of ``models`` are
    shown."""
    machine = database.machine
    mine = [row for row in database.operators if row.model in models]
    words = [
        f"{machine.description}: {len(mine)} distinct operators of this model were measured, "
        f"{len(database.collectives)} "
        f"exchanges between processes, {len(database.passes)} whole passes through layers."
    ]
    if prices is not None:
        words.append(f"Prices of the plan: {prices.words}.")
    figures = () if not database.collectives else (_exchanges(database.collectives),)
    tables = () if not mine else (_operators(mine),)
    return Section("profile", "Profile of the machine", (Part("", tuple(words), figures, tables),))


def _operators(rows: Sequence[OperatorRow]) -> PageTable:
    slowest = sorted(rows, key=lambda row: -row.timing.seconds)[:SHOWN]
    columns = ("operator", "pass", "m x k x n", "tp", "takes", "spread", "repeats")
    cells = (
        (
            _name(row),
            row.operator.phase.value,
            " x ".join(
                str(size)
                for size in (
                    row.operator.gemms[0].m,
                    row.operator.gemms[0].k,
                    row.operator.gemms[0].n,
                )
            )
            if row.operator.gemms
            else "",
            str(row.tp),
            duration(row.timing.seconds),
            share(row.timing.spread_s / row.timing.seconds),
            number(row.timing.repeats),
        )
        for row in slowest
    )
    which = f"the {len(slowest)} longest of {len(rows)}" if len(slowest) < len(rows) else "all"
    return table(
        f"Measured operators, {which}", columns, cells, words={"operator", "pass", "m x k x n"}
    )


def _name(row: OperatorRow) -> str:
    functions = "+".join(work.function for work in row.operator.vector)
    return " ".join(part for part in (row.operator.kind.value, functions) if part)


def _exchanges(rows: Sequence[CollectiveRow]) -> Figure:
    """Seconds of exchanges over their bytes, in the largest group that was measured; messages go
    between two."""
    import altair as alt

    largest = max(row.group_size for row in rows)
    drawn = [row for row in rows if row.group_size == largest or row.kind is Exchange.SEND]
    kinds = [kind for kind in WAYS if any(row.kind is kind for row in drawn)]
    data = inline_data(
        ("kind", "bytes", "ms", "size"),
        (
            (
                row.kind.value.replace("_", " "),
                row.payload_bytes,
                1e3 * row.timing.seconds,
                size_text(row.payload_bytes),
            )
            for row in drawn
        ),
        words={"kind", "size"},
    )
    scale = alt.Scale(
        domain=[kind.value.replace("_", " ") for kind in kinds],
        range=[colour(WAYS[kind]) for kind in kinds],
    )
    base = alt.Chart(data).encode(
        x=alt.X(
            "bytes:Q", title="bytes", scale=alt.Scale(type="log"), axis=alt.Axis(format=".2~s")
        ),
        y=alt.Y("ms:Q", title="ms", scale=alt.Scale(type="log")),
        color=alt.Color("kind:N", title=None, scale=scale),
    )
    tooltip = [
        alt.Tooltip("kind:N", title="exchange"),
        alt.Tooltip("size:N", title="of"),
        alt.Tooltip("ms:Q", title="ms", format=".4~r"),
    ]
    chart = alt.layer(
        base.mark_line(), base.mark_point(filled=True, size=30).encode(tooltip=tooltip)
    )
    columns = ("exchange", "processes", "bytes", "takes", "spread")
    cells = (
        (
            row.kind.value.replace("_", " "),
            str(row.group_size),
            f"{row.payload_bytes:,}",
            duration(row.timing.seconds),
            share(row.timing.spread_s / row.timing.seconds),
        )
        for row in rows
    )
    caption = f"Between {largest} processes; messages go from one to another."
    shown = table("Exchanges between processes", columns, cells, words={"exchange"})
    return Figure(
        "exchanges", "Exchanges between processes", caption, sized(chart, 240), len(drawn), shown
    )
