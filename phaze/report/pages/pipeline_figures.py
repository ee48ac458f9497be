"""The pipeline's timeline: what every stage does when, from the first pass to the optimizer's
step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import PipelinePasses, timeline
from Estimator.plans.results import PipelineReport
from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration, share, unit_for
from phaze.report.pages.theme import colour
from phaze_common.numbers import number

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
    """Something that a stage does from ``start_s`` to ``end_s``; passes say which chunk and
    micro-batch (both from 1)."""

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
    """Run the pipeline's schedule and lay out what every stage does, up to the end of the
    iteration."""
    passes = timeline(costs_of(report), PipelineSchedule(report.schedule), report.micro_batches)
    segments = list(_segments(report, passes))
    synchronised = []
    for stage in range(report.pp):
        last = float(passes.end_s[stage].max())
        if report.sync_s[stage] > 0.0:
            segments.append(
                Segment(stage + 1, "gradient synchronisation", last, last + report.sync_s[stage])
            )
        synchronised.append(last + report.sync_s[stage])
    start = max(synchronised)
    if report.optimizer_s > 0.0:
        segments += [
            Segment(stage + 1, "optimizer", start, start + report.optimizer_s)
            for stage in range(report.pp)
        ]
    return Timeline(report, passes, tuple(segments), start + report.optimizer_s + report.between_s)


def pipeline_figures(report: PipelineReport, suffix: str) -> tuple[Figure, ...]:
    """The whole timeline; where it has too many passes to draw, its beginning and its end."""
    line = timeline_of(report)
    whole = f"{_what(line.report)} It ends after {duration(line.end_s)}, which is the iteration."
    warm = int(np.argmin(line.passes.forward[0]))
    if line.positions <= MOST_PASSES and len(line.segments) <= MOST_SEGMENTS:
        figure = _figure(
            "pipeline", "Pipeline timeline", whole, line, 0.0, line.end_s, suffix, _table(line)
        )
        if line.positions <= LEGIBLE:
            return (figure,)
        begun = float(line.passes.end_s[0, min(warm + ROUNDS, line.positions) - 1])
        words = (
            f"The first {duration(begun)}, larger: the pipeline fills, then forward and "
            "backward passes alternate."
        )
        return figure, _figure(
            "pipeline-start", "Its beginning", words, line, 0.0, begun, suffix, None
        )
    per_pass = len(line.segments) / (line.positions * line.report.pp)
    fitting = int(
        min(MOST_PASSES / 2, line.positions / 2, MOST_SEGMENTS / (2 * per_pass * line.report.pp))
    )
    shown = max(min(max(warm + ROUNDS, LEGIBLE), fitting), 1)
    first_end = float(line.passes.end_s[0, shown - 1])
    last_start = float(line.passes.start_s[:, -shown].max())
    gap = (
        "Between the two charts the same pattern goes on for "
        f"{duration(max(last_start - first_end, 0.0))}, not drawn."
    )
    return (
        _figure(
            "pipeline-first",
            "Pipeline timeline: first passes",
            whole,
            line,
            0.0,
            first_end,
            suffix,
            _table(line),
        ),
        _figure(
            "pipeline-last",
            "Pipeline timeline: last passes and after",
            gap,
            line,
            last_start,
            line.end_s,
            suffix,
            None,
        ),
    )


def _segments(report: PipelineReport, passes: PipelinePasses) -> Iterator[Segment]:
    """The passes of every stage, and what occupies the sender."""
    for stage in range(report.pp):
        for forward, chunk, micro_batch, start, end in zip(
            passes.forward[stage].tolist(),
            passes.chunk[stage].tolist(),
            passes.micro_batch[stage].tolist(),
            passes.start_s[stage].tolist(),
            passes.end_s[stage].tolist(),
            strict=True,
        ):
            yield Segment(
                stage + 1,
                "forward" if forward else "backward",
                start,
                end,
                chunk + 1,
                micro_batch + 1,
            )
            sent = 0.0 if report.overlap_transfers else report.sent_s(forward, chunk)
            if sent > 0.0:
                yield Segment(stage + 1, "send", end, end + sent, chunk + 1, micro_batch + 1)


def _figure(
    name: str,
    title: str,
    caption: str,
    line: Timeline,
    start_s: float,
    end_s: float,
    suffix: str,
    rows: PageTable | None,
) -> Figure:
    """The part of the timeline between two times."""
    import altair as alt

    unit = unit_for(line.end_s)
    drawn = [
        segment for segment in line.segments if segment.end_s > start_s and segment.start_s < end_s
    ]
    kinds = [kind for kind in ROLES if any(segment.what == kind for segment in drawn)]
    data = inline_data(
        ("stage", "what", "start", "end", "takes", "chunk", "micro_batch", "from", "to"),
        (
            (
                segment.stage,
                segment.what,
                segment.start_s * unit.per_second,
                segment.end_s * unit.per_second,
                (segment.end_s - segment.start_s) * unit.per_second,
                segment.chunk,
                segment.micro_batch,
                max(segment.start_s, start_s) * unit.per_second,
                min(segment.end_s, end_s) * unit.per_second,
            )
            for segment in drawn
        ),
        words={"what"},
    )
    domain = [start_s * unit.per_second, end_s * unit.per_second]
    tooltip = [
        alt.Tooltip("stage:O", title="stage"),
        alt.Tooltip("what:N", title="what"),
        alt.Tooltip("micro_batch:Q", title="micro-batch"),
        *(
            [alt.Tooltip("chunk:Q", title="chunk")]
            if len(line.report.forward_s) > line.report.pp
            else []
        ),
        alt.Tooltip("start:Q", title=f"start, {unit.name}", format=".5~r"),
        alt.Tooltip("end:Q", title=f"end, {unit.name}", format=".5~r"),
        alt.Tooltip("takes:Q", title=f"takes, {unit.name}", format=".4~r"),
    ]
    y = alt.Y("stage:O", title="stage", axis=alt.Axis(grid=False, ticks=False))
    idle = alt.Chart(
        inline_data(
            ("stage", "from", "to"), ((stage + 1, *domain) for stage in range(line.report.pp))
        )
    )
    x = alt.X("from:Q", title=unit.name, scale=alt.Scale(domain=domain, nice=False))
    colours = alt.Scale(
        domain=[*kinds, "waiting (bubble)"],
        range=[*(colour(ROLES[kind]) for kind in kinds), colour("bubble")],
    )
    chart = alt.layer(
        idle.transform_calculate(what="'waiting (bubble)'")
        .mark_bar()
        .encode(
            x=x,
            x2="to:Q",
            y=y,
            color=alt.Color("what:N", title=None, scale=colours),
            tooltip=[tooltip[0], tooltip[1]],
        ),
        alt.Chart(data)
        .mark_bar()
        .encode(
            x=x,
            x2="to:Q",
            y=y,
            color=alt.Color("what:N", title=None, scale=colours),
            tooltip=tooltip,
        ),
    )
    row = 22 if line.report.pp <= 16 else 12 if line.report.pp <= 40 else 7  # pixels
    return Figure(
        f"{name}{suffix}", title, caption, sized(chart, row * line.report.pp), len(drawn), rows
    )


def _what(report: PipelineReport) -> str:
    chunks = len(report.forward_s) // report.pp
    many = f" of {chunks} chunks each" if chunks > 1 else ""
    stages = f"{report.pp} stages{many}" if report.pp > 1 else "One stage"
    batches = f"{report.micro_batches} micro-batch" + ("es" if report.micro_batches > 1 else "")
    beside = (
        " Sending runs beside the passes and is not drawn."
        if report.overlap_transfers and any(report.transfer_s)
        else ""
    )
    return (
        f"{stages}, {batches}, {report.schedule.replace('1f1b', '1F1B')} schedule; grey is "
        f"waiting.{beside}"
    )


def _table(line: Timeline) -> PageTable:
    """What each stage does in seconds."""
    unit = unit_for(line.end_s)
    kinds = [kind for kind in ROLES if any(segment.what == kind for segment in line.segments)]
    spent = {(stage, kind): 0.0 for stage in range(1, line.report.pp + 1) for kind in kinds}
    for segment in line.segments:
        spent[segment.stage, segment.what] += segment.end_s - segment.start_s
    rows = []
    for stage in range(1, line.report.pp + 1):
        seconds = [spent[stage, kind] for kind in kinds]
        waiting = max(line.end_s - sum(seconds), 0.0)
        cells = [number(each * unit.per_second) for each in [*seconds, waiting]]
        rows.append((str(stage), *cells, share(waiting / line.end_s)))
    columns = (
        "stage",
        *(f"{kind} {unit.name}" for kind in kinds),
        f"waiting {unit.name}",
        "waiting, of the iteration",
    )
    return table("What each stage does in an iteration", columns, rows, words=())
