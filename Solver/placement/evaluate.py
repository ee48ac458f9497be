"""Price one given plan, sharing only the formulas of ``objective`` and ``links`` with the solvers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Common.errors import InputError
from Solver.placement.layer_graph import branches, copied_bytes, in_order
from Solver.placement.links import Network
from Solver.placement.objective import (
    TOLERANCE,
    gradient_sync,
    micro_batches_per_pipeline,
    optimizer_s_per_parameter,
    resident_bytes_per_parameter,
    tied_sync_s,
    transfer_s,
    weight_gather,
)
from Solver.placement.problem import FloatArray, GroupOrder, LayerTimes, Placement, PlacementProblem, PlanVariant, Stage
from Solver.results import Breakdown, Status


@dataclass(frozen=True)
class StageMemory:
    """What fills the memory of a stage's devices."""

    parameter_state_bytes: float  # weights, gradients, optimizer state
    activation_bytes: float  # saved, of all micro-batches in flight
    workspace_bytes: float

    @property
    def total_bytes(self) -> float:
        """All of it."""
        return self.parameter_state_bytes + self.activation_bytes + self.workspace_bytes


@dataclass(frozen=True)
class StageTimes:
    """Seconds per micro-batch of one stage, by cause; it receives activations before forward and gradients before backward."""

    forward_s: float
    backward_s: float
    recompute_s: float
    activation_transfer_s: float
    gradient_transfer_s: float
    gather_s: float  # sharded weights, for forward and again for backward

    @property
    def transfer_s(self) -> float:
        """All that it receives from its neighbours."""
        return self.activation_transfer_s + self.gradient_transfer_s

    @property
    def load_s(self) -> float:
        """All of it."""
        return self.forward_s + self.backward_s + self.recompute_s + self.transfer_s + self.gather_s


def balanced_cuts(layers: int, pp: int) -> tuple[int, ...]:
    """First layers of stages 2..pp as Megatron-LM balances them: blocks as evenly as possible, embedding and head at the ends.

    Layer 0 is the embedding and the last one the head; where blocks do not divide evenly the earlier stages take one more.

    Raises:
        InputError: there are more stages than blocks.
    """
    blocks = layers - 2
    if pp == 1:
        return ()
    if not 1 <= pp <= blocks:
        raise InputError(f"{pp} pipeline stages were asked for {blocks} blocks; give 1 to {max(blocks, 1)} stages")
    sizes = [blocks // pp + (stage < blocks % pp) for stage in range(pp)]
    return tuple(int(first) + 1 for first in np.cumsum(sizes)[:-1])


def evaluate_plan(
    problem: PlacementProblem,
    times: LayerTimes,
    variant: int,
    dp: int,
    cuts: Sequence[int],
    order: GroupOrder | None = None,
) -> Placement:
    """Time and memory of the plan with stages starting at layers 0 and ``cuts``, under ``order`` or the faster of both orders.

    The stages follow the execution order; a branching problem in another order is given as the chain of ``in_order``.

    A plan that does not fit in memory or on the cluster has status INFEASIBLE and says why; its time is given all the same.

    Raises:
        InputError: the cuts are not increasing layer indices or a degree is not positive.
    """
    layers = len(problem.variants[variant].parameter_count)
    bounds = [0, *cuts, layers]
    if dp < 1 or any(first >= last for first, last in itertools.pairwise(bounds)):
        raise InputError(
            f"a plan with dp {dp} and stages starting at layers {[0, *cuts]} is not valid; dp must be at least 1 and the stages "
            f"must start at increasing layers below {layers}"
        )
    orders = Network.of(problem.cluster).orders if order is None else (order,)
    plans = [_evaluate(problem, times, variant, dp, bounds, each) for each in orders]
    return min(plans, key=lambda plan: plan.iteration_s)


def stage_memory(problem: PlacementProblem, placement: Placement) -> tuple[StageMemory, ...]:
    """What fills the memory of each stage of ``placement``, a plan of ``problem``."""
    bounds = [*(stage.first_layer for stage in placement.stages), placement.stages[-1].last_layer + 1]
    return _memory(problem, _variant_of(problem, placement), placement.dp, bounds, placement.order)


def stage_times(problem: PlacementProblem, times: LayerTimes, placement: Placement) -> tuple[StageTimes, ...]:
    """Where each stage of ``placement``, a plan of ``problem``, spends its time per micro-batch."""
    variant = _variant_of(problem, placement)
    bounds = [*(stage.first_layer for stage in placement.stages), placement.stages[-1].last_layer + 1]
    if branches(problem) is not None:
        problem, times = in_order(problem, times, placement.order)
    return tuple(_stage_times(problem, times, variant, placement.dp, bounds, placement.group_order))


def _variant_of(problem: PlacementProblem, placement: Placement) -> int:
    return next(
        index for index, plan in enumerate(problem.variants) if plan.tp == placement.tp and plan.recompute is placement.recompute
    )


def _memory(
    problem: PlacementProblem, variant: int, dp: int, bounds: Sequence[int], order: Sequence[int]
) -> tuple[StageMemory, ...]:
    plan = problem.variants[variant]
    layers = [list(order[first:last]) for first, last in itertools.pairwise(bounds)]
    pp = len(bounds) - 1
    copied = plan.copied_bytes if plan.tensors is None else copied_bytes(plan.tensors, order)
    copied = np.zeros(bounds[-1]) if copied is None else copied
    micro_batches = int(micro_batches_per_pipeline(problem.micro_batches, np.array(dp)))
    resident = float(resident_bytes_per_parameter(problem.policy, np.array(dp)))
    return tuple(
        StageMemory(
            resident * _held(plan, layers[stage], pp),
            min(pp - stage, micro_batches) * float(plan.saved_bytes[layers[stage]].sum() + copied[bounds[stage]]),
            float(plan.workspace_bytes[layers[stage]].max()),
        )
        for stage in range(pp)
    )


def _held(plan: PlanVariant, layers: Sequence[int], pp: int) -> float:
    """Parameters of a stage; what its layers share counts once where there is one stage only."""
    held = float(plan.parameter_count[list(layers)].sum())
    return held - plan.tied_parameter_count if pp == 1 else held


def _evaluate(
    problem: PlacementProblem, times: LayerTimes, variant: int, dp: int, bounds: Sequence[int], order: GroupOrder
) -> Placement:
    plan, policy, network = problem.variants[variant], problem.policy, Network.of(problem.cluster)
    pp, degree = len(bounds) - 1, np.array([dp])
    collectives = network.data_collectives(order, plan.tp, pp, degree)
    held = [_held(plan, range(first, last), pp) for first, last in itertools.pairwise(bounds)]
    stages = _stage_times(problem, times, variant, dp, bounds, order)
    micro_batches = int(micro_batches_per_pipeline(problem.micro_batches, np.array(dp)))
    slowest = max(stages, key=lambda each: each.load_s)
    algorithms = [gradient_sync(policy, half, np.array([micro_batches])) for half in collectives]
    sync_s = min(float(price.per_parameter_s[0]) * max(held) + float(price.fixed_s[0]) for price in algorithms)
    if pp > 1:
        ends = network.end_tiers(order, plan.tp, pp, degree)
        sync_s += float(
            tied_sync_s(policy, plan.tied_parameter_count, network.seconds_per_byte[ends], network.latency_s[ends])[0]
        )
    optimizer_s = float(optimizer_s_per_parameter(policy, degree, problem.hbm_bandwidth_bytes_per_s)[0]) * max(held)
    breakdown = Breakdown(
        forward_s=micro_batches * slowest.forward_s,
        backward_s=micro_batches * slowest.backward_s,
        recompute_s=micro_batches * slowest.recompute_s,
        stage_transfer_s=micro_batches * slowest.transfer_s,
        bubble_s=sum(each.load_s for each in stages) - slowest.load_s,
        gradient_sync_s=sync_s + micro_batches * slowest.gather_s,
        optimizer_s=optimizer_s,
    )
    iteration_s = total_s(breakdown)
    memory = _memory(problem, variant, dp, bounds, range(bounds[-1]))
    reason = _misfit(problem, plan.tp * pp * dp, dp, [each.total_bytes for each in memory])
    return Placement(
        status=Status.INFEASIBLE if reason else Status.FEASIBLE,
        iteration_s=iteration_s,
        bound_s=0.0,
        tp=plan.tp,
        pp=pp,
        dp=dp,
        recompute=plan.recompute,
        micro_batches_per_pipeline=micro_batches,
        stages=tuple(
            Stage(bounds[stage], bounds[stage + 1] - 1, plan.tp * dp, stages[stage].load_s, memory[stage].total_bytes)
            for stage in range(pp)
        ),
        order=tuple(range(bounds[-1])),
        breakdown=breakdown,
        reason=reason,
        group_order=order,
    )


def _stage_times(
    problem: PlacementProblem, times: LayerTimes, variant: int, dp: int, bounds: Sequence[int], order: GroupOrder
) -> list[StageTimes]:
    plan, network = problem.variants[variant], Network.of(problem.cluster)
    pp, degree = len(bounds) - 1, np.array([dp])
    link_tiers = network.boundary_tiers(order, plan.tp, pp, degree)[0]
    collectives = network.data_collectives(order, plan.tp, pp, degree)
    gather = weight_gather(problem.policy, collectives, float(plan.parameter_count.sum()), bounds[-1])

    def message_s(cut: int, sizes: FloatArray) -> float:
        """The message over boundary ``cut`` (1..pp-1); nothing crosses the ends of the chain."""
        if not 1 <= cut < pp:
            return 0.0
        tier = link_tiers[cut - 1]
        return float(transfer_s(sizes[bounds[cut]], network.seconds_per_byte[tier], network.latency_s[tier]))

    stages = []
    for stage in range(pp):
        layers = range(bounds[stage], bounds[stage + 1])
        part = slice(layers.start, layers.stop)
        stages.append(
            StageTimes(
                float(times.forward_s[variant, part].sum()),
                float(times.backward_s[variant, part].sum()),
                float(times.recompute_s[variant, part].sum()),
                message_s(stage, plan.cut_bytes),
                message_s(stage + 1, plan.cut_gradient_bytes),
                float(gather.per_parameter_s[0]) * _held(plan, layers, pp) + float(gather.fixed_s[0]) * len(layers),
            )
        )
    return stages


def total_s(breakdown: Breakdown) -> float:
    """Sum of the fields."""
    return (
        breakdown.forward_s
        + breakdown.backward_s
        + breakdown.recompute_s
        + breakdown.stage_transfer_s
        + breakdown.bubble_s
        + breakdown.gradient_sync_s
        + breakdown.optimizer_s
    )


def _misfit(problem: PlacementProblem, devices: int, dp: int, memory_bytes: Sequence[float]) -> str:
    if devices > problem.cluster.num_devices:
        return f"the plan needs {devices} devices, the cluster has {problem.cluster.num_devices}"
    if dp > problem.micro_batches:
        return f"the plan has {dp} replicas for {problem.micro_batches} micro-batches"
    fullest = max(range(len(memory_bytes)), key=memory_bytes.__getitem__)
    if memory_bytes[fullest] > problem.hbm_bytes * (1.0 + TOLERANCE):
        needed, given = memory_bytes[fullest] / 2**30, problem.hbm_bytes / 2**30
        return f"stage {fullest + 1} of {len(memory_bytes)} needs {needed:.2f} GiB per device, there are {given:.2f} GiB"
    return ""
