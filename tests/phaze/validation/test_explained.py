"""Errors explained: whatever was made wrong on purpose is named; fits to a cluster's runs bring
back what was changed."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from Estimator.devices.files import load_device
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.results import Breakdown
from phaze.report.explained_runs import explanation_tables
from phaze.validation.explained import explain_errors, load_parts
from phaze.validation.fitted_runs import GROUPS, cluster_text, device_text, fit_runs
from phaze.validation.records import RunPlan, RunResult
from phaze.validation.run import validate
from phaze_common.choices import Attention, Precision, Recompute
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress

PLAN = RunPlan(
    *(
        "gpt",
        2048,
        "a100_80gb",
        "megatron_2022",
        "dgx_a100",
    ),
    UniformPlan(
        tp=8,
        pp=2,
        dp=4,
        micro_batch_size=2,
        global_batch_size=64,
        recompute=Recompute.FULL,
        precision=Precision.FP16,
        attention=Attention.EAGER,
    ),
)


def plan_of(micro_batch_size: int, **hardware: str) -> RunPlan:
    degrees = replace(PLAN.degrees, micro_batch_size=micro_batch_size)
    return replace(PLAN, degrees=degrees, **hardware)  # type: ignore[arg-type]


def run(line: int, slower: dict[str, float], noise: float = 1.0, **changes: object) -> RunResult:
    """A run whose parts are random, and in truth as many times as long as ``slower`` says."""
    random = np.random.default_rng(line)
    parts = {each.name: 0.0 for each in fields(Breakdown)}
    named = {part.name: part for part in load_parts()}
    for part in named.values():
        for name in part.seconds:
            parts[name] = float(random.uniform(0.05, 1.0)) * (
                4.0 if part.name == "products" else 1.0
            )
    breakdown = Breakdown(**parts)
    predicted = breakdown.total_s
    measured = predicted + sum(
        (factor - 1.0) * sum(parts[one] for one in named[part].seconds)
        for part, factor in slower.items()
    )
    made = RunResult(
        line=line,
        source="a source",
        model="gpt",
        devices=64,
        measured_s=measured * noise,
        predicted_s=predicted,
        error=predicted / (measured * noise) - 1,
        fits=True,
        plan=plan_of(line),
        breakdown_s=breakdown,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [part.name for part in load_parts()])
def test_the_part_that_was_made_slower_explains_the_errors(part: str) -> None:
    found = explain_errors([run(line, {part: 1.4}) for line in range(1, 12)])
    best = found.moves[0]
    assert (
        best.part.name == part
        and best.factor == pytest.approx(1.4, rel=0.02)
        and best.mape < 0.01 < found.mape
    )
    assert best.part.low <= best.within <= best.part.high and best.within_mape >= best.mape
    assert [move.mape for move in found.moves] == sorted(move.mape for move in found.moves)


@pytest.mark.parametrize("part", [part.name for part in load_parts()])
@pytest.mark.parametrize("factor", [0.75, 1.4])
def test_the_constant_that_was_changed_is_named_as_the_cause(part: str, factor: float) -> None:
    random = np.random.default_rng(5)
    made = [
        run(line, {part: factor}, noise=float(random.normal(1.0, 0.005))) for line in range(1, 31)
    ]
    found = explain_errors(made)
    assert [cause.move.part.name for cause in found.found] == [part]
    (cause,) = found.found
    assert cause.setting == "overall" and cause.move.factor == pytest.approx(factor, rel=0.1)
    assert cause.held_out < 0.67 * cause.mape
    (table,) = [
        each for each in explanation_tables(found) if "one constant at a time" in each.title
    ]
    assert table.rows[0][-1].startswith(cause.move.part.constant)


def test_a_constant_of_one_software_is_named_there() -> None:
    old = [run(line, {"memory": 1.4}, plan=plan_of(line, software="old")) for line in range(1, 13)]
    random = np.random.default_rng(6)
    others = [
        run(line, {}, noise=float(random.normal(1.0, 0.06)), source="another")
        for line in range(13, 40)
    ]
    found = {
        (cause.setting, cause.value): cause for cause in explain_errors([*old, *others]).causes
    }
    assert found["software", "old"].is_cause and found["software", "old"].move.part.name == "memory"
    assert not found["software", "megatron_2022"].is_cause and not found["overall", ""].is_cause


@pytest.mark.parametrize("bias", [1.0, 1.12, 0.9])
def test_no_constant_helps_where_errors_are_noise_or_all_alike(bias: float) -> None:
    """What slows everything alike is no more one constant than another."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        runs = [
            run(line + 100 * seed, {}, noise=float(random.normal(bias, 0.08)))
            for line in range(1, 21)
        ]
        found = explain_errors(runs)
        assert found.causes and not found.found
        assert [table.title for table in explanation_tables(found)][
            -1
        ] == "no single constant helps"
        assert {row[-1] for row in explanation_tables(found)[-1].rows} == {
            "no single constant helps"
        }


def test_where_there_is_nothing_to_explain_a_sentence_says_so() -> None:
    for runs, said in (
        ([], "no run was predicted"),
        ([run(line, {}) for line in range(1, 9)], "are predicted as measured"),
    ):
        (table,) = explanation_tables(explain_errors(runs))
        assert table.title == "nothing to explain" and said in table.rows[0][0]
    for runs in (
        [run(1, {"memory": 2.0})],
        [run(line, {"memory": 2.0}, plan=None, plan_file="a.json") for line in (1, 2)],
    ):
        tables = explanation_tables(explain_errors(runs))
        assert all(table.rows for table in tables) and not any(
            "0.0%" in table.title for table in tables
        )


def test_settings_with_other_errors_come_first() -> None:
    old = [run(line, {"products": 1.5}, plan=plan_of(line, software="old")) for line in range(1, 6)]
    found = explain_errors([*old, *(run(line, {}) for line in range(6, 11))])
    by_software = {group.value: group for group in found.groups if group.setting == "software"}
    assert (
        by_software["old"].bias
        < -0.1
        < by_software["megatron_2022"].bias
        == pytest.approx(0.0, abs=1e-12)
    )
    assert by_software["old"].runs == by_software["megatron_2022"].runs == 5


def test_one_plan_measured_twice_with_other_times_is_a_contradiction() -> None:
    first, alike, other = run(1, {}), run(1, {}, noise=1.02), run(1, {}, noise=1.2)
    assert not explain_errors([first, replace(alike, line=2)]).contradictions
    (found,) = explain_errors([first, replace(other, line=7)]).contradictions
    assert found.lines == (1, 7) and found.high_s == pytest.approx(1.2 * found.low_s)
    assert explain_errors([]).mape == 0.0


def test_a_fit_to_runs_finds_what_was_changed_and_helps_runs_left_out() -> None:
    truth = {
        "products": 1.15,
        "memory": 1.3,
        "layers' communication": 1.6,
        "data-parallel communication": 1.6,
    }
    runs = [
        run(line, truth, noise=float(np.random.default_rng(line).normal(1.0, 0.01)))
        for line in range(1, 61)
    ]
    fit = fit_runs(runs)
    assert fit.factors["products"] == pytest.approx(1.15, abs=0.06)
    assert fit.factors["memory"] == pytest.approx(1.3, abs=0.15)
    assert fit.factors["communication"] == pytest.approx(1.6, abs=0.2)
    assert fit.after <= fit.left_out < 0.3 * fit.before and fit.rows == 60
    same = fit_runs([run(line, {}) for line in range(1, 6)])
    assert all(
        factor == pytest.approx(1.0, abs=1e-3) for factor in same.factors.values()
    )  # what ships is the prior


def test_what_was_fitted_is_written_as_a_device_and_a_cluster(tmp_path: Path) -> None:
    fit = fit_runs(
        [
            run(line, dict.fromkeys(("products", "memory", "layers' communication"), 1.2))
            for line in range(1, 9)
        ]
    )
    (tmp_path / "mine.yaml").write_text(device_text("a100_80gb", fit, "mine", "runs.csv"))
    mine, stated = load_device(str(tmp_path / "mine.yaml")), load_device("a100_80gb")
    assert mine.matrix.sustained.value == pytest.approx(
        stated.matrix.sustained.value / fit.factors["products"], abs=1e-4
    )
    assert mine.memory.efficiency.value == pytest.approx(
        stated.memory.efficiency.value / fit.factors["memory"], abs=1e-4
    )
    assert "fitted to 8 runs of runs.csv" in mine.matrix.sustained.source
    (tmp_path / "net.yaml").write_text(cluster_text("dgx_a100", fit, "net", "runs.csv"))
    slower = fit.factors["communication"]
    for tier, before in zip(
        load_cluster(str(tmp_path / "net.yaml")).tiers, load_cluster("dgx_a100").tiers, strict=True
    ):
        assert tier.bandwidth_bytes_per_s == pytest.approx(before.bandwidth_bytes_per_s / slower)
    assert set(fit.factors) == set(GROUPS)


def test_too_few_runs_or_several_devices_are_refused() -> None:
    with pytest.raises(InputError, match="2 of 3 runs could be predicted"):
        fit_runs([run(1, {}), run(2, {}), replace(run(3, {}), plan=None)])
    with pytest.raises(InputError, match="several devices"):
        fit_runs([run(1, {}), run(2, {}), run(3, {}, plan=replace(PLAN, device="h100"))])


@pytest.mark.some(1)
def test_the_runs_that_ship_are_explained(graphs: Path) -> None:
    report = validate(None, None, None, None, graphs, SilentProgress(), None)  # type: ignore[arg-type]
    found = explain_errors(report.runs)
    assert (
        found.mape == pytest.approx(report.overall.time_mape) and found.moves[0].mape <= found.mape
    )
