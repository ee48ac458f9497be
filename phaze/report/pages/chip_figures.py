"""What area and energy of the chosen chip go to, and its operators under the roofline."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import altair as alt

from Estimator.chips.area import area_parts
from Estimator.chips.energy import EnergyParts
from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from phaze.report.pages.charts import EDGE, by_role, chart_of, exactly, sized, tips
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Figure
from phaze.report.pages.layer_ranges import layer_range
from phaze.report.pages.theme import colour
from phaze.report.sentences.answers import total_of
from phaze.report.sentences.designs import bought_text
from phaze.report.table import Table
from phaze_common.numbers import number, share, time_text
from Solver.chip_records import ChipPart
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
    caption = (
        f"{chip.area_mm2:.1f} mm² in all; cores are their processing elements and lanes. The area "
        "model has no HBM interface, network on chip or control."
    )
    parts, whole = area_parts(chip, space.platform), points.best.chip
    mm2 = {
        "tensor cores": parts.tensor_arithmetic_mm2,
        "vector cores": parts.vector_arithmetic_mm2,
        "buffers of the cores": parts.tensor_buffers_mm2 + parts.vector_buffers_mm2,
        "global buffer": parts.global_buffer_mm2,
    }
    if whole is not None:
        mm2, dies = _amounts(whole.area_mm2), f"in {whole.dies} dies"
        caption = (
            f"{total_of(whole.area_mm2):.1f} mm² {'in one die' if whole.dies == 1 else dies}: "
            "cores and buffers, the network between them, interfaces to memory and to other "
            "chips, and what control, test and padding take."
        )
    return _parts_figure("area-split", "Area of the chip", caption, mm2, "mm²")


def whole_chip_figures(points: PointsOfModel) -> list[Figure]:
    """What peak power, price and carbon of a chip go to; none where they are not known."""
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
        f"its share of servers and network {number(report.owning_usd)} $."
    )
    for model, use in report.uses.items():
        if use.bought is not None:
            cost += f" For {label(model)} {bought_text(use.bought)}."
    carbon = f"{number(total_of(report.embodied_kg))} kg CO2e are emitted before it is switched on."
    watts, dollars, kilograms = map(_amounts, (report.peak_w, report.cost_usd, report.embodied_kg))
    return [
        _parts_figure("power-split", "Power of the chip at its peak", power, watts, "W"),
        _parts_figure("cost-split", "Price of the chip", cost, dollars, "$"),
        _parts_figure("carbon-split", "Carbon of the chip", carbon, kilograms, "kg CO2e"),
    ]


def _amounts(parts: tuple[ChipPart, ...]) -> dict[str, float]:
    return {part.name: part.amount for part in parts}


def energy_parts(points: PointsOfModel) -> EnergyParts | None:
    """Joules per sample of all devices that work on it, by part; None where energy is not known."""
    mine = [each for each in points.run.operators if each.model == points.model]
    split = [each.energy.times(each.repeats) for each in mine if each.energy is not None]
    if not split or len(split) < len(mine):
        return None
    plan = points.plan
    return sum(split, EnergyParts()).times(plan.inner_devices / plan.micro_batch_size)


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
        "the buffers of the cores and the global one, and traffic off the chip. Gradients, "
        "messages between stages, the optimizer and leakage are not in it."
    )
    return _parts_figure(f"energy-split{points.suffix}", "Energy of a sample", caption, joules, "J")


def _parts_figure(
    name: str, title: str, caption: str, amounts: dict[str, float], unit: str
) -> Figure:
    """A bar per part, with its share."""
    total = sum(amounts.values())
    shown = {part: amount for part, amount in amounts.items() if amount > 0.0}
    base = chart_of(
        {
            "part": part,
            "amount": amount,
            "words": f"{number(amount)} {unit}, {share(amount / total)}",
        }
        for part, amount in shown.items()
    )
    scale, few = exactly(0, 1.45 * max(shown.values())), alt.Axis(tickCount=5)
    at = {
        "x": alt.X("amount:Q", title=unit, scale=scale, axis=few),
        "y": alt.Y("part:N", title=None, sort=list(shown), axis=alt.Axis(ticks=False)),
    }
    colours = by_role("part:N", {part: PARTS[part] for part in shown}, legend=None)
    tooltip = tips({"part:N": "part", "words:N": "takes"})
    words = base.mark_text(align="left", dx=5, tooltip=None).encode(text="words:N", **at)
    chart = alt.layer(base.mark_bar().encode(color=colours, tooltip=tooltip, **at), words)
    rows = (
        {"part": part, unit: number(amount), "share": share(amount / total)}
        for part, amount in shown.items()
    )
    table, spec = Table.of(title, rows, words={"part"}), sized(chart, 34 * len(shown))
    return Figure(name, title, caption, spec, 2 * len(shown), table, abreast=2)


@dataclass(frozen=True)
class Ceilings:
    """What the hardware can do at most: operations per second by kind of unit, bytes per second."""

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
        vector = chip.num_vc * chip.width_vc * platform.frequency_hz
        return Ceilings(matrix, vector, platform.hbm_bandwidth_bytes_per_s)
    if records.device is not None:
        matrix = records.device.peak_flops(points.plan.plan.precision.matrix_format)
        return Ceilings(matrix, None, records.device.memory.bandwidth.value)
    return None


@dataclass(frozen=True)
class RooflinePoint:
    """An operator: operations per byte and per second, seconds of a micro-batch in all its runs."""

    operator: PricedOperator
    operations: int
    intensity: float
    operations_per_s: float
    seconds: float


def roofline_points(operators: Sequence[PricedOperator]) -> tuple[RooflinePoint, ...]:
    """Operators that compute and move: products by FLOPs, others by elements of functions."""
    found = []
    for each in operators:
        operations = each.flops or each.vector_operations
        exchanges = each.kind == OperatorKind.COLLECTIVE.value
        if operations and each.hbm_bytes > 0.0 and each.seconds > 0.0 and not exchanges:
            intensity, rate = operations / each.hbm_bytes, operations / each.seconds
            seconds = each.seconds * each.repeats
            found.append(RooflinePoint(each, operations, intensity, rate, seconds))
    return tuple(found)


def roofline_figure(points: PointsOfModel) -> Figure | None:
    """Operators by arithmetic intensity and what they achieve; None where runs do not say."""
    ceilings = ceilings_of(points)
    every = roofline_points([each for each in points.run.operators if each.model == points.model])
    total = sum(each.seconds for each in every)
    mine = [each for each in every if each.seconds >= LEAST_SHARE * total]
    if ceilings is None or not mine:
        return None
    memory = ceilings.hbm_bytes_per_s
    operators = chart_of(
        {
            "intensity": each.intensity,
            "rate": each.operations_per_s / TERA,
            "seconds": each.seconds,
            "share": each.seconds / total,
            "pass": each.operator.graph,
            "operator": each.operator.name,
            "layers": _layers(each),
            "kind": each.operator.kind,
            "takes": time_text(each.operator.seconds),
            "of_roof": each.operations_per_s / min(ceilings.matrix_flops, each.intensity * memory),
        }
        for each in mine
    )
    least = min(each.intensity for each in mine) / 2
    most = max(*(each.intensity for each in mine), ceilings.ridge) * 2
    low = min(each.operations_per_s for each in mine) / TERA / 2
    decades = [10.0**power for power in range(-9, 10)]
    logarithmic = alt.Axis(values=decades, format="~g", labelOverlap="greedy")
    width = exactly(least, most, type="log")
    height = exactly(low, 2 * ceilings.matrix_flops / TERA, type="log")
    at = {
        "x": alt.X("intensity:Q", title="operations per byte of off-chip traffic", scale=width),
        "y": alt.Y("rate:Q", title="Tera-operations per second", scale=height, axis=logarithmic),
    }
    ends = chart_of(_roofs(ceilings, least, most, low))
    names = ends.transform_filter(f"datum.intensity >= {most * 0.999}")
    passes = {
        name: PASSES[name] for name in PASSES if any(each.operator.graph == name for each in mine)
    }
    tooltip = tips(
        {
            "operator:N": "operator",
            "layers:N": "of",
            "pass:N": "pass",
            "kind:N": "kind",
            "takes:N": "takes",
            "share:Q .2~%": "of all operators' time",
            "intensity:Q .3~r": "operations per byte",
            "rate:Q .3~r": "Tera-operations/s",
            "of_roof:Q .0%": "of the roof",
        }
    )
    chart = alt.layer(
        ends.mark_line(color=colour("muted"), strokeWidth=1.5, clip=True).encode(
            detail="roof:N", **at
        ),
        names.mark_text(align="right", dy=-7, tooltip=None).encode(text="roof:N", **at),
        operators.mark_circle(opacity=0.7, clip=True, **EDGE).encode(
            size=alt.Size("seconds:Q", scale=alt.Scale(range=[20, 700]), legend=None),
            color=by_role("pass:N", passes),
            tooltip=tooltip,
            **at,
        ),
    )
    return Figure(
        f"roofline{points.suffix}",
        "Roofline",
        _roofline_caption(points, mine, len(every) - len(mine), total, ceilings),
        sized(chart, 380),
        len(mine),
        _operator_table(mine, ceilings),
    )


def _layers(point: RooflinePoint) -> str:
    return layer_range(point.operator.layers) or point.operator.layer


def _roofline_caption(
    points: PointsOfModel,
    mine: Sequence[RooflinePoint],
    left_out: int,
    total_s: float,
    ceilings: Ceilings,
) -> str:
    bound = sum(each.seconds for each in mine if each.intensity < ceilings.ridge) / total_s
    on_chip = points.best.accelerator is not None
    which = "what the chip moves, re-reads included" if on_chip else "those of the operands"
    caption = (
        "Each operator of the layers at its arithmetic intensity and what it achieves, the larger "
        "the more of a micro-batch's time it takes; products count FLOPs, others the elements of "
        f"their functions. {share(bound)} of the operators' time is left of the ridge at "
        f"{number(ceilings.ridge)} operations per byte, where HBM is the lower roof. Bytes are "
        f"{which}."
    )
    if left_out:
        caption += f" {left_out} operators that take next to no time are left out."
    if on_chip:
        caption += " An operator on a single core reaches its core's part of the roof at most."
    return caption


def _roofs(
    ceilings: Ceilings, least: float, most: float, low: float
) -> Iterator[dict[str, object]]:
    """Ends of the roofs: operations per byte, tera-operations per second, and what the roof is."""
    memory, matrix = ceilings.hbm_bytes_per_s / TERA, ceilings.matrix_flops / TERA
    hbm = f"HBM {number(ceilings.hbm_bytes_per_s / GIGA)} GB/s"
    words, start = f"matrix units {number(matrix)} TFLOP/s, {hbm}", max(least, low / memory)
    for at, rate in ((start, memory * start), (ceilings.ridge, matrix), (most, matrix)):
        yield {"intensity": at, "rate": rate, "roof": words}
    if ceilings.vector_operations is not None:
        vector = ceilings.vector_operations / TERA
        words = f"vector units {number(vector)} Tera-operations/s"
        for at in (max(vector / memory, least), most):
            yield {"intensity": at, "rate": vector, "roof": words}


def _operator_table(points: Sequence[RooflinePoint], ceilings: Ceilings) -> Table:
    longest = sorted(points, key=lambda each: -each.seconds)[:MOST_ROWS]
    total = sum(each.seconds for each in points)
    rows = (
        {
            "operator": each.operator.name,
            "of": textwrap.shorten(_layers(each), 60),
            "pass": each.operator.graph,
            "share of the time": share(each.seconds / total),
            "operations per byte": number(each.intensity),
            "Tera-operations/s": number(each.operations_per_s / TERA),
            "lower roof": "HBM" if each.intensity < ceilings.ridge else "matrix units",
        }
        for each in longest
    )
    words = {"operator", "of", "pass", "lower roof"}
    return Table.of(f"The {len(longest)} operators that take longest", rows, words=words)
