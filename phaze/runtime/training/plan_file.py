"""The plan of a file, what the file predicts of it, and both beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import timeline
from Estimator.plans.plan import Plan, plan_by_value
from Estimator.plans.results import PipelineReport
from GraphExtractor.models.registry import canonical_name, find_model
from phaze.runs.found_plans import found_plan
from phaze.runtime.training.job import Job
from phaze.runtime.training.records import (
    CheckRecord,
    JobRecord,
    PredictedStage,
    StageRecord,
    TrainRecord,
    stage_times,
)
from phaze_common.errors import InputError
from phaze_common.file_formats import BEST, PLAN
from phaze_common.run_files import plan_document
from Solver.plan_report import PlanReport


@dataclass(frozen=True)
class PlanToTrain:
    """A plan, and where its file is that of a search what was predicted of it."""

    plan: Plan
    report: PlanReport | None = None

    @property
    def pipeline(self) -> PipelineReport | None:
        """Its predicted pipeline."""
        return None if self.report is None else self.report.pipeline


def read_plan_to_train(path: Path, model: str | None) -> PlanToTrain:
    """The plan of ``model`` (None: the first) in a best.json, or the one plan that a JSON or YAML
    file holds.

    Raises:
        InputError: the file cannot be read, or holds no such plan.
    """
    content = plan_document(path)
    if not isinstance(content, Mapping):
        raise InputError(f"{path} holds no plan; give the best.json of a search")
    if "stages" not in content:
        report = found_plan(BEST.current(content, str(path)), path, model)
        return _known(PlanToTrain(report.plan, report))
    one = _known(PlanToTrain(plan_by_value(PLAN.current(content, str(path)), str(path))))
    if model is not None and canonical_name(model) != one.plan.model:
        raise InputError(
            f"{path} holds no plan of {canonical_name(model)}; it holds that of {one.plan.model}"
        )
    return one


def _known(given: PlanToTrain) -> PlanToTrain:
    return replace(given, plan=replace(given.plan, model=canonical_name(given.plan.model)))


def train_record(
    job: Job, given: PlanToTrain, record: JobRecord, check: CheckRecord | None
) -> TrainRecord:
    """What was measured, stage by stage, beside what the plan's file says."""
    stages = []
    for number, (place, stage) in enumerate(zip(job.places, job.plan.stages, strict=True)):
        processes = [each for each in record.processes if each.stage == number]
        stages.append(
            StageRecord(
                stage=number,
                layers=stage.layers,
                dp=place.dp,
                tp=place.tp,
                zero_stage=stage.degrees.zero_stage,
                recompute=stage.degrees.recompute.value,
                measured=stage_times(processes),
                predicted=_predicted(given, number, job.micro_batches),
                state_bytes=max(each.state_bytes for each in processes),
                kept_bytes=max(each.kept_bytes for each in processes),
                resident_bytes=max(each.resident_bytes for each in processes),
            )
        )
    later = record.steps[1:] or record.steps
    return TrainRecord(
        model=job.plan.model,
        processes=job.processes,
        micro_batches=job.micro_batches,
        global_batch_size=job.plan.global_batch_size,
        sequence_length=job.plan.sequence_length,
        data=job.data,
        dtype=job.dtype,
        step_s=median(step.wall_s for step in later),
        predicted_step_s=None if given.report is None else given.report.time_per_batch_s,
        steps=record.steps,
        stages=tuple(stages),
        check=check,
        notes=_notes(job),
    )


def _predicted(given: PlanToTrain, stage: int, micro_batches: int) -> PredictedStage:
    if given.report is None or len(given.report.stages) <= stage:
        return PredictedStage()
    report, pipeline = given.report.stages[stage], given.report.pipeline
    idle_s = _idle_s(pipeline)
    return PredictedStage(
        forward_s=(report.forward_s - report.forward_communication_s) * micro_batches,
        backward_s=(report.backward_s - report.backward_communication_s) * micro_batches,
        communication_s=(report.forward_communication_s + report.backward_communication_s)
        * micro_batches
        + report.after_s,
        update_s=pipeline.optimizer_s,
        idle_s=idle_s[stage] if stage < len(idle_s) else None,
        memory_bytes=report.memory_bytes,
        state_bytes=report.parameter_state_bytes,
        kept_bytes=report.activation_bytes,
    )


def _idle_s(pipeline: PipelineReport) -> tuple[float, ...]:
    """For how long each stage waits for others before its last backward pass ends; empty where
    stages have several chunks."""
    if len(pipeline.forward_s) != pipeline.pp:
        return ()
    passes = timeline(
        costs_of(pipeline), PipelineSchedule(pipeline.schedule), pipeline.micro_batches
    )
    busy_s = (passes.end_s - passes.start_s).sum(axis=1)
    return tuple((passes.end_s.max(axis=1) - busy_s).tolist())


def _notes(job: Job) -> tuple[str, ...]:
    """What this training does otherwise than the plan says."""
    notes = ["dropout is off, so that every layout trains alike"]
    if job.plan.precision.matrix_format != job.dtype:
        notes.append(
            f"the plan's precision is {job.plan.precision.value}, the training's {job.dtype}"
        )
    rows = [stage.degrees.micro_batch_size for stage in job.plan.stages]
    if find_model(job.plan.model).couples_rows and any(
        stage.degrees.dp > 1 for stage in job.plan.stages
    ):
        if len(set(rows)) == 1:
            each = f"{rows[0]}"
        else:
            each = f"{', '.join(map(str, rows))} from the first to the last stage"
        notes.append(
            f"batch norms normalise the rows of one replica ({each}), with --check those of the "
            "one process as well; one that "
            f"normalises all {job.micro_batch_rows} of a micro-batch together would train otherwise"
        )
    return tuple(notes)
