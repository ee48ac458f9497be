"""Figures of the chosen chip or device: what its area and energy go to, and its operators under the
roofline."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from Estimator.chips.area import area_parts
from Estimator.chips.energy import EnergyParts
from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from phaze.report.pages.charts import sized
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration, layer_range, share
from phaze.report.pages.theme import colour
from phaze.report.tables.chip_tables import total_of
from phaze.studies.wording import bought_text
from phaze_common.numbers import number
from Solver.chip_records import ChipPart, ChipReport
from Solver.designs.schedule_records import PricedOperator

TERA, GIGA = 1e12, 1e9
PARTS = {  # of area and energy alike, with their colours
    "tensor cores": "gemm",
    "vector cores": "elementwise",
    "buffers of the cores": "conv",
    "global buffer": "reduction",
    "buffers": "reduction",
    "HBM": "gather",
    "links between devices": "collective",
    "tensor arithmetic": "gemm",
    "tensor buffers": "attention",
    "vector arithmetic": "elementwise",
    "vector buffers": "conv",
    "on chip network": "move",
    "memory interfaces": "gather",
    "links": "collective",
    "die to die": "expert",
    "control": "reserved",
    "operations": "gemm",
    "off chip": "gather",
    "clock tree": "move",
    "leakage": "reserved",
    "idle memory": "expert",
    "dies": "gemm",
    "package": "move",
    "memory": "gather",
    "server": "reserved",
}
PASSES = {"forward": "forward", "backward": "backward", "recompute": "recompute"}
MOST_ROWS = 40  # of the table of operators
LEAST_SHARE = 1e-4  # of the time of all operators, below which one is not drawn


def area_figure(points: PointsOfModel) -> Figure | None:
    """What the area of the chosen chip goes to; None where its space is not known."""
    chip, space = points.best.accelerator, points.run.result.hardware.records.space
    if chip is None or space is None:
        return None
    if points.best.chip is not None:
        return _whole_area(points.best.chip)
    parts = area_parts(chip, space.platform)
    mm2 = {
        "tensor cores": parts.tensor_arithmetic_mm2,
        "vector cores": parts.vector_arithmetic_mm2,
        "buffers of the cores": parts.tensor_buffers_mm2 + parts.vector_buffers_mm2,
        "global buffer": parts.global_buffer_mm2,
    }
    caption = (
        f"{chip.area_mm2:.1f} mm² in all; cores are their processing elements and lanes. The area "
        "model has no HBM interface, "
        "network on chip or control."
    )
    return _parts_figure("area-split", "Area of the chip", caption, mm2, "mm²")


def _whole_area(report: ChipReport) -> Figure:
    dies = "in one die" if report.dies == 1 else f"in {report.dies} dies"
    caption = (
        f"{total_of(report.area_mm2):.1f} mm² {dies}: cores and buffers, the network between "
        "them, interfaces to memory and to "
        "other chips, and what control, test and padding take."
    )
    return _parts_figure(
        "area-split", "Area of the chip", caption, _amounts(report.area_mm2), "mm²"
    )


def whole_chip_figures(points: PointsOfModel) -> list[Figure]:
    """What the power at its peak and the price of a chip go to, and its carbon; none where they are
    not known."""
    report = points.best.chip
    if report is None:
        return []
    power = (
        f"{number(total_of(report.peak_w))} W with every core, buffer, memory and link busy "
        f"at {report.voltage_v:.2f} V."
    )
    for model, use in report.uses.items():
        power += f" Under the plan of {label(model)} it draws {number(use.average_w)} W on average."
    cost = (
        f"{number(total_of(report.cost_usd))} $ for one chip with its memory and package; with "
        "its share of servers and network "
        f"{number(report.owning_usd)} $."
    )
    for model, use in report.uses.items():
        if use.bought is not None:
            cost += f" For {label(model)} {bought_text(use.bought)}."
    carbon = f"{number(total_of(report.embodied_kg))} kg CO2e are emitted before it is switched on."
    return [
        _parts_figure(
            "power-split", "Power of the chip at its peak", power, _amounts(report.peak_w), "W"
        ),
        _parts_figure("cost-split", "Price of the chip", cost, _amounts(report.cost_usd), "$"),
        _parts_figure(
            "carbon-split", "Carbon of the chip", carbon, _amounts(report.embodied_kg), "kg CO2e"
        ),
    ]


def _amounts(parts: tuple[ChipPart, ...]) -> dict[str, float]:
    return {part.name: part.amount for part in parts}


def energy_parts(points: PointsOfModel) -> EnergyParts | None:
    """Joules per training sample of all devices that work on it, by part; None where the energy of
    the hardware is not known."""
    mine = [each for each in points.run.operators if each.model == points.model]
    split = [each.energy.times(each.repeats) for each in mine if each.energy is not None]
    if not split or len(split) < len(mine):
        return None
    plan = points.plan
    return sum(split, EnergyParts()).times(plan.tp * plan.tp2 * plan.cp / plan.micro_batch_size)


def energy_figure(points: PointsOfModel) -> Figure | None:
    """What the energy of a sample goes to; None where it is not known."""
    parts = energy_parts(points)
    if parts is None:
        return None
    joules = {
        "tensor cores": parts.tensor_cores_j,
        "vector cores": parts.vector_cores_j,
        "buffers": parts.on_chip_memory_j,
        "HBM": parts.hbm_j,
        "links between devices": parts.network_j,
    }
    caption = (
        f"{number(parts.total_j)} J per sample, of the operators: arithmetic with its registers, "
        "the buffers of the cores and "
        "the global one, and traffic off the chip. Gradients, messages between stages, the "
        "optimizer and leakage are not in it."
    )
    return _parts_figure(f"energy-split{points.suffix}", "Energy of a sample", caption, joules, "J")


def _parts_figure(
    name: str, title: str, caption: str, amounts: dict[str, float], unit: str
) -> Figure:
    """A bar per part, with its share."""
    import altair as alt

    total = sum(amounts.values())
    shown = {part: amount for part, amount in amounts.items() if amount > 0.0}
    words = [f"{number(amount)} {unit}, {share(amount / total)}" for amount in shown.values()]
    rows = [(part, amount, text) for (part, amount), text in zip(shown.items(), words, strict=True)]
    data = inline_data(("part", "amount", "words"), rows, words={"part", "words"})
    scale = alt.Scale(domain=[0, 1.45 * max(shown.values())], nice=False)
    x = alt.X("amount:Q", title=unit, scale=scale, axis=alt.Axis(tickCount=5))
    y = alt.Y("part:N", title=None, sort=list(shown), axis=alt.Axis(ticks=False))
    colours = alt.Scale(domain=list(shown), range=[colour(PARTS[part]) for part in shown])
    tooltip = [alt.Tooltip("part:N", title="part"), alt.Tooltip("words:N", title="takes")]
    base = alt.Chart(data)
    chart = alt.layer(
        base.mark_bar().encode(
            x=x, y=y, color=alt.Color("part:N", scale=colours, legend=None), tooltip=tooltip
        ),
        base.mark_text(align="left", dx=5, tooltip=None).encode(x=x, y=y, text="words:N"),
    )
    cells = ((part, number(amount), share(amount / total)) for part, amount in shown.items())
    numbers = table(title, ("part", unit, "share"), cells, words={"part"})
    return Figure(
        name, title, caption, sized(chart, 34 * len(shown)), 2 * len(shown), numbers, abreast=2
    )


@dataclass(frozen=True)
class Ceilings:
    """What the hardware can do at most: operations per second of matrix and vector units, bytes per
    second of memory."""

    matrix_flops: float
    vector_operations: float | None
    hbm_bytes_per_s: float

    @property
    def ridge(self) -> float:
        """Operations per byte from which the matrix units are the limit."""
        return self.matrix_flops / self.hbm_bytes_per_s


def ceilings_of(points: PointsOfModel) -> Ceilings | None:
    """Of the hardware of the best design; None where its records do not say."""
    records, chip = points.run.result.hardware.records, points.best.accelerator
    if chip is not None and records.space is not None:
        platform = records.space.platform.at(chip.variant)
        matrix = 2.0 * chip.num_tc * chip.width * chip.depth * platform.frequency_hz
        return Ceilings(
            matrix,
            chip.num_vc * chip.width_vc * platform.frequency_hz,
            platform.hbm_bandwidth_bytes_per_s,
        )
    if records.device is not None:
        matrix = records.device.peak_flops(points.plan.plan.precision.matrix_format)
        return Ceilings(matrix, None, records.device.memory.bandwidth.value)
    return None


@dataclass(frozen=True)
class RooflinePoint:
    """An operator under the roofline: operations per byte and per second, and seconds of a
    micro-batch in all its runs."""

    operator: PricedOperator
    operations: int
    intensity: float
    operations_per_s: float
    seconds: float


def roofline_points(operators: Sequence[PricedOperator]) -> tuple[RooflinePoint, ...]:
    """Operators that compute and move something; of products FLOPs count, of others the elements of
    their functions."""
    found = []
    for each in operators:
        operations = each.flops or each.vector_operations
        if (
            operations
            and each.hbm_bytes > 0.0
            and each.seconds > 0.0
            and each.kind != OperatorKind.COLLECTIVE.value
        ):
            intensity, rate = operations / each.hbm_bytes, operations / each.seconds
            found.append(
                RooflinePoint(each, operations, intensity, rate, each.seconds * each.repeats)
            )
    return tuple(found)


def roofline_figure(points: PointsOfModel) -> Figure | None:
    """Every operator of the model at its arithmetic intensity and what it achieves; None where runs
    do not say."""
    import altair as alt

    ceilings = ceilings_of(points)
    every = roofline_points([each for each in points.run.operators if each.model == points.model])
    total = sum(each.seconds for each in every)
    mine = [each for each in every if each.seconds >= LEAST_SHARE * total]
    if ceilings is None or not mine:
        return None
    columns = (
        "intensity",
        "rate",
        "seconds",
        "share",
        "pass",
        "operator",
        "layers",
        "kind",
        "takes",
        "of_roof",
    )
    rows = [
        (
            each.intensity,
            each.operations_per_s / TERA,
            each.seconds,
            each.seconds / total,
            each.operator.graph,
            each.operator.name,
            layer_range(each.operator.layers) or each.operator.layer,
            each.operator.kind,
            duration(each.operator.seconds),
            each.operations_per_s
            / min(ceilings.matrix_flops, each.intensity * ceilings.hbm_bytes_per_s),
        )
        for each in mine
    ]
    data = inline_data(columns, rows, words={"pass", "operator", "layers", "kind", "takes"})
    least, most = (
        min(each.intensity for each in mine) / 2,
        max(*(each.intensity for each in mine), ceilings.ridge) * 2,
    )
    low = min(each.operations_per_s for each in mine) / TERA / 2
    x = alt.X(
        "intensity:Q",
        title="operations per byte of off-chip traffic",
        scale=alt.Scale(type="log", domain=[least, most], nice=False),
    )
    top = 2 * ceilings.matrix_flops / TERA
    decades = alt.Axis(
        values=[10.0**power for power in range(-9, 10)], format="~g", labelOverlap="greedy"
    )
    y = alt.Y(
        "rate:Q",
        title="Tera-operations per second",
        scale=alt.Scale(type="log", domain=[low, top], nice=False),
        axis=decades,
    )
    passes = [name for name in PASSES if any(each.operator.graph == name for each in mine)]
    tooltip = [
        alt.Tooltip("operator:N", title="operator"),
        alt.Tooltip("layers:N", title="of"),
        alt.Tooltip("pass:N", title="pass"),
        alt.Tooltip("kind:N", title="kind"),
        alt.Tooltip("takes:N", title="takes"),
        alt.Tooltip("share:Q", title="of all operators' time", format=".2~%"),
        alt.Tooltip("intensity:Q", title="operations per byte", format=".3~r"),
        alt.Tooltip("rate:Q", title="Tera-operations/s", format=".3~r"),
        alt.Tooltip("of_roof:Q", title="of the roof", format=".0%"),
    ]
    roofs = _roofs(ceilings, least, most, low)
    ends = alt.Chart(inline_data(("intensity", "rate", "roof"), roofs, words={"roof"}))
    chart = alt.layer(
        ends.mark_line(color=colour("muted"), strokeWidth=1.5, clip=True).encode(
            x=x, y=y, detail="roof:N"
        ),
        ends.transform_filter(f"datum.intensity >= {most * 0.999}")
        .mark_text(align="right", dy=-7, tooltip=None)
        .encode(x=x, y=y, text="roof:N"),
        alt.Chart(data)
        .mark_circle(opacity=0.7, stroke=colour("page"), strokeWidth=0.5, clip=True)
        .encode(
            x=x,
            y=y,
            size=alt.Size("seconds:Q", scale=alt.Scale(range=[20, 700]), legend=None),
            color=alt.Color(
                "pass:N",
                title=None,
                scale=alt.Scale(domain=passes, range=[colour(PASSES[name]) for name in passes]),
            ),
            tooltip=tooltip,
        ),
    )
    bound = sum(each.seconds for each in mine if each.intensity < ceilings.ridge) / total
    on_chip = points.best.accelerator is not None
    which = (
        "Bytes are what the chip moves, re-reads included."
        if on_chip
        else "Bytes are those of the operands."
    )
    caption = (
        "Each operator of the layers at its arithmetic intensity and what it achieves, the larger "
        "the more of a micro-batch's "
        "time it takes; products count FLOPs, others the elements of their functions. "
        f"{share(bound)} of the operators' time is left of the ridge at {number(ceilings.ridge)} "
        "operations per byte, where HBM "
        f"is the lower roof. {which}"
    )
    if len(mine) < len(every):
        caption += f" {len(every) - len(mine)} operators that take next to no time are left out."
    if on_chip:
        caption += " An operator on a single core reaches its core's part of the roof at most."
    return Figure(
        f"roofline{points.suffix}",
        "Roofline",
        caption,
        sized(chart, 380),
        len(rows),
        _operator_table(mine, ceilings),
    )


def _roofs(
    ceilings: Ceilings, least: float, most: float, low: float
) -> list[tuple[float, float, str]]:
    """The ends of the roofs in the chart: intensity, tera-operations per second, and what the roof
    is."""
    memory, matrix = ceilings.hbm_bytes_per_s / TERA, ceilings.matrix_flops / TERA
    words = (
        f"matrix units {number(matrix)} TFLOP/s, HBM {number(ceilings.hbm_bytes_per_s / GIGA)} GB/s"
    )
    start = max(least, low / memory)
    roof = [(start, memory * start, words), (ceilings.ridge, matrix, words), (most, matrix, words)]
    if ceilings.vector_operations is None:
        return roof
    vector = ceilings.vector_operations / TERA
    lanes = f"vector units {number(vector)} Tera-operations/s"
    return [*roof, (max(vector / memory, least), vector, lanes), (most, vector, lanes)]


def _operator_table(points: Sequence[RooflinePoint], ceilings: Ceilings) -> PageTable:
    longest = sorted(points, key=lambda each: -each.seconds)[:MOST_ROWS]
    total = sum(each.seconds for each in points)
    columns = (
        "operator",
        "of",
        "pass",
        "share of the time",
        "operations per byte",
        "Tera-operations/s",
        "lower roof",
    )
    rows = (
        (
            each.operator.name,
            textwrap.shorten(layer_range(each.operator.layers) or each.operator.layer, 60),
            each.operator.graph,
            share(each.seconds / total),
            number(each.intensity),
            number(each.operations_per_s / TERA),
            "HBM" if each.intensity < ceilings.ridge else "matrix units",
        )
        for each in longest
    )
    words = {"operator", "of", "pass", "lower roof"}
    return table(f"The {len(longest)} operators that take longest", columns, rows, words=words)
