"""A time that no cut of the layers can beat, for one plan: what makes pruning a plan safe."""

from __future__ import annotations

from Plans.chunks import Overlap, through, timed_pass
from Plans.layer_costs import LayerCost
from Plans.plan import TrainingPlan
from Solver.plan_search.blocks import IntArray, blocks_of


def iteration_bound_s(plan: TrainingPlan, costs: tuple[LayerCost, ...], overlap: Overlap, fullest: int = 0) -> float:
    """Seconds below which no iteration of ``plan`` ends that has ``fullest`` blocks or more on a stage.

    The stage with the most blocks has at least blocks / pp of them (rounded up), however they are cut; where blocks differ, the
    cheapest so many that follow each other. In 1F1B its first backward pass waits for the first micro-batch to come back from all
    stages behind, and it runs at most min(pp, m) forward passes before; so an iteration of m micro-batches takes at least (one
    micro-batch through all layers) + (m - 1) (its load) - min(pp - 1, m - 1) (its forward pass).
    Transfers, synchronisation and the optimizer's step only add to that.
    """
    blocks = blocks_of(costs)
    most = max(fullest, -(-blocks.count // plan.pp))
    passes = (
        through(costs, lambda cost: cost.forward),
        through(costs, lambda cost: cost.recompute),
        through(costs, lambda cost: cost.backward),
    )
    through_s = sum(timed_pass(each, len(costs), 0.0, overlap).total_s for each in passes)
    micro_batches = plan.micro_batches
    chunk = most // plan.interleave  # interleaved plans have equal chunks

    def bound_s(numbers: IntArray) -> float:
        forward_s, recompute_s, backward_s = (
            plan.interleave * timed_pass(each, chunk, 0.0, overlap).total_s
            for each in (
                blocks.through(numbers, lambda cost: cost.forward),
                blocks.through(numbers, lambda cost: cost.recompute),
                blocks.through(numbers, lambda cost: cost.backward),
            )
        )
        load_s = forward_s + recompute_s + backward_s
        if plan.interleave > 1:
            return max(micro_batches * load_s, through_s)
        meanwhile_s = min(plan.pp - 1, micro_batches - 1) * forward_s
        return max(micro_batches * load_s, through_s + (micro_batches - 1) * load_s - meanwhile_s)

    return min(bound_s(numbers) for numbers in blocks.runs(chunk))
