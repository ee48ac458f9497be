"""Why the answer of a finished run is the answer, read from its files alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from Solver.placement.problem import FloatArray

from Common.choices import Objective
from Common.units import GIB
from GraphExtractor.names import label
from Plans.results import Status
from Solver.results import DesignPoint, ModelPlan
from Studies.explain.attribution import blame_s
from Studies.explain.designs import accelerator_values
from Studies.explain.plan_explanation import explain_plans
from Studies.explain.records import Explanation
from Studies.finished_run import FinishedPlanSearch, FinishedRun, FinishedSearch
from Studies.words import (
    EQUAL,
    UNITS,
    accelerator_words,
    listed,
    number,
    part_words,
    percent,
    plan_words,
    size_words,
    time_words,
    times_what,
)

SMALL = 0.005  # shares of the time below this are not worth a word
FEW = 3  # operators named


def explain(run: FinishedRun) -> Explanation:
    """The explanation of ``run``, without alternatives. Nothing is searched again."""
    if isinstance(run, FinishedPlanSearch):
        return explain_plans(run)
    best = run.result.best
    if best is None:
        return Explanation(f"Nothing fits: {run.result.reason}.", (), (), (), (), ())
    limits = tuple(sorted(best.limits, key=lambda limit: -limit.unlimited_gain))
    time = [sentence for model, plan in best.models.items() for sentence in _time(run, model, plan)]
    return Explanation(
        answer=_answer(run, best),
        lead=tuple(_lead(run, best)),
        limits=limits,
        limits_in_words=tuple(limit.words for limit in limits) or ("This run does not state what limits it.",),
        time_in_words=tuple(time),
        alternatives=(),
    )


def _answer(run: FinishedSearch, best: DesignPoint) -> str:
    models = listed([label(name) for name in best.models])
    chip = (
        f"{accelerator_words(best.accelerator)} ({number(best.accelerator.area_mm2)} mm2) with {best.hbm_bytes / GIB:g} GiB HBM"
    )
    devices = next((limit.amount for limit in best.limits if limit.unit == "devices"), None)
    plans = [_plan_words(name if len(best.models) > 1 else "", plan, devices) for name, plan in best.models.items()]
    value = "" if best.objective is Objective.THROUGHPUT and len(plans) == 1 else f"{number(best.value)} {UNITS[best.objective]}"
    mean = " in the weighted mean" if len(plans) > 1 else ""
    goal = f"{value}{mean}: " if value else ""
    return f"For {models}, build {chip}: {goal}{'; '.join(plans)}, {_proof(run, best)}."


def _plan_words(model: str, plan: ModelPlan, devices: float | None) -> str:
    of = f" of {devices:,.0f}" if devices is not None and devices != plan.devices_used else ""
    name = f"{label(model)} " if model else ""
    return f"{name}{number(plan.throughput_samples_per_s)} samples/s on {plan.devices_used:,}{of} devices ({plan_words(plan)})"


def _proof(run: FinishedSearch, best: DesignPoint) -> str:
    if best.optimal:
        return f"proven optimal over {run.result.counts.space:,} design points"
    bound = best.certificate.best_open_bound if best.certificate else None
    if bound is not None and bound > best.value:
        return f"not proven optimal: the best there can be is at most {percent(bound / best.value - 1)} better"
    return "not proven optimal"


def _lead(run: FinishedSearch, best: DesignPoint) -> Iterator[str]:
    known = [one for one in run.result.references if one.hbm_bytes == best.hbm_bytes]
    for chip in sorted(known, key=lambda one: -one.value):
        words = f"the known chip {chip.name} ({accelerator_words(chip.accelerator)}, {number(chip.accelerator.area_mm2)} mm2)"
        if chip.status not in {Status.OPTIMAL, Status.FEASIBLE}:
            yield f"The model does not fit on {words}."
        elif chip.value <= best.value:
            yield f"It brings {times_what(best.value / chip.value)} {words} brings with its own best plan."
        else:
            yield f"It brings {percent(1 - best.value / chip.value)} less than {words}, which the design space leaves out."
    for model, plan in best.models.items():
        if plan.expert is None:
            continue
        expert = f"the plan of a published expert for {label(model)} ({plan_words(plan.expert)})"
        if plan.speedup_over_expert is not None:
            unit = "" if best.objective is not Objective.THROUGHPUT_PER_JOULE else " in samples/s"
            unsearched = plan.expert.tp not in run.settings["tp"]
            but = f"; its tp {plan.expert.tp} is not among the widths searched" if unsearched else ""
            yield f"On the same chip it brings{unit} {times_what(plan.speedup_over_expert)} {expert} brings{but}."
        else:
            yield f"On this chip {expert} cannot run: {plan.expert.reason}."
    yield from _next_accelerators(run, best)
    yield from _sizes(run, best)


def _next_accelerators(run: FinishedSearch, best: DesignPoint) -> Iterator[str]:
    """The accelerators behind the best one, and what those that were not evaluated could reach."""
    values = accelerator_values(run, run.designs[run.designs["hbm_bytes"] == best.hbm_bytes])
    chips, unit = values.accelerators, UNITS[best.objective]
    winner = chips.find(best.accelerator)
    others = np.arange(len(chips)) != winner
    equal = others & (values.reach >= best.value * (1 - EQUAL))
    same = equal & (values.found >= best.value * (1 - EQUAL))
    if same.any():
        yield f"{_how_many(chips.area_mm2[same], best)} just as good."
    if (equal & ~same).any():
        better = "" if best.optimal else " or better"
        yield f"{_how_many(chips.area_mm2[equal & ~same], best, ' not evaluated in full')} at most as good{better}."
    behind = others & ~equal & (values.found > 0)
    if behind.any():
        nearest = int(np.argmax(np.where(behind, values.found, 0.0)))
        chip, value = chips.accelerator(nearest), float(values.found[nearest])
        yield (
            f"The next-best accelerator evaluated is {accelerator_words(chip)} ({number(chip.area_mm2)} mm2): "
            f"{number(value)} {unit}, {percent(1 - value / best.value)} less."
        )
        rest = others & ~equal & (values.reach > value * (1 + EQUAL))
        if rest.any():
            could = float(values.reach[rest].max())
            yield (
                f"{int(rest.sum()):,} accelerators that were not evaluated in full could come closer, but stay at least "
                f"{percent(1 - could / best.value)} behind."
            )
    small = (chips.area_mm2 <= best.accelerator.area_mm2 / 2) & (values.found > 0)
    if small.any():
        half = int(np.argmax(np.where(small, values.found, 0.0)))
        chip, less = chips.accelerator(half), percent(1 - float(values.found[half]) / best.value)
        yield f"The best of at most half its area is {accelerator_words(chip)} ({number(chip.area_mm2)} mm2), with {less} less."


def _how_many(area_mm2: FloatArray, best: DesignPoint, which: str = "") -> str:
    """So many other accelerators, and whether they are larger, up to the verb."""
    larger = bool((area_mm2 > best.accelerator.area_mm2).all())
    if len(area_mm2) == 1:
        size = f", a larger one of {number(area_mm2[0])} mm2," if larger else f" of {number(area_mm2[0])} mm2"
        return f"Another accelerator{which}{size} is"
    size = f", all larger ({number(area_mm2.min())} to {number(area_mm2.max())} mm2)," if larger else ""
    return f"{len(area_mm2)} other accelerators{which}{size} are"


def _sizes(run: FinishedSearch, best: DesignPoint) -> Iterator[str]:
    """The other HBM and micro-batch sizes of the study."""
    others = [point for point in run.result.per_hbm if point.hbm_bytes != best.hbm_bytes]
    same = [f"{point.hbm_bytes / GIB:g}" for point in others if point.value >= best.value * (1 - EQUAL)]
    if same:
        yield f"{listed(same)} GiB of HBM bring nothing over {best.hbm_bytes / GIB:g} GiB."
    for point in others:
        if point.value < best.value * (1 - EQUAL):
            less = percent(1 - point.value / best.value)
            yield f"With {point.hbm_bytes / GIB:g} GiB of HBM the best design brings {less} less."
    if len(best.models) > 1:
        return
    (plan,) = best.models.values()
    rows = [row for row in run.result.rows if row.hbm_bytes == best.hbm_bytes and row.micro_batch_size != plan.micro_batch_size]
    said = [
        f"{row.micro_batch_size} {f'brings {percent(1 - row.value / best.value)} less' if row.accelerator else 'does not fit'}"
        for row in rows
    ]
    if said:
        yield f"A micro-batch size of {plan.micro_batch_size} is best: {listed(said)}, each with an accelerator of its own."


def _time(run: FinishedSearch, model: str, plan: ModelPlan) -> Iterator[str]:
    """Where an iteration of ``model`` goes, what computes, and what fills the memory."""
    breakdown = {name: seconds for name, seconds in vars(plan.breakdown_s).items() if name != "tensor_communication_s"}
    yield f"An iteration of {label(model)} takes {time_words(plan.time_per_batch_s)}: {shares(breakdown)}."
    tensor_s = plan.breakdown_s.tensor_communication_s
    if tensor_s > SMALL * plan.time_per_batch_s:
        share = percent(tensor_s / plan.time_per_batch_s)
        yield f"Within forward and backward, communication of the tensor-parallel devices takes {share} of the iteration."
    yield from _operators(run, model, plan)
    fullest = max(range(len(plan.stages)), key=lambda stage: plan.stages[stage].memory_bytes)
    stage = plan.stages[fullest]
    filled = {
        "weights, gradients and optimizer state": stage.parameter_state_bytes,
        "activations": stage.activation_bytes,
        "working memory": stage.workspace_bytes,
    }
    words = ", ".join(f"{size_words(size)} {what}" for what, size in filled.items())
    which = f"The fullest of the {len(plan.stages)} stages of {label(model)}" if len(plan.stages) > 1 else label(model)
    yield f"{which} uses {size_words(stage.memory_bytes)} of {plan.hbm_bytes / GIB:g} GiB HBM ({words})."


def shares(parts_s: dict[str, float]) -> str:
    """Parts of a time and their shares, largest first; what is not worth a word is left out."""
    total_s = sum(parts_s.values())
    worth = sorted(((seconds / total_s, name) for name, seconds in parts_s.items() if seconds > SMALL * total_s), reverse=True)
    return ", ".join(f"{part_words(name)} {percent(share)}" for share, name in worth)


def _operators(run: FinishedSearch, model: str, plan: ModelPlan) -> Iterator[str]:
    """Which layers and operators a micro-batch spends its computation on."""
    mine = [one for one in run.schedules if (one.model, one.hbm_bytes) == (model, plan.hbm_bytes)]
    total_s = sum(one.makespan_s * one.repeats for one in mine)
    if not total_s:
        return
    layers: defaultdict[str, float] = defaultdict(float)
    busy: defaultdict[str, float] = defaultdict(float)
    for one in mine:
        layers[one.layer] += one.makespan_s * one.repeats / total_s
        for operator, seconds in zip(one.operators, blame_s(one.operators).tolist(), strict=True):
            busy[f"{operator.name} of {one.layer} {one.graph.replace('_', ' ')}"] += seconds * one.repeats / total_s
    by_layer = sorted(layers.items(), key=lambda item: -item[1])
    shown = listed([f"{name} {percent(share)}" for name, share in by_layer if share > SMALL])
    yield f"Of what the chips compute for a micro-batch of {label(model)}, the layers take: {shown}."
    longest = sorted(busy.items(), key=lambda item: -item[1])[:FEW]
    names = listed([f"{name} ({percent(share)})" for name, share in longest])
    utilised = (
        f"{percent(plan.tc_utilization)} of the tensor cores and {percent(plan.vc_utilization)} of the vector cores are busy"
    )
    yield f"The operators that take most of that computation are {names}; on average {utilised} meanwhile."
