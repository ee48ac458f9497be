"""The search as a whole: against exhaustion by another route, and against what physics says about
changed inputs."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from exhaustion import one_by_one
from small_study import CLUSTER, SPACE, small_study, solved, write_hardware

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import simulate
from Estimator.plans.results import Status
from phaze.runs.finished_run import open_run
from phaze.settings.problem import hardware_of, space_size
from phaze_common.choices import Objective
from Solver.schedule import confirm_with_ilp
from Solver.schedule.native import NativeSolver
from Solver.schedule.solver import NodeLimit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("search")


@pytest.fixture(scope="module")
def study(folder):
    return small_study(folder)


@pytest.fixture(scope="module")
def result(study):
    return solved(study, limits=True)


@pytest.fixture(scope="module")
def designs(result):
    return pd.read_parquet(f"{result.run_directory}/designs.parquet")


def test_the_optimum_equals_exhaustion_by_another_route(study, result):
    hbm_bytes = study.hardware.hbm_sizes_bytes[1]
    best = {size: one_by_one(study, size, hbm_bytes) for size in study.plan.micro_batch_size}
    rows = {row.micro_batch_size: row for row in result.rows if row.hbm_bytes == hbm_bytes}
    for size, seconds in best.items():
        assert rows[size].throughput_samples_per_s == pytest.approx(
            study.plan.global_batch_size / seconds, rel=1e-9
        )
    point = next(point for point in result.per_hbm if point.hbm_bytes == hbm_bytes)
    assert point.value == pytest.approx(study.plan.global_batch_size / min(best.values()), rel=1e-9)


def test_counts_add_up_to_the_space_and_the_claim_rests_on_them(study, result, designs):
    counts = result.counts
    assert counts.complete
    assert counts.space == space_size(study).points == len(designs)
    assert counts.plans == space_size(study).plans or space_size(study).plans is None
    each = designs["status"].value_counts().to_dict()
    assert {
        name: each.get(name, 0)
        for name in ("evaluated", "dominated", "pruned", "infeasible", "open")
    } == {
        "evaluated": counts.evaluated,
        "dominated": counts.dominated,
        "pruned": counts.pruned,
        "infeasible": counts.infeasible,
        "open": 0,
    }
    assert result.best.optimal and result.status is Status.OPTIMAL
    assert counts.pruned + counts.dominated > 0


def test_the_table_of_plans_holds_the_winner(result):
    plans = pd.read_parquet(f"{result.run_directory}/plans.parquet")
    best = plans[plans["status"] == "evaluated"].sort_values("time_per_batch_s").iloc[0]
    plan = next(iter(result.best.models.values()))
    assert best["time_per_batch_s"] == pytest.approx(plan.time_per_batch_s, rel=1e-9)
    assert (best["pp"], best["dp"], best["tp"], best["recompute"]) == (
        plan.pp,
        plan.dp,
        plan.tp,
        plan.recompute,
    )
    assert (
        plans["time_per_batch_bound_s"].fillna(np.inf)
        <= plans["time_per_batch_s"].fillna(np.inf) * (1 + 1e-12)
    ).all()


def test_no_row_of_the_table_beats_the_optimum_and_bounds_hold(result, designs):
    evaluated = designs[designs["status"] == "evaluated"]
    assert evaluated["throughput_samples_per_s"].max() == result.best.value
    assert (designs["throughput_bound_samples_per_s"] <= result.best.value * (1 + 1e-12)).all()


def test_every_pruned_point_is_covered_by_an_evaluated_one(designs):
    for _, group in designs.groupby(["micro_batch_size", "hbm_bytes"]):
        evaluated = group[group["status"] == "evaluated"]
        for point in group[group["status"] == "pruned"].itertuples():
            covers = (
                (evaluated["throughput_samples_per_s"] >= point.throughput_bound_samples_per_s)
                & (evaluated["area_mm2"] <= point.area_mm2)
                & (evaluated["energy_per_sample_j"] <= point.energy_per_sample_j)
            )
            assert covers.any()


def test_the_breakdown_adds_up_and_memory_fits(result):
    for point in result.per_hbm:
        for plan in point.models.values():
            assert plan.breakdown_s.total_s == pytest.approx(plan.time_per_batch_s, rel=1e-9)
            assert min(vars(plan.breakdown_s).values()) >= 0.0
            assert plan.breakdown_s.tensor_communication_s == 0.0
            assert plan.throughput_samples_per_s * plan.time_per_batch_s == pytest.approx(64)
            assert (
                plan.devices_used
                == plan.tp * plan.pp * plan.dp
                == sum(stage.devices for stage in plan.stages)
                <= 16
            )
            names = [name for stage in plan.stages for name in stage.layers]
            assert names == ["embedding", *(f"block.{index}" for index in range(12)), "head"]
            for stage in plan.stages:
                assert stage.memory_bytes <= point.hbm_bytes
                assert stage.memory_bytes == pytest.approx(
                    stage.parameter_state_bytes
                    + stage.activation_bytes
                    + stage.workspace_bytes
                    + stage.reserved_bytes
                )
            assert 0 < plan.model_flops_utilization < 1
            assert 0 < plan.tc_utilization <= 1 and 0 < plan.vc_utilization <= 1


def test_every_winner_is_confirmed_by_an_ilp_solver(result):
    for point in result.per_hbm:
        confirmations = point.certificate.schedules
        assert {item.layer for item in confirmations} == {"embedding", "block", "head"}
        assert all(item.agrees and item.ilp_solver in {"gurobi", "highs"} for item in confirmations)


class DoubtfulSolver(NativeSolver):
    """The native solver, but it never claims a proof."""

    name = "doubtful"

    def solve_batch(self, structure, single_s, all_s, num_tc, num_vc, node_limit):
        solved = super().solve_batch(structure, single_s, all_s, num_tc, num_vc, node_limit)
        return dataclasses.replace(solved, bound_s=0.5 * solved.makespan_s)


@pytest.mark.thorough
def test_without_proven_schedules_nothing_is_called_optimal(tmp_path, monkeypatch):
    monkeypatch.setattr("phaze.settings.problem.solver_named", lambda _: DoubtfulSolver())
    result = solved(small_study(tmp_path))
    points = [result.best, *result.per_hbm, *result.rows, *result.references]
    assert {point.status for point in points} == {Status.FEASIBLE} == {result.status}
    assert not any(point.optimal for point in (result.best, *result.per_hbm))


def test_an_answer_whose_schedules_are_not_confirmed_is_not_called_optimal(tmp_path, monkeypatch):
    def shorter(problem, schedule):
        found = confirm_with_ilp(problem, schedule)
        return dataclasses.replace(found, makespan_s=found.makespan_s * (1 - 1e-5))

    monkeypatch.setattr("Solver.designs.confirmed_schedules.confirm_with_ilp", shorter)
    result = solved(small_study(tmp_path))
    assert result.status is Status.FEASIBLE and not result.best.optimal
    assert not any(item.agrees for point in result.per_hbm for item in point.certificate.schedules)


class HastySolver(NativeSolver):
    """Finds schedules that are too long, and proves nothing, unless it is asked to be thorough;
    counts what it then solves."""

    name = "hasty"

    def __init__(self):
        self.thorough = 0

    def solve_batch(self, structure, single_s, all_s, num_tc, num_vc, node_limit):
        solved = super().solve_batch(structure, single_s, all_s, num_tc, num_vc, node_limit)
        if node_limit is NodeLimit.THOROUGH:
            self.thorough += len(single_s)
            return solved
        excess = np.linspace(1.001, 1.02, len(single_s))
        return dataclasses.replace(solved, makespan_s=solved.makespan_s * excess)


def test_only_accelerators_that_could_be_best_are_proven(study, result, tmp_path, monkeypatch):
    hasty = HastySolver()
    monkeypatch.setattr("phaze.settings.problem.solver_named", lambda _: hasty)
    found = solved(small_study(tmp_path))
    assert found.status is Status.OPTIMAL
    assert [point.value for point in found.per_hbm] == [point.value for point in result.per_hbm]
    assert [point.accelerator for point in found.per_hbm] == [
        point.accelerator for point in result.per_hbm
    ]
    all_schedules = (
        len(hardware_of(study).accelerators) * 9 * len(study.plan.micro_batch_size)
    )  # three layers, three passes
    assert 0 < hasty.thorough < all_schedules  # known chips count too


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("devices", "hbm_gib", "reason"),
    [
        (1024, 0.75, "GiB per device, the chip has 768 MiB"),
        (16, 16, "needs 1024 devices, the cluster has 16"),
    ],
)
def test_an_expert_plan_that_does_not_fit_says_so_and_leaves_the_optimum(
    devices, hbm_gib, reason, tmp_path
):
    one = SPACE | {
        "axes": {name: values and values[:1] for name, values in SPACE["axes"].items()},
        "references": [],
    }
    tiers = [CLUSTER["tiers"][0] | {"group_size": devices}]
    hardware = write_hardware(tmp_path, one, CLUSTER | {"num_devices": devices, "tiers": tiers})
    study = small_study(
        tmp_path,
        model="bertlarge",
        micro_batch_size=[1],
        hbm_size=[hbm_gib],
        global_batch_size=1024,
        **hardware,
    )
    best = solved(study).best
    plan = best.models["bertlarge"]
    assert best.optimal and plan.speedup_over_expert is None
    assert plan.expert.status is Status.INFEASIBLE and reason in plan.expert.reason
    assert (plan.expert.tp, plan.expert.pp, plan.expert.dp) == (1, 8, 128)


def test_the_reference_outside_the_space_is_scored_and_never_better_than_what_it_is_beaten_by(
    result,
):
    assert {point.name for point in result.references} == {"outside"}
    for point in result.references:
        assert point.status is Status.OPTIMAL
        best = next(best for best in result.per_hbm if best.hbm_bytes == point.hbm_bytes)
        assert point.best_over_reference == pytest.approx(best.value / point.value)


def test_the_run_reads_back_as_it_was_answered(result):
    run = open_run(Path(result.run_directory))
    assert run.result == result
    assert len(run.designs) == result.counts.space == run.manifest.counts.space


def test_the_pipeline_adds_up_to_the_stages_and_its_simulation_to_the_iteration(result):
    for point in result.per_hbm:
        for plan in point.models.values():
            pipeline = plan.pipeline
            passes = [a + b for a, b in zip(pipeline.forward_s, pipeline.backward_s, strict=True)]
            assert passes == pytest.approx([stage.load_s for stage in plan.stages], rel=1e-9)
            ends_s = simulate(
                costs_of(pipeline), PipelineSchedule(pipeline.schedule), pipeline.micro_batches
            )
            finished_s = max(
                end + after for end, after in zip(ends_s, pipeline.sync_s, strict=True)
            )
            assert finished_s + pipeline.optimizer_s == pytest.approx(
                plan.time_per_batch_s, rel=1e-9
            )


def test_the_best_designs_schedules_are_written_operator_by_operator(result):
    import gzip

    with gzip.open(f"{result.run_directory}/schedules.json.gz") as stream:
        schedules = json.load(stream)["schedules"]
    blocks = [item for item in schedules if item["layer"] == "block" and item["graph"] == "forward"]
    assert blocks
    for item in blocks:
        assert max(operator["end_s"] for operator in item["operators"]) == pytest.approx(
            item["makespan_s"]
        )
        assert item["repeats"] in (12, 24)


def best_value(folder, name, *, space=SPACE, cluster=CLUSTER, **changes):
    hardware = write_hardware(folder / name, space, cluster)
    return solved(
        small_study(folder / name, micro_batch_size=[1], hbm_size=[16], **hardware, **changes)
    ).best.value


def with_platform(folder, name, **quantities):
    """A design space whose platform differs in the given values."""
    from Estimator.hardware_files import HARDWARE

    platform = yaml.safe_load((HARDWARE / "platforms" / "phaze_hbm2.yaml").read_text())
    for key, factor in quantities.items():
        platform[key]["value"] *= factor
    path = folder / f"{name}-platform.yaml"
    path.write_text(yaml.safe_dump(platform))
    return SPACE | {"platform": str(path)}


def test_more_of_anything_never_makes_the_answer_worse(folder, tmp_path):
    base = best_value(tmp_path, "base")
    link = [CLUSTER["tiers"][0] | {"bandwidth_bytes_per_s": 4.0e10}]
    richer = {
        "faster network": best_value(tmp_path, "network", cluster=CLUSTER | {"tiers": link}),
        "faster clock": best_value(
            tmp_path, "clock", space=with_platform(tmp_path, "clock", frequency=2.0)
        ),
        "faster HBM": best_value(
            tmp_path, "hbm", space=with_platform(tmp_path, "hbm", hbm_bandwidth=2.0)
        ),
    }
    assert all(value > base for value in richer.values()), (base, richer)
    link = [CLUSTER["tiers"][0] | {"bandwidth_bytes_per_s": 1.0e9}]
    poorer = {
        "slower network": best_value(tmp_path, "slower", cluster=CLUSTER | {"tiers": link}),
        "smaller area budget": best_value(
            tmp_path, "area", space=SPACE | {"budget": {"area_mm2": 40.0}}
        ),
        "fewer devices": best_value(tmp_path, "few", cluster=CLUSTER | {"num_devices": 8}),
    }
    assert all(value < base for value in poorer.values()), (base, poorer)


def test_less_memory_never_helps_and_forces_leaner_plans(result):
    small, large = result.per_hbm
    assert small.hbm_bytes < large.hbm_bytes
    assert small.value <= large.value


def test_longer_sequences_are_slower(folder, tmp_path):
    assert best_value(tmp_path, "long", sequence_length=256) < best_value(tmp_path, "short")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "objective", [Objective.THROUGHPUT_PER_AREA, Objective.THROUGHPUT_PER_JOULE]
)
def test_other_objectives_find_the_best_row_of_the_table(objective, folder, tmp_path, designs):
    found = solved(small_study(tmp_path, objective=objective.value)).best
    evaluated = designs[designs["status"] == "evaluated"]
    if objective is Objective.THROUGHPUT_PER_AREA:
        expected = (evaluated["throughput_samples_per_s"] / evaluated["area_mm2"]).max()
    else:
        expected = (1 / evaluated["energy_per_sample_j"]).max()
    assert found.value == pytest.approx(expected, rel=1e-12)


def test_an_ilp_solver_can_search_throughout(tmp_path):
    tiny = SPACE | {
        "axes": SPACE["axes"] | {"num_tc": [4], "width": [128], "num_vc": [1, 16]},
        "references": [],
    }
    changes = {"micro_batch_size": [1], "hbm_size": [16], **write_hardware(tmp_path, tiny)}
    native, ilp = (
        solved(
            small_study(tmp_path / solver, solver=solver, **changes), tmp_path / solver / "out"
        ).best
        for solver in ("native", "gurobi")
    )
    assert ilp.optimal
    assert ilp.value == pytest.approx(native.value, rel=1e-6)
