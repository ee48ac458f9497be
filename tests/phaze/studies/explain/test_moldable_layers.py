"""``explain --moldable``: what operators on groups of cores would bring the plan of a run."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

import phaze
from Estimator.chips.core_groups import CoreGroups, group_sizes
from Estimator.plans.groups import layer_groups
from phaze.report.tables.explain_tables import print_explanation
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.explanation import explain
from phaze.studies.explain.moldable import moldable
from phaze.studies.explain.repeat import repeat_search
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from Solver.designs.re_solve import priced
from Solver.hardware import DesignedChips

ROUNDING = 1e-9


@pytest.mark.thorough
def test_a_plan_on_groups_is_no_slower_and_confirmed(
    finished: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    best = finished.result.best
    assert best is not None
    (model,) = moldable(finished)
    print_explanation(replace(explain(finished), moldable=(model,)), sys.stdout)
    assert "operators on groups of cores" in capsys.readouterr().out
    assert model.iteration_s == pytest.approx(best.models[model.model].time_per_batch_s, rel=1e-9)
    gained_s = 0.0
    for layer in model.layers:
        assert (
            layer.bound_s * (1 - ROUNDING) <= layer.moldable_s <= layer.makespan_s * (1 + ROUNDING)
        )
        assert layer.confirmed is not False and layer.in_groups <= layer.operators
        gained_s += layer.makespan_s - layer.moldable_s
    assert model.moldable_s <= model.iteration_s * (1 + ROUNDING)
    assert (gained_s > ROUNDING * model.iteration_s) == (model.gain > 1 + ROUNDING)


def test_a_group_of_one_core_is_one_core_and_more_cores_are_never_slower(
    finished: FinishedRun,
) -> None:
    repeated = repeat_search(finished, SilentProgress())
    chips, best = priced(repeated.alone, repeated.hardware), finished.result.best
    optimum = None if best is None else chips.optimum(best.hbm_bytes)
    assert optimum is not None and isinstance(chips.context.hardware, DesignedChips)
    for choice in optimum.choices.values():
        row, shape = choice.group.locate(choice.point)
        groups = layer_groups(choice.group.plan(choice.point), chips.context.hardware.cluster)
        table = chips.context.hardware.scheduled(shape.graph, groups).table
        of_groups = CoreGroups(table, row)
        one = of_groups.priced(1, 1)
        accelerators = table.accelerators
        assert np.array_equal(
            one.tensor.single_s[:, 0], table.tensor.single_s[:, accelerators.tc_index[row]]
        )
        assert np.array_equal(
            one.vector.single_s[:, 0], table.vector.single_s[:, accelerators.vc_index[row]]
        )
        for size in group_sizes(of_groups.num_tc)[1:]:
            assert (
                of_groups.priced(size, 1).tensor.single_s <= one.tensor.single_s * (1 + ROUNDING)
            ).all()


def test_sizes_of_groups_are_ascending_and_fit() -> None:
    for cores in (1, 2, 3, 16, 17, 64, 256):
        sizes = group_sizes(cores)
        assert sizes[0] == 1 and list(sizes) == sorted(set(sizes)) and sizes[-1] < max(cores, 2)


def test_devices_are_refused(
    finished_plans: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="design space"):
        moldable(finished_plans)
    assert phaze.main(["explain", str(finished_plans.folder), "--moldable", "--quiet"]) == 2
    assert capsys.readouterr().err.startswith("phaze: --moldable is about cores of a chip")
