"""Replicas of shards (HSDP, MiCS, optimizer instances): read from each program's own words, and
written so that the same plan is read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from Estimator.plans.degrees import UniformPlan
from phaze.exports.launchers import Content, read_launch, reading_of
from phaze.exports.registry import exporter
from phaze_common.errors import InputError
from tests.phaze.exports.launches import launch_of

PLAN = UniformPlan(dp=8, zero_stage=3, shard_groups=2, global_batch_size=16)
FSDP = {"distributed_type": "FSDP", "num_processes": 8, "mixed_precision": "bf16"}
ZERO = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
MEGATRON = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 128 "
    "--micro-batch-size 1 --bf16 --num-distributed-optimizer-instances 2"
)


def of_torchtitan(**parallelism: object) -> str:
    keys = "\n".join(f"{name} = {value}" for name, value in parallelism.items())
    return f"[training]\nseq_len = 64\n[parallelism]\n{keys}\n"


def of_deepspeed(shards: int, stage: int = 3) -> str:
    zero = {"stage": stage, "mics_shard_size": shards}
    return json.dumps({**ZERO, "zero_optimization": zero})


def of_accelerate(**others: Any) -> str:
    return yaml.safe_dump(FSDP | others)


def shares(replicas: int, shards: int, cp: int = 1) -> dict[str, object]:
    sizes = {"dp_replicate": replicas, "dp_shard": shards, "cp": cp}
    return {f"parallelism_config_{name}_size": size for name, size in sizes.items()}


TITAN = {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 4}
HYBRID = {"fsdp_sharding_strategy": "HYBRID_SHARD"}
VERSION_2 = {"fsdp_version": 2}


@pytest.mark.parametrize(
    ("text", "given", "right"),
    [
        (of_torchtitan(**TITAN), {}, {"dp": 8, "shard_groups": 2, "zero_stage": 3}),
        (
            of_torchtitan(**TITAN | {"data_parallel_shard_degree": -1}),
            {"devices": "16"},
            {"shard_groups": 2, "zero_stage": 3},
        ),
        (
            of_torchtitan(**TITAN | {"data_parallel_shard_degree": 1, "context_parallel_degree": 4}),
            {},
            {"dp": 2, "shard_groups": 2, "zero_stage": 3},
        ),
        (
            of_accelerate(fsdp_config=VERSION_2, parallelism_config=shares(2, 4)),
            {},
            {"dp": 8, "shard_groups": 2},
        ),
        (
            of_accelerate(fsdp_config=VERSION_2, parallelism_config=shares(2, 1, 4)),
            {},
            {"dp": 2, "shard_groups": 2},
        ),
        (of_accelerate(fsdp_config=HYBRID, num_machines=4), {}, {"dp": 8, "shard_groups": 4}),
        (of_accelerate(fsdp_config={"fsdp_sharding_strategy": 5}, num_machines=2), {}, {"zero_stage": 2, "shard_groups": 2}),
        (of_accelerate(fsdp_config=HYBRID), {"shard_groups": "4"}, {"zero_stage": 3}),
        (of_deepspeed(4), {"devices": "16"}, {"zero_stage": 3, "shard_groups": 4}),
        (MEGATRON + " --use-distributed-optimizer", {}, {"zero_stage": 1, "shard_groups": 2}),
        (MEGATRON + " --use-megatron-fsdp", {}, {"zero_stage": 3, "shard_groups": 2}),
    ],
)  # fmt: skip
def test_groups_of_shards_are_read(text: str, given: dict[str, str], right: dict[str, Any]) -> None:
    reading = reading_of(Content(text, given=given))
    reading.check_expressible(())
    assert right.items() <= reading.settings.items()


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (of_torchtitan(data_parallel_replicate_degree=8, data_parallel_shard_degree=1), None),
        (of_accelerate(fsdp_config=HYBRID, num_machines=1), 1),
        (of_deepspeed(4, stage=2), None),
        (of_deepspeed(-1), None),
    ],
)
def test_what_shares_all_shards_or_none_has_no_groups(text: str, groups: int | None) -> None:
    assert reading_of(Content(text, given={})).settings.get("shard_groups") == groups


@pytest.mark.parametrize("text", [of_deepspeed(4), of_accelerate(fsdp_config=HYBRID)])
def test_a_number_of_groups_that_a_file_does_not_say_is_asked_for(text: str) -> None:
    with pytest.raises(InputError, match="give --shard-groups"):
        reading_of(Content(text, given={})).check_expressible(())


@pytest.mark.parametrize(
    ("program", "file", "changes"),
    [
        ("torchtitan", "phaze_plan.py", {}),
        ("torchtitan", "phaze_plan.py", {"cp": 2, "zero_stage": 2}),
        ("accelerate", "accelerate.yaml", {}),
        ("hf_trainer", "accelerate.yaml", {}),
        ("deepspeed", "ds_config.json", {}),
        ("megatron_bridge", "phaze_recipe.py", {"zero_stage": 1}),
        ("megatron_bridge", "phaze_recipe.py", {}),
    ],
)
def test_groups_of_shards_are_read_again(
    program: str, file: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    plan = replace(PLAN, **changes)
    launch = launch_of(plan)
    assert exporter(program).unsupported(launch) is None
    for each in exporter(program).files(launch):
        assert isinstance(each.content, str)
        (tmp_path / each.path).write_text(each.content)
    reading = read_launch(tmp_path / file, {})
    reading.check_expressible(())
    right = {"zero_stage": plan.zero_stage, "shard_groups": 2}
    assert right.items() <= reading.settings.items()


@pytest.mark.parametrize(
    ("changes", "near"), [({"zero_stage": 2}, {"zero_stage": 3}), ({"tp": 2}, {"shard_groups": 1})]
)
def test_deepspeed_has_groups_under_its_third_stage_alone(
    changes: dict[str, Any], near: dict[str, int]
) -> None:
    refused = exporter("deepspeed").unsupported(launch_of(replace(PLAN, **changes)))
    assert refused is not None and dict(refused.nearest) == near
