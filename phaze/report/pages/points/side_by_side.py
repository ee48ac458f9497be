"""Answers of others beside the curves of strong scaling: drawn, in a table and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import altair as alt

from phaze.report.pages import charts
from phaze.report.pages.figures import Figure, Part, Section
from phaze.report.pages.points.labels import BATCH
from phaze.report.pages.points.scaling import Curve, Scaling, curves_of
from phaze.report.pages.theme import SERIES
from phaze.report.table import Table
from phaze.studies.sweep.other_answers import OtherAnswer
from phaze.studies.sweep.points_read import PointSet, ReadPoint
from phaze_common.errors import InputError
from phaze_common.numbers import number, time_text

OURS = "phaze"
HEIGHT = 260
MOST_SOURCES = 11  # beside ours


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Seconds by devices of a curve, ``ours``, and of each other source.

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


def side_by_side(
    points: PointSet, answers: Sequence[OtherAnswer], source: str
) -> tuple[SideBySide, ...]:
    """The ``answers`` by the curve with a point that has all settings that they name.

    Raises: InputError: there are no curves, none of ``answers`` belongs beside any, or they are of
        too many; names ``source``.
    """
    curves = curves_of(points, Scaling.STRONG)
    if not curves:
        raise InputError(
            f"{points.name} has no curve that {source} could stand beside; give a sweep over "
            "several numbers of devices with one global batch, or leave --beside out"
        )
    found = [each for curve in curves if (each := _beside(curve, answers)).others]
    if not found:
        asked = ", ".join(f"{key} {value}" for key, value in answers[0].settings.items())
        names = " and ".join(dict.fromkeys(key for answer in answers for key in answer.settings))
        raise InputError(
            f"{source} has nothing that belongs beside a curve of {points.name}: its rows name "
            f"{names} (the first: {asked}); give rows of {curves[0].label}, for example"
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


def _beside(curve: Curve, answers: Sequence[OtherAnswer]) -> SideBySide:
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
    return SideBySide(curve.label, curve.steps[0].batch, ours, ordered)


def _agrees(answer: OtherAnswer, point: ReadPoint, batch: int) -> bool:
    return all(
        answer.agrees(key, batch if key == BATCH else point.value(key)) for key in answer.settings
    )


def side_by_side_section(found: Sequence[SideBySide], source: str) -> Section:
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


def _words(found: Sequence[SideBySide], others: Sequence[str]) -> Iterator[str]:
    for name in others:
        both = [(times, each.ours) for each in found for times in [each.others.get(name, {})]]
        ratios = [
            times[each] / ours[each] for times, ours in both for each in times if each in ours
        ]
        if ratios:
            least, most = (number(value, 3) for value in (min(ratios), max(ratios)))
            span = least if least == most else f"{least} to {most}"
            points = f"{len(ratios)} points that both have"
            points = points if len(ratios) > 1 else "the point that both have"
            yield f"{name}: {span} times the seconds of {OURS}, over {points}."


def _figure(
    each: SideBySide, place: int, sources: Sequence[str], counts: Sequence[int], abreast: int
) -> Figure:
    """Throughput per device, in which a tenth more or less is seen, as it is not in seconds."""
    rows = [
        {
            "source": name,
            "devices": devices,
            "throughput": each.batch / value / devices,
            "seconds": value,
            "ratio": value / each.ours[devices] if devices in each.ours else None,
        }
        for name, times in each.sources
        for devices, value in times.items()
    ]
    own, *rest = SERIES
    # of others: their colours may come again, ours not
    turns = [divmod(place, len(rest)) for place in range(len(sources) - 1)]
    roles = [own, *(rest[place] for _, place in turns)]
    shapes = [
        charts.SHAPES[0],
        *(charts.SHAPES[(1 + place + turn) % len(charts.SHAPES)] for turn, place in turns),
    ]
    coded = charts.series_coded("source:N", sources, dict(zip(sources, roles, strict=True)))
    title = f"{charts.SAMPLES} and device"
    doubling = charts.exactly(counts[0], counts[-1], type="log", base=2, padding=12)
    whole = alt.Axis(values=counts, format=",d", labelOverlap="greedy")
    few = alt.Axis(format="~g", tickCount=5)
    base = charts.chart_of(rows, exact=True).encode(
        x=alt.X("devices:Q", title="devices", scale=doubling, axis=whole),
        y=alt.Y("throughput:Q", title=title, scale=charts.TO_ZERO, axis=few),
        **coded,
    )
    tooltip = charts.tips(
        {
            "source:N": "answer of",
            "devices:Q ,": "",
            "throughput:Q ,.5~r": title,
            "seconds:Q ,.5~r": "seconds per iteration",
            "ratio:Q .3~r": f"times the seconds of {OURS}",
        }
    )
    line, dot = charts.lines(base, tooltip, {"strokeWidth": 1.6}, size=46, filled=True, opacity=0.9)
    dot = dot.encode(shape=charts.series_shape("source:N", sources, shapes))
    return Figure(
        f"beside-{place}",
        each.label,
        f"Global batch {each.batch:,}; ideal scaling would be level.",
        charts.with_names(charts.sized(alt.layer(line, dot), HEIGHT), sources),
        2 * len(rows),
        abreast=abreast,
    )


def _table(found: Sequence[SideBySide], sources: Sequence[str]) -> Table:
    """Seconds of each source by curve and number of devices, and those of others over ours."""
    rows = []
    for each in found:
        for devices in sorted({devices for _, times in each.sources for devices in times}):
            own = each.ours.get(devices)
            row = {"curve": each.label, "devices": f"{devices:,}"}
            row[OURS] = "" if own is None else time_text(own)
            for name in sources[1:]:
                other = each.others.get(name, {}).get(devices)
                row[name] = "" if other is None else time_text(other)
                both = "" if other is None or own is None else number(other / own, 3)
                row[f"{name}, times {OURS}"] = both
            rows.append(row)
    return Table.of("Iterations beside each other", rows, words={"curve"})
