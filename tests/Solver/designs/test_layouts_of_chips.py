"""Layouts on designed chips: a search over all of them against exhaustion, and against the
evaluation of single plans."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
import yaml
from exhaustion import one_by_one
from small_study import SPACE, small_study, solved, write_hardware

from phaze.runs.plan_files import evaluate_request
from phaze.settings.request import Request
from phaze.studies.evaluation import evaluated
from phaze_common.choices import KeyExchange
from phaze_common.units import MIB
from Solver.results import SearchResult

GPT = "gpt:layers=2,hidden=128,heads=4,vocabulary=1000,sequence_length=128"
FEW = SPACE | {"axes": SPACE["axes"] | {"num_tc": [1, 4], "num_vc": [1, 16], "glb_mib": [4]}}
AXES = {
    "layout": "auto",
    "tp": 2,
    "tp2": 2,
    "cp": 2,
    "exchange": "all",
    "pp": 1,
    "recompute": "selective",
}
HBM_GIB = [0.005, 1]  # of which the smaller is tight


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Request:
    folder = tmp_path_factory.mktemp("layouts")
    return small_study(
        folder,
        model=GPT,
        micro_batch_size=1,
        hbm_size=HBM_GIB,
        **AXES,
        **write_hardware(folder, FEW),
    )


@pytest.fixture(scope="module")
def result(study: Request) -> SearchResult:
    return solved(study)


def test_the_best_of_all_layouts_is_that_of_exhaustion_and_confirmed(
    study: Request, result: SearchResult
) -> None:
    for point in result.per_hbm:
        least_s = one_by_one(study, 1, point.hbm_bytes)
        assert point.value == pytest.approx(study.plan.global_batch_size / least_s, rel=1e-9)
        assert point.optimal and point.certificate is not None
        assert point.certificate.schedules and all(
            each.agrees for each in point.certificate.schedules
        )


def test_every_layout_is_priced_in_the_search_as_one_plan_is(
    study: Request, result: SearchResult, tmp_path: Path
) -> None:
    best = result.best
    assert best is not None and best.accelerator is not None
    chip = asdict(best.accelerator)
    sizes = {name: chip[name] for name in ("num_tc", "num_vc", "width", "depth", "width_vc")}
    (tmp_path / "chip.yaml").write_text(
        yaml.safe_dump(sizes | {"glb_mib": chip["glb_bytes"] // MIB})
    )
    plans = pd.read_parquet(f"{result.run_directory}/plans.parquet")
    found = plans[plans["status"] == "evaluated"].sort_values("time_per_batch_s")
    found = found.drop_duplicates(["layout", "tp", "tp2", "cp", "exchange", "recompute"])
    assert {*found["layout"]} == {"1d", "2d", "sequence"} and {*found["exchange"]} == {
        each.value for each in KeyExchange
    }
    for plan in found.to_dict("records"):
        names = (
            "layout",
            "tp",
            "tp2",
            "cp",
            "exchange",
            "recompute",
            "sequence_parallel",
            "pp",
            "dp",
            "zero_stage",
            "group_order",
        )
        flags = {name: plan[name] for name in names} | {
            "model": GPT,
            "sequence_length": 128,
            "micro_batch_size": 1,
        }
        flags |= {
            "global_batch_size": study.plan.global_batch_size,
            "cluster": study.hardware.cluster,
            "hbm_size": HBM_GIB[1],
        }
        flags |= {
            "design_space": study.hardware.design_space,
            "chip": str(tmp_path / "chip.yaml"),
            "output": str(study.folders.run),
        }
        assert evaluated(evaluate_request(None, flags)).iteration.iteration_s == pytest.approx(
            plan["time_per_batch_s"], rel=1e-9
        )
