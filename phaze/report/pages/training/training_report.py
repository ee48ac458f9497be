"""The page of a training: losses, what every stage measured beside what was predicted of it, and
what the check found."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from Estimator.plans.results import PipelineReport
from GraphExtractor.names import label
from phaze.report.pages.figures import KeyNumber, PageTable, Part, Report, Section, table
from phaze.report.pages.formats import duration
from phaze.report.pages.training.stage_figures import (
    loss_figure,
    memory_figure,
    processor_figure,
    step_figure,
    within,
)
from phaze.report.pages.training.timeline_figure import timeline_figure
from phaze.runtime.training.records import CheckRecord, JobRecord, TrainRecord
from phaze_common.numbers import percent

SHARED_CORES = (
    "Seconds by the wall clock hold waiting for cores where there are fewer of them than "
    "processes, which a prediction takes to "
    "run at once; seconds of the processor do not."
)


def training_report(
    record: TrainRecord, job: JobRecord, predicted: PipelineReport | None
) -> Report:
    """The page of one training."""
    return Report(
        title=f"The training of {label(record.model)}",
        subtitle=f"{record.processes} processes, {len(record.steps)} steps on {record.data} data, "
        f"{record.dtype}",
        answer=training_words(record),
        numbers=tuple(training_numbers(record)),
        reasons=(),
        sections=training_sections(record, job, predicted),
        warnings=() if record.check is None or record.check.equal else (check_words(record.check),),
    )


def training_words(record: TrainRecord) -> str:
    """How it went, in sentences."""
    first, last = record.steps[0], record.steps[-1]
    words = (
        f"The loss went from {first.loss:.4f} to {last.loss:.4f}; a step takes "
        f"{duration(record.step_s)}"
    )
    if record.predicted_step_s is not None:
        words += f", {duration(record.predicted_step_s)} were predicted"
    words += "."
    errors = [each.processor_error for each in record.stages if each.processor_error is not None]
    if errors:
        middle, worst = median(map(abs, errors)), max(map(abs, errors))
        words += (
            f" The predicted processor time of a stage is off by {percent(middle)} in the "
            f"median, {percent(worst)} at most."
        )
    if record.check is not None:
        words += f" {check_words(record.check)}"
    return words


def check_words(check: CheckRecord) -> str:
    """What the check found."""
    what = "trains the same as" if check.equal else "trains otherwise than"
    most = max(check.loss_difference, check.parameter_difference)
    words = (
        f"The plan {what} one process: after {check.steps} steps in {check.dtype} losses and "
        f"parameters differ by {most:.1e}, "
        f"{check.tolerance:.0e} is allowed."
    )
    if check.as_trained is not None:
        differ = max(check.as_trained.loss, check.as_trained.parameter)
        words += (
            f" In {check.as_trained.dtype} they differ by {differ:.1e}, so that "
            f"{check.dtype} decided."
        )
    return words


def training_numbers(record: TrainRecord) -> Iterator[KeyNumber]:
    """What belongs at the top."""
    predicted = record.predicted_step_s
    note = "" if predicted is None else f"{duration(predicted)} predicted"
    yield KeyNumber("a step takes", duration(record.step_s), note)
    errors = [each.processor_error for each in record.stages if each.processor_error is not None]
    if errors:
        worst = max(errors, key=abs)
        yield KeyNumber(
            "error of the processor time",
            percent(median(map(abs, errors))),
            f"median over stages; worst {within(worst)}",
        )
    yield KeyNumber(
        "last loss", f"{record.steps[-1].loss:.4f}", f"first {record.steps[0].loss:.4f}"
    )
    if record.check is not None:
        yield KeyNumber(
            "equal to one process",
            "yes" if record.check.equal else "no",
            f"in {record.check.dtype}",
        )


def training_sections(
    record: TrainRecord, job: JobRecord, predicted: PipelineReport | None
) -> tuple[Section, ...]:
    """The sections that a page has of a training."""
    compared, line = processor_figure(record.stages), timeline_figure(job.processes, predicted)
    notes = (*(f"{note[0].upper()}{note[1:]}." for note in record.notes), SHARED_CORES)
    check = () if record.check is None else (_check_table(record.check),)
    return (
        Section(
            "training",
            "Training",
            (Part("", (training_words(record), *notes), (loss_figure(record.steps),), check),),
        ),
        Section(
            "compared",
            "Measured and predicted",
            (
                Part(
                    "",
                    (),
                    (
                        *([compared] if compared else []),
                        step_figure(record.stages),
                        memory_figure(record.stages),
                    ),
                ),
                *((Part("", (), (line,)),) if line else ()),
            ),
        ),
    )


def _check_table(check: CheckRecord) -> PageTable:
    rows = [
        (
            check.dtype,
            f"{check.loss_difference:.1e}",
            f"{check.parameter_difference:.1e}",
            check.parameter,
        )
    ]
    first = check.as_trained
    if first is not None:
        rows.insert(0, (first.dtype, f"{first.loss:.1e}", f"{first.parameter:.1e}", first.name))
    columns = ("number format", "largest difference of losses", "of parameters", "parameter")
    return table(
        "Against one process, relative", columns, rows, words={"number format", "parameter"}
    )
