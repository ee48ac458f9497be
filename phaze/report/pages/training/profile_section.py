"""What was measured of the machine that a run prices plans on: its operators and its exchanges."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from Estimator.profiled.database import ProfileDatabase
from Estimator.profiled.rows import CollectiveRow, Exchange, OperatorRow
from Estimator.profiled.sources import SourceCounts
from phaze.report.pages.charts import by_role, chart_of, lines, sized, tips
from phaze.report.pages.figures import Figure, Part, Section
from phaze.report.pages.theme import SERIES
from phaze.report.table import Table
from phaze_common.numbers import number, share, size_text, time_text

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
    """The section of a run on a profiled machine, with the operators of ``models``."""
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


def _operators(rows: Sequence[OperatorRow]) -> Table:
    slowest = sorted(rows, key=lambda row: -row.timing.seconds)[:SHOWN]
    cells = []
    for row in slowest:
        gemms = [f"{each.m} x {each.k} x {each.n}" for each in row.operator.gemms[:1]]
        cells.append(
            {
                "operator": _name(row),
                "pass": row.operator.phase.value,
                "m x k x n": "".join(gemms),
                "tp": str(row.tp),
                "takes": time_text(row.timing.seconds),
                "spread": share(row.timing.spread_s / row.timing.seconds),
                "repeats": number(row.timing.repeats),
            }
        )
    which = f"the {len(slowest)} longest of {len(rows)}" if len(slowest) < len(rows) else "all"
    words = {"operator", "pass", "m x k x n"}
    return Table.of(f"Measured operators, {which}", cells, words=words)


def _name(row: OperatorRow) -> str:
    functions = "+".join(work.function for work in row.operator.vector)
    return " ".join(part for part in (row.operator.kind.value, functions) if part)


def _exchanges(rows: Sequence[CollectiveRow]) -> Figure:
    """Seconds of exchanges over bytes in the largest group measured; messages go between two."""
    largest = max(row.group_size for row in rows)
    drawn = [row for row in rows if row.group_size == largest or row.kind is Exchange.SEND]
    kinds = {
        _words(kind): role for kind, role in WAYS.items() if any(row.kind is kind for row in drawn)
    }
    logarithmic, decimals = alt.Scale(type="log"), alt.Axis(format=".2~s")
    base = chart_of(
        {
            "kind": _words(row.kind),
            "bytes": row.payload_bytes,
            "ms": 1e3 * row.timing.seconds,
            "size": size_text(row.payload_bytes),
        }
        for row in drawn
    ).encode(
        x=alt.X("bytes:Q", title="bytes", scale=logarithmic, axis=decimals),
        y=alt.Y("ms:Q", title="ms", scale=logarithmic),
        color=by_role("kind:N", kinds),
    )
    tooltip = tips({"kind:N": "exchange", "size:N": "of", "ms:Q .4~r": "ms"})
    chart = alt.layer(*lines(base, tooltip, {}, filled=True, size=30))
    cells = (
        {
            "exchange": _words(row.kind),
            "processes": str(row.group_size),
            "bytes": f"{row.payload_bytes:,}",
            "takes": time_text(row.timing.seconds),
            "spread": share(row.timing.spread_s / row.timing.seconds),
        }
        for row in rows
    )
    title = "Exchanges between processes"
    caption = f"Between {largest} processes; messages go from one to another."
    shown = Table.of(title, cells, words={"exchange"})
    return Figure("exchanges", title, caption, sized(chart, 240), len(drawn), shown)


def _words(kind: Exchange) -> str:
    return kind.value.replace("_", " ")
