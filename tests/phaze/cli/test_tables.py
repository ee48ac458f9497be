"""Tables of a finished search."""

import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.results import Breakdown, PipelineReport, StageReport, Status
from phaze.report.sentences.designs import PARTS, accelerator_text
from phaze.report.tables.search_tables import (
    breakdown_table,
    print_result,
    print_tables,
    space_table,
)
from phaze.settings.problem import hardware_report
from phaze.settings.resolve import resolve
from phaze.studies.fronts import fronts_of
from phaze_common.choices import FrontAxis, Objective, Recompute
from Solver.plan_report import ExpertReport, PlanReport
from Solver.results import (
    Certificate,
    Counts,
    DesignPoint,
    ReferencePoint,
    SearchResult,
    SizeRow,
    SpaceSize,
    TightMemory,
)

CHIP = Accelerator(
    num_tc=8, num_vc=2, width=64, depth=128, width_vc=32, glb_bytes=16 * 2**20, area_mm2=123.456
)
HBM = 32 * 2**30
PIPELINE = PipelineReport(
    "1f1b", 2, 16, (0.1, 0.1), (0.2, 0.2), (0.0,), (0.0,), False, (0.5, 0.5), 0.0
)
CHIPS = hardware_report(resolve({}, {"model": "bertbase"}))
DEVICE = hardware_report(resolve({}, {"model": "bertbase", "device": "a100_80gb"}))
BREAKDOWN = Breakdown(
    arithmetic_s=1.0,
    memory_bound_s=0.5,
    launch_s=0.0,
    recompute_s=0.3,
    tensor_communication_s=5.0,
    sequence_communication_s=0.0,
    context_communication_s=0.0,
    expert_communication_s=0.0,
    pipeline_communication_s=0.7,
    data_communication_s=1.5,
    bubble_s=1.0,
    optimizer_s=0.0,
    hidden_tensor_communication_s=0.0,
    hidden_data_communication_s=0.25,
)


def plan() -> PlanReport:
    return PlanReport(
        throughput_samples_per_s=409.6,
        tokens_per_s=409.6 * 512,
        time_per_batch_s=10.0,
        time_per_batch_bound_s=10.0,
        micro_batch_size=4,
        global_batch_size=4096,
        sequence_length=512,
        hbm_bytes=HBM,
        recompute=Recompute.SELECTIVE,
        tp=2,
        pp=8,
        dp=64,
        zero_stage=1,
        stage_layers=(1,),
        model="bertlarge",
        micro_batches_per_pipeline=16,
        devices_used=1024,
        stages=(
            StageReport(("embedding",), 2, 0.3, 0.1, 0.2, 0.5, 10**8, 1e9, 5e8, 4e8, 1e8, 0.0),
        ),
        pipeline=PIPELINE,
        breakdown_s=BREAKDOWN,
        model_flops_utilization=0.4321,
        hardware_flops_utilization=0.5,
        energy_per_sample_j=3.0,
        tc_utilization=0.5,
        vc_utilization=0.4,
        expert=ExpertReport(
            pp=8,
            dp=128,
            status=Status.OPTIMAL,
            source="a paper",
            throughput_samples_per_s=204.8,
            time_per_batch_s=20.0,
            reason="",
        ),
        speedup_over_expert=2.0,
    )


def result() -> SearchResult:
    best = DesignPoint(
        Status.OPTIMAL, True, Objective.THROUGHPUT, 409.6, CHIP, HBM, {"bertlarge": plan()}, None
    )
    row = SizeRow(
        model="bertlarge",
        hbm_bytes=HBM,
        micro_batch_size=4,
        status=Status.OPTIMAL,
        value=409.6,
        accelerator=CHIP,
        throughput_samples_per_s=409.6,
        recompute=Recompute.SELECTIVE,
        tp=2,
        pp=8,
        dp=64,
        reason="",
    )
    none = replace(
        row,
        micro_batch_size=8,
        status=Status.INFEASIBLE,
        accelerator=None,
        reason="no plan fits 32 GiB",
    )
    return SearchResult(
        study="bertlarge-1234",
        status=Status.OPTIMAL,
        hardware=CHIPS,
        best=best,
        per_hbm=(best,),
        rows=(row, none),
        references=(
            ReferencePoint("tpuv4_like", "a paper", Status.OPTIMAL, CHIP, HBM, 204.8, 2.0, {}),
        ),
        counts=Counts(30, 10, 2, 13, 5, 77),
        run_directory="out/here",
    )


def on_a_device() -> SearchResult:
    found = result()
    assert found.best is not None
    best = replace(found.best, accelerator=None, hbm_bytes=85_100_000_000)
    rows = tuple(replace(row, accelerator=None, hbm_bytes=85_100_000_000) for row in found.rows)
    return replace(found, hardware=DEVICE, best=best, per_hbm=(best,), rows=rows, references=())


def shown(answer: SearchResult) -> str:
    stream = io.StringIO()
    print_result(answer, stream)
    return stream.getvalue()


def test_the_result_names_accelerator_plan_comparison_and_proof() -> None:
    text = shown(result())
    assert accelerator_text(CHIP) == "8 TC 128x64, 2 VC 32, GLB 16 MiB"
    row = next(line for line in text.splitlines() if "43.2%" in line)
    for cell in (
        "32",
        accelerator_text(CHIP),
        "123.46",
        "bertlarge",
        "4",
        "selective",
        "2 x 8 x 64",
        "409.6",
        "2.00x",
    ):
        assert cell in row
    assert "vs expert   proven" in text
    assert row.endswith("yes")
    assert "throughput 409.6 samples/s, proven optimal over the whole space" in text
    assert (
        "bertlarge: 10 s per batch = tensor-parallel communication 50.0%, data-parallel "
        "communication 15.0%, arithmetic 10.0%, "
        "bubble 10.0%, pipeline communication 7.0%, memory-bound work 5.0%, recomputation 3.0%; "
        "hidden beside computation: data-parallel communication 2.5%\n"
    ) in text
    assert "critical path of its schedule" in text
    counted = (
        "30 design points: 10 evaluated, 2 dominated, 13 pruned by bounds, 5 infeasible; 77 "
        "plans compared per configuration"
    )
    assert counted in text
    assert "infeasible: no plan fits 32 GiB" in text
    assert "tpuv4_like" in text
    assert "files: out/here" in text


def front_of(count: int) -> pd.DataFrame:
    """Designs of so many chips on a front, a slower and cheaper one each, and one that is not on
    it."""
    sizes = {
        "num_vc": 2,
        "width": 64,
        "depth": 64,
        "width_vc": 32,
        "glb_bytes": 2**20,
        "area_mm2": 100.0,
    }
    plan = {"micro_batch_size": 4, "tp": 1, "pp": 2, "dp": 3, "cp": 1, "ep": 1, "tp2": 1}
    plan |= {"panels": 1, "sequence_parallel": False, "shard_groups": 1}
    words = {"model": "bertlarge", "recompute": "none", "layout": "1d", "exchange": "gather"}
    words |= {"etp": "same"}
    same = pd.DataFrame([sizes | plan | words | {"hbm_bytes": HBM}] * (count + 1))
    places = np.arange(count + 1)
    return same.assign(
        num_tc=places + 1,
        throughput_samples_per_s=1e4 - 100.0 * places,
        owning_usd=9e3 - places,
        on_front=places < count,
    )


@pytest.mark.parametrize("count", [1, 5, 12, 13, 40])
def test_the_front_is_told_fastest_first_and_spread_evenly(count: int) -> None:
    fronts = fronts_of(front_of(count), (FrontAxis.THROUGHPUT, FrontAxis.COST))
    text = shown(replace(result(), fronts=fronts))
    rows = [line for line in text.splitlines() if "TC 64x64" in line]
    places = [int(row.split()[0]) for row in rows]
    assert (
        len(rows) == min(count, 12)
        and places == sorted(places)
        and {places[0], places[-1]} == {1, count}
    )
    steps = {after - before for before, after in pairwise(places)}
    assert not steps or max(steps) - min(steps) <= 1
    there = {1: "1 chip", 5: "5 chips", 12: "12 chips"}.get(
        count, f"12 of {count} chips, spread evenly"
    )
    title = (
        f"Pareto front of throughput and cost: {there}, fastest first; all with all their "
        "plans are in out/here/designs"
    )
    assert title in text and text.index("where the time goes") < text.index(title) < text.index(
        "best: "
    )
    assert rows[0].split()[-6:] == ["x", "2", "x", "3", "10,000", "9,000"]


def test_without_a_front_over_several_axes_there_is_no_table_of_it() -> None:
    assert fronts_of(front_of(5), ()) == fronts_of(front_of(5), (FrontAxis.THROUGHPUT,)) == ()
    assert "Pareto front" not in shown(result())


def test_a_device_s_result_names_it_and_its_memory_and_the_rest_of_its_plan() -> None:
    text = shown(on_a_device())
    row = next(line for line in text.splitlines() if "43.2%" in line)
    for cell in (
        "79.26",
        DEVICE.title,
        "bertlarge",
        "4",
        "selective",
        "2 x 8 x 64",
        "ZeRO stage 1",
        "409.6",
    ):
        assert cell in row
    assert "best plan on dgx_a100" in text
    assert (
        f"best: {DEVICE.title} with 79.26 GiB HBM, throughput 409.6 samples/s, proven optimal"
        in text
    )
    assert "bertlarge: 10 s per batch = tensor-parallel communication 50.0%" in text
    assert "infeasible: no plan fits 32 GiB" in text
    for absent in ("area mm²", "known chips", "None", "vs expert", "critical path"):
        assert absent not in text


def test_memory_that_the_title_of_a_device_says_is_not_said_twice() -> None:
    found = on_a_device()
    asked = {
        "model": "bertlarge",
        "device": "a100_80gb",
        "devices": 8,
        "memory_size": 79.26,
        "memory_bandwidth": 1500,
    }
    sized = hardware_report(resolve({}, asked)).title
    text = shown(replace(found, hardware=replace(found.hardware, title=sized)))
    assert f"best: {sized}, throughput" in text and " with 79.26 GiB, 1,500 GB/s" in sized


def test_utilisation_and_memory_are_part_of_the_answer() -> None:
    text = shown(result())
    said = next(line for line in text.splitlines() if line.startswith("bertlarge: tp 2"))
    assert "MFU 43.2%, model FLOPs" in said
    assert "nothing recomputed" in said
    assert "the fullest stage uses 0.9313 of 32 GiB (2.9%)" in said
    assert "warning" not in text


def test_an_optimum_that_fills_the_memory_is_a_warning_with_its_runner_up() -> None:
    answer = result()
    assert answer.best is not None
    room = TightMemory(0.97, 0.95, replace(answer.best, value=327.68))
    (said,) = [
        line
        for line in shown(replace(answer, tight_memory=room)).splitlines()
        if line.startswith("warning: ")
    ]
    for words in (
        "fills 97% of the memory",
        "more than 95%",
        "on the same chip",
        "327.7 samples/s, 20% less",
        "tp 2 x pp 8 x dp 64",
    ):
        assert words in said
    device = on_a_device()
    alone = shown(replace(device, tight_memory=TightMemory(0.97, 0.95, None)))
    assert "No plan uses at most 95%" in alone
    assert "chip" not in alone


def test_memory_sizes_that_make_no_difference_share_a_row() -> None:
    answer = result()
    assert answer.best is not None
    larger = replace(answer.best, hbm_bytes=2 * HBM)
    row = answer.rows[0]
    rows = (
        row,
        replace(row, hbm_bytes=2 * HBM),
        replace(row, hbm_bytes=3 * HBM, throughput_samples_per_s=500.0),
        answer.rows[1],
    )
    text = shown(replace(answer, per_hbm=(answer.best, larger), rows=rows))
    lines = [line for line in text.splitlines() if "GLB 16 MiB" in line and "bertlarge" in line]
    assert len(lines) == 3
    assert lines[0].split()[:2] == ["32,", "64"]
    assert ["32, 64 " in line for line in lines] == [True, True, False]
    assert lines[2].split()[1] == "96"
    assert "500.00" in lines[2]


def test_large_numbers_are_written_out() -> None:
    answer = result()
    assert answer.best is not None
    fast = replace(plan(), throughput_samples_per_s=1_234_567.8)
    best = replace(answer.best, value=1_234_567.8, models={"bertlarge": fast})
    row = replace(answer.rows[0], throughput_samples_per_s=1_234_567.8)
    known = replace(answer.references[0], value=654_321.9)
    text = shown(replace(answer, best=best, per_hbm=(best,), rows=(row,), references=(known,)))
    assert "e+0" not in text
    assert text.count("1,234,568") == 3
    assert "654,322" in text


def test_the_parts_stand_by_size_and_hidden_ones_apart() -> None:
    stream = io.StringIO()
    print_tables([breakdown_table(BREAKDOWN, "bertlarge")], stream)
    lines = [" ".join(line.split()) for line in stream.getvalue().splitlines()]
    rows = [line for line in lines if line.endswith("%")]
    assert rows == [
        "tensor-parallel communication 5,000 50.0%",
        "data-parallel communication 1,500 15.0%",
        "arithmetic 1,000 10.0%",
        "bubble 1,000 10.0%",
        "pipeline communication 700 7.0%",
        "memory-bound work 500 5.0%",
        "recomputation 300 3.0%",
        "iteration 10,000 100.0%",
        "hidden data-parallel communication 250 2.5%",
    ]


@given(
    st.lists(st.floats(0.0, 10.0), min_size=len(PARTS), max_size=len(PARTS)).filter(
        lambda seconds: sum(seconds) > 0.1
    )
)
@example(
    [
        0.0465580,
        0.0179704,
        0.0109014,
        0.0087696,
        0.0039256,
        0.0011764,
        0.0006654,
        *[0.0] * (len(PARTS) - 7),
    ]
)
def test_every_part_is_shown_as_it_is_in_the_file(seconds: list[float]) -> None:
    breakdown = replace(
        BREAKDOWN, **{f"{name}_s": each for name, each in zip(PARTS, seconds, strict=True)}
    )
    table = breakdown_table(breakdown, "m")
    rows = [row for row in (*table.rows, *table.foot) if not row[0].startswith("hidden")]
    shown_ms = {part: float(milliseconds.replace(",", "")) for part, milliseconds, _ in rows}
    decimals = len(table.rows[0][1].partition(".")[2])
    assert shown_ms.pop("iteration") == round(breakdown.total_s * 1e3, decimals)
    of_file = {
        PARTS[name]: round(1e3 * each, decimals) for name, each in zip(PARTS, seconds, strict=True)
    }
    assert shown_ms == {part: of_file[part] for part in shown_ms}
    assert all(part in shown_ms for part, milliseconds in of_file.items() if milliseconds)


def test_lines_have_no_trailing_blanks_and_are_not_cut() -> None:
    lines = shown(result()).splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert not any("…" in line for line in lines)


def test_an_unproven_optimum_is_not_called_proven() -> None:
    answer = result()
    assert answer.best is not None
    assert "not proven optimal" in shown(
        replace(answer, best=replace(answer.best, optimal=False, status=Status.FEASIBLE))
    )


def test_plans_that_were_not_considered_are_told_with_what_they_could_gain() -> None:
    answer = result()
    assert answer.best is not None
    lost = replace(plan(), plans_omitted="the 61 layers branch too much")
    certificate = Certificate(best_open_bound=512.0, schedules=())
    best = replace(
        answer.best,
        optimal=False,
        status=Status.FEASIBLE,
        models={"bertlarge": lost},
        certificate=certificate,
    )
    text = shown(replace(answer, best=best))
    assert "not proven optimal (feasible, within 20% of the best there can be)" in text
    assert "bertlarge: the 61 layers branch too much" in text
    assert "branch too much" not in shown(answer)


def test_an_infeasible_study_says_why() -> None:
    text = shown(
        replace(
            result(),
            status=Status.INFEASIBLE,
            best=None,
            per_hbm=(),
            rows=(),
            reason="32 GiB is too little",
        )
    )
    assert text.startswith("bertlarge-1234: infeasible; 32 GiB is too little\n")


def test_the_space_is_counted() -> None:
    stream = io.StringIO()
    print_tables([space_table(SpaceSize(29360, 3, 3, 1, 6, 528480, 123456))], stream)
    assert "528,480" in stream.getvalue() and "123,456" in stream.getvalue()
    print_tables([space_table(SpaceSize(1, 1, 1, 1, 1, 1, None))], stream)
    assert "known once the model is traced" in stream.getvalue()
