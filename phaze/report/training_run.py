"""A training that was run: tables of measured beside predicted, and a timeline of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from Estimator.plans.results import PipelineReport
from phaze.report.table import Table, plain_table
from phaze.report.trace.events import Event, Process, Shown, Slice, Thread, file_content
from phaze.report.trace.pipeline import PipelineTrace
from phaze.runtime.training.records import CheckRecord, JobRecord, StageRecord, TrainRecord

FIRST_PID = 1
PREDICTED_PASSES = 200  # of a stage; more are not measured by a training of this kind either
MIB = 2**20


def training_tables(record: TrainRecord, folder: Path) -> list[Table]:
    """The run in one row, its stages, and what the check found."""
    first, last = record.steps[0], record.steps[-1]
    run: dict[str, object] = {
        "model": record.model,
        "processes": record.processes,
        "steps": f"{first.step} to {last.step}",
        "first_loss": round(first.loss, 6),
        "last_loss": round(last.loss, 6),
        "step_s": round(record.step_s, 4),
        "predicted_step_s": _rounded(record.predicted_step_s),
        "folder": str(folder),
    }
    tables = [
        plain_table("training", [run]),
        plain_table("stages, seconds per step", [_row(stage) for stage in record.stages]),
    ]
    if record.check is not None:
        tables.append(plain_table("against one process, relative", list(_check_rows(record.check))))
    return tables


def _check_rows(check: CheckRecord) -> Iterator[dict[str, object]]:
    """As it was trained where that did not decide, and what decided."""

    def row(dtype: str, loss: float, parameter: float, name: str, equal: str) -> dict[str, object]:
        return {
            "steps": check.steps,
            "dtype": dtype,
            "loss_difference": f"{loss:.1e}",
            "parameter_difference": f"{parameter:.1e}",
            "parameter": name,
            "allowed": f"{check.tolerance:.0e}",
            "equal": equal,
        }

    first, equal = check.as_trained, "yes" if check.equal else "no"
    if first is not None:
        undecided = f"may be rounding: {check.dtype} decides"
        yield row(first.dtype, first.loss, first.parameter, first.name, undecided)
    found = check.loss_difference, check.parameter_difference
    yield row(check.dtype, *found, check.parameter, equal)


def _row(stage: StageRecord) -> dict[str, object]:
    predicted_bytes = stage.predicted.memory_bytes
    row: dict[str, object] = {"stage": stage.stage, "layers": len(stage.layers)}
    row |= {"dp": stage.dp, "tp": stage.tp}
    for each in ("forward", "backward"):
        row[each] = round(getattr(stage.measured, f"{each}_s"), 4)
        row[f"{each}_cpu"] = round(getattr(stage.measured, f"{each}_processor_s"), 4)
        row[f"{each}_predicted"] = _rounded(getattr(stage.predicted, f"{each}_s"))
    row["error"] = None if stage.processor_error is None else f"{stage.processor_error:+.1%}"
    for each in ("communication", "idle", "update"):
        row[each] = round(getattr(stage.measured, f"{each}_s"), 4)
    for each in ("state", "kept", "resident"):
        row[f"{each}_mib"] = round(getattr(stage, f"{each}_bytes") / MIB, 1)
    mib = None if predicted_bytes is None else round(predicted_bytes / MIB, 1)
    return row | {"predicted_mib": mib}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def measured_timeline(
    record: TrainRecord, job: JobRecord, predicted: PipelineReport | None
) -> bytes:
    """Chrome's trace format: a process per process of the training, and the predicted pipeline."""
    about: dict[str, Shown] = {"model": record.model, "measured step s": record.step_s}
    return file_content(_events(record, job, predicted), about | {"processes": record.processes})


def _events(
    record: TrainRecord, job: JobRecord, predicted: PipelineReport | None
) -> Iterator[Event]:
    start = min((span.start_ns for process in job.processes for span in process.spans), default=0)
    for process in job.processes:
        pid = FIRST_PID + process.rank
        place = f"stage {process.stage}, replica {process.replica}, part {process.part}"
        yield Process(pid, f"measured: {place}")
        yield Thread(pid, 0, "passes and waiting")
        for span in sorted(process.spans, key=lambda each: (each.start_ns, -each.end_ns)):
            kind, batch = span.activity.value, span.micro_batch
            ends = span.start_ns - start, span.end_ns - start
            args: dict[str, Shown] = {"step": span.step, "processor s": span.processor_ns / 1e9}
            yield Slice(pid, 0, kind if batch < 0 else f"{kind} {batch}", kind, *ends, args)
    if predicted is not None and len(record.stages) == predicted.pp:
        pipeline = PipelineTrace(
            f"predicted: {record.model}",
            predicted,
            [stage.layers for stage in record.stages],
            [stage.predicted.kept_bytes for stage in record.stages],
        )
        yield from pipeline.draw(FIRST_PID + record.processes, 1, PREDICTED_PASSES)
