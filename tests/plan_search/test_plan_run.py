"""What a search on devices that exist leaves: the files of its run, from which it is found again."""

import json
from pathlib import Path

import pandas as pd
import yaml
from Solver.plan_search.run import best_json, run_plan_search
from Studies.adapters import plan_search

from Common.progress import progress_for
from Studies.resolve import resolve

SMALL = {"model": "gpt:layers=4,hidden=256,heads=4,vocabulary=1000,sequence_length=128", "device": "a100_80gb", "devices": 4}


def test_a_run_leaves_its_files_and_another_finds_the_same(tmp_path: Path) -> None:
    given = SMALL | {"global_batch_size": 16, "output": str(tmp_path), "csv": "true"}
    run = run_plan_search(plan_search(resolve({}, given)), progress_for(None, quiet=True))
    best = json.loads((tmp_path / "best.json").read_text())
    assert (tmp_path / "best.json").read_bytes() == best_json(run)
    plan = best["models"][run.request.model]
    assert best["optimal"] and best["status"] == "optimal"
    assert plan["tp"] * plan["pp"] * plan["dp"] == plan["devices_used"] == 4
    assert sum(len(stage["layers"]) for stage in plan["stages"]) == 6
    designs = pd.read_parquet(tmp_path / "designs.parquet")
    counts = best["counts"]
    assert len(designs) == counts["space"] == counts["evaluated"] + counts["pruned"] + counts["infeasible"]
    assert designs["time_per_batch_s"].min() == plan["time_per_batch_s"]
    assert len(pd.read_csv(tmp_path / "designs.csv")) == len(designs)
    asked = yaml.safe_load((tmp_path / "study.yaml").read_text())
    assert asked["devices"] == 4 and asked["device"] == "a100_80gb"
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"] == counts
    again = run_plan_search(plan_search(resolve(asked, {"output": str(tmp_path / "again")})), progress_for(None, quiet=True))
    assert again.result.prediction == run.result.prediction
