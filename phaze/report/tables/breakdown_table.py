"""Where the time of an iteration goes, as a table."""

from Estimator.plans.results import Breakdown
from phaze.report.sentences.designs import NEGLIGIBLE, exposed_s, hidden_s, part_text
from phaze.report.table import GAP, Table

MS = 1e-3


def breakdown_table(breakdown: Breakdown, model: str) -> Table:
    """Seconds of the busiest stage, the largest part first, their sum, and what is hidden.

    Each number is rounded by itself, so that it is the one of the file; where their sum seems a
    digit off, the title says so.
    """
    total_s, exposed = breakdown.total_s, exposed_s(breakdown)
    decimals = milliseconds_decimals(total_s)
    parts = {name: each for name, each in exposed.items() if each > NEGLIGIBLE * total_s}
    rounded = sum(round(seconds / MS, decimals) for seconds in parts.values())
    off = round(rounded - round(total_s / MS, decimals), decimals)

    def row(name: str, seconds: float) -> dict[str, object]:
        ms = f"{seconds / MS:,.{decimals}f}"
        return {"part": name, "ms": ms, "share": f"{seconds / total_s:.1%}"}

    hidden = [row(f"hidden {part_text(name)}", each) for name, each in hidden_s(breakdown).items()]
    return Table.of(
        f"{model}: where the time goes{', each number rounded by itself' if off else ''}",
        [row(part_text(name), seconds) for name, seconds in parts.items()],
        foot=[row("iteration", total_s), GAP, *hidden],
        words={"part"},
    )


def milliseconds_decimals(seconds: float) -> int:
    """Decimals of milliseconds that show ``seconds`` to about five figures."""
    milliseconds = seconds / MS
    return next((decimals for decimals in range(6) if milliseconds * 10**decimals >= 1e4), 6)
