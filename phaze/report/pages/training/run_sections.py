"""What the page of a run has beside the search: the profiled machine, and trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from Estimator.profiled.database import read_database
from Estimator.profiled.machine import profile_folder
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Section
from phaze.report.pages.training.profile_section import profile_section
from phaze.report.pages.training.training_report import training_sections
from phaze.runs.finished_run import FinishedRun
from phaze.studies.trained_run import TrainedRun, trained_run


def trainings_of(run: FinishedRun, points: Sequence[PointsOfModel]) -> tuple[TrainedRun, ...]:
    """That of the plan whose stages differ, if it was trained, else of plans of equal stages."""
    answer = run.result.heterogeneous
    if answer is not None and answer.best is not None:
        trained = trained_run(run.folder, answer.best.plan, answer.best.pipeline)
        if trained is not None:
            return (trained,)
    plans = (each.plan for each in points)
    found = (trained_run(run.folder, each.plan, each.pipeline) for each in plans)
    return tuple(each for each in found if each is not None)


def measured_sections(
    points: Sequence[PointsOfModel], trainings: Sequence[TrainedRun]
) -> Iterator[Section]:
    """Of the machine, where its profile is still there, and of what was trained."""
    sources = (each.plan.price_sources for each in points)
    prices = next((each for each in sources if each is not None), None)
    if prices is not None and profile_folder(prices.database) is not None:
        database = read_database(prices.database)
        yield profile_section(database, prices, [each.model for each in points])
    for each in trainings:
        yield from training_sections(each.record, each.job, each.predicted)
