"""What the errors of predictions come from, as tables, and how often intervals hold what was
measured."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.report.tables.text_tables import TextTable, new_table
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


def explanation_tables(explained: ErrorExplanation) -> list[TextTable]:
    """Errors by setting, by part, and contradictions in what was measured."""
    if not explained.runs or explained.mape <= NOTHING:
        why = (
            "no run was predicted"
            if not explained.runs
            else f"{explained.runs} runs are predicted as measured"
        )
        table = new_table("nothing to explain", ("why",), words={"why"})
        table.add_row(why)
        return [table]
    tables = [group_table(explained)] if explained.groups else []
    if explained.causes:
        tables.append(cause_table(explained))
    return [*tables, contradiction_table(explained)] if explained.contradictions else tables


def group_table(explained: ErrorExplanation) -> TextTable:
    """What runs that are off have in common: settings between whose values errors differ most."""
    table = new_table(
        "errors by what runs have in common, the widest apart first",
        ("setting", "value", "runs", "bias", "MAPE"),
        words={"setting", "value"},
    )
    for group in explained.groups[:MOST_GROUPS]:
        table.add_row(
            group.setting, group.value, str(group.runs), f"{group.bias:+.1%}", f"{group.mape:.1%}"
        )
    return table


def cause_table(explained: ErrorExplanation) -> TextTable:
    """What one constant does for the errors of all runs and of those that have one thing in common,
    and if it is the cause."""
    title = (
        "no single constant helps"
        if not explained.found
        else "one constant at a time, where it is the cause first"
    )
    columns = (
        "runs of",
        "runs",
        "MAPE",
        "best of one",
        "times as long",
        "MAPE then",
        "of runs left out",
        "verdict",
    )
    table = new_table(
        title, columns, words={"runs of", "best of one", "verdict"}, spared=("of runs left out",)
    )
    for cause in sorted(
        explained.causes, key=lambda each: (not each.is_cause, each.setting != "overall")
    ):
        verdict = "no single constant helps"
        if cause.is_cause:
            within = cause.move.part.low <= cause.move.factor <= cause.move.part.high
            verdict = cause.move.part.constant + ("" if within else ", beyond what is known of it")
        table.add_row(
            _short(f"{cause.setting} {cause.value}".strip()),
            str(cause.runs),
            f"{cause.mape:.1%}",
            cause.move.part.name,
            f"{number(cause.move.factor, 3)}x",
            f"{cause.move.mape:.1%}",
            f"{cause.held_out:.1%}",
            verdict,
        )
    return table


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SCOPE else text[: LONGEST_SCOPE - 1] + "…"


def misfit_table(report: ValidationReport) -> TextTable:
    """What fills the memory of runs that are predicted not to fit though they ran, by the largest
    parts."""
    columns = ("line", "model", "source", "GB", "of", "too much", "largest parts", "plan")
    table = new_table(
        f"what fills the memory of {report.not_fitting} runs that are predicted not to fit",
        columns,
        words={"model", "source", "largest parts", "plan"},
        spared=("source", "plan"),
    )
    for run in report.runs:
        memory, plan = run.memory, run.plan
        if run.fits is not False or memory is None or plan is None:
            continue
        parts = sorted(
            ((getattr(memory, field), name) for name, field in MEMORY_PARTS.items()), reverse=True
        )
        table.add_row(
            str(run.line),
            run.model,
            _short(run.source),
            f"{(memory.capacity_bytes + memory.over_bytes) / GB:.1f}",
            f"{memory.capacity_bytes / GB:.1f}",
            f"{memory.over_bytes / GB:.1f}",
            ", ".join(f"{name} {value / GB:.1f}" for value, name in parts),
            f"tp {plan.tp} pp {plan.pp} dp {plan.dp} cp {plan.cp} ep {plan.ep}, micro-batch "
            f"{plan.micro_batch_size}, "
            f"{plan.recompute}, ZeRO {plan.zero_stage}, {plan.precision}",
        )
    return table


def contradiction_table(explained: ErrorExplanation) -> TextTable:
    """Lines with the same plan on the same hardware whose measured times differ."""
    table = new_table(
        "one plan, other times: no prediction can be right for all",
        ("lines", "model", "measured s"),
        words={"model"},
    )
    for each in explained.contradictions:
        table.add_row(
            ", ".join(map(str, each.lines)),
            each.model,
            f"{number(each.low_s)} to {number(each.high_s)}",
        )
    return table


def coverage_table(found: Sequence[Coverage]) -> TextTable:
    """How often intervals hold what was measured, each source left out in turn."""
    columns = ("interval", "sources held", "runs held", "mean width")
    table = new_table("intervals of a source from the errors of all others", columns, words=set())
    for each in found:
        sources, runs = f"{each.sources_held} of {each.sources}", f"{each.runs_held} of {each.runs}"
        table.add_row(f"{each.nominal:.0%}", sources, runs, f"{each.width:.0%} of the prediction")
    return table
