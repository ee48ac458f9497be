"""The figure of ``phaze robust``: what every constant alone does to the choice."""

from __future__ import annotations

import altair as alt

from phaze.report.pages.charts import chart_of, sized, tips
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Figure
from phaze.report.pages.theme import colour
from phaze.report.sentences.robustness import robustness_caption
from phaze.report.table import Table
from phaze.runs.robustness import kept_robustness
from phaze_common.numbers import number

MOST = 14  # constants that are drawn


def robust_figure(points: PointsOfModel) -> Figure | None:
    """Values of the chosen design at the ends of each range; None where nobody asked for them."""
    answer = kept_robustness(points.run.folder)
    if answer is None:
        return None
    widest = sorted(answer.influences, key=lambda each: -abs(each.value_high - each.value_low))
    rows = []
    for each in widest[:MOST]:
        least, most = sorted(100.0 * (end - 1.0) for end in (each.value_low, each.value_high))
        row = {"constant": each.name, "from": least, "to": most}
        row["range"] = f"{number(each.low, 3)}x to {number(each.high, 3)}x"
        at = each.switches_at
        rows.append(row | {"switches": "never" if at is None else f"from {number(at, 3)}x"})
    names = alt.Axis(ticks=False, labelLimit=320)
    order = [row["constant"] for row in rows]
    titles = {
        "constant:N": "constant",
        "range:N": "range",
        "switches:N": "another design is better",
    }
    bars = (
        chart_of(rows)
        .mark_bar(color=colour("mark"))
        .encode(
            x=alt.X("from:Q", title="change of the chosen design, %"),
            x2="to:Q",
            y=alt.Y("constant:N", title=None, sort=order, axis=names),
            tooltip=tips(titles),
        )
    )
    cells = (
        {
            "constant": row["constant"],
            "range": row["range"],
            "least %": f"{row['from']:+.1f}",
            "most %": f"{row['to']:+.1f}",
            "another is better": row["switches"],
        }
        for row in rows
    )
    words = {"constant", "range", "another is better"}
    table = Table.of("What every constant does alone", cells, words=words)
    title, spec = "Does the choice survive what is not known?", sized(bars, 24 * len(rows))
    return Figure("robustness", title, robustness_caption(answer), spec, len(rows), table)
