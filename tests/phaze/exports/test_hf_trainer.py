"""Plans for Hugging Face's Trainer: its arguments made of what is exported, which library shares
out the model, and refusals."""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import replace
from typing import Any

import pytest
import yaml

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from phaze.exports.hf_trainer.exporter import EXPORTER, by_deepspeed
from phaze.exports.hf_trainer.reader import read
from phaze.exports.launch import Launch
from phaze_common.choices import Precision, Recompute
from phaze_common.errors import InputError
from tests.phaze.exports.titan_launches import launch_of, random_launch

PLAIN = UniformPlan(
    micro_batch_size=2, global_batch_size=32, dp=4, zero_stage=2, recompute=Recompute.FULL
)


def files_of(launch: Launch) -> dict[str, str]:
    return {file.path: str(file.content) for file in EXPORTER.files(launch)}


def accepted(count: int) -> list[Launch]:
    found = list[Launch]()
    for seed in range(count):
        drawn = random_launch(random.Random(seed), strange=0.05)
        degrees = replace(
            drawn.degrees,
            pp=1,
            interleave=1,
            gpipe=False,
            ep=1,
            stage_layers=None,
            sequence_parallel=False,
        )
        launch = launch_of(
            degrees, drawn.plan.model, drawn.plan.sequence_length, drawn.devices_per_node
        )
        if EXPORTER.unsupported(launch) is None:
            found.append(launch)
    return found


def test_one_library_shares_out_the_model() -> None:
    launches = accepted(300)
    assert len(launches) > 80
    for launch in launches:
        files = files_of(launch)
        assert ("ds_config.json" in files) == by_deepspeed(launch) != ("accelerate.yaml" in files)
        compile(files["arguments.py"], "arguments.py", "exec")
        if by_deepspeed(launch):
            assert (
                json.loads(files["ds_config.json"])["zero_optimization"]["stage"]
                == launch.degrees.zero_stage
            )
        else:
            assert (
                yaml.safe_load(files["accelerate.yaml"])["num_processes"] == launch.degrees.devices
            )


@pytest.mark.filterwarnings("ignore")
def test_trainer_takes_the_arguments() -> None:
    """The arguments it has, and DeepSpeed's file beside them as Trainer compares both; no network
    of processes is started."""
    for name in ("accelerate", "deepspeed"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    from transformers import training_args
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    for launch in accepted(300):
        degrees, files = launch.degrees, files_of(launch)
        space: dict[str, Any] = {"__file__": "arguments.py"}
        exec(compile(files["arguments.py"], "arguments.py", "exec"), space)
        space["TrainingArguments"] = dict
        made = space["arguments"]("out")
        assert made.keys() <= set(training_args.TrainingArguments.__dataclass_fields__)
        assert made["optim"] in set(training_args.OptimizerNames)
        assert made["per_device_train_batch_size"] == degrees.micro_batch_size
        assert made["gradient_accumulation_steps"] == degrees.micro_batches
        if by_deepspeed(launch):
            told = HfTrainerDeepSpeedConfig(json.loads(files["ds_config.json"]))
            told.trainer_config_process(_with_defaults(made, training_args, degrees.devices))
            assert told.mismatches == []


def _with_defaults(made: dict[str, Any], home: Any, devices: int) -> Any:
    """The arguments with Trainer's defaults of those that are left out, in a network of ``devices``
    processes."""
    values = {}
    for field in dataclasses.fields(home.TrainingArguments):
        if field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()

    class Arguments:
        world_size = devices

        def get_warmup_steps(self, steps: int) -> int:
            return 0

    found = Arguments()
    vars(found).update(values | made)
    return found


@pytest.mark.parametrize(
    ("degrees", "sentence"),
    [
        ({"pp": 2}, "has no pipeline"),
        ({"optimizer": "sgd_momentum", "zero_stage": 0}, "SGD has no momentum"),
        ({"offload": Offload(activations=1.0)}, "keeps activations on the device"),
        ({"precision": Precision.FP8}, "no fp8"),
        ({"tp": 2, "zero_stage": 0}, "always share out parameters"),
    ],
)
def test_refusals_say_why(degrees: dict[str, Any], sentence: str) -> None:
    refused = EXPORTER.unsupported(launch_of(replace(PLAIN, **degrees)))
    assert refused is not None
    assert sentence in refused.what


def test_blocks_are_recomputed_once() -> None:
    assert "gradient_checkpointing=True," in files_of(launch_of(PLAIN))["arguments.py"]
    files = files_of(launch_of(replace(PLAIN, tp=2)))
    assert "gradient_checkpointing=False,  # FSDP recomputes blocks itself" in files["arguments.py"]
    assert (
        yaml.safe_load(files["accelerate.yaml"])["fsdp_config"]["fsdp_activation_checkpointing"]
        is True
    )


@pytest.mark.parametrize(
    ("argument", "setting", "value"),
    [
        ("bf16", "precision", "bf16"),
        ("gradient_checkpointing", "recompute", "full"),
        ("optim", "optimizer", "adam"),
        ("gradient_accumulation_steps", "global_batch_size", "8"),
        ("max_length", "sequence_length", "128"),
    ],
)
def test_a_value_that_only_running_tells_is_given_by_the_flag_that_is_named(
    argument: str, setting: str, value: str
) -> None:
    text = f"SFTConfig(per_device_train_batch_size=2, {argument}=made_at_run_time())"
    with pytest.raises(
        InputError, match=rf"{argument} is .*, or give --{setting.replace('_', '-')}$"
    ):
        read(text)
    assert setting not in read(text, {setting: value}).settings


def test_the_file_of_deepspeed_is_named() -> None:
    (key,) = (
        each
        for each in read(files_of(launch_of(PLAIN))["arguments.py"]).keys
        if each.name == "deepspeed"
    )
    assert key.text == "deepspeed str(.../ds_config.json)"
