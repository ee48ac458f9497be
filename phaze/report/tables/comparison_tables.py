"""Traces of a run beside its prediction, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report.tables.text_tables import TextTable, new_table
from phaze.studies.trace_comparison import (
    EXPOSED,
    ITERATION,
    ComparedPart,
    ComparedStage,
    TraceComparison,
)

MILLI = 1e3
LONGEST_NAME = 80
MOST_PRODUCTS = 12


def comparison_tables(found: TraceComparison) -> list[TextTable]:
    """Where the iteration goes, measured and predicted: over the stages, then for each by part,
    product and kernel."""
    first = [_stages(found)] if len(found.stages) > 1 else []
    return [*first, *(table for each in found.stages for table in _stage_tables(each, found))]


def _stages(found: TraceComparison) -> TextTable:
    headings = ("stage", "traces", "measured ms", "predicted ms", "off", "most apart", "by ms")
    table = new_table(
        f"iterations of {len(found.stages)} of {found.pp} stages", headings, words={"most apart"}
    )
    for each in found.stages:
        whole = _whole(each)
        parts = [part for part in each.parts if part.name not in (ITERATION, EXPOSED)]
        most = max(parts, key=lambda part: abs(part.predicted_s - part.measured_s))
        apart = f"{(most.predicted_s - most.measured_s) * MILLI:+.3f}"
        times = (
            f"{whole.measured_s * MILLI:.3f}",
            f"{whole.predicted_s * MILLI:.3f}",
            _off(whole, whole.measured_s),
        )
        table.add_row(str(each.stage), str(len(each.traces)), *times, most.name, apart)
    return table


def _stage_tables(stage: ComparedStage, found: TraceComparison) -> Iterator[TextTable]:
    busiest = ", the busiest" if stage.stage == found.busiest else ""
    where = f"stage {stage.stage} of {found.pp}{busiest}" if found.pp > 1 else "one device"
    traces = stage.traces[0] if len(stage.traces) == 1 else f"{len(stage.traces)} traces"
    parts = new_table(
        f"{traces}, mean of {stage.steps} iterations, and {where}",
        ("part", "measured ms", "predicted ms", "off", "to calibrate"),
        words={"part", "to calibrate"},
    )
    whole_s = _whole(stage).measured_s
    for each in stage.parts:
        times = (
            f"{each.measured_s * MILLI:.3f}",
            f"{each.predicted_s * MILLI:.3f}",
            _off(each, whole_s),
        )
        parts.add_row(each.name, *times, each.remedy or "-")
    yield parts
    if stage.products:
        yield _products(stage)
    kernels = new_table(
        "the kernels that take most", ("kernel", "part", "ms", "share"), words={"kernel", "part"}
    )
    for kernel in stage.longest:
        name = (
            kernel.name
            if len(kernel.name) <= LONGEST_NAME
            else f"{kernel.name[: LONGEST_NAME - 1]}…"
        )
        kernels.add_row(
            name, kernel.part, f"{kernel.seconds * MILLI:.3f}", f"{kernel.seconds / whole_s:.1%}"
        )
    yield kernels


def _products(stage: ComparedStage) -> TextTable:
    headings = (
        "product",
        "kernels",
        "predicted",
        "measured ms",
        "predicted ms",
        "measured / predicted",
    )
    left = len(stage.products) - MOST_PRODUCTS
    title = "matrix products: batch x m x n, over k" + (
        f"; {left} shapes that take less are left out" if left > 0 else ""
    )
    table = new_table(title, headings, words={"product"})
    for each in stage.products[:MOST_PRODUCTS]:
        shape = each.shape
        table.add_row(
            f"{shape.batch} x {shape.narrow} x {shape.wide}, {shape.inner}",
            f"{each.measured_count:g}",
            str(each.predicted_count),
            f"{each.measured_s * MILLI:.3f}",
            f"{each.predicted_s * MILLI:.3f}",
            f"{each.measured_s / each.predicted_s:.2f}"
            if each.measured_s and each.predicted_s
            else "-",
        )
    return table


def _whole(stage: ComparedStage) -> ComparedPart:
    return next(each for each in stage.parts if each.name == ITERATION)


def _off(part: ComparedPart, whole_s: float) -> str:
    # + 0.0: no minus before 0
    return f"{round((part.predicted_s - part.measured_s) / whole_s, 3) + 0.0:+.1%}"
