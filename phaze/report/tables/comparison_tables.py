"""Traces of a run beside its prediction, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report.table import Table, shortened
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


def comparison_tables(found: TraceComparison) -> list[Table]:
    """Where the iteration goes, measured and predicted: stages, parts, products, kernels."""
    first = [_stages(found)] if len(found.stages) > 1 else []
    return [*first, *(table for each in found.stages for table in _stage_tables(each, found))]


def _stages(found: TraceComparison) -> Table:
    rows = []
    for each in found.stages:
        whole = _whole(each)
        parts = [part for part in each.parts if part.name not in (ITERATION, EXPOSED)]
        most = max(parts, key=lambda part: abs(part.predicted_s - part.measured_s))
        rows.append(
            {
                "stage": str(each.stage),
                "traces": str(len(each.traces)),
                **_times(whole, whole.measured_s),
                "most apart": most.name,
                "by ms": f"{(most.predicted_s - most.measured_s) * MILLI:+.3f}",
            }
        )
    title = f"iterations of {len(found.stages)} of {found.pp} stages"
    return Table.of(title, rows, words={"most apart"})


def _stage_tables(stage: ComparedStage, found: TraceComparison) -> Iterator[Table]:
    busiest = ", the busiest" if stage.stage == found.busiest else ""
    where = f"stage {stage.stage} of {found.pp}{busiest}" if found.pp > 1 else "one device"
    traces = stage.traces[0] if len(stage.traces) == 1 else f"{len(stage.traces)} traces"
    whole_s = _whole(stage).measured_s
    yield Table.of(
        f"{traces}, mean of {stage.steps} iterations, and {where}",
        (
            {"part": each.name, **_times(each, whole_s), "to calibrate": each.remedy or "-"}
            for each in stage.parts
        ),
        words={"part", "to calibrate"},
    )
    if stage.products:
        yield _products(stage)
    kernels = (
        {
            "kernel": shortened(kernel.name, LONGEST_NAME),
            "part": kernel.part,
            "ms": f"{kernel.seconds * MILLI:.3f}",
            "share": f"{kernel.seconds / whole_s:.1%}",
        }
        for kernel in stage.longest
    )
    yield Table.of(
        "the kernels that take most",
        kernels,
        columns=("kernel", "part", "ms", "share"),
        words={"kernel", "part"},
    )


def _products(stage: ComparedStage) -> Table:
    rows = []
    for each in stage.products[:MOST_PRODUCTS]:
        shape, measured_s, predicted_s = each.shape, each.measured_s, each.predicted_s
        both = measured_s and predicted_s
        rows.append(
            {
                "product": f"{shape.batch} x {shape.narrow} x {shape.wide}, {shape.inner}",
                "kernels": f"{each.measured_count:g}",
                "predicted": str(each.predicted_count),
                "measured ms": f"{measured_s * MILLI:.3f}",
                "predicted ms": f"{predicted_s * MILLI:.3f}",
                "measured / predicted": f"{measured_s / predicted_s:.2f}" if both else "-",
            }
        )
    left = len(stage.products) - MOST_PRODUCTS
    more = f"; {left} shapes that take less are left out" if left > 0 else ""
    title = f"matrix products: batch x m x n, over k{more}"
    return Table.of(title, rows, words={"product"})


def _whole(stage: ComparedStage) -> ComparedPart:
    return next(each for each in stage.parts if each.name == ITERATION)


def _times(part: ComparedPart, whole_s: float) -> dict[str, str]:
    # + 0.0: no minus before 0
    off = round((part.predicted_s - part.measured_s) / whole_s, 3) + 0.0
    return {
        "measured ms": f"{part.measured_s * MILLI:.3f}",
        "predicted ms": f"{part.predicted_s * MILLI:.3f}",
        "off": f"{off:+.1%}",
    }
