"""Measured operators against their prices, as tables."""

from __future__ import annotations

from phaze.report.tables.text_tables import TextTable, new_table
from phaze.validation.operator_tables import OperatorReport
from phaze_common.numbers import number

WORST = 10


def operator_tables(report: OperatorReport) -> list[TextTable]:
    """Errors by kind of launch, and the operators predicted worst."""
    title = f"operators of {report.device} under {report.software}, timed by themselves"
    errors = new_table(title, ("table", "rows", "MAPE", "bias"), words={"table"})
    for each in report.tables:
        errors.add_row(each.table, str(each.rows), f"{each.mape:.1%}", f"{each.bias:+.1%}")
    columns = ("where", "operator", "format", "measured s", "predicted s", "error")
    worst = new_table(
        f"the {WORST} predicted worst",
        columns,
        words={"where", "operator", "format"},
        spared=("format",),
    )
    for row in sorted(report.rows, key=lambda each: -abs(each.error))[:WORST]:
        cells = number(row.measured_s), number(row.predicted_s), f"{row.error:+.1%}"
        worst.add_row(row.where, row.operator, row.number_format, *cells)
    return [errors, worst]
