"""What a search on given hardware is asked: defaults, refusals, and the run directory it leaves."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from Common.errors import InputError
from Common.progress import progress_for
from GraphExtractor.graph import Recompute
from Solver.plan_search.request import plan_request
from Solver.plan_search.run import best_json, run_plan_search
from Solver.plan_search.settings import asks_for_device

SMALL = {"model": "gpt:layers=4,hidden=256,heads=4,vocabulary=1000,sequence_length=128", "device": "a100_80gb", "devices": 4}


def test_defaults_search_everything_the_model_and_the_cluster_allow() -> None:
    request = plan_request({}, SMALL | {"global_batch_size": 24})
    space = request.space
    assert request.cluster.name == "dgx_a100" and request.cluster.num_devices == space.devices == 4
    assert request.software.name == "megatron_2022"
    assert space.tp_widths == (1, 2, 4)
    assert space.micro_batch_sizes == (1, 2, 4, 8)  # 16 does not divide 24
    assert space.recompute == tuple(Recompute)
    assert space.sequence_parallel == (False, True)
    assert space.zero_stages == (0, 1, 2, 3)
    assert space.base.precision.value == "bf16"


def test_what_is_given_is_searched_alone() -> None:
    given = {"tp": "2", "micro_batch_size": "2", "recompute": "full", "sequence_parallel": "true", "zero_stage": "1"}
    space = plan_request({"interleave": [1, 2]}, SMALL | given).space
    assert (space.tp_widths, space.micro_batch_sizes, space.zero_stages) == ((2,), (2,), (1,))
    assert (space.recompute, space.sequence_parallel, space.interleave) == ((Recompute.FULL,), (True,), (1, 2))


def test_a_device_without_bfloat16_trains_in_float16() -> None:
    assert plan_request({}, SMALL | {"device": "v100_32gb"}).space.base.precision.value == "fp16"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"device": "a100_81gb"}, "no device"),
        ({"devices": 10**6}, "devices"),
        ({"model": "gpt2 bertlarge"}, "one model"),
        ({"hbm_size": "32"}, "chips to design"),
        ({"objective": "throughput"}, "chips to design"),
        ({"tp": "3"}, "3"),
        ({"micro_batch_size": "64", "global_batch_size": "32"}, "exceeds the global batch"),
        ({"precision": "fp8"}, "float8"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_requests_are_refused_with_one_sentence(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan_request({}, SMALL | given)


def test_settings_of_devices_need_a_device() -> None:
    assert asks_for_device({"model": "gpt2"}, {"device": "h100"})
    assert not asks_for_device({"model": "gpt2"}, {"tp": 2})
    with pytest.raises(InputError, match="interleave belongs to"):
        asks_for_device({"interleave": [2]}, {"model": "gpt2"})


def test_a_run_leaves_its_files_and_another_finds_the_same(tmp_path: Path) -> None:
    given = SMALL | {"global_batch_size": 16, "output": str(tmp_path), "csv": "true"}
    run = run_plan_search(plan_request({}, given), progress_for(None, quiet=True))
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
    again = run_plan_search(plan_request(asked, {"output": str(tmp_path / "again")}), progress_for(None, quiet=True))
    assert again.result.prediction == run.result.prediction
