"""What the page of a run has beside the search: the profiled machine, and trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from Estimator.plans.results import PipelineReport
from Estimator.profiled.database import read_database
from Estimator.profiled.machine import profile_folder
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Section
from phaze.report.pages.training.profile_section import profile_section
from phaze.report.pages.training.training_report import training_sections
from phaze.runs.finished_run import FinishedRun
from phaze.studies.trained_run import TrainedRun, trained_run


@dataclass(frozen=True, eq=False)
class Training:
    """A training, and what was predicted of the pipeline of its plan."""

    trained: TrainedRun
    predicted: PipelineReport | None


def trainings_of(run: FinishedRun, points: Sequence[PointsOfModel]) -> tuple[Training, ...]:
    """That of the plan whose stages differ, if it was trained, else of plans of equal stages."""
    answer = run.result.heterogeneous
    if answer is not None and answer.best is not None:
        trained = trained_run(run.folder, answer.best.plan)
        if trained is not None:
            return (Training(trained, answer.best.pipeline),)
    found = ((trained_run(run.folder, each.plan.plan), each.plan.pipeline) for each in points)
    return tuple(Training(trained, pipeline) for trained, pipeline in found if trained is not None)


def measured_sections(
    points: Sequence[PointsOfModel], trainings: Sequence[Training]
) -> Iterator[Section]:
    """Of the machine, where its profile is still there, and of what was trained."""
    prices = next(
        (each.plan.price_sources for each in points if each.plan.price_sources is not None), None
    )
    if prices is not None and profile_folder(prices.database) is not None:
        yield profile_section(
            read_database(prices.database), prices, [each.model for each in points]
        )
    for each in trainings:
        yield from training_sections(each.trained.record, each.trained.job, each.predicted)
