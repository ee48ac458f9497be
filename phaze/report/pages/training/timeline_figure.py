"""The last step of a training as a timeline: what each process did, above what was predicted of its
stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from Estimator.plans.results import PipelineReport
from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, inline_data
from phaze.report.pages.formats import unit_for
from phaze.report.pages.pipeline_figures import timeline_of
from phaze.report.pages.theme import colour
from phaze.runtime.training.clock import Activity
from phaze.runtime.training.records import ProcessRecord

ROW = 22  # pixels
MOST_DRAWN = 6000
ROLES = {
    "forward": "forward",
    "backward": "backward",
    "adding up parts": "tensor",
    "synchronise": "sync",
    "send": "transfer",
    "update": "optimizer",
    "waiting": "bubble",
}
_NAMES = {
    Activity.WAIT: "waiting",
    Activity.SHARE: "adding up parts",
}
_PREDICTED = {"gradient synchronisation": "synchronise", "optimizer": "update"}


@dataclass(frozen=True)
class Drawn:
    """Something in a row from ``start_s`` to ``end_s``; ``micro_batch`` from 1, where it is of
    one."""

    row: str
    what: str
    start_s: float
    end_s: float
    micro_batch: int | None = None


def timeline_figure(
    processes: Sequence[ProcessRecord], predicted: PipelineReport | None
) -> Figure | None:
    """None where nothing was traced, or too much to draw."""
    import altair as alt

    drawn = [*_measured(processes), *_predicted_parts(predicted)]
    if not any(each.row.startswith("measured") for each in drawn) or len(drawn) > MOST_DRAWN:
        return None
    unit = unit_for(max(each.end_s for each in drawn))
    kinds = [kind for kind in ROLES if any(each.what == kind for each in drawn)]
    rows = list(dict.fromkeys(each.row for each in drawn))
    data = inline_data(
        ("row", "what", "micro_batch", "start", "end", "takes"),
        (
            (
                each.row,
                each.what,
                each.micro_batch,
                each.start_s * unit.per_second,
                each.end_s * unit.per_second,
                (each.end_s - each.start_s) * unit.per_second,
            )
            for each in drawn
        ),
        words={"row", "what"},
    )
    chart = (
        alt.Chart(data)
        .mark_bar()
        .encode(
            x=alt.X("start:Q", title=unit.name, scale=alt.Scale(zero=True)),
            x2="end:Q",
            y=alt.Y("row:N", title=None, sort=rows, axis=alt.Axis(grid=False, ticks=False)),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=kinds, range=[colour(ROLES[kind]) for kind in kinds]),
            ),
            tooltip=[
                alt.Tooltip("row:N", title="of"),
                alt.Tooltip("what:N", title="what"),
                alt.Tooltip("micro_batch:Q", title="micro-batch"),
                alt.Tooltip("start:Q", title=f"start, {unit.name}", format=".5~r"),
                alt.Tooltip("takes:Q", title=f"takes, {unit.name}", format=".4~r"),
            ],
        )
    )
    caption = (
        "The last step of every process by the clock on the wall, and below it the "
        "predicted pipeline; grey is waiting."
    )
    return Figure(
        "timeline", "Timeline of a step", caption, sized(chart, ROW * len(rows)), len(drawn)
    )


def _measured(processes: Sequence[ProcessRecord]) -> Iterator[Drawn]:
    last = max((span.step for process in processes for span in process.spans), default=0)
    spans = [
        (process, span) for process in processes for span in process.spans if span.step == last
    ]
    begun = min((span.start_ns for _, span in spans), default=0)
    several = {process.stage for process in processes if process.replica or process.part}
    for process, span in sorted(
        spans, key=lambda each: (each[0].rank, each[1].start_ns, -each[1].end_ns)
    ):
        which = (
            f", replica {process.replica + 1}, part {process.part + 1}"
            if process.stage in several
            else ""
        )
        yield Drawn(
            row=f"measured: stage {process.stage + 1}{which}",
            what=_NAMES.get(span.activity, span.activity.value),
            start_s=(span.start_ns - begun) / 1e9,
            end_s=(span.end_ns - begun) / 1e9,
            micro_batch=span.micro_batch + 1 if span.micro_batch >= 0 else None,
        )


def _predicted_parts(predicted: PipelineReport | None) -> Iterator[Drawn]:
    if predicted is None:
        return
    for each in timeline_of(predicted).segments:
        what = _PREDICTED.get(each.what, each.what)
        yield Drawn(
            f"predicted: stage {each.stage}", what, each.start_s, each.end_s, each.micro_batch
        )
