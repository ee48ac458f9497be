"""Plans that tests train, by hand: a tiny model whose stages are cut and shared in different
ways."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.plans.degrees import Degrees
from Estimator.plans.plan import Plan
from Estimator.plans.plan import Stage as PlanStage
from phaze_common.choices import (
    PipelineSchedule,
    Recompute,
    StageCuts,
)

TINY = "gpt-layers4-hidden64-heads4-vocabulary512"
FRONT, BACK = ("embedding", "block.0", "block.1"), ("block.2", "block.3", "head")
ROWS = 2  # of a micro-batch, on all replicas together


@dataclass(frozen=True)
class Stage:
    """A stage by what plans vary."""

    layers: tuple[str, ...]
    dp: int = 1
    tp: int = 1
    recompute: Recompute = Recompute.NONE
    zero: int = 0
    recomputed_layers: int | None = None


def tiny_plan(
    *stages: Stage,
    model: str = TINY,
    batch: int = 8,
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
    cuts: StageCuts = StageCuts.BETWEEN,
) -> Plan:
    """A plan for sequences of 32 tokens, whose micro-batches have two rows on every stage."""
    return Plan(
        model=model,
        sequence_length=32,
        global_batch_size=batch,
        gpipe=schedule is PipelineSchedule.GPIPE,
        stages=tuple(
            PlanStage(
                layers=each.layers,
                degrees=Degrees(
                    tp=each.tp,
                    dp=each.dp,
                    micro_batch_size=max(1, ROWS // each.dp),
                    recompute=each.recompute,
                    zero_stage=each.zero,
                ),
                recomputed_layers=each.recomputed_layers,
            )
            for each in stages
        ),
        stage_cuts=cuts,
    )


UNIFORM = tiny_plan(Stage(FRONT, dp=2), Stage(BACK, dp=2))
NARROWING = tiny_plan(Stage(FRONT, dp=2), Stage(BACK))
PLANS = {
    "alone": tiny_plan(Stage(FRONT + BACK)),
    "uniform": UNIFORM,
    "narrowing": NARROWING,
    "widening, gpipe, recomputed": tiny_plan(
        Stage(FRONT, recompute=Recompute.FULL),
        Stage(BACK, dp=2, recompute=Recompute.SELECTIVE),
        schedule=PipelineSchedule.GPIPE,
    ),
    "three stages": tiny_plan(
        Stage(("embedding", "block.0")),
        Stage(("block.1", "block.2"), dp=2),
        Stage(("block.3", "head")),
    ),
    "zero 1 and 2": tiny_plan(Stage(FRONT, dp=2, zero=1), Stage(BACK, dp=2, zero=2)),
    "zero 3": tiny_plan(
        Stage(FRONT, dp=2, zero=3), Stage(BACK, dp=2, zero=3, recompute=Recompute.FULL)
    ),
    "tensor parallel to replicas": tiny_plan(Stage(FRONT, tp=2), Stage(BACK, dp=2)),
    "replicas to tensor parallel": tiny_plan(
        Stage(FRONT, dp=2, zero=1), Stage(BACK, tp=2, recompute=Recompute.FULL, recomputed_layers=1)
    ),
    "cut inside a layer": tiny_plan(
        Stage(
            ("embedding", "block.attn.0", "block.mlp.0", "block.attn.1"),
            recompute=Recompute.FULL,
            recomputed_layers=2,
        ),
        Stage(
            ("block.mlp.1", "block.attn.2", "block.mlp.2", "block.attn.3"),
            tp=2,
            recompute=Recompute.FULL,
        ),
        Stage(("block.mlp.3", "head")),
        cuts=StageCuts.INSIDE,
    ),
    "fewer micro-batches than stages": tiny_plan(
        Stage(FRONT[:2]), Stage((FRONT[2],)), Stage(BACK), batch=ROWS
    ),
}
