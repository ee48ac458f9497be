"""Best-first search over the plans of a space: bound, price, prune; every plan is accounted for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from Common.errors import InputError
from Common.progress import Advance
from Estimator.devices.operator_cost import DeviceModel
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import ModelGraph
from Plans.groups import DeviceGroups, expert_groups
from Plans.layer_costs import LayerCost, layer_costs
from Plans.plan import TrainingPlan
from Plans.pricing import PlanPricer, overlap_of
from Plans.results import Prediction
from Solver.plan_search.bounds import iteration_bound_s
from Solver.plan_search.results import PlanOutcome, PlanPoint, PlanSearchResult
from Solver.plan_search.space import PlanSpace
from Solver.plan_search.stages import best_stages
from Solver.results import Counts, Status

TOLERANCE = 1e-9  # relative: plans closer than this are equally good


@dataclass(frozen=True)
class _Candidate:
    plan: TrainingPlan
    graph: ModelGraph
    costs: tuple[LayerCost, ...]
    bound_s: float


@dataclass(frozen=True)
class _Explored:
    """A point of the space with the plan cut into stages and its prediction, where there is one."""

    point: PlanPoint
    plan: TrainingPlan
    prediction: Prediction | None


def search_plans(
    space: PlanSpace,
    graph_of: Callable[[TrainingPlan], ModelGraph],
    model: DeviceModel,
    cluster: Cluster,
    advance: Advance,
) -> PlanSearchResult:
    """Find the fastest plan of ``space`` that fits in memory; ``graph_of`` gives the graph of a plan's shape.

    Raises:
        InputError: the space is empty.
    """
    candidates = sorted(_candidates(space, graph_of, model, cluster, advance), key=lambda each: each.bound_s)
    if not candidates:
        raise InputError(
            f"no plan uses {space.devices} devices with a global batch of {space.base.global_batch_size}, "
            f"tp {list(space.tp_widths)} and micro-batches of {list(space.micro_batch_sizes)}; give other ones"
        )
    best: _Explored | None = None
    best_s = np.inf
    points = []
    for candidate in candidates:
        explored = _explored(candidate, model, cluster, best_s)
        points.append(explored.point)
        if explored.prediction is not None and explored.prediction.iteration_s < best_s:
            best, best_s = explored, explored.prediction.iteration_s
    counts = _counts(points)
    if best is None:
        reason = next((point.reason for point in points if point.reason), "")
        return PlanSearchResult(Status.INFEASIBLE, False, None, None, None, counts, tuple(points), reason)
    bound_s = min(best_s, *(point.bound_s for point in points))
    optimal = bound_s >= best_s * (1 - TOLERANCE) and counts.complete
    status = Status.OPTIMAL if optimal else Status.FEASIBLE
    return PlanSearchResult(status, optimal, best.plan, best.prediction, bound_s, counts, tuple(points))


def _candidates(
    space: PlanSpace,
    graph_of: Callable[[TrainingPlan], ModelGraph],
    model: DeviceModel,
    cluster: Cluster,
    advance: Advance,
) -> list[_Candidate]:
    found = []
    for shape in space.shapes():
        graph = graph_of(shape)
        priced: dict[DeviceGroups, tuple[LayerCost, ...]] = {}
        for plan in space.plans(shape, len(graph.sequence) - 2, cluster):
            experts = _like(expert_groups(plan), cluster)
            if experts not in priced:
                priced[experts] = layer_costs(graph, shape.recompute, model, cluster, experts)
            bound_s = iteration_bound_s(plan, priced[experts], overlap_of(plan, model))
            found.append(_Candidate(plan, graph, priced[experts], bound_s))
        advance(1)
    return found


def _like(groups: DeviceGroups, cluster: Cluster) -> DeviceGroups:
    """Groups that cost the same, as many plans have them: without those that start alike in all inner blocks of the cluster."""
    starts = {start % cluster.period for start in groups.starts} if groups.levels else {0}
    return DeviceGroups(groups.levels, tuple(sorted(starts)))


def _explored(candidate: _Candidate, model: DeviceModel, cluster: Cluster, best_s: float) -> _Explored:
    plan = candidate.plan
    if candidate.bound_s >= best_s:
        return _Explored(PlanPoint(plan, PlanOutcome.PRUNED, candidate.bound_s, None, None), plan, None)
    staged = best_stages(PlanPricer(candidate.graph, plan, model, cluster, candidate.costs), best_s)
    if staged.prediction is None:
        outcome = PlanOutcome.INFEASIBLE if staged.bound_s == np.inf else PlanOutcome.PRUNED
        return _Explored(PlanPoint(plan, outcome, staged.bound_s, None, None, staged.reason), plan, None)
    prediction = staged.prediction
    point = PlanPoint(plan, PlanOutcome.EVALUATED, staged.bound_s, prediction.iteration_s, prediction.memory_bytes)
    return _Explored(point, replace(plan, stage_layers=staged.stage_layers), prediction)


def _counts(points: Sequence[PlanPoint]) -> Counts:
    outcomes = [point.outcome for point in points]
    return Counts(
        len(points),
        outcomes.count(PlanOutcome.EVALUATED),
        outcomes.count(PlanOutcome.PRUNED),
        outcomes.count(PlanOutcome.INFEASIBLE),
    )
