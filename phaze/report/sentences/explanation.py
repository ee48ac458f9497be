"""Why the answer of a finished run is the answer, read from its files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.results import Status
from GraphExtractor.names import label
from phaze.report.sentences.designs import (
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
from phaze.report.sentences.operators import SMALL, longest_operators
from phaze.report.sentences.other_plans import other_plans
from phaze.report.sentences.records import Explanation
from phaze.report.sentences.stages import heterogeneous_text
from phaze.runs.accelerator_values import accelerator_values
from phaze.runs.finished_run import FinishedRun
from phaze_common.choices import Objective
from phaze_common.numbers import at_least, at_most, gib, number, percent, size_text, time_text
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint, ReferencePoint

HIDDEN = "hidden_"  # parts of a breakdown that run beside computation


def explain(run: FinishedRun) -> Explanation:
    """The explanation of ``run``, without alternatives. Nothing is searched again."""
    result, best = run.result, run.result.best
    differing: tuple[str, ...] = ()
    if result.heterogeneous is not None:
        differing = (f"{heterogeneous_text(result.heterogeneous)}.",)
    if best is None:
        return Explanation(f"Nothing fits: {result.reason}.", differing, (), (), (), ())
    limits = tuple(sorted(best.limits, key=lambda limit: -limit.unlimited_gain))
    words = (*(limit.words for limit in limits), *_of_this_chip(best), *_misfits(run, best))
    times = (sentence for each in best.models for sentence in _time(run, best, each))
    tight = result.tight_memory
    return Explanation(
        answer=_answer(run, best),
        lead=(*_lead(run, best), *differing),
        limits=limits,
        limits_in_words=words or (no_limits_text(run.folder),),
        time_in_words=tuple(times),
        alternatives=(),
        warnings=() if tight is None else (f"{capitalised(tight_memory_text(tight, best))}.",),
    )


def no_limits_text(folder: Path) -> str:
    """How what limits the design of the run in ``folder`` is told, where the run does not yet."""
    return (
        "This run does not state what limits its chip, nor what other values of every axis allow: "
        f"'phaze explain {quote(str(folder))} --limits' searches both and keeps them."
    )


def _of_this_chip(best: DesignPoint) -> Iterator[str]:
    """That limits leave area, power and price as they are, where the objective depends on them."""
    if best.limits and best.chip is not None and best.objective is not Objective.THROUGHPUT:
        yield (
            f"All of that is {unit_of(best)} of this chip with its area, power and price as they "
            "are; --what-if, as --what-if frequency=1.2, prices what more of it takes too."
        )


def _misfits(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    """Whether the memory of a device keeps plans out."""
    if best.accelerator is not None or not len(run.plans):
        return
    (plan,) = best.models.values()
    misfits = int((run.plans["status"] == "infeasible").sum())
    listed_alone = " that had to be listed" if run.result.counts.unlisted else ""
    do_not = f"{misfits:,} {'does' if misfits == 1 else 'do'} not fit"
    yield (
        f"Of the {len(run.plans):,} plans with a micro-batch size of {plan.micro_batch_size}"
        f"{listed_alone}, {do_not if misfits else 'all fit'} in {size_text(plan.hbm_bytes)} of "
        "memory."
    )


def _answer(run: FinishedRun, best: DesignPoint) -> str:
    models = listed([label(name) for name in best.models])
    plans = [_plan_text(run, best, name) for name in best.models]
    one_rate = best.objective is Objective.THROUGHPUT and len(plans) == 1
    goal = "" if one_rate else f"{number(best.value)} {unit_of(best)}: "
    return (
        f"For {models}{_hardware_text(run, best)}: {goal}{'; '.join(plans)}, {_proof(run, best)}."
    )


def _hardware_text(run: FinishedRun, best: DesignPoint) -> str:
    """What to build, or what was given."""
    if best.accelerator is None:
        given = run.result.hardware
        return f" on {run.settings['devices']:,} x {given.title} ({Path(given.cluster).stem})"
    return f", build {_chip_text(best.accelerator)} with {size_text(best.hbm_bytes)} HBM"


def _chip_text(chip: Accelerator) -> str:
    return f"{accelerator_text(chip)} ({number(chip.area_mm2)} mm²)"


def _plan_text(run: FinishedRun, best: DesignPoint, model: str) -> str:
    plan, use = best.models[model], None if best.chip is None else best.chip.uses.get(model)
    idle = run.settings["devices"] != plan.devices_used and (use is None or use.bought is None)
    of = f" of {run.settings['devices']:,}" if idle else ""
    name = f"{label(model)} " if len(best.models) > 1 else ""
    share = plan.share_of_own_best
    own = "" if share is None else f", {percent(share)} of its own best"
    return (
        f"{name}{number(plan.throughput_samples_per_s)} samples/s{own}, "
        f"{time_text(plan.time_per_batch_s)} per iteration on {plan.devices_used:,}{of} devices "
        f"({whole_plan_text(plan)})"
    )


def _proof(run: FinishedRun, best: DesignPoint) -> str:
    """What the answer was compared with, and how sure it is that nothing is better."""
    counts, unlisted = run.result.counts, ""
    compared, what = counts.space, "design point"
    if best.accelerator is None:
        compared, what = counts.plans, "plan"
        if counts.unlisted:
            unlisted = f" and all of {counts.unlisted:,} shapes that one bound closes"
    those = f"{compared:,} {what}{'' if compared == 1 else 's'}{unlisted}"
    if best.optimal:
        return f"proven optimal over {those}"
    bounds = [best.certificate.best_open_bound if best.certificate else None]
    if len(best.models) == 1 and best.objective is not Objective.THROUGHPUT_PER_JOULE:
        (plan,) = best.models.values()
        bounds.append(best.value * plan.time_per_batch_s / plan.time_per_batch_bound_s)
    bound = max((each for each in bounds if each is not None), default=0.0)
    if bound <= best.value * (1 + EQUAL):
        return "not proven optimal"
    better = at_most(bound / best.value - 1, "better")
    return f"not proven optimal: the best of {those} is {better}"


def _lead(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    """How far the answer leads, before known chips, experts' plans and other values of the axes."""
    for model, use in {} if best.chip is None else best.chip.uses.items():
        if use.bought is not None:
            of = f"For {label(model)} " if len(best.models) > 1 else ""
            yield f"{capitalised(of + bought_text(use.bought))}."
    known = [one for one in run.result.references if one.hbm_bytes == best.hbm_bytes]
    for chip in sorted(known, key=lambda one: -one.value):
        yield _against_chip(best, chip)
    for model, plan in best.models.items():
        if plan.expert is not None:
            yield _against_expert(run, best, model, plan)
    if best.accelerator is not None:
        yield from _next_accelerators(run, best, best.accelerator)
    yield from _sizes(run, best)
    yield from other_plans(best)


def _against_chip(best: DesignPoint, chip: ReferencePoint) -> str:
    area = number(chip.accelerator.area_mm2)
    words = f"the known chip {chip.name} ({accelerator_text(chip.accelerator)}, {area} mm²)"
    if chip.status not in {Status.OPTIMAL, Status.FEASIBLE}:
        return f"The model does not fit on {words}."
    if chip.value <= best.value:
        brings = times_what(best.value / chip.value)
        return f"It brings {brings} {words} brings with its own best plan."
    less = percent(1 - best.value / chip.value)
    return f"It brings {less} less than {words}, which the design space leaves out."


def _against_expert(run: FinishedRun, best: DesignPoint, model: str, plan: PlanReport) -> str:
    assert plan.expert is not None
    expert = f"the plan of a published expert for {label(model)} ({plan_text(plan.expert)})"
    if plan.speedup_over_expert is None:
        return f"On this chip {expert} cannot run: {plan.expert.reason}."
    unit = "" if best.objective is not Objective.THROUGHPUT_PER_JOULE else " in samples/s"
    but = f"; its tp {plan.expert.tp} is not among the widths searched"
    return (
        f"On the same chip it brings{unit} {times_what(plan.speedup_over_expert)} {expert} "
        f"brings{'' if plan.expert.tp in run.settings['tp'] else but}."
    )


def _next_accelerators(
    run: FinishedRun, best: DesignPoint, accelerator: Accelerator
) -> Iterator[str]:
    """The accelerators behind the best one, and what those that were not evaluated could reach."""
    values = accelerator_values(run, run.designs[run.designs["hbm_bytes"] == best.hbm_bytes])
    chips, found, reach = values.accelerators, values.found, values.reach
    others = np.arange(len(chips)) != chips.find(accelerator)
    equal = others & (reach >= best.value * (1 - EQUAL))
    same = equal & (found >= best.value * (1 - EQUAL))
    if same.any():
        yield f"{_how_many(chips.area_mm2[same], accelerator)} just as good."
    perhaps = equal & ~same
    if perhaps.any():
        those = _how_many(chips.area_mm2[perhaps], accelerator, " not evaluated in full")
        yield f"{those} at most as good{'' if best.optimal else ' or better'}."
    behind = others & ~equal & (found > 0)
    if behind.any():
        nearest = int(np.argmax(np.where(behind, found, 0.0)))
        value = float(found[nearest])
        yield (
            f"The next-best accelerator evaluated is {_chip_text(chips.accelerator(nearest))}: "
            f"{number(value)} {unit_of(best)}, {percent(1 - value / best.value)} less."
        )
        rest = others & ~equal & (reach > value * (1 + EQUAL))
        if rest.any():
            least = at_least(1 - float(reach[rest].max()) / best.value, "behind")
            count = int(rest.sum())
            those, stay = f"{count:,} accelerators that were", "stay"
            if count == 1:
                those, stay = "1 accelerator that was", "stays"
            yield f"{those} not evaluated in full could come closer, but {stay} {least}."
    small = (chips.area_mm2 <= accelerator.area_mm2 / 2) & (found > 0)
    if small.any():
        half = int(np.argmax(np.where(small, found, 0.0)))
        less = percent(1 - float(found[half]) / best.value)
        chip = _chip_text(chips.accelerator(half))
        yield f"The best of at most half its area is {chip}, with {less} less."


def _how_many(area_mm2: NDArray[np.float64], best: Accelerator, which: str = "") -> str:
    """So many other accelerators, and whether they are larger, up to the verb."""
    larger, least = bool((area_mm2 > best.area_mm2).all()), number(area_mm2.min())
    if len(area_mm2) == 1:
        size = f", a larger one of {least} mm²," if larger else f" of {least} mm²"
        return f"Another accelerator{which}{size} is"
    size = f", all larger ({least} to {number(area_mm2.max())} mm²)," if larger else ""
    return f"{number(len(area_mm2))} other accelerators{which}{size} are"


def _sizes(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    """The other HBM and micro-batch sizes of the study."""
    others = [point for point in run.result.per_hbm if point.hbm_bytes != best.hbm_bytes]
    same = [gib(point.hbm_bytes) for point in others if point.value >= best.value * (1 - EQUAL)]
    if same:
        bring = f"bring{'' if len(same) > 1 else 's'}"
        yield f"{listed(same)} GiB of HBM {bring} nothing over {gib(best.hbm_bytes)} GiB."
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
    if not rows:
        return
    said = []
    for row in rows:
        less = f"brings {percent(1 - row.value / best.value)} less" if row.value else "does not fit"
        said.append(f"{row.micro_batch_size} {less}")
    own = ", all else chosen anew"
    if best.accelerator is not None:
        own = ", each with an accelerator of its own"
    largest = plan.micro_batch_size > max(row.micro_batch_size for row in rows)
    end = ", the largest searched," if largest else ""
    yield f"A micro-batch size of {plan.micro_batch_size}{end} is best: {listed(said)}{own}."


def _time(run: FinishedRun, best: DesignPoint, model: str) -> Iterator[str]:
    """Where an iteration of ``model`` goes, what computes, and what fills the memory."""
    plan = best.models[model]
    total_s = plan.time_per_batch_s
    parts = vars(plan.breakdown_s).items()
    shares = sorted(((s / total_s, name) for name, s in parts if HIDDEN not in name), reverse=True)
    shown = [f"{part_text(name)} {percent(share)}" for share, name in shares if share > SMALL]
    yield f"An iteration of {label(model)} takes {time_text(total_s)}: {', '.join(shown)}."
    hidden = [
        f"{part_text(name.removeprefix(HIDDEN))} {percent(seconds / total_s)}"
        for name, seconds in parts
        if name.startswith(HIDDEN) and seconds > SMALL * total_s
    ]
    if hidden:
        yield f"Hidden beside its computation run {listed(hidden)} of that time."
    wanted = (model, plan.hbm_bytes)
    schedules = [one for one in run.schedules if (one.model, one.hbm_bytes) == wanted]
    yield from longest_operators(model, plan, schedules)
    fullest = max(plan.stages, key=lambda stage: stage.memory_bytes)
    filled = {
        "weights, gradients and optimizer state": fullest.parameter_state_bytes,
        "activations": fullest.activation_bytes,
        "working memory": fullest.workspace_bytes,
        "reserved beyond that by the framework and its allocator": fullest.reserved_bytes,
    }
    words = ", ".join(f"{size_text(size)} {what}" for what, size in filled.items() if size)
    which = label(model)
    if len(plan.stages) > 1:
        which = f"The fullest of the {len(plan.stages)} stages of {label(model)}"
    outside = f", and {size_text(fullest.host_bytes)} of its host's" if fullest.host_bytes else ""
    yield (
        f"{which} uses {size_text(fullest.memory_bytes)} of {size_text(plan.hbm_bytes)} memory "
        f"({words}){outside}."
    )
