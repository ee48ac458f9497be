"""The fastest plan on given devices that has what was asked for, beside the fastest of all."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from typing import Any

from Solver.plan_search.results import FoundPlan, PlanAnswer, PlanOutcome
from Solver.plan_search.run import answer as answer_of
from Solver.plan_search.run import answer_request

from Common.choices import GroupOrder
from Common.errors import InputError
from Common.progress import Progress
from Common.units import GB
from Plans.results import Status
from Studies.adapters import plan_search
from Studies.explain.constraints import OF_ANY_PLAN, PlanConstraint
from Studies.explain.plan_explanation import found_plan_words
from Studies.explain.reasons import gap_words
from Studies.explain.records import Alternative, Term
from Studies.finished_run import FinishedPlanSearch
from Studies.request import Request
from Studies.resolve import resolve
from Studies.words import EQUAL, listed, number, percent

logger = logging.getLogger(__name__)
OF_THE_SHAPE = frozenset(OF_ANY_PLAN) - {"pp", "dp", "group_order"}  # what decides the seconds of a layer, checked as it is asked


@dataclass(frozen=True, eq=False)
class RepeatedPlanSearch:
    """The search of a run under other constraints; ``best`` is the fastest plan as it is priced now."""

    finished: FinishedPlanSearch
    best: FoundPlan
    unchanged: bool
    progress: Progress


def repeat_plan_search(finished: FinishedPlanSearch, progress: Progress) -> RepeatedPlanSearch:
    """Get ready to repeat the search of ``finished``.

    Raises:
        InputError: it found nothing, or files that it names are gone or do not fit any more.
    """
    if not finished.answer.models:
        raise InputError(f"{finished.folder} found nothing feasible, so there is nothing to compare an alternative with")
    (best,) = finished.answer.models.values()
    now = fixed_plan(finished.settings, finished, best, progress)
    if now is None:
        raise InputError(
            f"the fastest plan of {finished.folder} does not fit any more: the code or files that its study names have changed; "
            "run the study again"
        )
    unchanged = abs(now.time_per_batch_s / best.time_per_batch_s - 1.0) <= EQUAL
    if not unchanged:
        logger.warning(
            "the fastest plan now takes %.6g s instead of %.6g s: the code or files that the study names have changed since the "
            "run, and all that follows is priced as they are now; run the study again to be sure that it is still the fastest",
            now.time_per_batch_s,
            best.time_per_batch_s,
        )
    return RepeatedPlanSearch(finished, now, unchanged, progress)


def plan_alternative(search: RepeatedPlanSearch, constraint: PlanConstraint) -> Alternative:
    """The fastest plan with what ``constraint`` names, everything else chosen anew.

    Raises:
        InputError: a value that no plan of the run can have.
    """
    best, values = search.best, constraint.values
    if all(getattr(best, name) == value for name, value in values.items()):
        sentence = "The fastest plan of all has what was asked for."
        return Alternative(
            constraint.asked, search.finished.answer.status, None, 1.0, plan_terms(search, best), (sentence,), "", best
        )
    _check(search, constraint)
    answer = _search(search.finished.settings, search.finished, _narrowed(search, constraint), search.progress)
    if not answer.models:
        reason = answer.reason or "nothing fits"
        return Alternative(constraint.asked, Status.INFEASIBLE, None, None, (), (), reason)
    (plan,) = answer.models.values()
    slower = best.throughput_samples_per_s / plan.throughput_samples_per_s
    return Alternative(constraint.asked, answer.status, None, slower, plan_terms(search, plan), _reasons(search, plan), "", plan)


def plan_terms(search: RepeatedPlanSearch, other: FoundPlan) -> tuple[Term, ...]:
    """The parts of an iteration in the fastest plan and another; they add up to the iteration."""
    (model,) = search.finished.answer.models
    return terms_of_plans(model, search.best, other)


def terms_of_plans(model: str, one: FoundPlan, other: FoundPlan) -> tuple[Term, ...]:
    """As ``plan_terms``."""
    return tuple(
        Term(model, name.removesuffix("_s"), seconds, getattr(other.breakdown_s, name))
        for name, seconds in vars(one.breakdown_s).items()
        if not name.startswith("hidden_")
    )


def fixed_plan(settings: dict[str, Any], finished: FinishedPlanSearch, plan: FoundPlan, progress: Progress) -> FoundPlan | None:
    """``plan`` priced under ``settings``, cut into its best stages; None where they have no such plan or it does not fit.

    Its data parallel degree follows from the devices.

    Raises:
        InputError: the settings are not possible.
    """
    kept = [each.name for each in fields(PlanConstraint) if each.name not in {"asked", "dp"}]
    constraint = PlanConstraint("", **{name: getattr(plan, name) for name in kept})
    try:
        answer = _search(settings, finished, constraint, progress)
    except NoSuchPlanError:
        return None
    return next(iter(answer.models.values()), None)


class NoSuchPlanError(InputError):
    """The space has no plan with what is asked for."""


def _search(settings: dict[str, Any], finished: FinishedPlanSearch, constraint: PlanConstraint, progress: Progress) -> PlanAnswer:
    try:
        request = plan_search(_constrained(settings, finished, constraint))
    except InputError as error:
        raise InputError(f"the study of {finished.folder} cannot be asked that: {error}") from error
    if not any(True for shape in request.space.shapes()):
        raise NoSuchPlanError(_no_plan(finished, constraint))
    try:
        return answer_of(answer_request(request, progress))
    except InputError as error:
        if "no plan uses" in str(error):
            raise NoSuchPlanError(_no_plan(finished, constraint)) from error
        raise


def _constrained(settings: dict[str, Any], finished: FinishedPlanSearch, constraint: PlanConstraint) -> Request:
    """The request of ``settings`` with single values where they are asked for, which its own lists need not hold."""
    shape = {name: [value] for name, value in constraint.values.items() if name in OF_THE_SHAPE}
    request = resolve(settings, shape, source=str(finished.folder / "study.yaml"))
    rest: dict[str, Any] = {name: (value,) for name, value in constraint.values.items() if name not in OF_THE_SHAPE}
    if "group_order" in rest:
        rest["group_order"] = tuple(map(GroupOrder, rest["group_order"]))
    own = (finished.folder / "GraphExtractor" / "out").is_dir()  # of a run with a folder for everything
    return replace(request, output=finished.folder if own else request.output, **rest)


def _no_plan(finished: FinishedPlanSearch, constraint: PlanConstraint) -> str:
    asked = constraint.asked or ", ".join(f"{name}={value}" for name, value in constraint.values.items())
    devices = finished.settings["devices"]
    return f"--instead {asked}: no plan of {devices} devices has that; tp x pp x dp must be {devices}, and pp divide the blocks"


def _check(search: RepeatedPlanSearch, constraint: PlanConstraint) -> None:
    """Refuse degrees that no plan of the run has."""
    designs = search.finished.designs
    for name in ("pp", "dp", "group_order"):
        value, there = getattr(constraint, name), sorted(designs[name].unique().tolist())
        if value is not None and value not in there:
            shown = ", ".join(map(str, there))
            raise InputError(f"--instead {constraint.asked}: no plan of the run has {name} {value}; they have {shown}")


def _narrowed(search: RepeatedPlanSearch, constraint: PlanConstraint) -> PlanConstraint:
    """``constraint`` as the one plan that is known to be the fastest with it, where the run knows one."""
    designs = search.finished.designs
    for name, value in constraint.values.items():
        designs = designs[designs[name] == value]
    if not len(designs) or not search.unchanged:
        return constraint
    priced = designs[designs["status"] == PlanOutcome.EVALUATED.value]
    fits = designs[designs["status"] != PlanOutcome.INFEASIBLE.value]
    if not len(priced) or priced["time_per_batch_s"].min() > fits["time_per_batch_bound_s"].min():
        return constraint
    row = priced.iloc[int(priced["time_per_batch_s"].argmin())]
    names = [each.name for each in fields(PlanConstraint) if each.name != "asked"]
    return PlanConstraint(constraint.asked, **{name: _plain(row[name]) for name in names})


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _reasons(search: RepeatedPlanSearch, plan: FoundPlan) -> tuple[str, ...]:
    best = search.best
    ratio = best.throughput_samples_per_s / plan.throughput_samples_per_s
    verdict = "as fast as the fastest" if abs(ratio - 1) <= EQUAL else f"{percent(1 - 1 / ratio)} below the fastest"
    if ratio < 1 - EQUAL:
        verdict = f"{percent(1 / ratio - 1)} above the fastest that the run searched"
    rates = f"{number(plan.throughput_samples_per_s)} instead of {number(best.throughput_samples_per_s)} samples/s"
    summary = f"The best such plan is {found_plan_words(plan)}; it is {verdict}: {rates}."
    gap = gap_words("", best.time_per_batch_s, plan.time_per_batch_s, plan_terms(search, plan))
    facts = []
    if best.micro_batches_per_pipeline != plan.micro_batches_per_pipeline:
        runs = f"{plan.micro_batches_per_pipeline:,} instead of {best.micro_batches_per_pipeline:,} micro-batches"
        facts.append(f"each pipeline runs {runs}")
    mine, theirs = (max(chunk.memory_bytes for chunk in each.stages) / GB for each in (best, plan))
    if abs(mine - theirs) > 0.01 * mine:
        facts.append(f"the fullest stage uses {theirs:.1f} instead of {mine:.1f} GB")
    return (summary, *gap, *([f"With it, {listed(facts)}."] if facts else []))
