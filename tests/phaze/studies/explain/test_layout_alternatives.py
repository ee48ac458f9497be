"""Alternatives of other layouts than the best plan's, and where their groups lie, of a run that
searched all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import phaze
from Estimator.plans.assignment import Assignment
from Estimator.plans.axes import plan_axis
from Estimator.plans.results import Status
from phaze.report.pages.axis_figures import Sensitivity, axis_table
from phaze.report.sentences.other_plans import other_plans
from phaze.report.table import Table
from phaze.report.tables.search_tables import size_table
from phaze.runs.design_tables import CONSECUTIVE, LAYER_GROUPS, complete_designs, lacking_columns
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.alternatives import alternative
from phaze.studies.explain.constraints import read_constraint
from phaze.studies.explain.repeat import RepeatedSearch, repeat_search
from phaze_common.choices import GroupOrder, KeyExchange, TensorLayout
from phaze_common.progress import SilentProgress
from Solver.results import AxisValue

ASKED = {
    # whose graphs test_search_progress.py needs too
    "model": "gpt:layers=2,hidden=128,heads=4,ffn=256,vocabulary=512",
    "sequence_length": 64,
    "device": "a100_80gb",
    "devices": 16,
    "global_batch_size": 32,
    "micro_batch_size": 1,
    "recompute": "none",
    "zero_stage": 0,
    "sequence_parallel": False,
    "layout": "auto",
    "tp": [1, 2],
    "tp2": 2,
    "panels": [1, 2],
    "cp": [1, 2],
}
OF_A_SHAPE = [
    "layout",
    "tp",
    "tp2",
    "panels",
    "cp",
    "exchange",
    "ep",
    "sequence_parallel",
    "recompute",
    LAYER_GROUPS,
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    asked = phaze.study(**ASKED, output=tmp_path_factory.mktemp("layouts"))
    phaze.run_solver(asked)
    return phaze.open_run(asked.folders.run)


@pytest.fixture(scope="module")
def repeated(run: FinishedRun) -> RepeatedSearch:
    return repeat_search(run, SilentProgress())


def values(run: FinishedRun, *axes: str) -> Iterator[tuple[str, AxisValue]]:
    """What the run found of every value of ``axes``, all else chosen anew."""
    assert run.result.best is not None
    found = {axis.axis: axis.values for axis in run.result.best.axes}
    for axis in axes:
        assert len(found[axis]) > 1
        yield from ((axis, value) for value in found[axis] if value.status is Status.OPTIMAL)


def test_an_alternative_is_what_the_run_found_of_its_value(
    run: FinishedRun, repeated: RepeatedSearch
) -> None:
    for axis, value in values(run, "layout", "cp", "tp2", "panels", "exchange"):
        found = alternative(repeated, read_constraint(f"{axis}={value.value}", on_device=True))
        assert found.point is not None
        (plan,) = found.point.models.values()
        assert str(plan_axis(axis).of(plan)) == value.value
        assert found.point.value == pytest.approx(value.reached, rel=1e-9), (axis, value.value)


def test_an_assignment_is_kept(repeated: RepeatedSearch) -> None:
    found = alternative(repeated, read_constraint("group_order=tp2.dp4/dp2", on_device=True))
    assert found.point is not None
    (plan,) = found.point.models.values()
    assert (str(plan.group_order), plan.tp, plan.dp, plan.cp) == ("tp2.dp4/dp2", 2, 8, 1)


def test_the_best_assignment_is_named_where_all_of_them_are_one_value(run: FinishedRun) -> None:
    best = run.result.best
    assert best is not None
    (axis,) = [axis for axis in best.axes if axis.axis == "group_order"]

    def told(order: Assignment | GroupOrder) -> tuple[str, list[str]]:
        """What a report says where the best plan that is assigned to tiers has this ``order``."""
        values = tuple(
            replace(
                value,
                plans={
                    name: replace(plan, group_order=order) for name, plan in value.plans.items()
                },
            )
            if value.value == "tiers"
            else value
            for value in axis.values
        )
        changed = replace(axis, values=values)
        (said,) = other_plans(replace(best, axes=(changed,)))
        return said, [
            row[1] for row in axis_table(Sensitivity((changed,), "plan", "samples/s")).rows
        ]

    said, rows = told(Assignment.parsed("tp2.dp4/dp2"))
    assert "tiers tp2.dp4/dp2" in said and "tiers tp2.dp4/dp2" in rows and "tiers" not in rows
    said, rows = told(GroupOrder.DATA_INNER)  # which is as good
    assert "tiers" in rows and said.count("tensor-data-pipeline") == 1


def test_rows_of_designs_say_where_the_groups_of_a_layer_lie(run: FinishedRun) -> None:
    designs = run.designs
    assert not designs.duplicated(OF_A_SHAPE).any()
    assert designs.duplicated(OF_A_SHAPE[:-1]).any()
    for row in designs[designs[LAYER_GROUPS] != CONSECUTIVE].itertuples():
        assert Assignment.parsed(row.layer_groups).has(
            tp=row.tp, tp2=row.tp2, cp=row.cp, ep=row.ep, dp=1, pp=1
        )


def test_designs_of_before_are_read_without_saying_it(
    run: FinishedRun, repeated: RepeatedSearch
) -> None:
    assert run.result.best is not None
    before = run.designs.drop(columns=LAYER_GROUPS)
    assert (
        lacking_columns(before, run.plans, frozenset(run.result.best.models), on_device=True)
        is None
    )
    assert complete_designs(before)[LAYER_GROUPS].unique().tolist() == [""]
    wrong = run.designs.assign(**{LAYER_GROUPS: np.arange(len(run.designs))})
    lacking = lacking_columns(wrong, run.plans, frozenset(run.result.best.models), on_device=True)
    assert lacking is not None and lacking.what == "its column layer_groups does not hold texts"


def test_the_table_by_micro_batch_size_names_every_degree(
    tmp_path_factory: pytest.TempPathFactory, run: FinishedRun
) -> None:
    folder = tmp_path_factory.mktemp("rings")
    asked = phaze.study(
        **ASKED
        | {"layout": "sequence", "exchange": "ring", "cp": 4, "tp": 1, "tp2": None, "panels": None},
        output=folder,
    )
    result = phaze.run_solver(asked)
    (row,) = result.rows
    assert row.dp * row.pp * row.cp == 16
    assert f"1 x {row.pp} x {row.dp} x cp 4 (ring)" in "".join(_cells(size_table(result)))
    two_axes = replace(
        row, cp=1, tp2=4, layout=TensorLayout.TWO_D, exchange=KeyExchange.GATHER, ep=2
    )
    assert f"1 x {row.pp} x {row.dp} x tp2 4, 2d layout, ep 2" in "".join(
        _cells(size_table(replace(result, rows=(two_axes,))))
    )


def _cells(table: Table) -> Iterator[str]:
    for row in table.rows:
        yield from row
