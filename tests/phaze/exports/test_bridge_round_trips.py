"""Recipes of Megatron Bridge that an export wrote say the plan again."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import phaze

PLAN = {
    "model": "mixtral:layers=2,hidden=512,heads=8,kv_heads=2,ffn=256,experts=8,chosen=2,"
    "vocabulary=1024,sequence_length=256",
    "device": "b200",
    "dp": 8,
    "ep": 4,
    "zero_stage": 1,
    "global_batch_size": 16,
}


def evaluated(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert phaze.main(["evaluate", *map(str, words), "--quiet", "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tp": 2, "sequence_parallel": True, "etp": 1},
        {"shard_groups": 2},
        {"moment_dtype": "bf16", "main_weight_dtype": "fp16"},
        {"moment_dtype": "fp8", "gradient_dtype": "bf16"},
    ],
    ids=str,
)
def test_a_recipe_is_read_as_the_plan_that_it_is_of(
    more: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, launch, graphs = tmp_path / "plan.yaml", tmp_path / "launch", tmp_path / "graphs"
    file.write_text(yaml.safe_dump(PLAN | more))
    written = ["export", file, "--to", "megatron_bridge", "--output", launch]
    assert phaze.main([*map(str, written), "--quiet"]) == 0
    capsys.readouterr()
    plan = evaluated(capsys, "--plan", file, "--output", graphs)
    recipe = launch / "phaze_recipe.py"
    model = ["--model", PLAN["model"], "--device", "b200", "--dp", PLAN["dp"]]
    read = evaluated(capsys, "--from", recipe, *model, "--output", graphs)
    for key in (*more, "zero_stage", "ep", "dp"):
        assert read["plan"][key] == plan["plan"][key], key
    assert read["iteration_s"] == plan["iteration_s"]
    assert read["memory_bytes"] == plan["memory_bytes"]
