"""The plan of a file, what the file predicts of it, and both beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import timeline
from Estimator.plans.plan import Plan, plan_by_value
from Estimator.plans.results import PipelineReport, StageReport
from GraphExtractor.models.registry import canonical_name, find_model
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
from phaze_common.records import to_record
from phaze_common.run_files import plan_document


@dataclass(frozen=True)
class PlanToTrain:
    """A plan; where its file says so, seconds of an iteration, what was predicted of each stage,
    and its pipeline."""

    plan: Plan
    step_s: float | None = None
    stages: tuple[StageReport, ...] = ()
    pipeline: PipelineReport | None = None


def read_plan_to_train(path: Path, model: str | None) -> PlanToTrain:
    """The plan of ``model`` (None: the first) in a best.json, or the one plan that a JSON or YAML
    file holds.

    Raises:
        InputError: the file cannot be read, or holds no such plan.
    """
    content = plan_document(path)
    if not isinstance(content, Mapping):
        raise InputError(f"{path} holds no plan; give the best.json of a search")
    content = (PLAN if "stages" in content else BEST).current(content, str(path))
    if "stages" in content:
        one = _known(PlanToTrain(plan_by_value(content, str(path))))
        if model is not None and canonical_name(model) != one.plan.model:
            raise InputError(
                f"{path} holds no plan of {canonical_name(model)}; it holds that of "
                f"{one.plan.model}"
            )
        return one
    differing = _differing(content, path)
    if differing is not None and (model is None or canonical_name(model) == differing.plan.model):
        return differing
    plans = content.get("models")
    if not isinstance(plans, Mapping) or not plans:
        raise InputError(
            f"{path} holds no plan with its stages by value; give the best.json of a search that "
            "found one"
        )
    named = {_canonical(str(name)): stated for name, stated in plans.items()}
    name = next(iter(named)) if model is None else canonical_name(model)
    if name not in named:
        raise InputError(f"{path} holds no plan of {name}; it holds those of {', '.join(named)}")
    stated = named[name]
    if not isinstance(stated, Mapping) or "plan" not in stated:
        raise InputError(
            f"{path} holds no plan of {name} by value; give the best.json of a run as it was "
            "written"
        )
    where = f"the plan of {name} in {path}"
    return _known(
        PlanToTrain(
            plan=plan_by_value(stated["plan"], where),
            step_s=_optional(float, stated.get("time_per_batch_s"), where),
            stages=_optional(tuple[StageReport, ...], stated.get("stages"), where) or (),
            pipeline=_optional(PipelineReport, stated.get("pipeline"), where),
        )
    )


def _differing(content: Mapping[str, Any], path: Path) -> PlanToTrain | None:
    """The plan whose stages differ that a search was asked for and found best."""
    answer = content.get("heterogeneous")
    best = answer.get("best") if isinstance(answer, Mapping) else None
    if not isinstance(best, Mapping):
        return None
    where = f"the plan whose stages differ in {path}"
    return _known(
        PlanToTrain(
            plan=plan_by_value(best.get("plan"), where),
            step_s=_optional(float, best.get("time_per_batch_s"), where),
            stages=_optional(tuple[StageReport, ...], best.get("stages"), where) or (),
            pipeline=_optional(PipelineReport, best.get("pipeline"), where),
        )
    )


def _known(given: PlanToTrain) -> PlanToTrain:
    return replace(given, plan=replace(given.plan, model=canonical_name(given.plan.model)))


def _canonical(name: str) -> str:
    try:
        return canonical_name(name)
    except InputError:  # which is said where it is needed
        return name


def _optional(kind: Any, stated: object, where: str) -> Any:
    return None if stated is None else to_record(kind, stated, where)


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
        predicted_step_s=given.step_s,
        steps=record.steps,
        stages=tuple(stages),
        check=check,
        notes=_notes(job),
    )


def _predicted(given: PlanToTrain, stage: int, micro_batches: int) -> PredictedStage:
    if len(given.stages) <= stage:
        return PredictedStage()
    report, idle_s = given.stages[stage], _idle_s(given.pipeline)
    return PredictedStage(
        forward_s=(report.forward_s - report.forward_communication_s) * micro_batches,
        backward_s=(report.backward_s - report.backward_communication_s) * micro_batches,
        communication_s=(report.forward_communication_s + report.backward_communication_s)
        * micro_batches
        + report.after_s,
        update_s=None if given.pipeline is None else given.pipeline.optimizer_s,
        idle_s=idle_s[stage] if stage < len(idle_s) else None,
        memory_bytes=report.memory_bytes,
        state_bytes=report.parameter_state_bytes,
        kept_bytes=report.activation_bytes,
    )


def _idle_s(pipeline: PipelineReport | None) -> tuple[float, ...]:
    """For how long each stage waits for others before its last backward pass ends; empty where
    stages have several chunks."""
    if pipeline is None or len(pipeline.forward_s) != pipeline.pp:
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
        each = (
            f"{rows[0]}"
            if len(set(rows)) == 1
            else f"{', '.join(map(str, rows))} from the first to the last stage"
        )
        notes.append(
            f"batch norms normalise the rows of one replica ({each}), with --check those of the "
            "one process as well; one that "
            f"normalises all {job.micro_batch_rows} of a micro-batch together would train otherwise"
        )
    return tuple(notes)
