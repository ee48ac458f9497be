"""Why an answer moved between two runs: the design of each under the other's request, and under
single changes of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from phaze.report.sentences.designs import EQUAL, listed, unit_of
from phaze.report.sentences.gains import gained
from phaze.report.sentences.records import Exchange
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.constraints import OF_A_PLAN, constraint_of
from phaze.studies.explain.repeat import hardware_alone, repeating, request_of, run_of
from phaze_common.errors import InputError
from phaze_common.numbers import number, percent
from phaze_common.progress import Progress, SilentProgress
from Solver.designs.re_solve import priced
from Solver.results import DesignPoint

FOLLOWING = {  # settings recorded as they follow from another, unless they were given
    "cluster": ("devices",),
    "design_space": ("technology",),
    "device": (
        "cluster",
        "software",
        "devices",
        "precision",
        "overlap_gradients",
        "overlap_tensor",
    ),
    "software": ("overlap_gradients", "overlap_tensor"),
}


@dataclass(frozen=True)
class Single:
    """The value of the earlier design when one input changes alone; None where it does not fit, or
    cannot be."""

    key: str
    value: float | None


@dataclass(frozen=True)
class ExchangedDesigns:
    """Values of the designs of two runs. ``across`` is that of the earlier design under the later
    request, ``back`` the reverse.

    None where it does not fit. ``alone`` are in order of their effect. Where the requests do not
    compare only ``across`` and ``after`` do with each other.
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
            Exchange(
                f"{self.design} of {one}, {each.key.replace('_', ' ')} as in {two}", each.value
            )
            for each in self.alone
        ]
        across = [
            Exchange(f"{self.design} of {one}, asked as {two}", self.across),
            Exchange(f"{two}, as found", self.after),
        ]
        back = (
            [Exchange(f"{self.design} of {two}, asked as {one}", self.back)]
            if self.compares
            else []
        )
        return (*here, *single, *across, *back)

    def sentences(self) -> Iterator[str]:
        """Why the answer moved."""
        one, two = self.names
        if self.across is None:
            yield f"The {self.design} of {one} cannot do what {two} asks."
        elif self.after <= self.across * (1 + EQUAL):
            best = f"is as good as its own best, {number(self.after)} {self.unit}"
            yield (
                f"Asked as {two}, the {self.design} of {one} {best}: the question moved the "
                f"answer, not the {self.design}."
            )
        else:
            less = f"{percent(1 - self.across / self.after)} less than {two}'s own best"
            yield (
                f"Asked as {two}, the {self.design} of {one} reaches {number(self.across)} "
                f"{self.unit}, {less}."
            )
            if self.compares:
                question, design = (
                    _change(self.across / self.before - 1),
                    gained(self.after / self.across - 1),
                )
                yield (
                    f"So the question alone brings {question}, and choosing the {self.design} "
                    f"anew {design} on top."
                )
        if self.compares and self.back is None:
            yield f"The {self.design} of {two} cannot do what {one} asks."
        elif self.compares and self.back is not None and self.back < self.before * (1 - EQUAL):
            less = f"{percent(1 - self.back / self.before)} less than {one}'s own best"
            yield (
                f"Asked as {one}, the {self.design} of {two} reaches {number(self.back)} "
                f"{self.unit}, {less}."
            )
        if self.alone:
            said = [
                f"{each.key.replace('_', ' ')} brings {_effect(each.value, self.before)}"
                for each in self.alone
            ]
            yield f"Changed alone, on the {self.design} of {one}: {listed(said)}."


def _effect(value: float | None, before: float) -> str:
    return "what it cannot do" if value is None else _change(value / before - 1)


def _change(gain: float) -> str:
    return f"{percent(-gain)} less" if gain < -EQUAL else gained(gain)


def names_of(before: FinishedRun, after: FinishedRun) -> tuple[str, str]:
    """What the two runs are called: their folders' names, with as much of the path as tells them
    apart."""
    one, two = before.folder.parts, after.folder.parts
    length = next((length for length in range(1, len(one)) if one[-length:] != two[-length:]), 1)
    return "/".join(one[-length:]), "/".join(two[-length:])


def exchanged(
    before: FinishedRun, after: FinishedRun, keys: Sequence[str], progress: Progress
) -> ExchangedDesigns | None:
    """What two runs designed under each other's requests; None where one found nothing.

    That is an accelerator, its plans chosen anew, or on devices the plan. ``keys`` are the settings
    that differ.

    Raises:
        InputError: files that a study names are gone.
    """
    one, two = before.result.best, after.result.best
    if one is None or two is None:
        return None
    compares = not {"model", "objective"} & set(keys)

    def alone(key: str) -> float | None:
        return _value(before, _changed(key, after), one)

    leading = [
        key for key in _leading(keys) if not (before.on_device and key in OF_A_PLAN)
    ]  # those say what is searched
    singles = leading if compares and len(keys) > 1 else ()
    with progress.phase("why the answer moved", len(singles) + 2) as advance:
        across = _value(after, {}, one)
        advance(1)
        back = _value(before, {}, two) if compares else None
        advance(1)
        return ExchangedDesigns(
            names_of(before, after),
            "plan" if before.on_device else "accelerator",
            unit_of(two),
            compares,
            one.value,
            two.value,
            across,
            back,
            _singles(singles, alone, one.value, advance),
        )


def _value(finished: FinishedRun, changes: dict[str, object], kept: DesignPoint) -> float | None:
    """The best objective of the study of ``finished`` with ``changes`` that keeps the accelerator,
    or on devices the plan.

    None where nothing fits, or there is no such plan. A plan's data parallel degree follows from
    the devices, its stages are cut anew.
    """
    with repeating(finished):
        request = request_of(finished, changes)
    if kept.accelerator is None:
        (plan,) = kept.models.values()
        try:
            request = request_of(finished, changes | constraint_of(plan).within(()))
        except InputError:  # the model or the devices have no such plan
            return None
    with repeating(finished):
        run = run_of(request, SilentProgress())
    chips = priced(run, hardware_alone(run.hardware, kept))
    optima = [chips.optimum(size) for size in run.problem.memory_bytes]
    return max((optimum.value for optimum in optima if optimum is not None), default=None)


def _changed(key: str, after: FinishedRun) -> dict[str, object]:
    """The setting as in ``after``, with those that follow from it."""
    return {each: after.settings.get(each) for each in (key, *FOLLOWING.get(key, ()))}


def _leading(keys: Sequence[str]) -> list[str]:
    """``keys`` without those that follow from another of them."""
    followers = {follower for key in keys for follower in FOLLOWING.get(key, ())}
    return [key for key in keys if key not in followers]


def _singles(
    keys: Sequence[str],
    alone: Callable[[str], float | None],
    before: float,
    advance: Callable[[int], None],
) -> tuple[Single, ...]:
    found = []
    for key in keys:
        try:
            found.append(Single(key, alone(key)))
        except InputError:  # this one alone contradicts the other settings
            found.append(Single(key, None))
        advance(1)
    return tuple(sorted(found, key=lambda each: -abs((each.value or 0.0) / before - 1)))
