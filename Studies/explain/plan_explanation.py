"""Why the fastest plan on given devices is the fastest, read from the files of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from Common.units import GB
from GraphExtractor.names import label
from Solver.plan_search.results import FoundPlan, PlanOutcome
from Studies.explain.records import Explanation
from Studies.finished_run import FinishedPlanSearch
from Studies.words import EQUAL, listed, number, part_words, percent, plan_words

if TYPE_CHECKING:
    import pandas as pd

SMALL = 0.005
AXES = {
    "tp": "tensor parallel width",
    "pp": "pipeline depth",
    "dp": "data parallel degree",
    "ep": "expert parallel degree",
    "micro_batch_size": "micro-batch size",
    "recompute": "recomputation",
    "sequence_parallel": "sequence parallelism",
    "interleave": "number of chunks per stage",
    "zero_stage": "ZeRO stage",
    "group_order": "order of the groups",
}


def explain_plans(run: FinishedPlanSearch) -> Explanation:
    """The explanation of a run that searched plans, without alternatives."""
    answer = run.answer
    if not answer.models:
        return Explanation(f"Nothing fits: {answer.reason}.", (), (), (), (), ())
    ((model, plan),) = answer.models.items()
    proof = f"proven the fastest of {answer.counts.space:,} plans"
    if not answer.optimal:
        least = f"none of {answer.counts.space:,} plans takes less than {number(plan.time_per_batch_bound_s or 0.0)} s"
        proof = f"not proven the fastest: {least}"
    return Explanation(
        answer=(
            f"For {label(model)} on {plan.devices_used:,} x {answer.device_title} ({answer.cluster}), train with "
            f"{found_plan_words(plan)}: {number(plan.throughput_samples_per_s)} samples/s, "
            f"{number(plan.time_per_batch_s)} s per iteration, {proof}."
        ),
        lead=tuple(_lead(run.designs, plan)),
        limits=(),
        limits_in_words=(_memory(run, plan),),
        time_in_words=(_time(label(model), plan),),
        alternatives=(),
    )


def found_plan_words(plan: FoundPlan) -> str:
    """A plan in one line, what is switched off left out."""
    extras = [f"micro-batch {plan.micro_batch_size}", f"recomputation {plan.recompute}"]
    if plan.ep > 1:
        extras.append(f"ep {plan.ep}")
    if plan.interleave > 1:
        extras.append(f"{plan.interleave} chunks per stage")
    if plan.sequence_parallel:
        extras.append("sequence parallelism")
    if plan.zero_stage:
        extras.append(f"ZeRO stage {plan.zero_stage}")
    return ", ".join([plan_words(plan), *extras])


def _lead(designs: pd.DataFrame, plan: FoundPlan) -> Iterator[str]:
    """For every axis, the best plan with another value of it, or what none of those can beat."""
    for axis, words in AXES.items():
        mine = getattr(plan, axis)
        others = designs[designs[axis] != mine]
        if not len(others):
            continue
        rows = []
        for value, part in others.groupby(axis, observed=True):
            fits = part[part["status"] != PlanOutcome.INFEASIBLE.value]
            if not len(fits):
                rows.append((float("inf"), f"{axis_value(value)} does not fit"))
                continue
            priced_s, bound_s = fits["time_per_batch_s"].min(), fits["time_per_batch_bound_s"].min()
            rows.append((bound_s, f"{axis_value(value)} {_longer(priced_s, bound_s, plan.time_per_batch_s)}"))
        said = [text for _, text in sorted(rows)]
        yield f"{words[0].upper()}{words[1:]} {axis_value(mine)} is best, all else chosen anew: {listed(said)}."


def _longer(priced_s: float, bound_s: float, best_s: float) -> str:
    """How much longer plans take of which the fastest priced takes ``priced_s`` (nan: none is) and none less than ``bound_s``."""
    least, most = bound_s / best_s - 1, priced_s / best_s - 1
    if most <= least + EQUAL:
        return f"takes {percent(most)} longer" if most > EQUAL else "takes as long"
    if not most > least:  # nothing priced
        return f"takes at least {percent(least)} longer" if least > EQUAL else "takes no less"
    return f"takes {percent(least)} to {percent(most)} longer" if least > EQUAL else f"takes up to {percent(most)} longer"


def axis_value(value: object) -> str:
    """A value of an axis as people say it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _memory(run: FinishedPlanSearch, plan: FoundPlan) -> str:
    fullest, given = max(plan.stages, key=lambda chunk: chunk.memory_bytes), run.answer.device_memory_bytes
    misfits = run.answer.counts.infeasible
    lost = f"; {misfits:,} of {run.answer.counts.space:,} plans do not fit" if misfits else ""
    parts = {
        "weights, gradients and optimizer state": fullest.parameter_state_bytes,
        "activations": fullest.activation_bytes,
        "working memory": fullest.workspace_bytes,
        "reserved by the framework": fullest.reserved_bytes,
    }
    words = ", ".join(f"{size / GB:.1f} GB {what}" for what, size in parts.items() if size)
    return f"The fullest stage uses {fullest.memory_bytes / GB:.1f} of {given / GB:.1f} GB ({words}){lost}."


def _time(model: str, plan: FoundPlan) -> str:
    parts = {name: seconds for name, seconds in vars(plan.breakdown_s).items() if not name.startswith("hidden_")}
    worth = sorted(((seconds / plan.time_per_batch_s, name) for name, seconds in parts.items()), reverse=True)
    shown = ", ".join(f"{part_words(name)} {percent(share)}" for share, name in worth if share > SMALL)
    return f"An iteration of {model} takes {number(plan.time_per_batch_s)} s: {shown}."
