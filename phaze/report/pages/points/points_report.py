"""The report of many points: the best of each group in sentences, then every figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from phaze.report.pages.charts import unvalidated
from phaze.report.pages.figures import Figure, KeyNumber, Part, Reasons, Report, Section
from phaze.report.pages.front_axes import front_words
from phaze.report.pages.points.bar_figures import memory_figure, time_figure
from phaze.report.pages.points.best_points import answer_of, best_points
from phaze.report.pages.points.details import Details, details_of
from phaze.report.pages.points.front_figures import axes_of, front_figures
from phaze.report.pages.points.heat_map import heat_map
from phaze.report.pages.points.labels import BATCH, Series, point_label, shown, title_of
from phaze.report.pages.points.outcomes import ITERATION, Outcome, outcomes_of
from phaze.report.pages.points.parallel_figure import parallel_figure
from phaze.report.pages.points.points_table import Link, points_table
from phaze.report.pages.points.scaling import Scaling, curves_of
from phaze.report.pages.points.scaling_figures import scaling_figures, scaling_words
from phaze.report.sentences.designs import ALONG_THE_CRITICAL_PATH, listed
from phaze.studies.sweep.points_read import PointSet
from phaze_common.numbers import number


def no_link(point: object) -> str:
    """Where reports of points are not written."""
    return ""


@unvalidated
def points_report(
    points: PointSet,
    link: Link = no_link,
    on_point: Callable[[], None] = lambda: None,
    beside: Sequence[Section] = (),
) -> Report:
    """The page of ``points``; ``link`` is the address of a point's own report.

    ``beside`` stands behind the curves: what others answer.
    """
    outcomes, details = outcomes_of(points), details_of(points, on_point)
    groups = best_points(points)
    return Report(
        f"{number(len(points.points))} points of {points.name}",
        _subtitle(points),
        answer_of(points),
        tuple(_numbers(points, outcomes)),
        (
            Reasons(
                "The best of each group" if len(groups) > 1 else "The best",
                tuple(each.words for each in groups),
            ),
        ),
        tuple(_sections(points, outcomes, details, link, beside)),
    )


def _subtitle(points: PointSet) -> str:
    axes = [f"{len(points.values(key))} values of {title_of(key)}" for key in points.axes]
    kind = f"Sweep {points.name}" if points.sweep else f"Runs {points.name}"
    models = "" if "model" in points.axes else f"{shown('model', points.common('model'))}, "
    return f"{kind}: {models}{listed(axes) if axes else 'nothing varies'}"


def _numbers(points: PointSet, outcomes: Sequence[Outcome]) -> Iterator[KeyNumber]:
    yield KeyNumber(
        "points",
        number(len(points.points)),
        f"{number(sum(point.feasible for point in points.points))} with a plan",
    )
    best = Series("", points.points).best
    if best is None:
        return
    yield KeyNumber(
        f"most {outcomes[0].name}",
        outcomes[0].text(outcomes[0].of(best) or 0.0),
        f"point {best.number}: {point_label(points, best)}",
    )
    for outcome in outcomes[1:]:
        known = [
            (value, point) for point in points.points if (value := outcome.of(point)) is not None
        ]
        if not outcome.better or not known or (outcome.name == ITERATION and BATCH in points.axes):
            continue  # iterations of other batches do not compare
        choose = max if outcome.better == "more" else min
        value, point = choose(known, key=lambda each: each[0])
        yield KeyNumber(
            f"{'most' if outcome.better == 'more' else 'least'} {outcome.name}",
            outcome.text(value),
            f"point {point.number}",
        )


def _sections(
    points: PointSet,
    outcomes: Sequence[Outcome],
    details: Sequence[Details],
    link: Link,
    beside: Sequence[Section],
) -> Iterator[Section]:
    for kind in Scaling:
        curves = curves_of(points, kind)
        figures = scaling_figures(curves)
        if figures:
            yield Section(
                f"{kind.value}-scaling",
                f"{kind.value.capitalize()} scaling",
                (Part("", scaling_words(curves), figures),),
            )
    yield from beside
    heat = heat_map(points, outcomes)
    if heat is not None:
        yield Section("heat-map", "Two axes at a time", (Part("", (), (heat,)),))
    time = time_figure(points)
    if time is not None:
        designed = any(
            point.result is not None and point.result.accelerator is not None
            for point in points.points
        )
        words = (ALONG_THE_CRITICAL_PATH,) if designed else ()
        yield Section("time", "Where the time of an iteration goes", (Part("", words, (time,)),))
    memory = memory_figure(points, details)
    if memory is not None:
        yield Section("memory", "Memory of the fullest stage", (Part("", (), (memory,)),))
    fronts = front_figures(points, details)
    if fronts:
        yield Section(
            "fronts", f"Fronts of {front_words(axes_of(details))}", (Part("", (), fronts),)
        )
    parallel: Figure | None = parallel_figure(points, outcomes)
    if parallel is not None:
        yield Section("parallel", "All axes at once", (Part("", (), (parallel,)),))
    yield Section("points", "All points", (Part("", (), (), (points_table(points, link),)),))
