"""What a search on devices that exist leaves: the files of its run, from which it is found
again."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from Estimator.plans.results import Status
from phaze.settings.problem import plan_space
from phaze.settings.resolve import resolve
from phaze.studies.search_run import run_search
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress

SMALL = {
    "model": "gpt:layers=4,hidden=256,heads=4,vocabulary=1000,sequence_length=128",
    "device": "a100_80gb",
    "devices": 4,
}
MIXTRAL = {"model": "mixtral-8x7b", "device": "h100", "devices": 32}


def test_a_run_leaves_its_files_and_another_finds_the_same(tmp_path: Path) -> None:
    few = {"micro_batch_size": [1, 2], "tp": [1, 2]}
    given = SMALL | few | {"global_batch_size": 16, "output": str(tmp_path), "csv": "true"}
    result = run_search(resolve({}, given), SilentProgress())
    best = json.loads((tmp_path / "best.json").read_text())
    (plan,) = best["models"].values()
    assert best["optimal"] and best["status"] == "optimal"
    assert plan["tp"] * plan["pp"] * plan["dp"] * plan["cp"] == plan["devices_used"] <= 4
    assert sum(len(stage["layers"]) for stage in plan["stages"]) == 6
    designs = pd.read_parquet(tmp_path / "designs.parquet")
    counts = best["counts"]
    assert len(designs) == counts["space"]
    assert (
        counts["evaluated"] + counts["pruned"] + counts["infeasible"] + counts["dominated"]
        == counts["space"]
    )
    assert designs["time_per_batch_s"].min() == pytest.approx(plan["time_per_batch_s"], rel=1e-9)
    assert len(pd.read_csv(tmp_path / "designs.csv")) == len(designs)
    plans = pd.read_parquet(tmp_path / "plans.parquet")
    assert np.nanmin(plans["time_per_batch_s"]) == pytest.approx(plan["time_per_batch_s"], rel=1e-9)
    asked = yaml.safe_load((tmp_path / "study.yaml").read_text())
    assert asked["devices"] == 4 and asked["device"] == "a100_80gb"
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"] == counts
    again = run_search(resolve(asked, {"output": str(tmp_path / "again")}), SilentProgress())
    assert again.best is not None and result.best is not None
    assert again.best.models == result.best.models


def test_nothing_fits_in_too_little_memory_and_the_reason_is_said(tmp_path: Path) -> None:
    given = {
        "model": "megatrongpt3",
        "device": "v100_16gb",
        "devices": 1,
        "global_batch_size": 1,
        "output": str(tmp_path),
    }
    result = run_search(resolve({}, given), SilentProgress())
    assert result.status is Status.INFEASIBLE and result.best is None
    assert result.counts.infeasible == result.counts.space > 0
    assert "GiB per device" in result.reason


def ep_degrees(**given: object) -> tuple[int, ...]:
    asked = resolve({}, MIXTRAL | given)
    (model,) = asked.workload.models
    return plan_space(asked, model.name).ep_degrees


def test_degrees_that_divide_experts_and_devices_are_searched() -> None:
    assert ep_degrees() == (1, 2, 4, 8)
    assert ep_degrees(devices=20) == (1, 2, 4)
    assert ep_degrees(ep="8") == (8,)
    assert ep_degrees(model="llama2") == (1,)


@pytest.mark.parametrize(
    ("given", "says"), [({"ep": "3"}, "8 experts"), ({"model": "llama2", "ep": "2"}, "no experts")]
)
def test_degrees_that_do_not_divide_the_experts_are_refused(
    given: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        ep_degrees(**given)
