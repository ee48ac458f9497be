"""Everything a reader needs to believe the best design: its plans, where time and memory go, the
expert's plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.placement import placement_of
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.results import Status
from Estimator.plans.traffic_besides_operators import traffic_besides_operators
from GraphExtractor.graph import ModelGraph
from phaze_common.errors import SolverError
from Solver.designs.baselines import ExpertPlan, expert_plans
from Solver.designs.confirmed_schedules import LayerSchedule
from Solver.designs.costs import Shape
from Solver.designs.joint import Choice
from Solver.designs.search_context import SearchContext
from Solver.paths.layer_graph import edges_between, is_chain
from Solver.plan_report import ExpertReport, PlanReport
from Solver.schedule.problem import CoreType

AGREEMENT = 1e-9  # relative, between the search's seconds and the price of its plan


def model_plan(
    context: SearchContext, choice: Choice, schedules: Sequence[LayerSchedule]
) -> PlanReport:
    """The plan of one model on the chosen configuration, without its expert baseline.

    Raises:
        SolverError: pricing the plan by itself disagrees with the search, which is a defect."""
    group, point = choice.group, choice.point
    row, shape = group.locate(point)
    plan = group.plan(point)
    costs = attributed_costs(context, shape, plan, row)
    machine = context.hardware.machine(row, float(group.key.memory_bytes))
    iteration = price_iteration(plan, costs, machine)
    found_s = float(group.iteration_s[point])
    if (
        abs(iteration.iteration_s - found_s) > AGREEMENT * found_s
        or iteration.status is not Status.FEASIBLE
    ):
        raise SolverError(
            f"the search found {found_s} s for {group.key}, pricing its plan "
            f"{iteration.iteration_s} s "
            f"({iteration.reason or 'feasible'}); please report this with study.yaml"
        )
    moving_j = context.hardware.moving_j(
        row, traffic_besides_operators(PricedPlan(plan, costs, machine))
    )
    bound_s = min(float(group.least_s[point] / group.weights[point]), iteration.iteration_s)
    return PlanReport.priced(
        plan,
        costs.graph.key.model,
        costs.graph.key.sequence_length,
        iteration,
        int(group.key.memory_bytes),
        bound_s,
        tc_utilization=_utilization(schedules, CoreType.TC),
        vc_utilization=_utilization(schedules, CoreType.VC),
        beside_operators_j=None if moving_j is None else moving_j / plan.global_batch_size,
        price_sources=context.hardware.source_counts(shape.graph, plan.recompute),
        priced_by_bytes=context.hardware.by_bytes(shape.graph, plan.recompute, row),
        share_of_own_best=_share_of_own_best(context, choice),
        plans_omitted=group.omitted,
        placement=placement_of(plan, context.hardware.cluster, context.hardware.cluster),
    )


def _share_of_own_best(context: SearchContext, choice: Choice) -> float | None:
    own_best = context.problem.own_best.get(choice.group.key.model)
    if own_best is None:
        return None
    return float(choice.group.objective(context.problem.objective)[choice.point] / own_best)


def attributed_costs(
    context: SearchContext, shape: Shape, plan: UniformPlan, row: int
) -> LayerCosts:
    """Layer costs of ``plan``'s shape on configuration ``row`` alone, attributed to causes."""
    groups = layer_groups(plan, context.hardware.cluster)
    part = next(each for each in shape.parts if each.groups == groups)
    return context.hardware.attributed(part.costs, groups, row)


def with_expert(plan: PlanReport, expert: ExpertReport | None) -> PlanReport:
    """``plan`` beside the expert's."""
    if expert is None or expert.status is not Status.FEASIBLE:
        return replace(plan, expert=expert)
    return replace(
        plan,
        expert=expert,
        speedup_over_expert=plan.throughput_samples_per_s / expert.throughput_samples_per_s,
    )


def expert_report(
    context: SearchContext,
    expert: ExpertPlan,
    shapes: Sequence[Shape],
    row: int,
    memory_bytes: float,
) -> ExpertReport:
    """Price the expert's plan on configuration ``row``, with the recomputation mode that suits it
    best.

    ``shapes`` are of the expert's width. A plan that does not fit is reported with its reason and
    the time it would take, one that does not apply with its reason alone."""
    graph = shapes[0].graph
    unsuited = _why_unsuited(graph, expert)
    plans = [replace(shape.plan, pp=expert.pp, dp=expert.dp) for shape in shapes]
    unsuited = unsuited or too_many_devices(context, plans[0].devices, row)
    if not unsuited and plans[0].micro_batch_size * expert.dp > plans[0].global_batch_size:
        unsuited = (
            f"the expert's plan has {expert.dp} replicas for {plans[0].global_batch_size} samples"
        )
    if unsuited:
        return expert_plan_that_cannot_run(plans[0], unsuited)
    machine = context.hardware.machine(row, memory_bytes)
    shapes = [shape.proven_at(context.hardware, row) for shape in shapes]
    priced = [
        (plan, price_iteration(plan, attributed_costs(context, shape, plan, row), machine))
        for shape, plan in zip(shapes, plans, strict=True)
    ]
    plan, best = min(
        priced, key=lambda each: (each[1].status is not Status.FEASIBLE, each[1].iteration_s)
    )
    return ExpertReport(
        **vars(plan),
        status=best.status,
        source=expert_plans().source,
        throughput_samples_per_s=best.samples_per_s,
        time_per_batch_s=best.iteration_s,
        reason=best.reason,
        breakdown_s=best.breakdown,
    )


def expert_plan_that_cannot_run(plan: UniformPlan, reason: str) -> ExpertReport:
    """The report of an expert's plan that does not apply, or needs more devices than there are."""
    return ExpertReport(
        **vars(plan),
        status=Status.INFEASIBLE,
        source=expert_plans().source,
        throughput_samples_per_s=0.0,
        time_per_batch_s=0.0,
        reason=reason,
    )


def too_many_devices(context: SearchContext, needed: int, row: int) -> str:
    """Why ``needed`` devices cannot be had of configuration ``row``; empty where they can."""
    given, caps = context.hardware.cluster.num_devices, context.hardware.metrics.caps
    has = f"the cluster has {given}" if needed > given else ""
    if not has and caps is not None and needed > int(caps[row]):
        has = f"the money buys {caps[row]} of this chip"
    return f"the expert's plan needs {needed} devices, {has}" if has else ""


def _why_unsuited(graph: ModelGraph, expert: ExpertPlan) -> str:
    names = [graph.layers[index].name for index in graph.sequence]
    chain = is_chain(len(names), edges_between(graph.tensors))
    if not chain or (names[0], names[-1], set(names[1:-1])) != ("embedding", "head", {"block"}):
        return (
            "the expert's plan balances the blocks between an embedding and a head, and these "
            "layers are no such chain"
        )
    if expert.pp > len(names) - 2:
        return f"the expert's plan has {expert.pp} stages, the model only {len(names) - 2} blocks"
    return ""


def _utilization(schedules: Sequence[LayerSchedule], cores: CoreType) -> float | None:
    """Busy fraction over a micro-batch's forward and backward of the model, weighted by time."""
    total_s = sum(item.schedule.makespan_s * item.repeats for item in schedules)
    busy_s = sum(item.busy(cores) * item.schedule.makespan_s * item.repeats for item in schedules)
    return busy_s / total_s if total_s else None
