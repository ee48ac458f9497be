"""Tables of a finished search."""

import io
from dataclasses import replace

from Common.choices import Objective
from Estimator.chips.accelerator import Accelerator
from Plans.results import PipelineReport, StageReport, Status
from Reporter.tables import print_result, print_tables, space_table
from Solver.results import (
    Certificate,
    Counts,
    DesignPoint,
    ExpertReport,
    ModelPlan,
    ReferencePoint,
    SearchResult,
    SizeRow,
    SpaceSize,
    TimeBreakdown,
)
from Studies.words import accelerator_words

CHIP = Accelerator(num_tc=8, num_vc=2, width=64, depth=128, width_vc=32, glb_bytes=16 * 2**20, area_mm2=123.456)
HBM = 32 * 2**30
PIPELINE = PipelineReport("1f1b", 2, 16, (0.1, 0.1), (0.2, 0.2), (0.0, 0.01), (0.01, 0.0), (0.0,), (0.0,), False, (0.5, 0.5), 0.0)


def plan() -> ModelPlan:
    return ModelPlan(
        throughput_samples_per_s=409.6,
        time_per_batch_s=10.0,
        time_per_batch_bound_s=10.0,
        micro_batch_size=4,
        hbm_bytes=HBM,
        recompute="selective",
        tp=2,
        pp=8,
        dp=64,
        micro_batches_per_pipeline=16,
        devices_used=1024,
        stages=(StageReport(("embedding",), 2, 0.1, 1e9, 5e8, 4e8, 1e8),),
        pipeline=PIPELINE,
        breakdown_s=TimeBreakdown(3.0, 5.0, 0.0, 0.5, 1.0, 0.5, 0.0, 0.2),
        model_flops_utilization=0.4321,
        energy_per_sample_j=3.0,
        tc_utilization=0.5,
        vc_utilization=0.4,
        expert=ExpertReport(Status.OPTIMAL, "a paper", 1, 8, 128, "none", 204.8, 20.0, ""),
        speedup_over_expert=2.0,
    )


def result() -> SearchResult:
    best = DesignPoint(Status.OPTIMAL, True, Objective.THROUGHPUT, 409.6, CHIP, HBM, {"bertlarge": plan()}, None)
    row = SizeRow("bertlarge", HBM, 4, Status.OPTIMAL, 409.6, CHIP, 409.6, "selective", 2, 8, 64, "")
    none = replace(row, micro_batch_size=8, status=Status.INFEASIBLE, accelerator=None, reason="no plan fits 32 GiB")
    return SearchResult(
        study="bertlarge-1234",
        status=Status.OPTIMAL,
        best=best,
        per_hbm=(best,),
        rows=(row, none),
        references=(ReferencePoint("tpuv4_like", "a paper", Status.OPTIMAL, CHIP, HBM, 204.8, 2.0, {}),),
        counts=Counts(30, 10, 15, 5),
        run_directory="out/here",
    )


def shown(answer: SearchResult) -> str:
    stream = io.StringIO()
    print_result(answer, stream)
    return stream.getvalue()


def test_the_result_names_accelerator_plan_comparison_and_proof() -> None:
    text = shown(result())
    assert accelerator_words(CHIP) == "8 TC 128x64, 2 VC 32, GLB 16 MiB"
    row = next(line for line in text.splitlines() if "43.2%" in line)
    for cell in ("32", accelerator_words(CHIP), "123.46", "bertlarge", "4", "selective", "2 x 8 x 64", "409.6", "2.00x"):
        assert cell in row
    assert "vs expert   proven" in text
    assert row.endswith("yes")
    assert "throughput 409.6 samples/s, proven optimal over the whole space" in text
    assert "10 s per batch = backward 50.0%, forward 30.0%, bubble 10.0%" in text
    assert "30 design points: 10 evaluated, 15 pruned by bounds, 5 infeasible" in text
    assert "infeasible: no plan fits 32 GiB" in text
    assert "tpuv4_like" in text
    assert "files: out/here" in text


def test_lines_have_no_trailing_blanks_and_are_not_cut() -> None:
    lines = shown(result()).splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert not any("…" in line for line in lines)


def test_an_unproven_optimum_is_not_called_proven() -> None:
    answer = result()
    assert answer.best is not None
    assert "not proven optimal" in shown(replace(answer, best=replace(answer.best, optimal=False, status=Status.FEASIBLE)))


def test_plans_that_were_not_considered_are_told_with_what_they_could_gain() -> None:
    answer = result()
    assert answer.best is not None
    lost = replace(plan(), plans_lost="the 61 layers branch too much")
    certificate = Certificate(best_open_bound=512.0, schedules=())
    best = replace(answer.best, optimal=False, status=Status.FEASIBLE, models={"bertlarge": lost}, certificate=certificate)
    text = shown(replace(answer, best=best))
    assert "not proven optimal (feasible, within 20.0% of the best there can be)" in text
    assert "bertlarge: the 61 layers branch too much" in text
    assert "branch too much" not in shown(answer)


def test_an_infeasible_study_says_why() -> None:
    text = shown(replace(result(), status=Status.INFEASIBLE, best=None, per_hbm=(), rows=(), reason="32 GiB is too little"))
    assert text.startswith("bertlarge-1234: infeasible; 32 GiB is too little\n")


def test_the_space_is_counted() -> None:
    stream = io.StringIO()
    print_tables([space_table(SpaceSize(29360, 3, 3, 1, 6, 1585440))], stream)
    assert "1,585,440" in stream.getvalue()
