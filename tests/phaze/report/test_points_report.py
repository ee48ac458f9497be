"""The page of many points beside the sweep's own table, and beside brute force over it."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from phaze.report.pages.export import figure_tables, write_figures
from phaze.report.pages.figures import Figure, Report
from phaze.report.pages.page import page
from phaze.report.pages.points.bar_figures import MOST_BARS, drawn_points
from phaze.report.pages.points.best_points import best_points
from phaze.report.pages.points.details import details_of
from phaze.report.pages.points.front_figures import front_of
from phaze.report.pages.points.labels import grouped
from phaze.report.pages.points.points_report import points_report
from phaze.report.pages.points.scaling import Scaling, curves_of
from phaze.report.sentences.designs import PARTS
from phaze.runs.finished_run import FinishedRun
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.points_read import LOST, PointSet, read_points
from phaze_common.choices import FrontAxis
from phaze_common.errors import InputError
from phaze_common.numbers import number, rate


@pytest.fixture(scope="module")
def plans(swept_plans: Sweep) -> PointSet:
    return read_points([swept_plans.folder])


@pytest.fixture(scope="module")
def chips(swept_chips: Sweep) -> PointSet:
    return read_points([swept_chips.folder])


@pytest.fixture(scope="module")
def of_plans(plans: PointSet) -> Report:
    return points_report(plans)


@pytest.fixture(scope="module")
def of_chips(chips: PointSet) -> Report:
    return points_report(chips)


def table_of(sweep: Sweep) -> pd.DataFrame:
    return pd.read_parquet(sweep.folder / "table.parquet").set_index("point")


def figure_of(report: Report, name: str) -> Figure:
    (found,) = [figure for figure in report.figures if figure.name == name]
    return found


def data_of(figure: Figure, column: str) -> list[dict[str, str]]:
    """Rows of the table in a figure that has ``column``."""
    texts: list[str] = list(figure.spec["datasets"].values())
    (found,) = [text for text in texts if column in text.partition("\n")[0].split(",")]
    return list(csv.DictReader(io.StringIO(found)))


def best_of(points: PointSet) -> float:
    return max(
        point.result.value
        for point in points.points
        if point.result and point.result.value is not None
    )


def test_every_point_is_there_as_the_sweep_s_table_has_it(
    plans: PointSet, swept_plans: Sweep
) -> None:
    table = table_of(swept_plans)
    assert [point.number for point in plans.points] == list(table.index)
    for point in plans.points:
        row = table.loc[point.number]
        assert point.status == row["status"]
        assert {key: point.value(key) for key in plans.axes} == {
            key: row[key] for key in plans.axes
        }
        value = None if math.isnan(row["objective_value"]) else row["objective_value"]
        assert (point.result.value if point.result else None) == value
    assert {point.status for point in plans.points} == {"optimal", "infeasible", "impossible"}


def test_the_table_of_the_page_has_all_points_and_says_of_those_without_a_plan_why(
    of_plans: Report, plans: PointSet, swept_plans: Sweep
) -> None:
    shown = of_plans.sections[-1].parts[0].tables[0]
    table = table_of(swept_plans)
    rows = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
    assert [int(row["point"]) for row in rows] == list(table.index)
    for row in rows:
        own = table.loc[int(row["point"])]
        if own["status"] == "optimal":
            assert row["samples/s"] == rate(own["objective_value"])
            assert (
                row["tp x pp x dp"]
                == f"{own['plan_tp']:.0f} x {own['plan_pp']:.0f} x {own['plan_dp']:.0f}"
            )
        else:
            assert row["samples/s"] == ""
            assert row["ended"] in {"does not fit", "impossible"}
            assert row["why"] == own["problem"]
    assert sum(row["ended"] == "impossible" for row in rows) == 12


@pytest.mark.parametrize("kind", Scaling)
def test_curves_have_the_seconds_of_the_table_and_the_efficiency_that_follows(
    of_plans: Report, swept_plans: Sweep, kind: Scaling
) -> None:
    table = table_of(swept_plans)
    rows = data_of(figure_of(of_plans, f"{kind.value}-scaling-time"), "curve")
    assert any(row["value"] for row in rows)
    for row in rows:
        seconds = table.loc[int(row["point"]), "time_per_batch_s"]
        assert (float(row["value"]) == seconds) if row["value"] else math.isnan(seconds)
    by_curve: dict[str, list[dict[str, str]]] = {}
    for row in data_of(figure_of(of_plans, f"{kind.value}-scaling-efficiency"), "curve"):
        by_curve.setdefault(row["curve"], []).append(row)
    for steps in by_curve.values():
        batches, devices = (
            [int(step[column]) for step in steps] for column in ("batch", "devices")
        )
        assert devices == sorted(set(devices))
        shares = {batch / count for batch, count in zip(batches, devices, strict=True)}
        assert len(set(batches) if kind is Scaling.STRONG else shares) == 1
        reached = [step for step in steps if step["value"]]
        for step in reached:
            first, own = (table.loc[int(each["point"])] for each in (reached[0], step))
            times = own["throughput_samples_per_s"] / first["throughput_samples_per_s"]
            expected = times / (int(step["devices"]) / int(reached[0]["devices"]))
            assert float(step["value"]) == pytest.approx(expected, rel=1e-12)


def test_the_page_says_which_scaling_it_is(of_plans: Report) -> None:
    words = {
        section.anchor: section.parts[0].paragraphs[0]
        for section in of_plans.sections
        if section.parts[0].paragraphs
    }
    assert "the global batch stays the same" in words["strong-scaling"]
    assert "the samples per device stay the same" in words["weak-scaling"]


def test_a_curve_takes_the_fastest_of_the_points_with_as_many_devices(plans: PointSet) -> None:
    fast, slow = (point for point in plans.points if point.feasible and point.value("devices") == 4)
    assert fast.result is not None and slow.result is not None
    worse = replace(
        slow,
        settings={**slow.settings, "global_batch_size": 16},
        result=replace(
            slow.result,
            plans=(
                replace(fast.result.plans[0], throughput_samples_per_s=1.0, time_per_batch_s=16.0),
            ),
        ),
    )
    other = next(point for point in plans.points if point.feasible and point.value("devices") == 8)
    (curve,) = curves_of(PointSet("several", (fast, worse, other), sweep=True), Scaling.STRONG)
    assert [step.point.number for step in curve.steps] == [fast.number, other.number]


def test_nothing_is_drawn_that_the_points_have_no_data_for(
    of_chips: Report, plans: PointSet
) -> None:
    anchors = {section.anchor for section in of_chips.sections}
    assert anchors == {"heat-map", "time", "memory", "fronts", "parallel", "points"}
    one = replace(plans, points=tuple(point for point in plans.points if point.feasible)[:1])
    assert {section.anchor for section in points_report(one).sections} == {
        "time",
        "memory",
        "points",
    }
    none = replace(plans, points=tuple(point for point in plans.points if not point.feasible))
    report = points_report(none)
    assert {section.anchor for section in report.sections} == {"points"}
    assert report.answer.startswith("No point has a plan")
    assert len(report.sections[0].parts[0].tables[0].rows) == len(none.points)
    page(report)


def test_bars_add_up_to_the_iteration_and_to_the_memory(
    of_plans: Report, swept_plans: Sweep
) -> None:
    table = table_of(swept_plans)
    totals: dict[int, float] = {}
    for row in data_of(figure_of(of_plans, "iteration-by-point"), "part"):
        totals[int(row["point"])] = totals.get(int(row["point"]), 0.0) + float(row["amount"])
    seconds = table["time_per_batch_s"].dropna()
    assert totals.keys() == set(seconds.index)
    scale = next(iter(totals.values())) / seconds[next(iter(totals))]
    assert 10 ** round(math.log10(scale)) == pytest.approx(scale, rel=1e-6)
    assert [totals[point] for point in seconds.index] == pytest.approx(
        [value * scale for value in seconds], rel=1e-6
    )
    held: dict[int, float] = {}
    for row in data_of(figure_of(of_plans, "memory-by-point"), "part"):
        held[int(row["point"])] = held.get(int(row["point"]), 0.0) + float(row["amount"])
    assert [held[point] for point in seconds.index] == pytest.approx(
        list(table["memory_bytes"].dropna() / 2**30), rel=1e-9
    )
    ends = data_of(figure_of(of_plans, "memory-by-point"), "limit")
    assert {float(row["limit"]) for row in ends if row["limit"]} == {40.0}
    assert {row["text"] for row in ends if not row["limit"]} == {"does not fit", "impossible"}


def test_a_cell_of_the_heat_map_is_the_best_of_its_points(
    of_plans: Report, swept_plans: Sweep, plans: PointSet
) -> None:
    table = table_of(swept_plans)
    rows = [
        row
        for row in data_of(figure_of(of_plans, "heat-map"), "grid")
        if row["measure"] == "samples/s"
    ]
    grids = {row["grid"] for row in rows}
    assert len(grids) == math.comb(len(plans.axes), 2)
    assert "devices across, memory, GiB up" in grids
    for grid in grids:
        cells = [row for row in rows if row["grid"] == grid]
        assert sum(int(row["points"]) for row in cells) == len(table)
        assert (
            max(float(row["value"]) for row in cells if row["value"])
            == table["objective_value"].max()
        )
    for row in rows:
        if row["grid"] == "devices across, memory, GiB up":
            mine = table[
                (table["devices"] == int(row["across"]))
                & (table["memory_size"] == float(row["up"]))
            ]
            best = mine["objective_value"].max()
            assert (
                (row["value"] == "" and row["text"] == "×")
                if math.isnan(best)
                else float(row["value"]) == best
            )


def test_the_best_of_a_group_is_told_with_its_numbers_and_what_binds_it(
    plans: PointSet, swept_plans: Sweep
) -> None:
    table = table_of(swept_plans)
    groups = best_points(plans)
    assert {group.point for group in groups if group.point} <= set(
        table[table["status"] == "optimal"].index
    )
    for series, group in zip(
        grouped(plans.points, ("devices", "global_batch_size", "memory_size")), groups, strict=True
    ):
        mine = table.loc[[point.number for point in series.points], "objective_value"]
        if mine.isna().all():
            assert group.point is None and "without a plan" in group.words
            continue
        assert group.point == mine.idxmax()
        assert f"{number(mine.max())} samples/s" in group.words
        assert "proven optimal" in group.words
        assert "1 of 2 points has no plan." in group.words
        assert "HBM capacity" in group.words


def test_the_largest_micro_batch_that_is_best_is_said_to_be_the_largest(chips: PointSet) -> None:
    for group in best_points(chips):
        best = next(point for point in chips.points if point.number == group.point)
        others = [point for point in chips.points if point.value("model") == best.value("model")]
        largest = best.value("micro_batch_size") == max(
            point.value("micro_batch_size") for point in others
        )
        assert ("is the largest searched" in group.words) is largest


def test_points_that_are_as_good_are_named(plans: PointSet) -> None:
    best = max(
        (point for point in plans.points if point.feasible), key=lambda point: point.result.value
    )  # type: ignore[union-attr]
    twin = replace(best, number=99, settings={**best.settings, "tp": 2})
    (group,) = (
        each
        for each in best_points(replace(plans, points=(*plans.points, twin)))
        if each.point == best.number
    )
    assert "Point 99 is just as good." in group.words


def test_a_front_has_what_nothing_beats_and_nothing_else(chips: PointSet, of_chips: Report) -> None:
    designs = {each.point.number: each.front for each in details_of(chips)}
    for name, of in (
        ("area", lambda each: each.amounts[FrontAxis.AREA]),
        ("energy", lambda each: each.amounts[FrontAxis.ENERGY]),
    ):
        rows = data_of(figure_of(of_chips, f"fronts-{name}"), "series")
        assert len({row["series"] for row in rows}) == 2
        for series in {row["series"] for row in rows}:
            mine = [
                (float(row["across"]), float(row["throughput"]))
                for row in rows
                if row["series"] == series
            ]
            numbers = {int(row["point"]) for row in rows if row["series"] == series}
            model = {point.value("model") for point in chips.points if point.number in numbers}
            everything = [
                (of(each), each.throughput_samples_per_s)
                for point in chips.points
                if point.value("model") in model
                for each in designs[point.number]
            ]
            assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(mine))
            unbeaten = {
                each
                for each in everything
                if not any(
                    other[0] <= each[0] and other[1] >= each[1] and other != each
                    for other in everything
                )
            }
            assert set(mine) == unbeaten
    assert front_of({}, lambda each: each.amounts[FrontAxis.AREA]) == []


@pytest.mark.thorough
def test_of_many_points_an_even_choice_is_drawn_and_said(plans: PointSet) -> None:
    feasible = [point for point in plans.points if point.feasible]
    copies = tuple(
        replace(feasible[place % len(feasible)], number=place + 1) for place in range(3 * MOST_BARS)
    )
    unfit = next(replace(point, number=1000) for point in plans.points if not point.feasible)
    many = PointSet("many", (*copies, unfit), sweep=True)
    assert len(drawn_points(many)) == MOST_BARS
    best = max(
        point.result.value for point in drawn_points(many) if point.result and point.result.value
    )
    assert best == best_of(plans)
    figure = figure_of(points_report(many), "iteration-by-point")
    assert f"{MOST_BARS} of {len(many.points)} points are drawn" in figure.caption
    assert figure.table is not None and len(figure.table.rows) == len(many.points)


def test_several_runs_are_points_too(
    finished: FinishedRun, finished_plans: FinishedRun, nothing_fits: FinishedRun
) -> None:
    runs = [finished, finished_plans, nothing_fits]
    points = read_points([run.folder for run in runs])
    assert [point.number for point in points.points] == [1, 2, 3]
    assert [point.result.value if point.result else None for point in points.points] == [
        run.result.best.value if run.result.best else None for run in runs
    ]
    report = points_report(points)
    shown = report.sections[-1].parts[0].tables[0]
    assert len(shown.rows) == 3 and "does not fit" in shown.rows[2]
    assert "the points are not all about the same" in report.answer


def test_names_of_the_users_cannot_break_out_of_the_page(plans: PointSet) -> None:
    bad = "</script><img src=x onerror=alert(1)>'\\"
    points = tuple(
        replace(point, settings={**point.settings, "cluster": f"{bad}{point.number % 2}"})
        for point in plans.points
    )
    text = page(points_report(replace(plans, points=points)))
    assert "<img src=x" not in text and "</script><img" not in text


def test_a_sweep_that_did_not_finish_and_files_that_are_damaged_are_refused(
    swept_plans: Sweep, tmp_path: Path
) -> None:
    folder = tmp_path / "half"
    folder.mkdir()
    shutil.copy(swept_plans.folder / "sweep.yaml", folder)
    with pytest.raises(InputError, match=r"has no table.parquet: the sweep did not finish"):
        read_points([folder])
    (folder / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"table.parquet is damaged"):
        read_points([folder])
    shutil.copy(swept_plans.folder / "table.parquet", folder)
    (folder / "sweep.yaml").write_text("- a\n")
    with pytest.raises(InputError, match=r"sweep.yaml is damaged"):
        read_points([folder])


def test_points_whose_runs_are_gone_are_told_as_lost(swept_plans: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    folder.mkdir()
    for name in ("sweep.yaml", "table.parquet"):
        shutil.copy(swept_plans.folder / name, folder)
    points = read_points([folder])
    assert {point.status for point in points.points} == {LOST, "impossible"}
    report = points_report(points)
    assert "12 lost" in report.answer
    assert all(
        "run the sweep again" in point.problem for point in points.points if point.status == LOST
    )


def test_the_data_of_every_figure_is_written_as_parquet(
    of_plans: Report, swept_plans: Sweep, tmp_path: Path, monkeypatch
) -> None:
    from phaze.report.pages import export

    monkeypatch.setattr(export, "write_chart", lambda spec, path, *_: path.write_bytes(b""))
    written = {path.name for path in write_figures(of_plans, tmp_path)}
    assert {f"{figure.name}.parquet" for figure in of_plans.figures} <= written
    curves = pd.read_parquet(tmp_path / "strong-scaling-time.parquet")
    own = table_of(swept_plans).loc[curves["point"].astype(int), "time_per_batch_s"]
    assert curves["value"].to_numpy().tolist() == pytest.approx(
        own.to_numpy().tolist(), rel=0, abs=0, nan_ok=True
    )
    for figure in of_plans.figures:
        tables = [pd.read_parquet(io.BytesIO(content)) for content in figure_tables(figure.spec)]
        assert [len(table) for table in tables] == sorted(
            (len(table) for table in tables), reverse=True
        )
        assert sum(map(len, tables)) == sum(
            text.count("\n") - 1 for text in figure.spec["datasets"].values()
        )


def test_every_part_of_an_iteration_that_a_point_has_is_in_the_bars_table(of_plans: Report) -> None:
    table = figure_of(of_plans, "iteration-by-point").table
    assert table is not None
    assert set(table.columns[2:]) <= set(PARTS.values())


def test_specs_are_json(of_plans: Report, of_chips: Report) -> None:
    def check(part: Any) -> None:
        assert not isinstance(part, float) or math.isfinite(part)
        for each in (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        ):
            check(each)

    for figure in (*of_plans.figures, *of_chips.figures):
        check(json.loads(json.dumps(figure.spec)))
