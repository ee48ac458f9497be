"""Whole plans, as a search writes them."""

from dataclasses import replace
from typing import Any

from Estimator.plans.plan import Plan, Stage


def whole_plan(*stages: Stage, **changes: Any) -> Plan:
    """A plan of BERT-large of these stages, with ``changes``."""
    plan = Plan(
        model="bertlarge",
        sequence_length=512,
        global_batch_size=4096,
        overlap_gradients=False,
        overlap_tensor=False,
        stages=stages,
    )
    return replace(plan, **changes)
