"""Plans for DeepSpeed: 1,000 random ones read by its own configuration class and checked against
its documented rules."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from phaze.exports.deepspeed.exporter import EXPORTER, REFUSALS, entries
from phaze.exports.deepspeed.reader import read as read_file
from phaze.exports.launch import Launch
from phaze.exports.refusals import NO_OFFLOAD
from phaze_common.choices import Precision, Recompute
from phaze_common.errors import InputError
from tests.phaze.exports.titan_launches import launch_of, random_launch

STRICTER = {  # reasons why DeepSpeed would read something, but not the plan
    *(
        "two_axes",
        "cut_layers",
        "pipeline",
        "experts",
        "sequence_parallel",
        "divided_heads",
        "other_order",
    ),
    *("_sequences", "_numbers", "_offload"),
    "part_nodes",  # its launcher is asked for as many processes on each node
    "part_batches",  # with tensor parallelism, where the batch is left out
}
PLAIN = UniformPlan(micro_batch_size=2, global_batch_size=32, dp=4, zero_stage=2)


def reason(launch: Launch) -> str | None:
    refused = next((each for each in REFUSALS if next(each(launch), None) is not None), None)
    return None if refused is None else getattr(refused, "func", refused).__name__


def text_of(launch: Launch) -> str:
    return str(EXPORTER.files(launch)[0].content)


def plain(seed: int) -> Launch:
    """A random launch; three of four have no pipeline, experts and context parallelism, of which
    the file has no word."""
    launch = random_launch(random.Random(seed), strange=0.05)
    if seed % 4 == 0:
        return launch
    degrees = replace(
        launch.degrees, pp=1, interleave=1, gpipe=False, ep=1, cp=1, stage_layers=None
    )
    return launch_of(
        degrees, launch.plan.model, launch.plan.sequence_length, launch.devices_per_node
    )


def breaks_rules(launch: Launch) -> str | None:
    """The documented rules that DeepSpeed's class of the file leaves to its engine, or takes
    silently."""
    file, degrees = json.loads(text_of(launch)), launch.degrees
    zero = file["zero_optimization"]
    steps = file["train_micro_batch_size_per_gpu"] * file["gradient_accumulation_steps"]
    if file.get("train_batch_size", degrees.global_batch_size) != steps * degrees.dp:
        return "train_batch_size = micro-batch x accumulation x replicas"
    if "offload_param" in zero and zero["stage"] != 3:
        return "offload_param: valid only with stage 3"
    if "offload_optimizer" in zero and zero["stage"] == 0:
        return "offload_optimizer: valid with stage 1, 2 and 3"
    if {"fp16", "bf16"} <= file.keys():
        return "fp16 and bf16 exclude each other"
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("with_groups", [False, True])
def test_deepspeed_agrees_on_random_launches(
    monkeypatch: pytest.MonkeyPatch, with_groups: bool
) -> None:
    """What is accepted here its class of the file accepts, whether the script gives its groups
    (``mpu``) or not."""
    config = pytest.importorskip(
        "deepspeed.runtime.config", reason="DeepSpeed 0.19.8 is not installed"
    )
    accepted, seen = 0, Counter[str | None]()
    for seed in range(1000):
        launch = plain(seed)
        degrees = launch.degrees
        network = SimpleNamespace(
            get_rank=lambda: 0, get_world_size=lambda devices=degrees.devices: devices
        )
        monkeypatch.setattr(config, "dist", network)
        groups = (
            SimpleNamespace(get_data_parallel_world_size=lambda dp=degrees.dp: dp)
            if with_groups
            else None
        )
        refused = reason(launch)
        if degrees.precision is Precision.FP8:
            assert refused is not None
            continue
        try:
            read = config.DeepSpeedConfig(json.loads(text_of(launch)), mpu=groups)
        except Exception as error:  # noqa: BLE001 whatever a target raises is a refusal
            assert refused is not None, f"seed {seed} is accepted, but DeepSpeed says {error}"
            continue
        seen[refused] += 1
        if refused is not None:
            continue
        accepted += 1
        assert read.train_micro_batch_size_per_gpu == degrees.micro_batch_size
        assert read.gradient_accumulation_steps == degrees.micro_batches
        assert read.zero_optimization_stage == degrees.zero_stage
        assert read.bfloat16_config.enabled == (degrees.precision is Precision.BF16)
        assert read.float16_config.enabled == (degrees.precision is Precision.FP16)
        assert max(read.tensor_parallel_config.autotp_size, 1) == degrees.tp
        if with_groups or degrees.tp == 1:
            assert read.train_batch_size == degrees.global_batch_size
    assert accepted > 200
    assert {each for each, count in seen.items() if count} - {None} <= STRICTER


def test_documented_rules_hold_of_what_is_accepted() -> None:
    accepted = [launch for seed in range(1000) if reason(launch := plain(seed)) is None]
    assert len(accepted) > 200
    assert [breaks_rules(launch) for launch in accepted] == [None] * len(accepted)
    ignored = launch_of(replace(PLAIN, offload=Offload(1.0, 1.0, 1.0)))
    assert breaks_rules(ignored) == "offload_param: valid only with stage 3"
    assert reason(ignored) == "_offload"


def test_the_file_by_hand() -> None:
    launch = launch_of(
        replace(PLAIN, zero_stage=3, recompute=Recompute.FULL, offload=Offload(1.0, 1.0, 1.0))
    )
    found = json.loads(text_of(launch))
    product = found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * 4
    assert found["train_batch_size"] == product == 32
    assert found["zero_optimization"] == {
        "stage": 3,
        "overlap_comm": True,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
    }
    assert found["bf16"] == {"enabled": True}
    assert found["activation_checkpointing"] == {
        "partition_activations": False,
        "cpu_checkpointing": False,
    }
    assert "tensor_parallel" not in found


def test_the_batch_is_left_out_where_deepspeed_would_count_tensor_parallel_devices() -> None:
    found = json.loads(text_of(launch_of(replace(PLAIN, tp=2))))
    assert "train_batch_size" not in found
    assert found["tensor_parallel"]["autotp_size"] == 2


def test_every_key_is_explained() -> None:
    for seed in range(200):
        launch = plain(seed)
        if reason(launch) is None:
            readme = str(EXPORTER.files(launch)[1].content)
            assert all(
                f"| `{entry.path}` |" in readme and entry.why in readme for entry in entries(launch)
            )


@pytest.mark.parametrize(
    ("degrees", "sentence", "near"),
    [
        ({"pp": 2}, "has no pipeline", {"pp": 1, "dp": 8}),
        ({"cp": 2}, "in code alone", {"cp": 1, "dp": 8}),
        ({"ep": 2}, "no expert parallelism", {"ep": 1}),
        (
            {"tp": 2, "sequence_parallel": True},
            "no sequence parallelism",
            {"sequence_parallel": False},
        ),
        ({"precision": Precision.FP8}, "no fp8", {"precision": "bf16"}),
        ({"recompute": Recompute.SELECTIVE}, "whole blocks or nothing", {"recompute": "full"}),
        (
            {"offload": Offload(optimizer=0.5)},
            "all or nothing of a kind",
            {"offload": ("optimizer",)},
        ),
        (
            {"offload": Offload(optimizer=1.0)},
            "gradients in host memory with",
            {"offload": ("optimizer", "gradients")},
        ),
        ({"offload": Offload(1.0, 1.0), "zero_stage": 0}, "only with ZeRO", {"zero_stage": 1}),
        ({"offload": Offload(1.0, 1.0, 1.0)}, "only with ZeRO 3", {"zero_stage": 3}),
        (
            {"offload": Offload(activations=1.0)},
            "what recomputed blocks begin with",
            {"offload": NO_OFFLOAD},
        ),
        (
            {"zero_stage": 0, "overlap_gradients": True},
            "behind the backward pass",
            {"overlap_gradients": False},
        ),
        ({"global_batch_size": 30}, "no multiple of 8", {"global_batch_size": 32}),
    ],
)
def test_refusals_say_why_and_what_is_near(
    degrees: dict[str, Any], sentence: str, near: dict[str, object]
) -> None:
    refused = EXPORTER.unsupported(launch_of(replace(PLAIN, **degrees)))
    assert refused is not None
    assert sentence in refused.what
    assert near.items() <= dict(refused.nearest).items()


def test_what_is_exported_is_read_again() -> None:
    read = 0
    for seed in range(400):
        launch = plain(seed)
        if reason(launch) is not None:
            continue
        read += 1
        degrees, found = launch.degrees, read_file(text_of(launch)).settings
        for name in (
            "tp",
            "pp",
            "dp",
            "cp",
            "ep",
            "micro_batch_size",
            "global_batch_size",
            "zero_stage",
            "optimizer",
        ):
            assert found[name] == getattr(degrees, name), name
        assert found["precision"] == degrees.precision.value
        assert found["recompute"] == degrees.recompute.value
        assert found["model"] == launch.plan.model
        assert found["sequence_length"] == launch.plan.sequence_length
        assert found["attention"] == degrees.attention.value
        assert tuple(found.get("offload", ())) == degrees.offload.terms  # type: ignore[arg-type]
        assert found.get("overlap_gradients", launch.overlap_gradients) == launch.overlap_gradients
    assert read > 80


def test_files_of_others_are_read() -> None:
    text = """{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "fp16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}"""
    found = read_file(text).settings
    assert {
        name: found[name]
        for name in ("dp", "micro_batch_size", "global_batch_size", "precision", "zero_stage")
    } == {
        **{
            "dp": 8,
            "micro_batch_size": 2,
            "global_batch_size": 64,
            "precision": "fp16",
            "zero_stage": 2,
        }
    }
    assert found["offload"] == ["optimizer", "gradients"]
    text = (
        '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": '
        '{"enabled": "auto"}}'
    )
    automatic = read_file(text).settings
    assert (
        not {"dp", "micro_batch_size", "global_batch_size", "model", "precision"} & automatic.keys()
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not valid JSON"),
        ("[]", "holds a list"),
        ('{"zero_optimization": {"stage": 4}}', "must be 0, 1, 2 or 3"),
        ('{"zero_optimization": 2}', "takes an object"),
        ('{"hello": 1}', "none of DeepSpeed's keys"),
        ('{"train_batch_size": -1}', "a whole number of at least 1"),
        (
            '{"train_batch_size": 9, "train_micro_batch_size_per_gpu": 2, '
            '"gradient_accumulation_steps": 1}',
            "no multiple of",
        ),
        ('{"fp16": {"enabled": true}, "bf16": {"enabled": true}}', "enable one"),
    ],
)
def test_files_that_are_no_plan_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_file(text)
