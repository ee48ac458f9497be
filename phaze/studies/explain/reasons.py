"""What the difference between two designs comes from: terms in seconds, and sentences."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from Estimator.chips.accelerator import Accelerator
from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from phaze.studies.explain.attribution import blame_s
from phaze.studies.explain.records import Term
from phaze.studies.explain.repeat import Designed
from phaze.studies.wording import (
    EQUAL,
    accelerator_text,
    listed,
    part_text,
    unit_of,
    whole_plan_text,
)
from phaze_common.numbers import gib, number, percent, size_text, time_text
from phaze_common.units import MIB
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint

WORTH_SAYING = 0.05  # of the gap
FEW = 3  # operators named
HARDLY = 0.01  # of all that is computed


class Work(StrEnum):
    """What an operator does, in words."""

    MATRIX = "matrix products and attention"
    VECTOR = "vector work"
    COMMUNICATION = "communication of the tensor-parallel devices"


class OperatorKey(NamedTuple):
    """An operator of a layer's pass."""

    where: str
    name: str
    work: Work


def terms_of(best: DesignPoint, other: DesignPoint) -> tuple[Term, ...]:
    """The exposed parts of an iteration of every model that both designs have; they add up to the
    iteration."""
    return tuple(
        Term(
            model, name.removesuffix("_s"), seconds, getattr(other.models[model].breakdown_s, name)
        )
        for model, plan in best.models.items()
        if model in other.models
        for name, seconds in vars(plan.breakdown_s).items()
        if not name.startswith("hidden_")
    )


def reasons(best: Designed, other: Designed) -> tuple[str, ...]:
    """Why ``other`` is not as good as ``best``, the most important first."""
    sentences = [_summary(best.point, other.point)]
    several = len(best.point.models) > 1
    for model, plan in best.point.models.items():
        mine = [term for term in terms_of(best.point, other.point) if term.model == model]
        seconds = plan.time_per_batch_s, other.point.models[model].time_per_batch_s
        sentences += gap_text(label(model) if several else "", *seconds, mine)
        sentences += _plans(label(model) if several else "", plan, other.point.models[model])
    one, two = best.point.accelerator, other.point.accelerator
    if one is not None and two is not None and one != two:
        sentences += _chips(one, two)
        sentences += _utilization(best.point, other.point)
        sentences += [
            sentence
            for model in best.point.models
            for sentence in _operators(model, best, other, several=several)
        ]
    return tuple(sentences)


def _summary(best: DesignPoint, other: DesignPoint) -> str:
    unit = unit_of(best)
    ratio = best.value / other.value
    if abs(ratio - 1.0) <= EQUAL:
        verdict = f"as good as the best design, {number(best.value)} {unit}"
    elif ratio > 1.0:
        verdict = (
            f"{percent(1.0 - 1.0 / ratio)} below the best design: {number(other.value)} "
            f"instead of {number(best.value)} {unit}"
        )
    else:
        verdict = (
            f"{percent(1.0 / ratio - 1.0)} above the best design: {number(other.value)} "
            f"instead of {number(best.value)} {unit}"
        )
    plans = "; ".join(
        f"{label(model)} with {whole_plan_text(plan)}"
        if len(other.models) > 1
        else whole_plan_text(plan)
        for model, plan in other.models.items()
    )
    if other.accelerator is None:
        return f"The best such plan is {plans}; it is {verdict}."
    chip = f"{accelerator_text(other.accelerator)} ({number(other.accelerator.area_mm2)} mm²)"
    chip += f" with {gib(other.hbm_bytes)} GiB HBM" if other.hbm_bytes != best.hbm_bytes else ""
    return f"The best such design is {chip}, {plans}; it is {verdict}."


def gap_text(model: str, best_s: float, other_s: float, terms: Sequence[Term]) -> Iterator[str]:
    """Which parts make an iteration of ``model`` (empty: the only one) longer or shorter, in a
    sentence; none where it is not."""
    gap_s = other_s - best_s
    if abs(gap_s) <= EQUAL * best_s:
        return
    name = f"of {model} " if model else ""
    direction = 1.0 if gap_s > 0 else -1.0
    changes = sorted(((term.other_s - term.best_s) * direction, term.name) for term in terms)
    worth = WORTH_SAYING * abs(gap_s)
    more = [
        f"{part_text(part)} {time_text(seconds)}"
        for seconds, part in reversed(changes)
        if seconds > worth
    ]
    less = [
        f"{part_text(part)} {time_text(-seconds)}" for seconds, part in changes if -seconds > worth
    ]
    words = ("longer", "more", "less") if gap_s > 0 else ("shorter", "less", "more")
    sentence = (
        f"An iteration {name}is {time_text(abs(gap_s))} {words[0]} ({time_text(best_s)} to "
        f"{time_text(other_s)}): "
    )
    sentence += f"{words[1]} for {listed(more)}"
    yield f"{sentence}; {words[2]} for {listed(less)}." if less else f"{sentence}."


def _plans(model: str, best: PlanReport, other: PlanReport) -> Iterator[str]:
    """What the plans do differently, as far as terms follow from it."""
    of = f" of {model}" if model else ""
    facts = []
    if best.devices_used != other.devices_used:
        facts.append(f"{other.devices_used:,} instead of {best.devices_used:,} devices work")
    if best.dp != other.dp:
        facts.append(
            f"gradients are synchronised over {other.dp:,} instead of {best.dp:,} replicas"
        )
    mine, theirs = (_largest_state(plan) for plan in (best, other))
    if abs(mine - theirs) > 0.01 * mine:
        facts.append(
            f"the largest stage holds {size_text(theirs)} instead of {size_text(mine)} of "
            "parameters and their state"
        )
    if best.micro_batches_per_pipeline != other.micro_batches_per_pipeline:
        runs = (
            f"{other.micro_batches_per_pipeline:,} instead of "
            f"{best.micro_batches_per_pipeline:,} micro-batches"
        )
        facts.append(f"each pipeline runs {runs}")
    mine, theirs = (max(stage.memory_bytes for stage in plan.stages) for plan in (best, other))
    if abs(mine - theirs) > 0.01 * mine:
        facts.append(f"the fullest stage uses {size_text(theirs)} instead of {size_text(mine)}")
    uneven = [_slowest_over_mean(plan) for plan in (best, other)]
    if abs(uneven[1] - uneven[0]) > 0.05:
        facts.append(
            f"the slowest stage takes {number(uneven[1])} instead of {number(uneven[0])} times "
            "the average"
        )
    if facts:
        yield f"In the plan{of}, {listed(facts)}."


def _largest_state(plan: PlanReport) -> float:
    return max(stage.parameter_state_bytes for stage in plan.stages)


def _slowest_over_mean(plan: PlanReport) -> float:
    return (
        max(stage.load_s for stage in plan.stages)
        * plan.pp
        / sum(stage.load_s for stage in plan.stages)
    )


def _chips(one: Accelerator, two: Accelerator) -> Iterator[str]:
    facts = []
    for what, mine, theirs in (
        (
            "multipliers in its tensor cores",
            one.num_tc * one.width * one.depth,
            two.num_tc * two.width * two.depth,
        ),
        ("vector lanes", one.num_vc * one.width_vc, two.num_vc * two.width_vc),
    ):
        if mine != theirs:
            facts.append(f"{theirs:,} instead of {mine:,} {what}")
    if (one.width, one.depth) != (two.width, two.depth):
        facts.append(
            f"tensor cores of {two.depth} x {two.width} instead of {one.depth} x {one.width}"
        )
    if one.glb_bytes != two.glb_bytes:
        facts.append(
            f"{number(two.glb_bytes / MIB)} instead of {number(one.glb_bytes / MIB)} MiB of "
            "on-chip buffer"
        )
    facts.append(f"{number(two.area_mm2)} instead of {number(one.area_mm2)} mm²")
    yield f"The chip has {listed(facts)}."


def _utilization(best: DesignPoint, other: DesignPoint) -> Iterator[str]:
    for model, plan in best.models.items():
        its = other.models[model]
        name = f" for {label(model)}" if len(best.models) > 1 else ""
        if None in {
            plan.tc_utilization,
            its.tc_utilization,
            plan.energy_per_sample_j,
            its.energy_per_sample_j,
        }:
            continue
        yield (
            f"Its tensor cores are busy {percent(its.tc_utilization or 0.0)} of the time that it "
            f"computes{name} (best design: {percent(plan.tc_utilization or 0.0)}), its vector "
            f"cores {percent(its.vc_utilization or 0.0)} ({percent(plan.vc_utilization or 0.0)}), "
            f"and a sample takes {number(its.energy_per_sample_j or 0.0)} instead of "
            f"{number(plan.energy_per_sample_j or 0.0)} J."
        )


def _operators(model: str, best: Designed, other: Designed, *, several: bool) -> Iterator[str]:
    """Which operators take longer on the other chip, per sample and device, so that micro-batches
    of other sizes compare."""
    mine, theirs = (_operator_seconds(model, each) for each in (best, other))
    total_s = sum(mine.values())
    name_of_model = f" of {label(model)}" if several else ""
    by_kind = []
    for kind in Work:
        before_s, after_s = (
            sum(seconds for key, seconds in each.items() if key.work is kind)
            for each in (mine, theirs)
        )
        if before_s and abs(after_s - before_s) > HARDLY * total_s:
            by_kind.append(f"{number(after_s / before_s, 3)} times as long in {kind.value}")
    if by_kind:
        yield f"A sample{name_of_model} takes {listed(by_kind)} as on the best design."
    changes = {key: theirs[key] - seconds for key, seconds in mine.items() if key in theirs}
    slower = sorted(
        ((seconds, key) for key, seconds in changes.items() if seconds > HARDLY * total_s),
        reverse=True,
    )[:FEW]
    if slower:
        said = [
            f"{key.name} of {key.where} ({number(theirs[key] / mine[key], 3)} times as long)"
            for _, key in slower
        ]
        yield f"Most time is lost in {listed(said)}."


def _operator_seconds(model: str, design: Designed) -> Mapping[OperatorKey, float]:
    """Seconds per sample that each operator is to blame for."""
    seconds: defaultdict[OperatorKey, float] = defaultdict(float)
    size = design.point.models[model].micro_batch_size
    for item in design.schedules:
        if item.model != model:
            continue
        where = f"{item.layer} {item.graph.replace('_', ' ')}"
        assignments = item.schedule.assignments
        for assignment, part_s in zip(assignments, blame_s(assignments).tolist(), strict=True):
            operator, lasts_s = (
                item.operators.operators[assignment.operator],
                assignment.end_s - assignment.start_s,
            )
            waiting = float(item.exposed_s[assignment.operator]) / lasts_s if lasts_s else 0.0
            seconds[OperatorKey(where, operator.name, _work(operator.kind))] += (
                part_s * (1.0 - waiting) * item.repeats / size
            )
            if waiting:
                exchanged = OperatorKey(
                    where, f"what {operator.name} exchanges", Work.COMMUNICATION
                )
                seconds[exchanged] += part_s * waiting * item.repeats / size
    return seconds


def _work(kind: OperatorKind) -> Work:
    if kind is OperatorKind.COLLECTIVE:
        return Work.COMMUNICATION
    return (
        Work.MATRIX
        if kind in {OperatorKind.GEMM, OperatorKind.CONV, OperatorKind.ATTENTION}
        else Work.VECTOR
    )
