"""Answers of others beside the curves of strong scaling: whose stand beside which, drawn, in a
table and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phaze.report.pages.charts import SAMPLES, series_legend, sized, with_names
from phaze.report.pages.figures import Figure, PageTable, Part, Section, inline_data, table
from phaze.report.pages.points.labels import BATCH
from phaze.report.pages.points.scaling import Curve, Scaling, curves_of
from phaze.report.pages.theme import SERIES, colour
from phaze.studies.sweep.other_answers import OtherAnswer
from phaze.studies.sweep.points_read import PointSet, ReadPoint
from phaze_common.errors import InputError
from phaze_common.numbers import number, time_text

OURS = "phaze"
HEIGHT = 260
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
MOST_SOURCES = 11  # beside ours


@dataclass(frozen=True, eq=False)
class Beside:
    """A curve of a sweep with what others answer: seconds by devices, of each source; ``ours`` are
    those of the curve.

    All of them are iterations of ``batch`` samples.
    """

    label: str
    batch: int
    ours: dict[int, float]
    others: dict[str, dict[int, float]]

    @property
    def sources(self) -> Iterator[tuple[str, dict[int, float]]]:
        """All of it, ours first."""
        yield OURS, self.ours
        yield from self.others.items()


def beside(points: PointSet, answers: Sequence[OtherAnswer], source: str) -> tuple[Beside, ...]:
    """Which of the ``answers`` stand beside which curve: those that agree with a point of it in
    every setting that they name.

    Raises: InputError: there are no curves, none of ``answers`` belongs beside any, or they are of
        too many; names ``source``.
    """
    curves = curves_of(points, Scaling.STRONG)
    if not curves:
        raise InputError(
            f"{points.name} has no curve that {source} could stand beside; give a sweep over "
            "several numbers of devices with "
            "one global batch, or leave --beside out"
        )
    found = [each for curve in curves if (each := _beside(curve, answers)).others]
    if not found:
        asked = ", ".join(f"{key} {value}" for key, value in answers[0].settings.items())
        names = " and ".join(dict.fromkeys(key for answer in answers for key in answer.settings))
        raise InputError(
            f"{source} has nothing that belongs beside a curve of {points.name}: its rows name "
            f"{names} (the first: "
            f"{asked}); give rows of {curves[0].label}, for example"
        )
    several = dict.fromkeys(name for each in found for name in each.others)
    if OURS in several:
        raise InputError(
            f"{source} has the source {OURS}, as this sweep's own answers are called; call it "
            "something else"
        )
    if len(several) > MOST_SOURCES:
        raise InputError(
            f"{source} has {len(several)} sources, at most {MOST_SOURCES} are drawn beside a "
            "curve; leave some out"
        )
    return tuple(found)


def _beside(curve: Curve, answers: Sequence[OtherAnswer]) -> Beside:
    """The fastest of what each source says of a number of devices."""
    others: dict[str, dict[int, float]] = {}
    asked = [(step.point, step.batch) for step in curve.steps]
    for answer in answers:
        if any(_agrees(answer, point, batch) for point, batch in asked):
            seconds = others.setdefault(answer.source, {})
            seconds[answer.devices] = min(
                answer.seconds, seconds.get(answer.devices, answer.seconds)
            )
    ours = {step.devices: step.time_s for step in curve.steps if step.time_s is not None}
    ordered = {source: dict(sorted(seconds.items())) for source, seconds in others.items()}
    return Beside(curve.label, curve.steps[0].batch, ours, ordered)


def _agrees(answer: OtherAnswer, point: ReadPoint, batch: int) -> bool:
    return all(
        answer.agrees(key, batch if key == BATCH else point.value(key)) for key in answer.settings
    )


def beside_section(found: Sequence[Beside], source: str) -> Section:
    """What others answer beside ours: in words, a figure per curve, and in numbers."""
    sources = list(dict.fromkeys(name for each in found for name, _ in each.sources))
    counts = sorted({devices for each in found for _, times in each.sources for devices in times})
    abreast = 2 if len(found) == 4 else min(len(found), 3)
    figures = tuple(
        _figure(each, place, sources, counts, abreast) for place, each in enumerate(found, start=1)
    )
    words = (
        f"Iterations as {source} has them, beside those of the fastest plans of this sweep.",
        *_words(found, sources[1:]),
    )
    return Section(
        "beside", f"Beside {source}", (Part("", words, figures, (_table(found, sources),)),)
    )


def _words(found: Sequence[Beside], others: Sequence[str]) -> Iterator[str]:
    for name in others:
        both = [(times, each.ours) for each in found for times in [each.others.get(name, {})]]
        ratios = [
            times[devices] / ours[devices]
            for times, ours in both
            for devices in times
            if devices in ours
        ]
        if ratios:
            least, most = (number(value, 3) for value in (min(ratios), max(ratios)))
            span = least if least == most else f"{least} to {most}"
            points = (
                f"{len(ratios)} points that both have"
                if len(ratios) > 1
                else "the point that both have"
            )
            yield f"{name}: {span} times the seconds of {OURS}, over {points}."


def _figure(
    each: Beside, place: int, sources: Sequence[str], counts: Sequence[int], abreast: int
) -> Figure:
    """Throughput per device, in which a tenth more or less is seen, as it is not in the seconds of
    many numbers of devices."""
    import altair as alt

    rows = [
        (
            name,
            devices,
            each.batch / value / devices,
            value,
            value / each.ours[devices] if devices in each.ours else None,
        )
        for name, times in each.sources
        for devices, value in times.items()
    ]
    data = inline_data(
        ("source", "devices", "throughput", "seconds", "ratio"), rows, words={"source"}, exact=True
    )
    own, *rest = SERIES
    turns = [
        divmod(place, len(rest)) for place in range(len(sources) - 1)
    ]  # of others: their colours may come again, ours not
    colours = [colour(own), *(colour(rest[place]) for _, place in turns)]
    shapes = [SHAPES[0], *(SHAPES[(1 + place + turn) % len(SHAPES)] for turn, place in turns)]
    x = alt.X(
        "devices:Q",
        title="devices",
        scale=alt.Scale(type="log", base=2, domain=[counts[0], counts[-1]], nice=False, padding=12),
        axis=alt.Axis(values=counts, format=",d", labelOverlap="greedy"),
    )
    y = alt.Y(
        "throughput:Q",
        title=f"{SAMPLES} and device",
        scale=alt.Scale(zero=True),
        axis=alt.Axis(format="~g", tickCount=5),
    )
    legend = series_legend(sources)
    coded: dict[str, Any] = {
        "color": alt.Color(
            "source:N",
            title=None,
            sort=sources,
            scale=alt.Scale(domain=sources, range=colours),
            legend=legend,
        ),
        "shape": alt.Shape(
            "source:N",
            title=None,
            sort=sources,
            scale=alt.Scale(domain=sources, range=shapes),
            legend=legend,
        ),
    }
    tooltip = [
        alt.Tooltip("source:N", title="answer of"),
        alt.Tooltip("devices:Q", format=","),
        alt.Tooltip("throughput:Q", title=f"{SAMPLES} and device", format=",.5~r"),
        alt.Tooltip("seconds:Q", title="seconds per iteration", format=",.5~r"),
        alt.Tooltip("ratio:Q", title=f"times the seconds of {OURS}", format=".3~r"),
    ]
    base = alt.Chart(data)
    chart = alt.layer(
        base.mark_line(strokeWidth=1.6).encode(x=x, y=y, color=coded["color"]),
        base.mark_point(size=46, filled=True, opacity=0.9).encode(
            x=x, y=y, tooltip=tooltip, **coded
        ),
    )
    return Figure(
        f"beside-{place}",
        each.label,
        f"Global batch {each.batch:,}; ideal scaling would be level.",
        with_names(sized(chart, HEIGHT), sources),
        2 * len(rows),
        abreast=abreast,
    )


def _table(found: Sequence[Beside], sources: Sequence[str]) -> PageTable:
    """A row per curve and number of devices: seconds of each, and how many times ours those of
    others are."""

    def cells(each: Beside, devices: int) -> Iterator[str]:
        own = each.ours.get(devices)
        yield "" if own is None else time_text(own)
        for name in sources[1:]:
            other = each.others.get(name, {}).get(devices)
            yield "" if other is None else time_text(other)
            yield "" if other is None or own is None else number(other / own, 3)

    rows = [
        (each.label, f"{devices:,}", *cells(each, devices))
        for each in found
        for devices in sorted({devices for _, times in each.sources for devices in times})
    ]
    columns = [
        "curve",
        "devices",
        OURS,
        *(head for name in sources[1:] for head in (name, f"times {OURS}")),
    ]
    return table("Iterations beside each other", columns, rows, words={"curve"})
