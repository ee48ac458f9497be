"""What the best chip takes as a table for the terminal, and in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from GraphExtractor.names import label
from phaze.report.sentences.designs import bought_text
from phaze.report.table import GAP, Table
from phaze_common.numbers import number, share
from Solver.chip_records import ChipPart, ChipReport

GIGA = 1e9
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


def chip_sentences(report: ChipReport) -> Iterator[str]:
    """The chip as a whole, and its use by every model."""
    dies = "one die" if report.dies == 1 else f"{report.dies} dies"
    clock = f"{number(report.frequency_hz / GIGA)} GHz at {report.voltage_v:.2f} V"
    has_server = any(part.name == "server" for part in report.embodied_kg)
    yield (
        f"chip: {number(total_of(report.area_mm2))} mm² in {dies}, {clock}; at most "
        f"{number(total_of(report.peak_w))} W; {number(total_of(report.cost_usd))} $ by itself, "
        f"{number(report.owning_usd)} $ with its share of servers and network; "
        f"{number(total_of(report.embodied_kg))} kg CO2e embodied"
        f"{' with its share of the server' if has_server else ''}"
    )
    for model, use in report.uses.items():
        beside = f" and {number(use.beside_j)} J for the optimizer, gradients and messages between "
        yield (
            f"{label(model)}: {number(use.average_w)} W per chip on average, "
            f"{number(use.sample_j)} J per sample{f'{beside}stages' if use.beside_j else ''}; "
            f"a million tokens cost {number(use.usd_per_million_tokens)} $ and "
            f"{number(use.kg_per_million_tokens)} kg CO2e on the whole cluster"
        )
        if use.bought is not None:
            yield f"{label(model)}: {bought_text(use.bought)}"


def total_of(parts: tuple[ChipPart, ...]) -> float:
    """The whole of its parts."""
    return sum(part.amount for part in parts)
