"""What differs between the answers of two runs, and why the answer moved, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from GraphExtractor.names import label
from phaze.report.sentences.designs import EQUAL, accelerator_text, listed, unit_of
from phaze.report.sentences.gains import gained
from phaze.report.sentences.records import NOT_GIVEN, Change, Exchange
from phaze.runs.finished_run import FinishedRun
from phaze_common.numbers import number, percent
from Solver.results import DesignPoint


def names_of(before: FinishedRun, after: FinishedRun) -> tuple[str, str]:
    """Names of two runs: those of their folders, with as much of the path as tells them apart."""
    one, two = before.folder.parts, after.folder.parts
    length = next((length for length in range(1, len(one)) if one[-length:] != two[-length:]), 1)
    return "/".join(one[-length:]), "/".join(two[-length:])


def answers_compared(
    before: FinishedRun, after: FinishedRun, changes: Sequence[Change], answers: Sequence[Change]
) -> Iterator[str]:
    """What both runs reach, what they were asked, and what they chose."""
    best, names = (before.result.best, after.result.best), names_of(before, after)
    for name, point in zip(names, best, strict=True):
        if point is None:
            yield f"In {name} nothing fits."
    if best[0] is not None and best[1] is not None:
        if before.on_device is not after.on_device:
            kinds = [
                "places a model on devices that exist" if run.on_device else "designs accelerators"
                for run in (before, after)
            ]
            yield (
                f"{names[0]} {kinds[0]}, {names[1]} {kinds[1]}: each keeps its own hardware, and "
                "only what they reach is compared."
            )
        yield _verdict(names, best[0], best[1])
    said = [f"{each.key.replace('_', ' ')}, from {each.before} to {each.after}" for each in changes]
    asked = f"What differs between the runs: {'; '.join(said)}."
    yield asked if said else "Both runs asked the same, of the same code."
    chips = [point.accelerator for point in best if point is not None and point.accelerator]
    if len(chips) == 2:
        one, two = map(accelerator_text, chips)
        moved = f"stays the same, {one}" if one == two else f"changes from {one} to {two}"
        yield f"The best accelerator {moved}."
    for change in answers:
        if change.key.startswith("plan of ") and NOT_GIVEN not in {change.before, change.after}:
            yield f"The {change.key} changes from {change.before} to {change.after}."


def _verdict(names: tuple[str, str], one: DesignPoint, two: DesignPoint) -> str:
    if set(one.models) != set(two.models):
        models = [listed([label(model) for model in each.models]) for each in (one, two)]
        about = f"are about different models, {models[0]} and {models[1]}"
        return f"The runs {about}, so their values do not compare."
    goals = [each.objective.value.replace("_", " ") for each in (one, two)]
    if one.objective is two.objective:
        goals = [unit_of(one), unit_of(two)]
    if goals[0] != goals[1]:
        return (
            f"The runs maximise different things, {goals[0]} and {goals[1]}, so their values do "
            "not compare."
        )
    ratio, unit = two.value / one.value, unit_of(two)
    if abs(ratio - 1) <= EQUAL:
        return f"Both runs reach {number(two.value)} {unit}."
    gain = f"{percent(ratio - 1)} less than"
    if ratio >= 1:
        gain = f"{gained(ratio - 1)} {'than' if ratio < 2 else 'as'}"
    values = f"{number(two.value)} instead of {number(one.value)} {unit}"
    return f"{names[1]} reaches {gain} {names[0]}: {values}."


@dataclass(frozen=True)
class Single:
    """The value of the earlier design when one input changes alone; None where nothing fits."""

    key: str
    value: float | None

    @property
    def name(self) -> str:
        """The input in words."""
        return self.key.replace("_", " ")


@dataclass(frozen=True)
class ExchangedDesigns:
    """Values of the designs of two runs under each other's request; None where nothing fits.

    ``across`` is that of the earlier design under the later request, ``back`` the reverse,
    ``alone`` are single changes in order of their effect. Where the requests do not compare only
    ``across`` and ``after`` do with each other.
    """

    names: tuple[str, str]
    design: str  # what is kept: "accelerator" or "plan"
    unit: str
    compares: bool
    before: float
    after: float
    across: float | None
    back: float | None
    alone: tuple[Single, ...]

    def exchanges(self) -> tuple[Exchange, ...]:
        """As records, from the earlier answer to the later one."""
        (one, two), design = self.names, self.design
        single = (
            Exchange(f"{design} of {one}, {each.name} as in {two}", each.value)
            for each in self.alone
        )
        across = Exchange(f"{design} of {one}, asked as {two}", self.across)
        found = (across, Exchange(f"{two}, as found", self.after))
        if not self.compares:
            return (*single, *found)
        back = Exchange(f"{design} of {two}, asked as {one}", self.back)
        return (Exchange(f"{one}, as found", self.before), *single, *found, back)

    def sentences(self) -> Iterator[str]:
        """Why the answer moved."""
        (one, two), design = self.names, self.design
        if self.across is None:
            yield f"The {design} of {one} cannot do what {two} asks."
        elif self.after <= self.across * (1 + EQUAL):
            yield (
                f"Asked as {two}, the {design} of {one} is as good as its own best, "
                f"{number(self.after)} {self.unit}: the question moved the answer, not the "
                f"{design}."
            )
        else:
            yield self._asked_as(two, one, self.across, self.after)
            if self.compares:
                question = _change(self.across / self.before - 1)
                yield (
                    f"So the question alone brings {question}, and choosing the {design} "
                    f"anew {gained(self.after / self.across - 1)} on top."
                )
        if self.compares and self.back is None:
            yield f"The {design} of {two} cannot do what {one} asks."
        elif self.compares and self.back is not None and self.back < self.before * (1 - EQUAL):
            yield self._asked_as(one, two, self.back, self.before)
        if self.alone:
            said = [f"{each.name} brings {self._effect(each.value)}" for each in self.alone]
            yield f"Changed alone, on the {design} of {one}: {listed(said)}."

    def _asked_as(self, asked: str, kept: str, value: float, best: float) -> str:
        return (
            f"Asked as {asked}, the {self.design} of {kept} reaches {number(value)} {self.unit}, "
            f"{percent(1 - value / best)} less than {asked}'s own best."
        )

    def _effect(self, value: float | None) -> str:
        return "what it cannot do" if value is None else _change(value / self.before - 1)


def _change(gain: float) -> str:
    return f"{percent(-gain)} less" if gain < -EQUAL else gained(gain)
