"""The figure of ``phaze robust``: what every constant alone does to the choice, where the run was
asked for it."""

from __future__ import annotations

from phaze.report.pages.charts import sized
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Figure, inline_data, table
from phaze.report.pages.theme import colour
from phaze.studies.robust.records import Robustness, kept_robustness
from phaze_common.numbers import number, percent

MOST = 14  # constants that are drawn


def robust_figure(points: PointsOfModel) -> Figure | None:
    """Values of the chosen design at the ends of each range; None where nobody asked for them."""
    import altair as alt

    answer = kept_robustness(points.run.folder)
    if answer is None:
        return None
    influences = sorted(answer.influences, key=lambda each: -abs(each.value_high - each.value_low))[
        :MOST
    ]
    columns = ("constant", "from", "to", "range", "switches")
    rows = [
        (
            each.name,
            100.0 * (min(each.value_low, each.value_high) - 1.0),
            100.0 * (max(each.value_low, each.value_high) - 1.0),
            f"{number(each.low, 3)}x to {number(each.high, 3)}x",
            "never" if each.switches_at is None else f"from {number(each.switches_at, 3)}x",
        )
        for each in influences
    ]
    data = inline_data(columns, rows, words={"constant", "range", "switches"})
    y = alt.Y(
        "constant:N",
        title=None,
        sort=[each.name for each in influences],
        axis=alt.Axis(ticks=False, labelLimit=320),
    )
    tooltip = [
        alt.Tooltip("constant:N", title="constant"),
        alt.Tooltip("range:N", title="range"),
        alt.Tooltip("switches:N", title="another design is better"),
    ]
    bars = (
        alt.Chart(data)
        .mark_bar(color=colour("mark"))
        .encode(
            x=alt.X("from:Q", title="change of the chosen design, %"),
            x2="to:Q",
            y=y,
            tooltip=tooltip,
        )
    )
    cells = [
        (each.name, row[3], f"{row[1]:+.1f}", f"{row[2]:+.1f}", row[4])
        for each, row in zip(influences, rows, strict=True)
    ]
    headings = ("constant", "range", "least %", "most %", "another is better")
    numbers = table(
        "What every constant does alone",
        headings,
        cells,
        words={"constant", "range", "another is better"},
    )
    title = "Does the choice survive what is not known?"
    return Figure(
        "robustness", title, _caption(answer), sized(bars, 24 * len(rows)), len(rows), numbers
    )


def _caption(answer: Robustness) -> str:
    chosen, proven, nothing = answer.chosen, answer.searched.proven, answer.samples_without_any
    beside = f"; in {nothing} of them nothing works. Of the others" if nothing else ". Of these"
    return (
        f"Under {answer.samples} samples of {len(answer.influences)} constants the whole space "
        f"was searched{beside} the chosen "
        f"design is the best in {percent(chosen.wins)}, and choosing it costs "
        f"{percent(chosen.expected_regret)} on average and "
        f"{percent(chosen.worst_regret)} at worst. In {proven} samples no other design is better "
        "than the best that is told. "
        "Bars: each constant alone, from one end of its range to the other."
    )
