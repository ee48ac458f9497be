"""Why an answer moved between two runs: the design of each under the other's request, and under single changes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from Solver.plan_search.results import FoundPlan
from Solver.search.what_if import priced

from Common.choices import Objective
from Common.errors import InputError
from Common.progress import Progress, SilentProgress
from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Studies.explain.plan_alternatives import OF_THE_SHAPE, fixed_plan
from Studies.explain.records import Exchange
from Studies.explain.repeat import graphs_of, run_of
from Studies.finished_run import FinishedPlanSearch, FinishedRun, FinishedSearch
from Studies.limits.gains import gained
from Studies.words import EQUAL, UNITS, listed, number, percent

FOLLOWING = {  # settings recorded as they follow from another, unless they were given
    "cluster": ("devices",),
    "design_space": ("technology",),
    "device": ("cluster", "software", "devices", "precision", "overlap_gradients", "overlap_tensor"),
    "software": ("overlap_gradients", "overlap_tensor"),
}


@dataclass(frozen=True)
class Single:
    """The value of the earlier design when one input changes alone; None where it does not fit, or cannot be."""

    key: str
    value: float | None


@dataclass(frozen=True)
class ExchangedDesigns:
    """Values of the designs of two runs. ``across`` is that of the earlier design under the later request, ``back`` the reverse.

    None where it does not fit. ``alone`` are in order of their effect. Where the requests do not compare only ``across`` and
    ``after`` do with each other.
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
        one, two = self.names
        here = [Exchange(f"{one}, as found", self.before)] if self.compares else []
        single = [
            Exchange(f"{self.design} of {one}, {each.key.replace('_', ' ')} as in {two}", each.value) for each in self.alone
        ]
        across = [Exchange(f"{self.design} of {one}, asked as {two}", self.across), Exchange(f"{two}, as found", self.after)]
        back = [Exchange(f"{self.design} of {two}, asked as {one}", self.back)] if self.compares else []
        return (*here, *single, *across, *back)

    def sentences(self) -> Iterator[str]:
        """Why the answer moved."""
        one, two = self.names
        if self.across is None:
            yield f"The {self.design} of {one} cannot do what {two} asks."
        elif self.after <= self.across * (1 + EQUAL):
            best = f"is as good as its own best, {number(self.after)} {self.unit}"
            yield f"Asked as {two}, the {self.design} of {one} {best}: the question moved the answer, not the {self.design}."
        else:
            less = f"{percent(1 - self.across / self.after)} less than {two}'s own best"
            yield f"Asked as {two}, the {self.design} of {one} reaches {number(self.across)} {self.unit}, {less}."
            if self.compares:
                question, design = _change(self.across / self.before - 1), gained(self.after / self.across - 1)
                yield f"So the question alone brings {question}, and choosing the {self.design} anew {design} on top."
        if self.compares and self.back is None:
            yield f"The {self.design} of {two} cannot do what {one} asks."
        elif self.compares and self.back is not None and self.back < self.before * (1 - EQUAL):
            less = f"{percent(1 - self.back / self.before)} less than {one}'s own best"
            yield f"Asked as {one}, the {self.design} of {two} reaches {number(self.back)} {self.unit}, {less}."
        if self.alone:
            said = [f"{each.key.replace('_', ' ')} brings {_effect(each.value, self.before)}" for each in self.alone]
            yield f"Changed alone, on the {self.design} of {one}: {listed(said)}."


def _effect(value: float | None, before: float) -> str:
    return "what it cannot do" if value is None else _change(value / before - 1)


def _change(gain: float) -> str:
    return f"{percent(-gain)} less" if gain < -EQUAL else gained(gain)


def names_of(before: FinishedRun, after: FinishedRun) -> tuple[str, str]:
    """What the two runs are called: their folders' names, with as much of the path as tells them apart."""
    one, two = before.folder.parts, after.folder.parts
    length = next((length for length in range(1, len(one)) if one[-length:] != two[-length:]), 1)
    return "/".join(one[-length:]), "/".join(two[-length:])


def exchanged_chips(
    before: FinishedSearch, after: FinishedSearch, keys: Sequence[str], progress: Progress
) -> ExchangedDesigns | None:
    """The accelerators of two runs under each other's requests, their plans chosen anew; None where one found nothing.

    ``keys`` are the settings that differ.

    Raises:
        InputError: files that a study names are gone.
    """
    one, two = before.result.best, after.result.best
    if one is None or two is None:
        return None
    objective = Objective(after.settings["objective"])
    compares = not {"model", "objective"} & set(keys)

    def alone(key: str) -> float | None:
        return _chip_value(before, _changed(key, after), one.accelerator)

    singles = _leading(keys) if compares and len(keys) > 1 else ()
    with progress.phase("why the answer moved", len(singles) + 2) as advance:
        across = _chip_value(after, {}, one.accelerator)
        advance(1)
        back = _chip_value(before, {}, two.accelerator) if compares else None
        advance(1)
        return ExchangedDesigns(
            names_of(before, after),
            "accelerator",
            UNITS[objective],
            compares,
            one.value,
            two.value,
            across,
            back,
            _singles(singles, alone, one.value, advance),
        )


def _chip_value(finished: FinishedSearch, changes: dict[str, object], accelerator: Accelerator) -> float | None:
    """The best objective of the study of ``finished`` with ``changes`` on one accelerator; None where nothing fits."""
    run = run_of(finished, SilentProgress(), changes)
    chip = priced(run, graphs_of(run), AcceleratorSet.of([accelerator]))
    best = max(float(chip.values(hbm_bytes)[0]) for hbm_bytes in run.study.hbm_sizes_bytes)
    return best or None


def exchanged_plans(
    before: FinishedPlanSearch, after: FinishedPlanSearch, keys: Sequence[str], progress: Progress
) -> ExchangedDesigns | None:
    """The plans of two runs under each other's requests; None where one found nothing.

    Raises:
        InputError: files that a study names are gone.
    """
    if not before.answer.models or not after.answer.models:
        return None
    (one,), (two,) = before.answer.models.values(), after.answer.models.values()
    compares = "model" not in keys

    def value(settings: dict[str, Any], finished: FinishedPlanSearch, plan: FoundPlan) -> float | None:
        found = fixed_plan(settings, finished, plan, SilentProgress())
        return None if found is None else found.throughput_samples_per_s

    def alone(key: str) -> float | None:
        return value({**before.settings, **_changed(key, after)}, before, one)

    about_hardware = [key for key in _leading(keys) if key not in OF_THE_SHAPE]  # the others only say which plans are searched
    singles = about_hardware if compares and len(keys) > 1 else ()
    with progress.phase("why the answer moved", len(singles) + 2) as advance:
        across = value(after.settings, after, one)
        advance(1)
        back = value(before.settings, before, two) if compares else None
        advance(1)
        return ExchangedDesigns(
            names_of(before, after),
            "plan",
            UNITS[Objective.THROUGHPUT],
            compares,
            one.throughput_samples_per_s,
            two.throughput_samples_per_s,
            across,
            back,
            _singles(singles, alone, one.throughput_samples_per_s, advance),
        )


def _changed(key: str, after: FinishedRun) -> dict[str, object]:
    """The setting as in ``after``, with those that follow from it."""
    return {each: after.settings.get(each) for each in (key, *FOLLOWING.get(key, ()))}


def _leading(keys: Sequence[str]) -> list[str]:
    """``keys`` without those that follow from another of them."""
    followers = {follower for key in keys for follower in FOLLOWING.get(key, ())}
    return [key for key in keys if key not in followers]


def _singles(
    keys: Sequence[str], alone: Callable[[str], float | None], before: float, advance: Callable[[int], None]
) -> tuple[Single, ...]:
    found = []
    for key in keys:
        try:
            found.append(Single(key, alone(key)))
        except InputError:  # this one alone contradicts the other settings
            found.append(Single(key, None))
        advance(1)
    return tuple(sorted(found, key=lambda each: -abs((each.value or 0.0) / before - 1)))
