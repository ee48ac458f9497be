"""Whole plans, as a search writes them."""

from dataclasses import replace
from typing import Any

from Estimator.plans.plan import Plan, StagePlan
from phaze_common.choices import Attention, GroupOrder, PipelineSchedule, Precision


def whole_plan(*stages: StagePlan, **changes: Any) -> Plan:
    """A plan of BERT-large of these stages, with ``changes``."""
    plan = Plan(
        model="bertlarge",
        sequence_length=512,
        precision=Precision.BF16,
        attention=Attention.FLASH,
        optimizer="adam",
        global_batch_size=4096,
        schedule=PipelineSchedule.ONE_F_ONE_B,
        interleave=1,
        group_order=GroupOrder.DATA_INNER,
        overlap_gradients=False,
        overlap_tensor=False,
        stages=stages,
    )
    return replace(plan, **changes)
