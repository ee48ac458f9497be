"""What the difference between two designs comes from: terms in seconds, and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.results import Breakdown
from GraphExtractor.names import label
from phaze.report.sentences.designs import (
    EQUAL,
    accelerator_text,
    exposed_s,
    listed,
    part_text,
    plan_extras,
    plan_text,
    unit_of,
    whole_plan_text,
)
from phaze.report.sentences.operators import slower_operators
from phaze.report.sentences.records import Term
from phaze_common.numbers import gib, number, percent, size_text, time_text
from phaze_common.units import MIB
from Solver.designs.confirmed_schedules import LayerSchedule
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint, ReferencePoint

WORTH_SAYING = 0.05  # of the gap


@dataclass(frozen=True, eq=False)
class Designed:
    """A design point and the schedules of its layers (none on a device)."""

    point: DesignPoint
    schedules: tuple[LayerSchedule, ...]


def terms_of(best: DesignPoint, other: DesignPoint) -> tuple[Term, ...]:
    """The exposed parts of an iteration of every model that both designs have."""
    found = []
    for model in (each for each in best.models if each in other.models):
        its = other.models[model].breakdown_s
        for name, seconds in vars(best.models[model].breakdown_s).items():
            if not name.startswith("hidden_"):
                found.append(Term(model, name.removesuffix("_s"), seconds, getattr(its, name)))
    return tuple(found)


def reasons(best: Designed, other: Designed) -> tuple[str, ...]:
    """Why ``other`` is not as good as ``best``, the most important first."""
    sentences = [_summary(best.point, other.point)]
    several, terms = len(best.point.models) > 1, terms_of(best.point, other.point)
    for model, plan in best.point.models.items():
        its, name = other.point.models[model], label(model) if several else ""
        mine = [term for term in terms if term.model == model]
        sentences += gap_text(name, plan.time_per_batch_s, its.time_per_batch_s, mine)
        sentences += _plan_facts(name, plan, its)
    one, two = best.point.accelerator, other.point.accelerator
    if one is not None and two is not None and one != two:
        facts = list(chip_facts(two, one))
        sentences += [f"The chip has {listed(facts)}."] if facts else []
        sentences += _utilization(best.point, other.point)
        for model in best.point.models:
            rows = ([row for row in each.schedules if row.model == model] for each in (best, other))
            sizes = (each.point.models[model].micro_batch_size for each in (best, other))
            of_model = f" of {label(model)}" if several else ""
            sentences += slower_operators(of_model, tuple(rows), tuple(sizes))
    return tuple(sentences)


def _summary(best: DesignPoint, other: DesignPoint) -> str:
    unit, ratio = unit_of(best), best.value / other.value
    verdict = f"as good as the best design, {number(best.value)} {unit}"
    if abs(ratio - 1.0) > EQUAL:
        direction = "below" if ratio > 1.0 else "above"
        verdict = (
            f"{percent(abs(1.0 - 1.0 / ratio))} {direction} the best design: "
            f"{number(other.value)} instead of {number(best.value)} {unit}"
        )
    texts = {label(model): whole_plan_text(plan) for model, plan in other.models.items()}
    plans = "; ".join(f"{model} with {text}" for model, text in texts.items())
    if len(texts) == 1:
        (plans,) = texts.values()
    if other.accelerator is None:
        return f"The best such plan is {plans}; it is {verdict}."
    chip = f"{accelerator_text(other.accelerator)} ({number(other.accelerator.area_mm2)} mm²)"
    chip += f" with {gib(other.hbm_bytes)} GiB HBM" if other.hbm_bytes != best.hbm_bytes else ""
    return f"The best such design is {chip}, {plans}; it is {verdict}."


def gap_text(model: str, best_s: float, other_s: float, terms: Sequence[Term]) -> Iterator[str]:
    """Which parts make an iteration of ``model`` (empty: the only one) longer or shorter."""
    gap_s = other_s - best_s
    if abs(gap_s) <= EQUAL * best_s:
        return
    name = f"of {model} " if model else ""
    words = ("longer", "more", "less") if gap_s > 0 else ("shorter", "less", "more")
    direction = 1.0 if gap_s > 0 else -1.0
    more, less = _parts({each.name: direction * (each.other_s - each.best_s) for each in terms})
    also = f"; {words[2]} for {listed(less)}" if less else ""
    yield (
        f"An iteration {name}is {time_text(abs(gap_s))} {words[0]} ({time_text(best_s)} to "
        f"{time_text(other_s)}): {words[1]} for {listed(more)}{also}."
    )


def _parts(changes_s: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """The parts of an iteration that grow and those that shrink, as far as worth a word."""
    worth_s = WORTH_SAYING * abs(sum(changes_s.values()))

    def named(sign: float) -> list[str]:
        found = ((sign * each, part) for part, each in changes_s.items() if sign * each > worth_s)
        return [
            f"{part_text(part)} {time_text(each)}" for each, part in sorted(found, reverse=True)
        ]

    return named(1.0), named(-1.0)


def _plan_facts(model: str, best: PlanReport, other: PlanReport) -> Iterator[str]:
    """What the plans do differently, as far as terms follow from it."""
    facts = []
    if best.devices_used != other.devices_used:
        facts.append(f"{other.devices_used:,} instead of {best.devices_used:,} devices work")
    if best.dp != other.dp:
        replicas = f"{other.dp:,} instead of {best.dp:,} replicas"
        facts.append(f"gradients are synchronised over {replicas}")
    mine, theirs = (
        max(stage.parameter_state_bytes for stage in plan.stages) for plan in (best, other)
    )
    if abs(mine - theirs) > 0.01 * mine:
        state = f"{size_text(theirs)} instead of {size_text(mine)} of parameters and their state"
        facts.append(f"the largest stage holds {state}")
    if best.micro_batches_per_pipeline != other.micro_batches_per_pipeline:
        runs = (
            f"{other.micro_batches_per_pipeline:,} instead of {best.micro_batches_per_pipeline:,}"
        )
        facts.append(f"each pipeline runs {runs} micro-batches")
    if abs(best.memory_bytes - other.memory_bytes) > 0.01 * best.memory_bytes:
        sizes = f"{size_text(other.memory_bytes)} instead of {size_text(best.memory_bytes)}"
        facts.append(f"the fullest stage uses {sizes}")
    mine, theirs = _slowest_over_mean(best), _slowest_over_mean(other)
    if abs(theirs - mine) > 0.05:
        times = f"{number(theirs)} instead of {number(mine)} times"
        facts.append(f"the slowest stage takes {times} the average")
    if facts:
        yield f"In the plan{f' of {model}' if model else ''}, {listed(facts)}."


def _slowest_over_mean(plan: PlanReport) -> float:
    loads_s = [stage.load_s for stage in plan.stages]
    return max(loads_s) * plan.pp / sum(loads_s)


def chip_facts(one: Accelerator, two: Accelerator, area: str = "mm²") -> Iterator[str]:
    """What chip ``one`` has instead of what ``two`` has; ``area`` is the unit of its area."""
    chips = (one, two)
    lanes, other_lanes = (chip.num_vc * chip.width_vc for chip in chips)
    if lanes != other_lanes:
        yield f"{lanes:,} instead of {other_lanes:,} vector lanes"
    multipliers, others = (chip.num_tc * chip.width * chip.depth for chip in chips)
    if multipliers != others:
        yield f"{multipliers:,} instead of {others:,} multipliers in tensor cores"
    if (one.width, one.depth) != (two.width, two.depth):
        yield f"tensor cores of {one.depth} x {one.width} instead of {two.depth} x {two.width}"
    if one.glb_bytes != two.glb_bytes:
        own, other = (number(chip.glb_bytes / MIB) for chip in chips)
        yield f"{own} instead of {other} MiB of on-chip buffer"
    if one.memory_system != two.memory_system:
        yield f"{one.memory_system} instead of {two.memory_system}"
    if one.links != two.links:
        yield f"links of {one.links} instead of {two.links}"
    if one.frequency_hz != two.frequency_hz:
        yield "another clock"
    if one.area_mm2 != two.area_mm2:
        yield f"{number(one.area_mm2)} instead of {number(two.area_mm2)} {area}"


def _utilization(best: DesignPoint, other: DesignPoint) -> Iterator[str]:
    for model, plan in best.models.items():
        its, name = other.models[model], f" for {label(model)}" if len(best.models) > 1 else ""
        if plan.tc_utilization is None or its.tc_utilization is None:
            continue
        if plan.energy_per_sample_j is None or its.energy_per_sample_j is None:
            continue
        yield (
            f"Its tensor cores are busy {percent(its.tc_utilization)} of the time that it "
            f"computes{name} (best design: {percent(plan.tc_utilization)}), its vector "
            f"cores {percent(its.vc_utilization or 0.0)} ({percent(plan.vc_utilization or 0.0)}), "
            f"and a sample takes {number(its.energy_per_sample_j)} instead of "
            f"{number(plan.energy_per_sample_j)} J."
        )


def why(best: DesignPoint, references: Sequence[ReferencePoint]) -> Iterator[str]:
    """What the optimum does differently from the best known chip and from the experts' plans."""
    alike = [each for each in references if each.hbm_bytes == best.hbm_bytes]
    known = [chip for chip in alike if set(best.models) <= set(chip.models)]
    nearest = max(known, key=lambda chip: chip.value, default=None)
    names = {model: f" of {label(model)}" if len(best.models) > 1 else "" for model in best.models}
    if nearest is not None:
        for model, mine in best.models.items():
            against = f"Against {nearest.name} with its own best plan"
            its = nearest.models[model]
            yield _gap(against, names[model], mine.breakdown_s, its.breakdown_s)
            yield from _plan_changes(names[model], mine, its)
        assert best.accelerator is not None  # known chips are compared with designed ones
        if facts := list(chip_facts(best.accelerator, nearest.accelerator, "mm² of area")):
            yield f"Beside {nearest.name} its chip has {listed(facts)}."
    for model, mine in best.models.items():
        expert = mine.expert
        if expert and expert.breakdown_s is not None and mine.speedup_over_expert is not None:
            against = f"Against the expert's plan ({plan_text(expert)}) on the same chip"
            yield _gap(against, names[model], mine.breakdown_s, expert.breakdown_s)


def _plan_changes(of: str, mine: PlanReport, its: PlanReport) -> Iterator[str]:
    both = {
        "": (plan_text(mine), plan_text(its)),
        "micro-batch ": (mine.micro_batch_size, its.micro_batch_size),
        "recomputation ": (mine.recompute, its.recompute),
    }
    changes = [f"{what}{one} instead of {two}" for what, (one, two) in both.items() if one != two]
    one, two = (", ".join(plan_extras(each)) or "nothing further" for each in (mine, its))
    changes += [f"{one} instead of {two}"] if one != two else []
    if changes:
        yield f"Its plan{of} is {listed(changes)}."


def _gap(against: str, of: str, mine: Breakdown, its: Breakdown) -> str:
    """How much shorter or longer an iteration is, and which terms make it so, the largest first."""
    best_s, other_s = exposed_s(mine), exposed_s(its)
    gap_s = sum(other_s.values()) - sum(best_s.values())
    if abs(gap_s) <= EQUAL * sum(best_s.values()):
        return f"{against} an iteration{of} takes just as long."
    less, more = _parts({term: seconds - best_s[term] for term, seconds in other_s.items()})
    said = [f"{listed(less)} less"] if less else []
    said += [f"{listed(more)} more"] if more else []
    direction = "shorter" if gap_s > 0 else "longer"
    both = "; ".join(said if gap_s > 0 else said[::-1])
    return f"{against} an iteration{of} is {time_text(abs(gap_s))} {direction}: {both}."
