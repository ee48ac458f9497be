"""What features of the software are worth to a plan: its iteration with each of them changed, while
degrees, batches and stages stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from Estimator.plans.axes import PLAN_AXES, PlanAxis, plain_value
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.results import Iteration, Status
from GraphExtractor.models.registry import find_model
from phaze.settings.checks import check_request
from phaze.settings.problem import single_plan
from phaze.settings.request import Request
from phaze.studies.evaluation import Evaluation, evaluated
from phaze.studies.explain.worst_load import MostLoad, most_load
from phaze_common.errors import InputError
from phaze_common.progress import Progress, SilentProgress
from phaze_common.text_in_files import TextInFiles

FEATURES = tuple(each for each in PLAN_AXES if each.axis.feature)
MOST_STEPS = 3
LEAST_GAIN = 1.005  # of a step: times as fast


@dataclass(frozen=True)
class FeatureChange:
    """A plan with another value (``instead``) of the feature ``key``, which is called ``title`` and
    has the value ``now``.

    ``faster`` is how many times as long the iteration of the plan without the change takes,
    ``memory_bytes`` what the fullest stage needs, ``rounds`` whether number formats change. Without
    seconds ``reason`` says why that plan cannot be.
    """

    key: str
    title: str
    now: str
    instead: str
    rounds: bool
    iteration_s: float | None = None
    faster: float | None = None
    memory_bytes: float | None = None
    fits: bool = False
    reason: str = ""


@dataclass(frozen=True, eq=False)
class PlanFeatures:
    """A plan as it is, and with one feature changed at a time: what is possible, the fastest first.

    Of values of one feature that come to the same the first is told. ``together`` are the changes
    that help most, each made where those before it are; none of them changes number formats.
    ``impossible`` are those that the model, the device or the plan does not allow;
    ``without_effect`` are keys of features that change neither time nor memory of this plan.
    ``most_load`` is how uneven routing may become.
    """

    plan: Evaluation
    changes: tuple[FeatureChange, ...]
    together: tuple[FeatureChange, ...]
    impossible: tuple[FeatureChange, ...]
    without_effect: tuple[str, ...]
    most_load: MostLoad | None


@dataclass(frozen=True, eq=False)
class _Tried:
    """A change with the request that makes it and its iteration."""

    change: FeatureChange
    request: Request
    iteration: Iteration | None


def plan_features(request: Request, progress: Progress | None = None) -> PlanFeatures:
    """The plan of ``request``, which ``evaluate`` prices, with each of its features changed.

    Raises:
        InputError: as ``evaluated``, or the stages of the plan differ.
    """
    if request.stages is not None:
        raise InputError(
            f"{request.stages.source}: the stages of this plan differ, and what a feature is worth "
            "is told of plans whose stages are alike; give one of these"
        )
    plan = evaluated(request)
    tried = _tried(request, plan.iteration, FEATURES, progress or SilentProgress())
    changes = [each.change for each in _first_of_equals(tried, plan.iteration)]
    changing = {each.key for each in changes}
    possible = [each.change.key for each in tried if each.iteration is not None]
    return PlanFeatures(
        plan,
        tuple(sorted(changes, key=lambda each: -(each.faster or 0.0))),
        tuple(_together(plan.iteration, tried)),
        tuple(each.change for each in tried if each.iteration is None),
        tuple(dict.fromkeys(key for key in possible if key not in changing)),
        most_load(request, plan),
    )


def _together(now: Iteration, tried: list[_Tried]) -> Iterator[FeatureChange]:
    """Greedy: the best change, then the best one beside it, of those that keep number formats."""
    kept = tuple(each for each in FEATURES if not each.axis.rounds)
    for _ in range(MOST_STEPS):
        fitting = [each for each in tried if each.change.fits and not each.change.rounds]
        best = max(fitting, key=lambda each: each.change.faster or 0.0, default=None)
        if best is None or best.iteration is None:
            return
        if now.status is not Status.INFEASIBLE and (best.change.faster or 0.0) < LEAST_GAIN:
            return
        yield best.change
        now = best.iteration
        kept = tuple(each for each in kept if each.key != best.change.key)
        tried = _tried(best.request, now, kept, SilentProgress())


def _tried(
    request: Request, now: Iteration, axes: tuple[PlanAxis, ...], progress: Progress
) -> list[_Tried]:
    """Every other value of each of ``axes``."""
    plan = single_plan(request)
    asked = [(axis, value) for axis in axes for value in _others(axis, plan)]
    found = list[_Tried]()
    with progress.phase("features", total=len(asked)) as advance:
        for axis, value in asked:
            found.append(_changed(request, now, axis, axis.of(plan), value))
            advance(1)
    return found


def _others(axis: PlanAxis, plan: UniformPlan) -> Iterator[object]:
    """The values that the feature does not have in ``plan``; none where it is about a degree of
    1."""
    item, about = axis.field.item, axis.axis
    if about.of_degree and getattr(plan, about.of_degree) == 1:
        return
    if item is bool:
        every: list[object] = [False, True]
    elif issubclass(item, Enum):
        every = [each for each in item if each.value not in about.of_a_search]
    else:
        every = list(range(int(about.least), int(about.most) + 1))
    other = axis.field.other
    if other is not None and issubclass(other, TextInFiles):
        every += other.each_alone()
    yield from (each for each in every if plain_value(each) != axis.of(plan))


def _changed(
    request: Request, now: Iteration, axis: PlanAxis, own: object, value: object
) -> _Tried:
    texts = _text(own), _text(plain_value(value))
    change = FeatureChange(axis.key, axis.axis.title, *texts, axis.axis.rounds)
    name = request.workload.models[0].name
    given = (value,) if axis.field.holds_many else value
    other = request.with_settings(**{axis.field.name: given})
    try:
        check_request(other, {name: find_model(name)})
        found = evaluated(other).iteration
    except InputError as error:
        return _Tried(replace(change, reason=str(error)), other, None)
    change = replace(
        change,
        iteration_s=found.iteration_s,
        faster=now.iteration_s / found.iteration_s,
        memory_bytes=found.memory_bytes,
        fits=found.status is not Status.INFEASIBLE,
    )
    return _Tried(change, other, found)


def _first_of_equals(tried: list[_Tried], now: Iteration) -> Iterator[_Tried]:
    """What is possible, without values of a feature that come to the same as the plan or as an
    earlier value: parts that the model lacks."""
    seen = dict[str, set[tuple[float, float]]]()
    for each in tried:
        if each.iteration is None:
            continue
        found = each.iteration.iteration_s, each.iteration.memory_bytes
        others = seen.setdefault(each.change.key, {(now.iteration_s, now.memory_bytes)})
        if found not in others:
            others.add(found)
            yield each


def _text(value: object) -> str:
    """A value as it is typed; nothing stated is as the framework has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "as the framework" if value is None else str(value)
