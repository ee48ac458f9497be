"""The page of a training: losses, stages beside their predictions, and what the check found."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from Estimator.plans.results import PipelineReport
from GraphExtractor.names import label
from phaze.report.pages.figures import KeyNumber, Part, Report, Section
from phaze.report.pages.training.stage_figures import (
    loss_figure,
    memory_figure,
    processor_figure,
    step_figure,
    within,
)
from phaze.report.pages.training.timeline_figure import timeline_figure
from phaze.report.sentences.designs import capitalised
from phaze.report.table import Table
from phaze.runtime.training.records import CheckRecord, JobRecord, TrainRecord
from phaze_common.numbers import percent, time_text

SHARED_CORES = (
    "Seconds by the wall clock hold waiting for cores where there are fewer of them than "
    "processes, which a prediction takes to run at once; seconds of the processor do not."
)


def training_report(
    record: TrainRecord, job: JobRecord, predicted: PipelineReport | None
) -> Report:
    """The page of one training."""
    check, steps = record.check, f"{record.processes} processes, {len(record.steps)} steps"
    return Report(
        title=f"The training of {label(record.model)}",
        subtitle=f"{steps} on {record.data} data, {record.dtype}",
        answer=training_words(record),
        numbers=tuple(training_numbers(record)),
        reasons=(),
        sections=training_sections(record, job, predicted),
        warnings=() if check is None or check.equal else (check_words(check),),
    )


def training_words(record: TrainRecord) -> str:
    """How it went, in sentences."""
    first, last = record.steps[0], record.steps[-1]
    words = (
        f"The loss went from {first.loss:.4f} to {last.loss:.4f}; a step takes "
        f"{time_text(record.step_s)}"
    )
    if record.predicted_step_s is not None:
        words += f", {time_text(record.predicted_step_s)} were predicted"
    words += "."
    errors = [abs(each) for each in _processor_errors(record)]
    if errors:
        words += (
            f" The predicted processor time of a stage is off by {percent(median(errors))} in the "
            f"median, {percent(max(errors))} at most."
        )
    return words if record.check is None else f"{words} {check_words(record.check)}"


def _processor_errors(record: TrainRecord) -> list[float]:
    return [each.processor_error for each in record.stages if each.processor_error is not None]


def check_words(check: CheckRecord) -> str:
    """What the check found."""
    what = "trains the same as" if check.equal else "trains otherwise than"
    most = max(check.loss_difference, check.parameter_difference)
    words = (
        f"The plan {what} one process: after {check.steps} steps in {check.dtype} losses and "
        f"parameters differ by {most:.1e}, {check.tolerance:.0e} is allowed."
    )
    first = check.as_trained
    if first is not None:
        differ = max(first.loss, first.parameter)
        words += f" In {first.dtype} they differ by {differ:.1e}, so that {check.dtype} decided."
    return words


def training_numbers(record: TrainRecord) -> Iterator[KeyNumber]:
    """What belongs at the top."""
    predicted, first, last = record.predicted_step_s, record.steps[0], record.steps[-1]
    note = "" if predicted is None else f"{time_text(predicted)} predicted"
    yield KeyNumber("a step takes", time_text(record.step_s), note)
    errors = _processor_errors(record)
    if errors:
        middle = percent(median(map(abs, errors)))
        note = f"median over stages; worst {within(max(errors, key=abs))}"
        yield KeyNumber("error of the processor time", middle, note)
    yield KeyNumber("last loss", f"{last.loss:.4f}", f"first {first.loss:.4f}")
    if record.check is not None:
        equal = "yes" if record.check.equal else "no"
        yield KeyNumber("equal to one process", equal, f"in {record.check.dtype}")


def training_sections(
    record: TrainRecord, job: JobRecord, predicted: PipelineReport | None
) -> tuple[Section, ...]:
    """The sections that a page has of a training."""
    stages = record.stages
    compared, line = processor_figure(stages), timeline_figure(job.processes, predicted)
    notes = (*(f"{capitalised(note)}." for note in record.notes), SHARED_CORES)
    check = () if record.check is None else (_check_table(record.check),)
    words = (training_words(record), *notes)
    figures = (*([compared] if compared else []), step_figure(stages), memory_figure(stages))
    both = (Part(figures=figures), *((Part(figures=(line,)),) if line else ()))
    return (
        Section("training", "Training", (Part("", words, (loss_figure(record.steps),), check),)),
        Section("compared", "Measured and predicted", both),
    )


def _check_table(check: CheckRecord) -> Table:
    def row(dtype: str, loss: float, parameter: float, name: str) -> dict[str, str]:
        return {
            "number format": dtype,
            "largest difference of losses": f"{loss:.1e}",
            "of parameters": f"{parameter:.1e}",
            "parameter": name,
        }

    first = check.as_trained
    rows = [row(check.dtype, check.loss_difference, check.parameter_difference, check.parameter)]
    if first is not None:
        rows.insert(0, row(first.dtype, first.loss, first.parameter, first.name))
    title = "Against one process, relative"
    return Table.of(title, rows, words={"number format", "parameter"})
