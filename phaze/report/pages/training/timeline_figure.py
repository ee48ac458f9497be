"""The last step of a training as a timeline: each process, and what was predicted of its stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import altair as alt

from Estimator.plans.results import PipelineReport
from phaze.report.pages.charts import TO_ZERO, by_role, chart_of, names_axis, sized, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.pipeline_figures import timeline_of
from phaze.runtime.training.clock import Activity
from phaze.runtime.training.records import ProcessRecord
from phaze_common.numbers import unit_for

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
_NAMES = {Activity.WAIT: "waiting", Activity.SHARE: "adding up parts"}
_PREDICTED = {"gradient synchronisation": "synchronise", "optimizer": "update"}


@dataclass(frozen=True)
class Drawn:
    """What happens in a row from ``start_s`` to ``end_s``; ``micro_batch`` counts from 1."""

    row: str
    what: str
    start_s: float
    end_s: float
    micro_batch: int | None = None


def timeline_figure(
    processes: Sequence[ProcessRecord], predicted: PipelineReport | None
) -> Figure | None:
    """None where nothing was traced, or too much to draw."""
    drawn = [*_measured(processes), *_predicted_parts(predicted)]
    if not any(each.row.startswith("measured") for each in drawn) or len(drawn) > MOST_DRAWN:
        return None
    unit = unit_for(max(each.end_s for each in drawn))
    kinds = {kind: ROLES[kind] for kind in ROLES if any(each.what == kind for each in drawn)}
    rows = list(dict.fromkeys(each.row for each in drawn))
    base = chart_of(
        {
            "row": each.row,
            "what": each.what,
            "micro_batch": each.micro_batch,
            "start": each.start_s * unit.per_second,
            "end": each.end_s * unit.per_second,
            "takes": (each.end_s - each.start_s) * unit.per_second,
        }
        for each in drawn
    )
    titles = {"row:N": "of", "what:N": "what", "micro_batch:Q": "micro-batch"}
    titles |= {"start:Q .5~r": f"start, {unit.name}", "takes:Q .4~r": f"takes, {unit.name}"}
    chart = base.mark_bar().encode(
        x=alt.X("start:Q", title=unit.name, scale=TO_ZERO),
        x2="end:Q",
        y=names_axis("row:N", rows),
        color=by_role("what:N", kinds),
        tooltip=tips(titles),
    )
    caption = (
        "The last step of every process by the clock on the wall, and below it the "
        "predicted pipeline; grey is waiting."
    )
    spec = sized(chart, ROW * len(rows))
    return Figure("timeline", "Timeline of a step", caption, spec, len(drawn))


def _measured(processes: Sequence[ProcessRecord]) -> Iterator[Drawn]:
    every = [(process, span) for process in processes for span in process.spans]
    last = max((span.step for _, span in every), default=0)
    spans = [(process, span) for process, span in every if span.step == last]
    begun = min((span.start_ns for _, span in spans), default=0)
    several = {process.stage for process in processes if process.replica or process.part}
    for process, span in sorted(
        spans, key=lambda each: (each[0].rank, each[1].start_ns, -each[1].end_ns)
    ):
        which = f", replica {process.replica + 1}, part {process.part + 1}"
        yield Drawn(
            f"measured: stage {process.stage + 1}{which if process.stage in several else ''}",
            _NAMES.get(span.activity, span.activity.value),
            (span.start_ns - begun) / 1e9,
            (span.end_ns - begun) / 1e9,
            span.micro_batch + 1 if span.micro_batch >= 0 else None,
        )


def _predicted_parts(predicted: PipelineReport | None) -> Iterator[Drawn]:
    for each in () if predicted is None else timeline_of(predicted).segments:
        what, row = _PREDICTED.get(each.what, each.what), f"predicted: stage {each.stage}"
        yield Drawn(row, what, each.start_s, each.end_s, each.micro_batch)
