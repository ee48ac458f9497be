"""The answer of a plan search as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from Reporter.tables import plain_table
from Reporter.training_tables import prediction_tables
from Solver.plan_search.results import PlanOutcome
from Solver.plan_search.run import PlanRun
from Studies.evaluation import Evaluation

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 5  # plans, the fastest first


def plan_search_tables(run: PlanRun) -> list[Table]:
    """The fastest plan, where its time and memory go, the plans behind it, and what was searched."""
    request, result = run.request, run.result
    tables = []
    if result.plan is not None and result.prediction is not None:
        evaluation = Evaluation(
            request.model,
            request.sequence_length,
            result.plan,
            request.device,
            request.cluster,
            request.software,
            request.graphs,
        )
        tables = prediction_tables(evaluation, result.prediction)
    points = [point for point in result.points if point.outcome is PlanOutcome.EVALUATED and point.iteration_s is not None]
    experts = any(point.plan.ep > 1 for point in result.points)
    ranked = sorted(points, key=lambda point: point.iteration_s or 0.0)[:SHOWN]
    rows: list[dict[str, object]] = [
        {
            "iteration_s": f"{point.iteration_s:.5g}",
            "tp": point.plan.tp,
            "pp": point.plan.pp,
            "dp": point.plan.dp,
            **({"ep": point.plan.ep} if experts else {}),
            "micro_batch": point.plan.micro_batch_size,
            "chunks": point.plan.interleave,
            "recompute": point.plan.recompute.value,
            "sequence_parallel": "yes" if point.plan.sequence_parallel else "no",
            "zero": point.plan.zero_stage,
            "groups": point.plan.group_order.value,
        }
        for point in ranked
    ]
    if rows:
        tables.append(plain_table("fastest plans priced", rows))
    counts = result.counts
    proof = "optimal: no plan searched is faster" if result.optimal else f"not proven: none is below {result.bound_s} s"
    searched: list[dict[str, object]] = [
        {
            "plans": counts.space,
            "evaluated": counts.evaluated,
            "pruned": counts.pruned,
            "do not fit": counts.infeasible,
            "answer": proof if result.plan is not None else f"infeasible: {result.reason}",
        }
    ]
    return [*tables, plain_table("search", searched)]
