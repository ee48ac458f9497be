"""Bytes of a checkpoint: what a training has to keep to go on after a failure."""

from __future__ import annotations

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.policy import training_policy


def checkpoint_bytes(plan: UniformPlan, costs: LayerCosts) -> float:
    """Weights and optimizer state of the whole model, each once; gradients are not kept.

    Tensor-parallel devices hold some parameters alike (norms), which count on each of them.
    """
    formats = plan.optimizer, plan.zero_stage, plan.precision, plan.state_formats
    state, tied = training_policy(*formats).state, costs.sizes.all_tied
    # of one device: all parameters, those of experts, those of wide weights
    whole, of_experts, wide = map(float, costs.sizes.summed.sum(axis=0)[:3])
    # a 2D layout divides tied ones twice, too
    divided = of_experts - (tied if plan.tp2 > 1 else 0.0)
    parts = plan.tp2 * plan.ep * plan.expert_tp
    parameters = plan.tp * (whole - tied - divided) + parts * divided
    wider = plan.tp * (wide - tied) * (state.wider + state.more_moments)
    return parameters * (state.weight + state.optimizer) + wider
