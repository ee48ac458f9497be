"""The designs of two runs under each other's request, and under single changes of it."""

from __future__ import annotations

from collections.abc import Sequence

from Estimator.plans.axes import OF_FRAMEWORK
from phaze.report.sentences.comparison import ExchangedDesigns, Single, names_of
from phaze.report.sentences.designs import unit_of
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.constraints import OF_A_PLAN, constraint_of
from phaze.studies.explain.repeat import hardware_alone, repeating, request_of, run_of
from phaze_common.errors import InputError
from phaze_common.progress import Progress, SilentProgress
from Solver.designs.re_solve import priced
from Solver.results import DesignPoint

FOLLOWING = {  # settings recorded as they follow from another, unless they were given
    "cluster": ("devices",),
    "design_space": ("technology",),
    "device": ("cluster", "software", "devices", "precision", *OF_FRAMEWORK),
    "software": OF_FRAMEWORK,
}


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
    singles = _leading(keys) if compares and len(keys) > 1 else []
    if before.on_device:  # its axes say what is searched
        singles = [key for key in singles if key not in OF_A_PLAN]
    alone = []
    with progress.phase("why the answer moved", len(singles) + 2) as advance:
        across = _value(after, {}, one)
        advance(1)
        back = _value(before, {}, two) if compares else None
        advance(1)
        for key in singles:
            try:
                alone.append(Single(key, _value(before, _changed(key, after), one)))
            except InputError:  # this one alone contradicts the other settings
                alone.append(Single(key, None))
            advance(1)
    alone.sort(key=lambda each: -abs((each.value or 0.0) / one.value - 1))
    return ExchangedDesigns(
        names=names_of(before, after),
        design="plan" if before.on_device else "accelerator",
        unit=unit_of(two),
        compares=compares,
        before=one.value,
        after=two.value,
        across=across,
        back=back,
        alone=tuple(alone),
    )


def _value(finished: FinishedRun, changes: dict[str, object], kept: DesignPoint) -> float | None:
    """The best objective of a changed study that keeps the accelerator, or on devices the plan.

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
