"""A stage of a plan recomputes the first of its layers, as many as the plan says, and never the ends of the model."""

from pathlib import Path

import pytest
from trained_plans import BACK, FRONT, Stage, tiny_plan

from GraphExtractor.graph import Recompute
from GraphExtractor.models.registry import find_model
from Runtime.training.job import Job
from Runtime.training.stage_worker import cut_stage


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("count", "front", "back"),
    [
        (0, "", ""),
        (1, "", "block.2"),
        (2, "block.0", "block.2 block.3"),
        (3, "block.0 block.1", "block.2 block.3"),
        (None, "block.0 block.1", "block.2 block.3"),
    ],
)
def test_the_first_layers_are_recomputed(count: int | None, front: str, back: str, tmp_path: Path) -> None:
    stages = (Stage(layers, recompute=Recompute.FULL, recomputed_layers=count) for layers in (FRONT, BACK))
    job = Job(tiny_plan(*stages), 3, tmp_path)
    family = find_model(job.plan.model)
    for stage, again in enumerate((front, back)):
        program = cut_stage(job, family, stage, {}).program
        found = [layer.name for layer in program.layers if layer.recompute is Recompute.FULL]
        assert found == again.split()
        assert {layer.recompute for layer in program.layers} <= {Recompute.FULL, Recompute.NONE}
