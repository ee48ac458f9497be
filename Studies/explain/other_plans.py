"""What the plans that were not chosen take on the best hardware, axis by axis, as the run found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from Common.numbers import at_least, percent
from GraphExtractor.names import label
from Solver.results import DesignPoint, ModelPlan
from Studies.finished_run import FinishedRun
from Studies.wording import EQUAL, listed

if TYPE_CHECKING:
    import pandas as pd

FEW = 5  # values of an axis that are named
AXES = {
    "tp": "tensor parallel width",
    "pp": "pipeline depth",
    "dp": "data parallel degree",
    "cp": "context parallel degree",
    "ep": "expert parallel degree",
    "recompute": "recomputation",
    "sequence_parallel": "sequence parallelism",
    "interleave": "number of chunks per stage",
    "zero_stage": "ZeRO stage",
    "group_order": "order of the groups",
}


def other_plans(run: FinishedRun, best: DesignPoint) -> Iterator[str]:
    """For every axis of the plan that ``plans.parquet`` is about, what plans with other values of it take."""
    models = run.plans["model"].unique().tolist()
    for model in models:
        name = f" of {label(model)}" if len(best.models) > 1 else ""
        for axis in AXES:
            yield from _other_values(run.plans[run.plans["model"] == model], best.models[model], axis, name)


def _other_values(plans: pd.DataFrame, plan: ModelPlan, axis: str, of_the_model: str) -> Iterator[str]:
    mine, words = getattr(plan, axis), f"{AXES[axis]}{of_the_model}"
    others = plans[plans[axis] != mine]
    rows = []
    for value, part in others.groupby(axis, observed=True):
        fits = part[part["status"] != "infeasible"]
        if not len(fits):
            rows.append((float("inf"), f"{_shown(value)} does not fit"))
            continue
        evaluated_s, bound_s = float(fits["time_per_batch_s"].min()), float(fits["time_per_batch_bound_s"].min())
        rows.append((bound_s, f"{_shown(value)} {_longer(evaluated_s, bound_s, plan.time_per_batch_s)}"))
    if not rows:
        return
    rows.sort()
    said = [text for _, text in rows[:FEW]]
    if len(rows) > FEW:
        least = rows[FEW][0] / plan.time_per_batch_s - 1
        rest = f"take {at_least(least, 'longer')}" if least < float("inf") else "do not fit"
        said.append(f"{len(rows) - FEW} others {rest if least > EQUAL else 'can at best be as fast'}")
    yield f"{words[0].upper()}{words[1:]} {_shown(mine)} is best, all else chosen anew: {listed(said)}."


def _longer(evaluated_s: float, bound_s: float, best_s: float) -> str:
    """How much longer plans take: the fastest evaluated ``evaluated_s`` (nan: none is), none less than ``bound_s``."""
    least, most = bound_s / best_s - 1, evaluated_s / best_s - 1
    if most <= least + EQUAL:
        return f"takes {percent(most)} longer" if most > EQUAL else "takes as long"
    if not most > least:  # nothing evaluated
        return f"takes {at_least(least, 'longer')}" if least > EQUAL else "can at best be as fast"
    known = least > EQUAL and not percent(least).startswith("less") and percent(least) != percent(most)
    return f"takes {percent(least)} to {percent(most)} longer" if known else f"takes at most {percent(most)} longer"


def _shown(value: object) -> str:
    """A value of an axis as people say it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
