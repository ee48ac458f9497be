"""What the best chip takes as a table for the terminal, and in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from GraphExtractor.names import label
from phaze.report.tables.text_tables import TextTable, new_table
from phaze.studies.wording import bought_text
from phaze_common.numbers import number, share
from Solver.chip_records import ChipPart, ChipReport

GIGA = 1e9
COLUMNS = {"mm²": "area_mm2", "peak W": "peak_w", "$": "cost_usd", "kg CO2e": "embodied_kg"}


def chip_table(report: ChipReport) -> TextTable:
    """Every part of the chip with its share; areas, watts at the peak, dollars and kilograms add up
    by themselves."""
    table = new_table(
        "what the chip takes", ("part", "amount", "unit", "share"), words={"part", "unit"}
    )
    for unit, name in COLUMNS.items():
        parts: tuple[ChipPart, ...] = getattr(report, name)
        total = total_of(parts)
        for part in parts:
            table.add_row(part.name, number(part.amount), unit, share(part.amount / total))
        table.add_row("total", number(total), unit, "")
        table.add_section()
    return table


def chip_sentences(report: ChipReport) -> Iterator[str]:
    """The chip as a whole, and its use by every model."""
    dies = "one die" if report.dies == 1 else f"{report.dies} dies"
    clock = f"{number(report.frequency_hz / GIGA)} GHz at {report.voltage_v:.2f} V"
    server = (
        " with its share of the server"
        if any(part.name == "server" for part in report.embodied_kg)
        else ""
    )
    yield (
        f"chip: {number(total_of(report.area_mm2))} mm² in {dies}, {clock}; at most "
        f"{number(total_of(report.peak_w))} W; "
        f"{number(total_of(report.cost_usd))} $ by itself, {number(report.owning_usd)} $ with its "
        "share of servers and network; "
        f"{number(total_of(report.embodied_kg))} kg CO2e embodied{server}"
    )
    for model, use in report.uses.items():
        tokens = (
            f"{number(use.usd_per_million_tokens)} $ and {number(use.kg_per_million_tokens)} "
            "kg CO2e"
        )
        beside = (
            f" and {number(use.beside_j)} J for the optimizer, gradients and messages between "
            "stages"
            if use.beside_j
            else ""
        )
        yield (
            f"{label(model)}: {number(use.average_w)} W per chip on average, "
            f"{number(use.sample_j)} J per sample{beside}; "
            f"a million tokens cost {tokens} on the whole cluster"
        )
        if use.bought is not None:
            yield f"{label(model)}: {bought_text(use.bought)}"


def total_of(parts: tuple[ChipPart, ...]) -> float:
    """The whole of its parts."""
    return sum(part.amount for part in parts)
