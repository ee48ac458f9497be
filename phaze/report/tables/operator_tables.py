"""Measured operators against their prices, as tables."""

from __future__ import annotations

from phaze.report.table import Table
from phaze.validation.operator_tables import OperatorReport
from phaze_common.numbers import number

WORST = 10


def operator_tables(report: OperatorReport) -> list[Table]:
    """Errors by kind of launch, and the operators predicted worst."""
    errors = (
        {
            "table": each.table,
            "rows": str(each.rows),
            "MAPE": f"{each.mape:.1%}",
            "bias": f"{each.bias:+.1%}",
        }
        for each in report.tables
    )
    worst = (
        {
            "where": row.where,
            "operator": row.operator,
            "format": row.number_format,
            "measured s": number(row.measured_s),
            "predicted s": number(row.predicted_s),
            "error": f"{row.error:+.1%}",
        }
        for row in sorted(report.rows, key=lambda each: -abs(each.error))[:WORST]
    )
    title = f"operators of {report.device} under {report.software}, timed by themselves"
    words = {"where", "operator", "format"}
    return [
        Table.of(title, errors, words={"table"}),
        Table.of(f"the {WORST} predicted worst", worst, words=words, spared=("format",)),
    ]
