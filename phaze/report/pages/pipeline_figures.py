"""What every stage of a pipeline does when, from the first pass to the optimizer's step."""

from collections.abc import Iterator
from dataclasses import dataclass

import altair as alt
import numpy as np

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import PipelinePasses, timeline
from Estimator.plans.results import PipelineReport
from phaze.report.pages.charts import by_role, chart_of, exactly, sized, tips
from phaze.report.pages.figures import Figure
from phaze.report.table import Table
from phaze_common.numbers import number, share, time_text, unit_for

MOST_SEGMENTS = 8000  # of one chart
MOST_PASSES = 400  # of one stage in one chart: more would be thinner than a line
LEGIBLE = 30  # passes of a stage: with more, the beginning is drawn once more, larger
ROUNDS = 8  # passes of the first stage after its warm-up that the beginning shows
ROLES = {
    "forward": "forward",
    "backward": "backward",
    "send": "transfer",
    "gradient synchronisation": "sync",
    "optimizer": "optimizer",
}


@dataclass(frozen=True)
class Segment:
    """What a stage does from ``start_s`` to ``end_s``; chunk and micro-batch of passes, from 1."""

    stage: int
    what: str
    start_s: float
    end_s: float
    chunk: int | None = None
    micro_batch: int | None = None


@dataclass(frozen=True, eq=False)
class Timeline:
    """The segments of all stages; ``end_s`` is the end of the optimizer's step."""

    report: PipelineReport
    passes: PipelinePasses
    segments: tuple[Segment, ...]
    end_s: float

    @property
    def positions(self) -> int:
        """Passes that each stage runs."""
        return int(self.passes.start_s.shape[1])


def timeline_of(report: PipelineReport) -> Timeline:
    """Run the pipeline's schedule and lay out what every stage does in the iteration."""
    passes = timeline(costs_of(report), PipelineSchedule(report.schedule), report.micro_batches)
    segments = list(_segments(report, passes))
    synchronised = []
    for stage in range(report.pp):
        last = float(passes.end_s[stage].max())
        end = last + report.sync_s[stage]
        if report.sync_s[stage] > 0.0:
            segments.append(Segment(stage + 1, "gradient synchronisation", last, end))
        synchronised.append(end)
    start, end = max(synchronised), max(synchronised) + report.optimizer_s
    if report.optimizer_s > 0.0:
        for stage in range(report.pp):
            segments.append(Segment(stage + 1, "optimizer", start, end))
    return Timeline(report, passes, tuple(segments), end + report.between_s)


def pipeline_figures(report: PipelineReport, suffix: str) -> tuple[Figure, ...]:
    """The whole timeline; where it has too many passes to draw, its beginning and its end."""
    line = timeline_of(report)
    whole = f"{_what(line.report)} It ends after {time_text(line.end_s)}, which is the iteration."
    warm, end_s = int(np.argmin(line.passes.forward[0])), line.end_s
    title = "Pipeline timeline"
    if line.positions <= MOST_PASSES and len(line.segments) <= MOST_SEGMENTS:
        figure = _figure(f"pipeline{suffix}", title, whole, line, 0.0, end_s, _table(line))
        if line.positions <= LEGIBLE:
            return (figure,)
        begun = float(line.passes.end_s[0, min(warm + ROUNDS, line.positions) - 1])
        words = (
            f"The first {time_text(begun)}, larger: the pipeline fills, then forward and "
            "backward passes alternate."
        )
        start = _figure(f"pipeline-start{suffix}", "Its beginning", words, line, 0.0, begun)
        return figure, start
    per_pass = len(line.segments) / (line.positions * line.report.pp)
    fitting = int(
        min(MOST_PASSES / 2, line.positions / 2, MOST_SEGMENTS / (2 * per_pass * line.report.pp))
    )
    shown = max(min(max(warm + ROUNDS, LEGIBLE), fitting), 1)
    first_end = float(line.passes.end_s[0, shown - 1])
    last_start = float(line.passes.start_s[:, -shown].max())
    between = time_text(max(last_start - first_end, 0.0))
    gap = f"Between the two charts the same pattern goes on for {between}, not drawn."
    first, last = f"{title}: first passes", f"{title}: last passes and after"
    return (
        _figure(f"pipeline-first{suffix}", first, whole, line, 0.0, first_end, _table(line)),
        _figure(f"pipeline-last{suffix}", last, gap, line, last_start, end_s),
    )


def _segments(report: PipelineReport, passes: PipelinePasses) -> Iterator[Segment]:
    """The passes of every stage, and what occupies the sender."""
    for stage in range(report.pp):
        columns = (passes.forward, passes.chunk, passes.micro_batch, passes.start_s, passes.end_s)
        for forward, chunk, micro_batch, start, end in zip(
            *(column[stage].tolist() for column in columns), strict=True
        ):
            of = chunk + 1, micro_batch + 1
            yield Segment(stage + 1, "forward" if forward else "backward", start, end, *of)
            sent = 0.0 if report.overlap_transfers else report.sent_s(forward, chunk)
            if sent > 0.0:
                yield Segment(stage + 1, "send", end, end + sent, *of)


def _figure(
    name: str,
    title: str,
    caption: str,
    line: Timeline,
    start_s: float,
    end_s: float,
    shown: Table | None = None,
) -> Figure:
    """The part of the timeline between two times."""
    unit, stages = unit_for(line.end_s), line.report.pp
    drawn = [each for each in line.segments if each.end_s > start_s and each.start_s < end_s]
    kinds = {kind: ROLES[kind] for kind in ROLES if any(each.what == kind for each in drawn)}
    segments = chart_of(
        {
            "stage": each.stage,
            "what": each.what,
            "start": each.start_s * unit.per_second,
            "end": each.end_s * unit.per_second,
            "takes": (each.end_s - each.start_s) * unit.per_second,
            "chunk": each.chunk,
            "micro_batch": each.micro_batch,
            "from": max(each.start_s, start_s) * unit.per_second,
            "to": min(each.end_s, end_s) * unit.per_second,
        }
        for each in drawn
    )
    begin, end = start_s * unit.per_second, end_s * unit.per_second
    idle = chart_of({"stage": stage + 1, "from": begin, "to": end} for stage in range(stages))
    both = {"stage:O": "stage", "what:N": "what"}
    titles = {"micro_batch:Q": "micro-batch"}
    if len(line.report.forward_s) > stages:
        titles["chunk:Q"] = "chunk"
    titles |= {f"{each}:Q .5~r": f"{each}, {unit.name}" for each in ("start", "end")}
    titles["takes:Q .4~r"] = f"takes, {unit.name}"
    bars = {
        "x": alt.X("from:Q", title=unit.name, scale=exactly(begin, end)),
        "x2": "to:Q",
        "y": alt.Y("stage:O", title="stage", axis=alt.Axis(grid=False, ticks=False)),
        "color": by_role("what:N", kinds | {"waiting (bubble)": "bubble"}),
    }
    waiting = idle.transform_calculate(what="'waiting (bubble)'").mark_bar()
    chart = alt.layer(
        waiting.encode(tooltip=tips(both), **bars),
        segments.mark_bar().encode(tooltip=tips(both | titles), **bars),
    )
    row = 22 if stages <= 16 else 12 if stages <= 40 else 7  # pixels
    return Figure(name, title, caption, sized(chart, row * stages), len(drawn), shown)


def _what(report: PipelineReport) -> str:
    chunks = len(report.forward_s) // report.pp
    many = f" of {chunks} chunks each" if chunks > 1 else ""
    stages = f"{report.pp} stages{many}" if report.pp > 1 else "One stage"
    batches = f"{report.micro_batches} micro-batch" + ("es" if report.micro_batches > 1 else "")
    schedule = report.schedule.replace("1f1b", "1F1B")
    words = f"{stages}, {batches}, {schedule} schedule; grey is waiting."
    if report.overlap_transfers and any(report.transfer_s):
        words += " Sending runs beside the passes and is not drawn."
    return words


def _table(line: Timeline) -> Table:
    """What each stage does in seconds."""
    unit = unit_for(line.end_s)
    kinds = [kind for kind in ROLES if any(segment.what == kind for segment in line.segments)]
    rows = []
    for stage in range(1, line.report.pp + 1):
        spent = dict.fromkeys([*kinds, "waiting"], 0.0)
        for each in line.segments:
            if each.stage == stage:
                spent[each.what] += each.end_s - each.start_s
        spent["waiting"] = max(line.end_s - sum(spent.values()), 0.0)
        cells = {f"{kind} {unit.name}": number(s * unit.per_second) for kind, s in spent.items()}
        of_all = share(spent["waiting"] / line.end_s)
        rows.append({"stage": str(stage), **cells, "waiting, of the iteration": of_all})
    return Table.of("What each stage does in an iteration", rows, words=())
