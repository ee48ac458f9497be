"""Operators of the best design: their joules, seconds and bytes beside what the run says of the
whole."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest

from Estimator.chips.area import area_parts
from Estimator.chips.energy import EnergyParts
from Estimator.devices.files import load_software
from phaze.runs.finished_run import FinishedRun, open_run
from phaze.settings.resolve import resolve
from tests.Solver.designs.small_study import small_study, solved


def opened(folder: Path, **changes: object) -> FinishedRun:
    study = small_study(folder, micro_batch_size=1, hbm_size=16, **changes)
    solved(study)
    return open_run(study.folders.run)


TWO_D = {
    "model": "gpt:layers=2,hidden=128,heads=4,vocabulary=1000,sequence_length=128",
    "layout": "2d",
    "tp2": [2],
}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("recompute", "layout"), [("none", {}), ("selective", {}), ("full", {}), ("selective", TWO_D)]
)
def test_the_joules_of_operators_add_up_to_those_of_a_sample(
    tmp_path: Path, recompute: str, layout: dict[str, object]
) -> None:
    run = opened(tmp_path, recompute=recompute, tp=[2], **layout)
    best = run.result.best
    assert best is not None
    (plan,) = best.models.values()
    energy = sum(
        (each.energy.times(each.repeats) for each in run.operators if each.energy is not None),
        EnergyParts(),
    )
    assert energy.times(
        plan.tp * plan.tp2 * plan.cp / plan.micro_batch_size
    ).total_j == pytest.approx(plan.energy_per_sample_j, rel=1e-9)
    assert min(astuple(energy)) > 0.0  # a plan of width 2 communicates, so that every part has some


def test_the_parts_of_a_chip_add_up_to_its_area(tmp_path: Path) -> None:
    request = small_study(tmp_path)
    space = request.records.space
    assert space is not None
    chips = space.generate()
    for row in range(0, len(chips), 3):
        chip = chips.accelerator(row)
        parts = area_parts(chip, space.platform)
        assert (
            sum(astuple(parts)) == pytest.approx(chip.area_mm2, rel=1e-12)
            and min(astuple(parts)) > 0.0
        )


def test_operators_of_a_device_take_what_its_stages_compute(tmp_path: Path) -> None:
    settings = {
        "model": "gpt:layers=4,hidden=4096,heads=32",
        "sequence_length": 1024,
        "device": "a100_80gb",
        "devices": 4,
    }
    study = resolve(
        settings,
        {
            "output": str(tmp_path / "out"),
            "tp": [1],
            "pp": [2],
            "recompute": "full",
            "global_batch_size": 8,
        },
    )
    solved(study)
    run = open_run(study.folders.run)
    best = run.result.best
    assert best is not None and {each.graph for each in run.operators} == {
        "forward",
        "backward",
        "recompute",
    }
    (plan,) = best.models.values()
    breakdown, micro_batches = plan.breakdown_s, plan.micro_batches_per_pipeline
    busiest = max(plan.stages, key=lambda stage: stage.load_s)
    mine = [each.seconds * len(set(each.layers) & set(busiest.layers)) for each in run.operators]
    between = load_software("megatron_2022").between_iterations
    assert between is not None
    computed_s = (
        breakdown.arithmetic_s
        + breakdown.memory_bound_s
        + breakdown.launch_s
        + breakdown.recompute_s
        - between.value
    )
    assert sum(mine) * micro_batches == pytest.approx(
        computed_s, rel=0.05
    )  # beside them gradients are added up
    assert sum(mine) * micro_batches <= computed_s * (1 + 1e-9)
    assert all(each.energy is None for each in run.operators)
