"""Robustness of a choice: constants reach every record that has them, and regrets are those of the
values under each sample."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import phaze
from phaze import run_solver
from phaze.report.sentences.robustness import robustness_sentences
from phaze.report.tables.robust_tables import MOST_CONTENDERS, contender_table
from phaze.runs.finished_run import open_run
from phaze.runs.robustness import kept_robustness
from phaze.settings.resolve import resolve
from phaze.studies.robust.contenders import rows_of
from phaze.studies.robust.robustness import robustness
from phaze.studies.robust.sampled_space import SampledSpace
from phaze.studies.robust.sampling import physics_of, sampled_factors, searched_again
from phaze.studies.robust.uncertain import uncertain_constants, with_factors
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from phaze_common.records import to_json
from Solver.designs.plans_on_chips import EvaluatedPlans
from Solver.hardware import DesignedChips
from Solver.results import SearchResult

SPACE = """
name: few
technology: foundry_7nm
platform: phaze_hbm2
vector_functions: phaze
axes: {num_tc: [2, 8], num_vc: [2, 8], width: [64, 128], depth: [64], width_vc: [128], glb_mib: [8], memory: [hbm2e:1, hbm3:2]}
budget: {area_mm2: 600.0}
keep: {minimum_area_fraction: 0.0, any_single_tc: true, any_single_vc: true}
"""
SETTINGS = {
    "model": "bertbase",
    "sequence_length": 128,
    "global_batch_size": 64,
    "devices": 16,
    "recompute": "none",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("robust")
    (made / "space.yaml").write_text(SPACE)
    asked = {
        "design_space": str(made / "space.yaml"),
        "objective": "throughput_per_dollar",
        "output": str(made / "out"),
    }
    result = run_solver(resolve({}, SETTINGS | asked), SilentProgress())
    assert isinstance(result, SearchResult) and result.best is not None
    return made / "out"


def test_every_constant_reaches_the_records_and_a_factor_of_one_changes_nothing(
    folder: Path,
) -> None:
    physics = physics_of(searched_again(open_run(folder)))
    constants = uncertain_constants(physics)
    names = {each.name for each in constants}
    assert {
        "prices.electricity",
        "technology.die.leakage",
        "memory.hbm3.price_per_gib",
        "memory.hbm2e.price_per_gib",
        "memory.stack_bandwidth_bytes_per_s",
    } <= names
    assert {"platform.glb_bandwidth_bytes_per_cycle", "cluster.tiers.*.efficiency"} <= names
    assert with_factors(physics, constants, np.ones(len(constants)).tolist()) == physics
    for constant in constants:
        assert (
            constant.low < 1.0 < constant.high
            or constant.low < 1.0 == constant.high
            or constant.low == 1.0 < constant.high
        )
        changed = with_factors(physics, [constant], [2.0])
        assert changed != physics and with_factors(changed, [constant], [0.5]) == physics


def test_values_are_those_of_the_run_and_better_constants_make_none_worse(folder: Path) -> None:
    finished = open_run(folder)
    run, best = searched_again(finished), finished.result.best
    assert (
        best is not None
        and best.accelerator is not None
        and isinstance(run.hardware, DesignedChips)
    )
    physics, constants = (
        physics_of(run),
        {each.name: each for each in uncertain_constants(physics_of(run))},
    )
    chips = np.array([*rows_of(run, [best.accelerator]), 0])
    values = SampledSpace(run, physics, EvaluatedPlans()).values(chips)
    assert values[0] == pytest.approx(best.value, rel=1e-9) and values[1] <= values[0]
    better = {
        "memory.stack_bandwidth_bytes_per_s": 2.0,
        "prices.electricity": 0.5,
        "cluster.tiers.*.efficiency": 2.0,
    }
    for name, factor in better.items():
        moved = with_factors(physics, [constants[name]], [factor])
        assert (
            SampledSpace(run, moved, EvaluatedPlans()).values(chips) >= values * (1 - 1e-9)
        ).all()


def test_samples_lie_within_their_ranges_one_in_each_stratum(folder: Path) -> None:
    constants = uncertain_constants(physics_of(searched_again(open_run(folder))))
    factors = sampled_factors(constants, 40, seed=3)
    assert np.array_equal(factors, sampled_factors(constants, 40, seed=3)) and not np.array_equal(
        factors, sampled_factors(constants, 40, seed=4)
    )
    for column, constant in zip(factors.T, constants, strict=True):
        assert column.min() >= constant.low and column.max() <= constant.high
        assert (column < 1.0).sum() == (20 if constant.low < 1.0 else 0)


def test_regrets_are_shares_and_the_choice_is_among_the_contenders(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("robustness", "sampling"):  # each constant is moved alone, which takes a while
        monkeypatch.setattr(
            f"phaze.studies.robust.{module}.uncertain_constants",
            lambda physics: uncertain_constants(physics)[::3],
        )
    asked = f"robust {folder} --samples 4 --contenders 3 --workers 1 --format json"
    assert phaze.main(asked.split()) == 0
    answer = json.loads(capsys.readouterr().out)
    kept = kept_robustness(folder)  # what the command has found; nothing is sampled again
    assert kept is not None and json.loads(to_json(kept)) == answer
    assert (kept.samples, kept.seed, len(kept.contenders)) == (4, 0, len(answer["contenders"]))
    assert len(kept.contenders) >= 4
    assert sum(each.wins for each in kept.contenders) == pytest.approx(1.0)
    for each in kept.contenders:
        assert 0.0 <= each.expected_regret <= each.worst_regret <= 1.0
    assert kept.least_regret.worst_regret == min(each.worst_regret for each in kept.contenders)
    assert (
        kept.searched.designs == 16 and kept.searched.proven == 4 and kept.searched.undecided == 0
    )
    late = replace(
        kept.least_regret,
        accelerator=replace(kept.chosen.accelerator, glb_bytes=3 * 2**20),
        wins=0.4,
    )
    lost = [
        replace(late, accelerator=replace(late.accelerator, num_tc=count), wins=0.0)
        for count in range(1, 30)
    ]
    table = contender_table(replace(kept, contenders=(*lost, late)))
    assert any(
        "GLB 3 MiB" in row[0] and row[1] == "40.0%" for row in table.rows
    )  # whatever wins is shown, however late
    assert len(table.rows) <= 1 + MOST_CONTENDERS
    for influence in kept.influences:
        assert (influence.switches_at is None) == (
            max(influence.regret_low, influence.regret_high) <= 1e-6
        )
        if influence.switches_at is not None:
            assert influence.low <= influence.switches_at <= influence.high
    assert phaze.main(["report", str(folder), "--quiet"]) == 0
    assert "Does the choice survive what is not known?" in (folder / "report.html").read_text()


@pytest.mark.thorough
def test_samples_in_which_nothing_works_are_told_and_are_nobodys_regret(
    tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    space = physics_of(searched_again(open_run(folder))).space
    least_w = space.whole(space.generate()).peak_w.min()
    asked = {
        "design_space": str(tmp_path / "space.yaml"),
        "max_power": 1.001 * float(least_w),
        "output": str(tmp_path / "out"),
    }
    run_solver(resolve({}, SETTINGS | asked), SilentProgress())
    answer = robustness(open_run(tmp_path / "out"), samples=5, contenders=1, seed=0, workers=1)
    assert 0 < answer.samples_without_any < 5
    works = 5 - answer.samples_without_any
    for each in answer.contenders:
        assert (each.wins * works) % 1 == pytest.approx(0.0, abs=1e-9) and (
            each.worst_regret == 1.0
        ) == (each.fails > 0.0)
        assert each.fails <= each.expected_regret
    assert any(
        f"in {answer.samples_without_any} of 5 samples no design" in line
        for line in robustness_sentences(answer)
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [("--samples 0", "--samples is 0"), ("--workers 0", "--workers 0 is not possible")],
)
def test_what_cannot_be_sampled_is_refused(
    words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(["robust", str(folder), *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_a_run_without_a_choice_is_refused(folder: Path) -> None:
    finished = open_run(folder)
    nothing = replace(finished, result=replace(finished.result, best=None))
    with pytest.raises(InputError, match="is not a search of accelerators that found one"):
        robustness(nothing, samples=1, contenders=1, seed=0, workers=1)
