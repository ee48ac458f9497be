"""A profiler's trace beside its prediction, as tables for the terminal."""

from __future__ import annotations

from Reporter.text_tables import TextTable, new_table
from Studies.trace_comparison import ITERATION, TraceComparison

MILLI = 1e3
LONGEST_NAME = 80


def comparison_tables(found: TraceComparison) -> list[TextTable]:
    """Where the iteration goes, measured and predicted, and the kernels that take most of it."""
    where = f"stage {found.stage} of {found.stages}, the busiest" if found.stages > 1 else "one device"
    parts = new_table(
        f"{found.trace}, mean of {found.steps} iterations, and {where}",
        ("part", "measured ms", "predicted ms", "off", "to calibrate"),
        words={"part", "to calibrate"},
    )
    whole_s = next(each.measured_s for each in found.parts if each.name == ITERATION)
    for each in found.parts:
        off = f"{(each.predicted_s - each.measured_s) / whole_s:+.1%}"
        parts.add_row(each.name, f"{each.measured_s * MILLI:.3f}", f"{each.predicted_s * MILLI:.3f}", off, each.remedy or "-")
    kernels = new_table("the kernels that take most", ("kernel", "part", "ms", "share"), words={"kernel", "part"})
    for kernel in found.longest:
        name = kernel.name if len(kernel.name) <= LONGEST_NAME else f"{kernel.name[: LONGEST_NAME - 1]}…"
        kernels.add_row(name, kernel.part, f"{kernel.seconds * MILLI:.3f}", f"{kernel.seconds / whole_s:.1%}")
    return [parts, kernels]
