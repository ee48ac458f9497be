"""What a run says of every value of every axis, against the search that ``explain --instead`` makes
for each."""

from __future__ import annotations

import pytest

from Estimator.plans.results import Status
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.alternatives import alternative
from phaze.studies.explain.constraints import OF_A_PLAN, read_constraint
from phaze.studies.explain.repeat import repeat_search
from phaze_common.progress import SilentProgress
from Solver.results import AxisScope


@pytest.mark.some(1)
@pytest.mark.parametrize("which", ["finished", "finished_plans"])
def test_every_value_of_every_axis_is_worth_what_the_alternative_search_finds(
    which: str, request: pytest.FixtureRequest
) -> None:
    run: FinishedRun = request.getfixturevalue(which)
    search, best = repeat_search(run, SilentProgress()), run.result.best
    assert best is not None
    compared = 0
    for axis in best.axes:
        of_the_chip = axis.model is None
        if axis.axis == "hbm_bytes" or not (of_the_chip or axis.axis in OF_A_PLAN):
            continue
        for value in axis.values:
            found = alternative(
                search,
                read_constraint(
                    f"{axis.axis}={value.value}", on_device=not of_the_chip and run.on_device
                ),
            )
            compared += 1
            if value.status is Status.INFEASIBLE:
                assert found.point is None
                continue
            assert found.point is not None and value.status is Status.OPTIMAL
            assert value.reached == pytest.approx(found.point.value, rel=1e-9), (axis.axis, value)
    scopes = {(axis.model is None, axis.scope) for axis in best.axes}
    if which == "finished":
        assert scopes == {(True, AxisScope.DESIGNS), (False, AxisScope.PLANS_ON_THE_CHIP)}
        assert "plans on the best accelerator alone" in (run.folder / "best.json").read_text()
    else:
        assert scopes == {(False, AxisScope.PLANS_ON_THE_DEVICE)}
    assert compared > (20 if which == "finished" else 10)
    assert {axis.axis for axis in best.axes if axis.model} >= {
        "pp",
        "dp",
        "recompute",
        "micro_batch_size",
    }
