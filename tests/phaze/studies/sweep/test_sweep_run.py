"""Whole sweeps in this process and on others: rows, failures, points that are there already,
workers that die."""

import json

import pandas as pd
import pytest
import yaml
from sweep_cases import DYING, keys, run, small_sweep, with_graphs_of

from phaze.runs.finished_run import open_run
from phaze.studies import search_run
from phaze.studies.sweep import work
from phaze.studies.sweep.executors import InProcessExecutor, JoblibExecutor, executor_named
from phaze.studies.sweep.run import run_sweep
from phaze.studies.sweep.table import sweep_rows, write_table
from phaze_common.errors import InputError
from phaze_common.progress import LoggedProgress, SilentProgress
from scripts.stress_sweep import CLUSTER


@pytest.fixture(scope="module")
def mixed(warm, tmp_path_factory):
    """A sweep with points that are found, infeasible, impossible, and given twice."""
    folder = tmp_path_factory.mktemp("mixed")
    output = with_graphs_of(warm, folder / "out")
    sweep = small_sweep(
        folder, output, hbm_size=[32, 0.001, 32.0], tp=[1, 5], micro_batch_size=[[1, 2]]
    )
    return sweep, run(sweep)


def test_a_row_per_point_in_their_order_with_what_came_out(mixed):
    sweep, points = mixed
    write_table(sweep, points)
    table = pd.read_parquet(sweep.folder / "table.parquet")
    assert table["point"].tolist() == [1, 2, 3, 4, 5, 6]
    assert (
        table["hbm_size"].tolist() == [32, 32, 0.001, 0.001, 32, 32]
        and table["tp"].tolist() == [1, 5] * 3
    )
    assert table["status"].tolist() == [
        "optimal",
        "impossible",
        "infeasible",
        "impossible",
        "optimal",
        "impossible",
    ]
    assert table["problem"].str.contains("does not divide").tolist()[1::2] == [True] * 3
    assert "needs" in table["problem"][2]
    best = open_run(sweep.store / points[0].key).result.best
    plan, chip, row = best.models["bertbase"], best.accelerator, table.iloc[0]
    assert (row["objective_value"], row["objective_bound"]) == (best.value, best.value)
    assert [None if pd.isna(row[name]) else row[name] for name in vars(chip)] == list(
        vars(chip).values()
    )
    assert (row["plan_tp"], row["plan_pp"], row["plan_dp"]) == (plan.tp, plan.pp, plan.dp)
    assert (row["plan_cp"], row["plan_ep"], row["plan_interleave"], row["plan_zero_stage"]) == (
        1,
        1,
        1,
        0,
    )
    assert (row["plan_recompute"], row["plan_micro_batch_size"]) == (
        plan.recompute,
        plan.micro_batch_size,
    )
    assert row["model_flops_utilization"] == plan.model_flops_utilization
    parts = [
        name for name in table if name.startswith("part_") and not name.startswith("part_hidden_")
    ]
    assert len(parts) == 14
    assert row[parts].sum() == pytest.approx(plan.time_per_batch_s)
    assert row["key"] == points[0].key


def test_a_question_that_is_asked_twice_is_answered_once(mixed):
    sweep, points = mixed
    assert points[0].key == points[4].key and points[0].point is points[4].point
    assert sorted(path.parent.name for path in sweep.store.glob("*/point.json")) == sorted(
        {points[0].key, points[2].key}
    )


def test_nothing_is_computed_again_and_failed_points_are_tried_again(mixed, monkeypatch):
    sweep, points = mixed

    def refused(*_arguments):
        raise AssertionError("a stored point was computed again")

    monkeypatch.setattr("phaze.studies.search_run.run_search", refused)
    again = run(sweep)
    assert sweep_rows(sweep, again) == sweep_rows(sweep, points)
    assert [point.found for point in again] == [point.point is not None for point in points]


def test_a_damaged_point_is_computed_again_and_the_table_is_the_same(mixed, caplog):
    sweep, points = mixed
    write_table(sweep, points)
    before = (sweep.folder / "table.parquet").read_bytes()
    (sweep.store / points[0].key / "designs.parquet").write_bytes(b"nothing of the kind")
    again = run(sweep)
    write_table(sweep, again)
    assert "designs.parquet" in caplog.text
    assert [point.found for point in again] == [False, False, True, False, False, False]
    assert (sweep.folder / "table.parquet").read_bytes() == before


def test_the_table_as_csv_says_the_same(mixed):
    sweep, points = mixed
    with_csv = type(sweep)(sweep.name, sweep.axes, sweep.output, csv=True)
    write_table(with_csv, points)
    table, text = (
        pd.read_parquet(sweep.folder / "table.parquet"),
        pd.read_csv(sweep.folder / "table.csv"),
    )
    assert list(text) == list(table)
    assert text["objective_value"].tolist()[0] == table["objective_value"][0]
    write_table(sweep, points)
    assert not (sweep.folder / "table.csv").exists()


def test_several_models_have_their_plans_in_one_column(warm, tmp_path):
    output = with_graphs_of(warm, tmp_path / "out")
    models = [["bertbase=2", "bert:layers=2,hidden=128,heads=2"], "bertbase"]
    sweep = small_sweep(tmp_path, output, model=models)
    joint, single = sweep_rows(sweep, run(sweep))
    assert joint["model"] == models[0] and joint["plan_tp"] is None
    assert [plan["model"] for plan in json.loads(joint["plans"])] == [
        "bertbase",
        "bert-layers2-hidden128-heads2",
    ]
    assert single["plans"] is None and single["plan_tp"] == 1


def test_a_defect_in_one_point_does_not_end_the_others(warm, tmp_path, monkeypatch):
    solve = search_run.run_search

    def broken(request, progress):
        if request.hardware.hbm_size == (2.0,):
            raise ZeroDivisionError("a defect")
        if request.hardware.hbm_size == (4.0,):
            raise MemoryError
        if request.hardware.hbm_size == (8.0,):
            raise OSError(28, "No space left on device", "/somewhere")
        return solve(request, progress)

    monkeypatch.setattr("phaze.studies.search_run.run_search", broken)
    points = run(
        small_sweep(tmp_path, with_graphs_of(warm, tmp_path / "out"), hbm_size=[2, 4, 8, 16])
    )
    assert [point.problem.partition(";")[0] for point in points] == [
        "unexpected ZeroDivisionError: a defect",
        "out of memory",
        "the disk is full at /somewhere",
        "",
    ]


def test_a_file_that_changes_during_the_sweep_changes_none_of_its_points(warm, tmp_path):
    """Every file of hardware is read once, when the points are resolved."""
    sweep = small_sweep(
        tmp_path, with_graphs_of(warm, tmp_path / "out"), cluster=["cluster.yaml", "other.yaml"]
    )
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(CLUSTER | {"num_devices": 8}))

    class Changing(InProcessExecutor):
        def outcomes(self, tasks):
            (tmp_path / "other.yaml").write_text(yaml.safe_dump(CLUSTER | {"num_devices": 4}))
            return super().outcomes(tasks)

    first, second = run(sweep, Changing())
    assert first.problem == second.problem == ""
    (plan,) = second.point.result.plans
    assert 4 < plan.devices_used <= 8
    assert [point.key == second.key for point in run(sweep)] == [False, False], (
        "read again, it is another point"
    )


def test_a_model_that_changes_during_the_sweep_fails_its_points_only(warm, tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(DYING.format(marker=str(tmp_path / "nowhere")))
    sweep = small_sweep(
        tmp_path, with_graphs_of(warm, tmp_path / "out"), model=["bertbase", "./mine.py"]
    )

    class Changing(InProcessExecutor):
        def outcomes(self, tasks):
            own.write_text(own.read_text() + "\n# changed\n")
            return super().outcomes(tasks)

    first, second = run(sweep, Changing())
    assert first.problem == "" and "differ" in second.problem and second.point is None


def test_a_file_that_changes_while_its_point_is_searched_leaves_no_answer(
    warm, tmp_path, monkeypatch
):
    own, searched = tmp_path / "mine.py", search_run.run_search
    own.write_text(DYING.format(marker=str(tmp_path / "nowhere")))
    sweep = small_sweep(tmp_path, with_graphs_of(warm, tmp_path / "out"), model=["./mine.py"])

    def changing(*given):
        result = searched(*given)
        own.write_text(own.read_text() + "\n# changed\n")
        return result

    monkeypatch.setattr(search_run, "run_search", changing)
    (point,) = run(sweep)
    assert "differ" in point.problem and point.point is None


def test_a_worker_without_the_disk_sends_its_files(warm, tmp_path, monkeypatch):
    sweep = small_sweep(tmp_path, tmp_path / "out")
    monkeypatch.setattr("phaze.studies.sweep.store.Store.is_called", lambda *_: False)
    monkeypatch.setattr(work, "_private_folder", lambda: with_graphs_of(warm, tmp_path / "private"))
    (point,) = run(sweep)
    assert point.point is not None, point.problem
    assert open_run(sweep.store / point.key).result.best.value == point.point.result.value
    assert not list((tmp_path / "private").glob("points/*"))
    (again,) = run(sweep)
    assert again.found


@pytest.mark.thorough
@pytest.mark.kill
@pytest.mark.cluster
def test_a_worker_that_dies_fails_its_point_and_no_other(warm, tmp_path):
    marker = tmp_path / "deadly"
    marker.touch()
    (tmp_path / "dying.py").write_text(DYING.format(marker=str(marker)))
    output = with_graphs_of(warm, tmp_path / "out")
    sweep = small_sweep(
        tmp_path, output, model=["./dying.py", "bertbase", "bertbase=2", "bertbase=3"]
    )
    dead, *others = run(sweep, JoblibExecutor(2))
    assert dead.point is None and "its worker process died" in dead.problem
    assert [point.problem for point in others] == [""] * 3
    marker.unlink()
    alive, *others = run(sweep)
    assert alive.problem == "" and not alive.found
    assert all(point.found for point in others)


@pytest.mark.thorough
def test_every_point_is_told_as_it_ends_and_progress_counts_what_is_computed(
    warm, tmp_path, caplog
):
    caplog.set_level("INFO", logger="phaze_common.progress")
    told = []
    sweep = small_sweep(
        tmp_path, with_graphs_of(warm, tmp_path / "out"), hbm_size=[1, 2], tp=[1, 5]
    )
    points = run_sweep(sweep, InProcessExecutor(), LoggedProgress(interval_s=0.0), told.append)
    assert sorted(point.number for point in told) == [1, 2, 3, 4]
    assert "1 of 2, about" in caplog.text and "2 of 2 in" in caplog.text
    caplog.clear()
    run_sweep(sweep, InProcessExecutor(), SilentProgress(), lambda point: None)
    assert keys(points) == [points[0].key, "", points[2].key, ""]


def test_executors_by_name():
    assert isinstance(executor_named("joblib", 1, None), InProcessExecutor)
    assert isinstance(executor_named("joblib", 3, None), JoblibExecutor)
    with pytest.raises(InputError, match="--workers 0 is not possible"):
        executor_named("joblib", 0, None)
    with pytest.raises(InputError, match="add --executor ray"):
        executor_named("joblib", None, "here:1")
