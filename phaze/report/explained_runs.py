"""Where errors of predictions come from, and how often intervals hold what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.report.table import Table, shortened
from phaze.validation.explained import NOTHING, ErrorExplanation
from phaze.validation.intervals import Coverage
from phaze.validation.records import ValidationReport
from phaze_common.numbers import number

MOST_GROUPS = 16
LONGEST_SCOPE = 44  # characters
GB = 1e9
MEMORY_PARTS = {
    "weights, gradients and optimizer": "state_bytes",
    "activations": "activation_bytes",
    "buffers and fragmentation": "buffer_bytes",
}


def explanation_tables(explained: ErrorExplanation) -> list[Table]:
    """Errors by setting, by part, and contradictions in what was measured."""
    if not explained.runs or explained.mape <= NOTHING:
        predicted = f"{explained.runs} runs are predicted as measured"
        why = predicted if explained.runs else "no run was predicted"
        return [Table.of("nothing to explain", [{"why": why}], words={"why"})]
    tables = group_table(explained), cause_table(explained), contradiction_table(explained)
    return [table for table in tables if table.rows]


def group_table(explained: ErrorExplanation) -> Table:
    """What runs that are off have in common: settings between whose values errors differ most."""
    rows = (
        {
            "setting": group.setting,
            "value": group.value,
            "runs": str(group.runs),
            "bias": f"{group.bias:+.1%}",
            "MAPE": f"{group.mape:.1%}",
        }
        for group in explained.groups[:MOST_GROUPS]
    )
    title = "errors by what runs have in common, the widest apart first"
    return Table.of(title, rows, words={"setting", "value"})


def cause_table(explained: ErrorExplanation) -> Table:
    """What one constant does for runs with one thing in common, and whether it is the cause."""
    none = "no single constant helps"
    rows = []
    for cause in sorted(
        explained.causes, key=lambda each: (not each.is_cause, each.setting != "overall")
    ):
        move, verdict = cause.move, none
        if cause.is_cause:
            within = move.part.low <= move.factor <= move.part.high
            verdict = move.part.constant + ("" if within else ", beyond what is known of it")
        rows.append(
            {
                "runs of": shortened(f"{cause.setting} {cause.value}".strip(), LONGEST_SCOPE),
                "runs": str(cause.runs),
                "MAPE": f"{cause.mape:.1%}",
                "best of one": move.part.name,
                "times as long": f"{number(move.factor, 3)}x",
                "MAPE then": f"{move.mape:.1%}",
                "of runs left out": f"{cause.held_out:.1%}",
                "verdict": verdict,
            }
        )
    return Table.of(
        "one constant at a time, where it is the cause first" if explained.found else none,
        rows,
        words={"runs of", "best of one", "verdict"},
        spared=("of runs left out",),
    )


def misfit_table(report: ValidationReport) -> Table:
    """What fills the memory of runs that are predicted not to fit though they ran."""
    rows = []
    for run in report.runs:
        memory, plan = run.memory, run.degrees
        if run.fits is not False or memory is None or plan is None:
            continue
        parts = ((getattr(memory, field), name) for name, field in MEMORY_PARTS.items())
        largest = (f"{name} {value / GB:.1f}" for value, name in sorted(parts, reverse=True))
        rows.append(
            {
                "line": str(run.line),
                "model": run.model,
                "source": shortened(run.source, LONGEST_SCOPE),
                "GB": f"{(memory.capacity_bytes + memory.over_bytes) / GB:.1f}",
                "of": f"{memory.capacity_bytes / GB:.1f}",
                "too much": f"{memory.over_bytes / GB:.1f}",
                "largest parts": ", ".join(largest),
                "plan": f"tp {plan.tp} pp {plan.pp} dp {plan.dp} cp {plan.cp} ep {plan.ep}, "
                f"micro-batch {plan.micro_batch_size}, {plan.recompute}, ZeRO {plan.zero_stage}, "
                f"{plan.precision}",
            }
        )
    return Table.of(
        f"what fills the memory of {report.not_fitting} runs that are predicted not to fit",
        rows,
        words={"model", "source", "largest parts", "plan"},
        spared=("source", "plan"),
    )


def contradiction_table(explained: ErrorExplanation) -> Table:
    """Lines with the same plan on the same hardware whose measured times differ."""
    rows = (
        {
            "lines": ", ".join(map(str, each.lines)),
            "model": each.model,
            "measured s": f"{number(each.low_s)} to {number(each.high_s)}",
        }
        for each in explained.contradictions
    )
    title = "one plan, other times: no prediction can be right for all"
    return Table.of(title, rows, words={"model"})


def coverage_table(found: Sequence[Coverage]) -> Table:
    """How often intervals hold what was measured, each source left out in turn."""
    rows = (
        {
            "interval": f"{each.nominal:.0%}",
            "sources held": f"{each.sources_held} of {each.sources}",
            "runs held": f"{each.runs_held} of {each.runs}",
            "mean width": f"{each.width:.0%} of the prediction",
        }
        for each in found
    )
    return Table.of("intervals of a source from the errors of all others", rows, words=())
