"""Why the answer of a finished run is the answer, read from its files alone."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.attribution import blame_s
from phaze.studies.explain.designs import accelerator_values
from phaze.studies.explain.other_plans import other_plans
from phaze.studies.explain.records import Explanation
from phaze.studies.stages_in_words import heterogeneous_text
from phaze.studies.wording import (
    EQUAL,
    accelerator_text,
    bought_text,
    capitalised,
    listed,
    part_text,
    plan_text,
    tight_memory_text,
    times_what,
    unit_of,
    whole_plan_text,
)
from phaze_common.choices import Objective
from phaze_common.numbers import at_least, at_most, gib, number, percent, size_text, time_text
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint

FloatArray = NDArray[np.float64]

SMALL = 0.005  # shares of the time below this are not worth a word
FEW = 3  # operators named
HIDDEN = "hidden_"  # parts of a breakdown that run beside computation


def explain(run: FinishedRun) -> Explanation:
    """The explanation of ``run``, without alternatives. Nothing is searched again."""
    best = run.result.best
    if best is None:
        return Explanation(
            f"Nothing fits: {run.result.reason}.", tuple(_differing(run)), (), (), (), ()
        )
    limits = tuple(sorted(best.limits, key=lambda limit: -limit.unlimited_gain))
    time = [sentence for model, plan in best.models.items() for sentence in _time(run, model, plan)]
    return Explanation(
        answer=_answer(run, best),
        lead=(*_lead(run, best), *_differing(run)),
        limits=limits,
        limits_in_words=(*(limit.words for limit in limits), *_meant(best), *_misfits(run, best))
        or ("This run does not state what limits it.",),
        time_in_words=tuple(time),
        alternatives=(),
        warnings=tuple(_warnings(run, best)),
    )


def _meant(best: DesignPoint) -> Iterator[str]:
    """What is left as it is where more of something is asked for, though it would have its
    price."""
    if best.limits and best.chip is not None and best.objective is not Objective.THROUGHPUT:
        yield (
            f"All of that is {unit_of(best)} of this chip with its area, power and price as they "
            "are; --what-if, as --what-if frequency=1.2, prices what more of it takes too."
        )


def _differing(run: FinishedRun) -> Iterator[str]:
    """What stages that differ bring, where that was asked."""
    if run.result.heterogeneous is not None:
        yield f"{heterogeneous_text(run.result.heterogeneous)}."


def _warnings(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    tight = run.result.tight_memory
    if tight is not None:
        yield f"{capitalised(tight_memory_text(tight, best))}."


def _misfits(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    """Whether the memory of a device keeps plans out."""
    if best.accelerator is not None or not len(run.plans):
        return
    (plan,) = best.models.values()
    misfits, given = int((run.plans["status"] == "infeasible").sum()), size_text(plan.hbm_bytes)
    listed_alone = " that had to be listed" if run.result.counts.unlisted else ""
    compared = (
        f"the {len(run.plans):,} plans with a micro-batch size of "
        f"{plan.micro_batch_size}{listed_alone}"
    )
    do_not = f"{misfits:,} {'does' if misfits == 1 else 'do'} not fit"
    yield f"Of {compared}, {do_not if misfits else 'all fit'} in {given} of memory."


def _answer(run: FinishedRun, best: DesignPoint) -> str:
    models = listed([label(name) for name in best.models])
    plans = [
        _plan_text(run, name, plan, several=len(best.models) > 1)
        for name, plan in best.models.items()
    ]
    value = (
        ""
        if best.objective is Objective.THROUGHPUT and len(plans) == 1
        else f"{number(best.value)} {unit_of(best)}"
    )
    goal = f"{value}: " if value else ""
    return (
        f"For {models}{_hardware_text(run, best)}: {goal}{'; '.join(plans)}, {_proof(run, best)}."
    )


def _hardware_text(run: FinishedRun, best: DesignPoint) -> str:
    """What to build, or what was given."""
    if best.accelerator is None:
        given = run.result.hardware
        return f" on {run.settings['devices']:,} x {given.title} ({Path(given.cluster).stem})"
    area = f"{number(best.accelerator.area_mm2)} mm²"
    return (
        f", build {accelerator_text(best.accelerator)} ({area}) with "
        f"{size_text(best.hbm_bytes)} HBM"
    )


def _plan_text(run: FinishedRun, model: str, plan: PlanReport, *, several: bool) -> str:
    use = (
        None
        if run.result.best is None or run.result.best.chip is None
        else run.result.best.chip.uses.get(model)
    )
    idle = run.settings["devices"] != plan.devices_used and (use is None or use.bought is None)
    of = f" of {run.settings['devices']:,}" if idle else ""
    name = f"{label(model)} " if several else ""
    own = (
        f", {percent(plan.share_of_own_best)} of its own best"
        if plan.share_of_own_best is not None
        else ""
    )
    rate = (
        f"{number(plan.throughput_samples_per_s)} samples/s{own}, "
        f"{time_text(plan.time_per_batch_s)} per iteration"
    )
    return f"{name}{rate} on {plan.devices_used:,}{of} devices ({whole_plan_text(plan)})"


def _proof(run: FinishedRun, best: DesignPoint) -> str:
    counts = run.result.counts
    number_of, what = (
        (counts.space, "design point") if best.accelerator is not None else (counts.plans, "plan")
    )
    unlisted = (
        f" and all of {counts.unlisted:,} shapes that one bound closes"
        if counts.unlisted and what == "plan"
        else ""
    )
    compared = f"{number_of:,} {what}{'' if number_of == 1 else 's'}{unlisted}"
    if best.optimal:
        return f"proven optimal over {compared}"
    bounds = [best.certificate.best_open_bound if best.certificate else None]
    if len(best.models) == 1 and best.objective is not Objective.THROUGHPUT_PER_JOULE:
        (plan,) = best.models.values()
        bounds.append(best.value * plan.time_per_batch_s / plan.time_per_batch_bound_s)
    bound = max((each for each in bounds if each is not None), default=0.0)
    if bound > best.value * (1 + EQUAL):
        return (
            f"not proven optimal: the best of {compared} is "
            f"{at_most(bound / best.value - 1, 'better')}"
        )
    return "not proven optimal"


def _lead(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    for model, use in {} if best.chip is None else best.chip.uses.items():
        if use.bought is not None:
            of = f"For {label(model)} " if len(best.models) > 1 else ""
            yield f"{capitalised(of + bought_text(use.bought))}."
    known = [one for one in run.result.references if one.hbm_bytes == best.hbm_bytes]
    for chip in sorted(known, key=lambda one: -one.value):
        words = (
            f"the known chip {chip.name} ({accelerator_text(chip.accelerator)}, "
            f"{number(chip.accelerator.area_mm2)} mm²)"
        )
        if chip.status not in {Status.OPTIMAL, Status.FEASIBLE}:
            yield f"The model does not fit on {words}."
        elif chip.value <= best.value:
            yield (
                f"It brings {times_what(best.value / chip.value)} {words} brings with its own "
                "best plan."
            )
        else:
            yield (
                f"It brings {percent(1 - best.value / chip.value)} less than {words}, which the "
                "design space leaves out."
            )
    for model, plan in best.models.items():
        if plan.expert is None:
            continue
        expert = f"the plan of a published expert for {label(model)} ({plan_text(plan.expert)})"
        if plan.speedup_over_expert is not None:
            unit = "" if best.objective is not Objective.THROUGHPUT_PER_JOULE else " in samples/s"
            unsearched = plan.expert.tp not in run.settings["tp"]
            but = (
                f"; its tp {plan.expert.tp} is not among the widths searched" if unsearched else ""
            )
            yield (
                f"On the same chip it brings{unit} {times_what(plan.speedup_over_expert)} "
                f"{expert} brings{but}."
            )
        else:
            yield f"On this chip {expert} cannot run: {plan.expert.reason}."
    if best.accelerator is not None:
        yield from _next_accelerators(run, best, best.accelerator)
    yield from _sizes(run, best)
    yield from other_plans(best)


def _next_accelerators(
    run: FinishedRun, best: DesignPoint, accelerator: Accelerator
) -> Iterator[str]:
    """The accelerators behind the best one, and what those that were not evaluated could reach."""
    values = accelerator_values(run, run.designs[run.designs["hbm_bytes"] == best.hbm_bytes])
    chips, unit = values.accelerators, unit_of(best)
    place = chips.find(accelerator)
    others = np.arange(len(chips)) != place
    equal = others & (values.reach >= best.value * (1 - EQUAL))
    same = equal & (values.found >= best.value * (1 - EQUAL))
    if same.any():
        yield f"{_how_many(chips.area_mm2[same], accelerator)} just as good."
    if (equal & ~same).any():
        better = "" if best.optimal else " or better"
        yield (
            f"{_how_many(chips.area_mm2[equal & ~same], accelerator, ' not evaluated in full')} "
            f"at most as good{better}."
        )
    behind = others & ~equal & (values.found > 0)
    if behind.any():
        nearest = int(np.argmax(np.where(behind, values.found, 0.0)))
        chip, value = chips.accelerator(nearest), float(values.found[nearest])
        yield (
            f"The next-best accelerator evaluated is {accelerator_text(chip)} "
            f"({number(chip.area_mm2)} mm²): "
            f"{number(value)} {unit}, {percent(1 - value / best.value)} less."
        )
        rest = others & ~equal & (values.reach > value * (1 + EQUAL))
        if rest.any():
            could = float(values.reach[rest].max())
            yield (
                f"{int(rest.sum()):,} accelerators that were not evaluated in full could come "
                f"closer, but stay {at_least(1 - could / best.value, 'behind')}."
            )
    small = (chips.area_mm2 <= accelerator.area_mm2 / 2) & (values.found > 0)
    if small.any():
        half = int(np.argmax(np.where(small, values.found, 0.0)))
        chip, less = chips.accelerator(half), percent(1 - float(values.found[half]) / best.value)
        yield (
            f"The best of at most half its area is {accelerator_text(chip)} "
            f"({number(chip.area_mm2)} mm²), with {less} less."
        )


def _how_many(area_mm2: FloatArray, best: Accelerator, which: str = "") -> str:
    """So many other accelerators, and whether they are larger, up to the verb."""
    larger = bool((area_mm2 > best.area_mm2).all())
    if len(area_mm2) == 1:
        size = (
            f", a larger one of {number(area_mm2[0])} mm²,"
            if larger
            else f" of {number(area_mm2[0])} mm²"
        )
        return f"Another accelerator{which}{size} is"
    size = (
        f", all larger ({number(area_mm2.min())} to {number(area_mm2.max())} mm²),"
        if larger
        else ""
    )
    return f"{len(area_mm2)} other accelerators{which}{size} are"


def _sizes(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    """The other HBM and micro-batch sizes of the study."""
    others = [point for point in run.result.per_hbm if point.hbm_bytes != best.hbm_bytes]
    same = [gib(point.hbm_bytes) for point in others if point.value >= best.value * (1 - EQUAL)]
    if same:
        yield (
            f"{listed(same)} GiB of HBM bring{'' if len(same) > 1 else 's'} nothing over "
            f"{gib(best.hbm_bytes)} GiB."
        )
    for point in others:
        if point.value < best.value * (1 - EQUAL):
            less = percent(1 - point.value / best.value)
            yield f"With {gib(point.hbm_bytes)} GiB of HBM the best design brings {less} less."
    if len(best.models) > 1:
        return
    (plan,) = best.models.values()
    rows = [
        row
        for row in run.result.rows
        if row.hbm_bytes == best.hbm_bytes and row.micro_batch_size != plan.micro_batch_size
    ]
    said = [
        f"{row.micro_batch_size} "
        f"{f'brings {percent(1 - row.value / best.value)} less' if row.value else 'does not fit'}"
        for row in rows
    ]
    if said:
        own = (
            ", each with an accelerator of its own"
            if best.accelerator is not None
            else ", all else chosen anew"
        )
        largest = plan.micro_batch_size > max(row.micro_batch_size for row in rows)
        end = ", the largest searched," if largest else ""
        yield f"A micro-batch size of {plan.micro_batch_size}{end} is best: {listed(said)}{own}."


def _time(run: FinishedRun, model: str, plan: PlanReport) -> Iterator[str]:
    """Where an iteration of ``model`` goes, what computes, and what fills the memory."""
    parts = vars(plan.breakdown_s)
    exposed = {name: seconds for name, seconds in parts.items() if not name.startswith(HIDDEN)}
    yield (
        f"An iteration of {label(model)} takes {time_text(plan.time_per_batch_s)}: "
        f"{shares(exposed)}."
    )
    hidden = [
        f"{part_text(name.removeprefix(HIDDEN))} {percent(seconds / plan.time_per_batch_s)}"
        for name, seconds in parts.items()
        if name.startswith(HIDDEN) and seconds > SMALL * plan.time_per_batch_s
    ]
    if hidden:
        yield f"Hidden beside its computation run {listed(hidden)} of that time."
    yield from _operators(run, model, plan)
    fullest = max(plan.stages, key=lambda stage: stage.memory_bytes)
    filled = {
        "weights, gradients and optimizer state": fullest.parameter_state_bytes,
        "activations": fullest.activation_bytes,
        "working memory": fullest.workspace_bytes,
        "reserved beyond that by the framework and its allocator": fullest.reserved_bytes,
    }
    words = ", ".join(f"{size_text(size)} {what}" for what, size in filled.items() if size)
    which = (
        f"The fullest of the {len(plan.stages)} stages of {label(model)}"
        if len(plan.stages) > 1
        else label(model)
    )
    outside = f", and {size_text(fullest.host_bytes)} of its host's" if fullest.host_bytes else ""
    yield (
        f"{which} uses {size_text(fullest.memory_bytes)} of {size_text(plan.hbm_bytes)} memory "
        f"({words}){outside}."
    )


def shares(parts_s: dict[str, float]) -> str:
    """Parts of a time and their shares, largest first; what is not worth a word is left out."""
    total_s = sum(parts_s.values())
    worth = sorted(
        (
            (seconds / total_s, name)
            for name, seconds in parts_s.items()
            if seconds > SMALL * total_s
        ),
        reverse=True,
    )
    return ", ".join(f"{part_text(name)} {percent(share)}" for share, name in worth)


def _operators(run: FinishedRun, model: str, plan: PlanReport) -> Iterator[str]:
    """Which layers and operators a micro-batch spends its computation on."""
    mine = [one for one in run.schedules if (one.model, one.hbm_bytes) == (model, plan.hbm_bytes)]
    total_s = sum(one.makespan_s * one.repeats for one in mine)
    if not total_s:
        return
    layers: defaultdict[str, float] = defaultdict(float)
    busy: defaultdict[str, float] = defaultdict(float)
    waiting = 0.0
    for one in mine:
        layers[one.layer] += one.makespan_s * one.repeats / total_s
        for operator, seconds in zip(one.operators, blame_s(one.operators).tolist(), strict=True):
            busy[f"{operator.name} of {one.layer} {one.graph.replace('_', ' ')}"] += (
                seconds * one.repeats / total_s
            )
            waiting += seconds * one.repeats / total_s * operator.waiting_share
    by_layer = sorted(layers.items(), key=lambda item: -item[1])
    shown = listed([f"{name} {percent(share)}" for name, share in by_layer if share > SMALL])
    yield (
        f"Of what the chips compute for a micro-batch of {label(model)}, the layers take: {shown}."
    )
    longest = sorted(busy.items(), key=lambda item: -item[1])[:FEW]
    names = listed([f"{name} ({percent(share)})" for name, share in longest])
    cores = percent(plan.tc_utilization or 0.0), percent(plan.vc_utilization or 0.0)
    utilised = f"{cores[0]} of the tensor cores and {cores[1]} of the vector cores are busy"
    yield (
        f"The operators that take most of that computation are {names}; on average {utilised} "
        "meanwhile."
    )
    if waiting > SMALL:
        yield (
            f"Of that computation {percent(waiting)} is waiting for what operators exchange "
            "with other devices while they run."
        )
