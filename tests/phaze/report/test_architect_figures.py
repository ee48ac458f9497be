"""Views of the hardware and of the placement: their numbers beside those that the run says
elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from Estimator.network.cluster import Cluster, Tier
from phaze.report.pages.chip_figures import (
    area_figure,
    ceilings_of,
    energy_figure,
    energy_parts,
    roofline_figure,
    roofline_points,
)
from phaze.report.pages.design_points import PointsOfModel, points_of
from phaze.report.pages.device_figures import groups_on_tiers, placed_devices
from phaze.report.pages.layer_graph_figure import boundary_bytes, layer_graph_figure, placed_layers
from phaze.report.pages.memory_figures import memory_over_time, stage_memories
from phaze.report.pages.schedule_figures import schedule_figures
from phaze.runs.finished_run import FinishedRun
from phaze_common.choices import GroupOrder
from Solver.designs.schedule_records import KeptTensor
from Solver.plan_report import PlanReport


def points_in(run: FinishedRun) -> PointsOfModel:
    assert run.result.best is not None
    (model,) = run.result.best.models
    return points_of(run, run.result.best, model)


@pytest.fixture(params=["finished", "finished_plans"])
def points(request: pytest.FixtureRequest) -> PointsOfModel:
    return points_in(request.getfixturevalue(request.param))


def test_the_most_that_a_stage_holds_over_time_is_its_memory(points: PointsOfModel) -> None:
    memories = stage_memories(points.plan)
    assert [each.peak_bytes for each in memories] == pytest.approx(
        [stage.memory_bytes for stage in points.plan.stages], rel=1e-9
    )
    for each in memories:
        assert each.held_bytes[-1] == pytest.approx(
            each.constant_bytes, rel=1e-9
        )  # all activations are gone in the end
        assert np.all(np.diff(each.time_s) >= -1e-12)
    (figure,) = memory_over_time(points.plan, "")
    assert figure.table is not None and len(figure.table.rows) == points.plan.pp
    silent = replace(points.plan, pipeline=replace(points.plan.pipeline, saved_bytes=()))
    assert memory_over_time(silent, "") == ()  # of a run of an earlier version


def test_the_parts_of_area_and_energy_add_up(
    finished: FinishedRun, finished_plans: FinishedRun
) -> None:
    points = points_in(finished)
    area, energy, parts = area_figure(points), energy_figure(points), energy_parts(points)
    assert area is not None and energy is not None and parts is not None
    chip = points.best.accelerator
    assert chip is not None and area.table is not None and energy.table is not None
    assert sum(float(row[1]) for row in area.table.rows) == pytest.approx(chip.area_mm2, rel=1e-3)
    assert parts.total_j == pytest.approx(points.plan.energy_per_sample_j, rel=1e-9)
    assert sum(float(row[1]) for row in energy.table.rows) == pytest.approx(parts.total_j, rel=1e-3)
    of_a_device = points_in(finished_plans)
    assert area_figure(of_a_device) is None and energy_figure(of_a_device) is None


def test_no_operator_is_above_the_roof(points: PointsOfModel) -> None:
    ceilings, drawn = ceilings_of(points), roofline_points(points.run.operators)
    assert ceilings is not None and {each.operator.graph for each in drawn} >= {
        "forward",
        "backward",
    }
    for each in drawn:
        assert each.operations_per_s <= ceilings.matrix_flops * (1 + 1e-9), each
        if points.best.accelerator is not None:
            assert each.operations_per_s <= each.intensity * ceilings.hbm_bytes_per_s * (
                1 + 1e-9
            ), each
    assert roofline_figure(points) is not None
    assert roofline_figure(replace(points, run=replace(points.run, operators=()))) is None


def test_tensors_cross_the_boundaries_between_the_chunks_of_the_plan(points: PointsOfModel) -> None:
    placed = placed_layers(points.plan, points.run.tensors)
    assert placed.names == tuple(
        layer for stage in points.plan.plan.stages for layer in stage.layers
    )
    assert set(boundary_bytes(placed)) == set(range(max(placed.chunk)))
    assert layer_graph_figure(points.plan, points.run.tensors, "") is not None
    assert layer_graph_figure(points.plan, (), "") is None


def test_a_tensor_that_several_later_stages_read_crosses_every_boundary_once(
    finished_plans: FinishedRun,
) -> None:
    plan = points_in(finished_plans).plan
    names = [layer for stage in plan.plan.stages for layer in stage.layers]
    skip = KeptTensor("m", names[0], (names[1], names[-2], names[-1]), 100, 50)
    placed = placed_layers(plan, [skip])
    assert (
        set(boundary_bytes(placed).values()) == {100}
        and len(boundary_bytes(placed)) == max(placed.chunk) > 0
    )


@pytest.mark.parametrize(
    ("order", "data", "stages"),
    [("DATA_INNER", "node", "rack"), ("PIPELINE_INNER", "rack", "node")],
)
def test_groups_lie_on_the_tier_that_joins_all_their_devices(
    finished_plans: FinishedRun, order: str, data: str, stages: str
) -> None:
    plan: PlanReport = replace(
        points_in(finished_plans).plan, tp=2, cp=1, dp=4, pp=4, group_order=GroupOrder[order].value
    )
    cluster = Cluster(
        "two",
        32,
        (Tier("pair", 2, 4e11, 1e-6), Tier("node", 8, 1e11, 1e-6), Tier("rack", 32, 1e10, 1e-5)),
    )
    tiers = {each.name: each.tier for each in groups_on_tiers(plan, cluster)}
    assert tiers == {
        "tensor parallel": "pair",
        "data parallel": data,
        "neighbouring stages": stages,
    }
    placed = placed_devices(plan, cluster)
    assert (
        len({*zip(placed.tensor, placed.context, placed.replica, placed.stage, strict=True)}) == 32
    )


@pytest.mark.parametrize("order", [GroupOrder.DATA_INNER.value, "tp2.row2/row2.dp2.pp2"])
def test_rows_of_a_2d_layout_lie_behind_its_columns(
    finished_plans: FinishedRun, order: str
) -> None:
    plan: PlanReport = replace(
        points_in(finished_plans).plan, tp=2, tp2=4, cp=1, dp=2, pp=2, group_order=order
    )
    cluster = Cluster("two", 32, (Tier("node", 4, 4e11, 1e-6), Tier("rack", 32, 1e10, 1e-5)))
    placed = placed_devices(plan, cluster)
    assert len({*zip(placed.tensor, placed.row, placed.replica, placed.stage, strict=True)}) == 32
    groups = {each.name: each for each in groups_on_tiers(plan, cluster)}
    rows = groups["tensor parallel, second axis"]
    assert (rows.size, rows.stride, rows.tier, groups["tensor parallel"].tier) == (
        4,
        2,
        "rack",
        "node",
    )


def test_layers_of_one_name_that_differ_have_titles_of_their_own(finished: FinishedRun) -> None:
    points = points_in(finished)
    chip = points.best.accelerator
    assert chip is not None
    block = next(
        each for each in finished.schedules if (each.layer, each.graph) == ("block", "forward")
    )
    first, others = (
        replace(block, layers=layers)
        for layers in (("block.0",), ("block.1", "block.2", "block.3"))
    )
    titles = [figure.title for figure in schedule_figures([first, others], chip, "")]
    assert titles == ["Block.0, forward", "Block.1 to block.3, forward"]
    assert schedule_figures([block], chip, "")[0].title == "Block, forward"
