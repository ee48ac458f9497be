"""Why the optimum beats the best known chip and an expert's plan, term by term."""

from collections.abc import Iterator, Mapping, Sequence

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.results import Breakdown
from GraphExtractor.names import label
from phaze.report.pages.design_points import PointsOfModel
from phaze.studies.wording import EQUAL, exposed_s, listed, part_text, plan_extras, plan_text
from phaze_common.numbers import number, time_text
from phaze_common.units import MIB
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint

WORTH_SAYING = 0.05  # of the difference


def why(best: DesignPoint, points: Sequence[PointsOfModel]) -> tuple[str, ...]:
    """What the optimum does differently from the best known chip and from the experts' plans."""
    known = [chip for chip in points[0].references if set(best.models) <= set(chip.models)]
    nearest = max(known, key=lambda chip: chip.value).name if known else None
    return tuple(_sentences(best, points, nearest))


def _sentences(
    best: DesignPoint, points: Sequence[PointsOfModel], nearest: str | None
) -> Iterator[str]:
    models = [(f" of {label(each.model)}" if len(points) > 1 else "", each) for each in points]
    for of, each in models:
        for chip in each.references:
            if chip.name == nearest:
                against = f"Against {chip.name} with its own best plan"
                yield from _plans(against, of, each.plan, chip.models[each.model])
    for chip in points[0].references:
        if chip.name == nearest:
            assert best.accelerator is not None  # known chips are compared with designed ones
            facts = list(_chips(best.accelerator, chip.accelerator))
            if facts:
                yield f"Beside {chip.name} its chip has {listed(facts)}."
    for of, each in models:
        expert, mine = each.plan.expert, each.plan
        if expert and expert.breakdown_s is not None and mine.speedup_over_expert is not None:
            against = f"Against the expert's plan ({plan_text(expert)}) on the same chip"
            yield from _gap(against, of, mine.breakdown_s, expert.breakdown_s)


def _plans(against: str, of: str, mine: PlanReport, its: PlanReport) -> Iterator[str]:
    yield from _gap(against, of, mine.breakdown_s, its.breakdown_s)
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


def _gap(against: str, of: str, mine: Breakdown, its: Breakdown) -> Iterator[str]:
    """How much shorter or longer an iteration is, and which terms make it so, the largest first."""
    best_s, other_s = exposed_s(mine), exposed_s(its)
    gap_s = sum(other_s.values()) - sum(best_s.values())
    if abs(gap_s) <= EQUAL * sum(best_s.values()):
        yield f"{against} an iteration{of} takes just as long."
        return
    saved = {term: seconds - best_s[term] for term, seconds in other_s.items()}
    parts = {
        "less": _parts(saved, abs(gap_s)),
        "more": _parts({term: -each for term, each in saved.items()}, abs(gap_s)),
    }
    words = ("shorter", "less", "more") if gap_s > 0 else ("longer", "more", "less")
    said = [f"{listed(parts[word])} {word}" for word in words[1:] if parts[word]]
    yield f"{against} an iteration{of} is {time_text(abs(gap_s))} {words[0]}: {'; '.join(said)}."


def _parts(seconds: Mapping[str, float], gap_s: float) -> list[str]:
    worth = ((each, term) for term, each in seconds.items() if each > WORTH_SAYING * gap_s)
    return [f"{part_text(term)} {time_text(each)}" for each, term in sorted(worth, reverse=True)]


def _chips(mine: Accelerator, its: Accelerator) -> Iterator[str]:
    chips = (mine, its)
    lanes, other_lanes = (chip.num_vc * chip.width_vc for chip in chips)
    if lanes != other_lanes:
        yield f"{lanes:,} instead of {other_lanes:,} vector lanes"
    multipliers, others = (chip.num_tc * chip.width * chip.depth for chip in chips)
    if multipliers != others:
        yield f"{multipliers:,} instead of {others:,} multipliers in tensor cores"
    if (mine.width, mine.depth) != (its.width, its.depth):
        yield f"tensor cores of {mine.depth} x {mine.width} instead of {its.depth} x {its.width}"
    if mine.glb_bytes != its.glb_bytes:
        own, other = (number(chip.glb_bytes / MIB) for chip in chips)
        yield f"{own} instead of {other} MiB of on-chip buffer"
    if mine.memory_system != its.memory_system:
        yield f"{mine.memory_system} instead of {its.memory_system}"
    if mine.links != its.links:
        yield f"links of {mine.links} instead of {its.links}"
    if mine.frequency_hz != its.frequency_hz:
        yield "another clock"
    if mine.area_mm2 != its.area_mm2:
        yield f"{number(mine.area_mm2)} instead of {number(its.area_mm2)} mm² of area"
