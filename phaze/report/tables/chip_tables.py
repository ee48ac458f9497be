"""What the best chip takes as a table."""

from __future__ import annotations

from collections.abc import Mapping

from phaze.report.sentences.answers import total_of
from phaze.report.table import GAP, Table
from phaze_common.numbers import number, share
from Solver.chip_records import ChipPart, ChipReport

COLUMNS = {"mm²": "area_mm2", "peak W": "peak_w", "$": "cost_usd", "kg CO2e": "embodied_kg"}


def chip_table(report: ChipReport) -> Table:
    """Every part of the chip with its share; each unit adds up by itself."""
    rows: list[Mapping[str, object]] = []
    for unit, name in COLUMNS.items():
        parts: tuple[ChipPart, ...] = getattr(report, name)
        total = total_of(parts)
        for part in (*parts, ChipPart("total", total)):
            of_all = "" if part.name == "total" else share(part.amount / total)
            amount = number(part.amount)
            rows.append({"part": part.name, "amount": amount, "unit": unit, "share": of_all})
        rows.append(GAP)
    return Table.of("what the chip takes", rows, words={"part", "unit"})
