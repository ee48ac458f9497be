"""Plans for accelerate: 1,000 random ones judged by its launcher and plugins; files and refusals by
hand."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from phaze.exports.accelerate.exporter import EXPORTER, FORMATS, REFUSALS, ROTATION
from phaze.exports.launch import Launch
from phaze.exports.refusals import NO_OFFLOAD
from phaze_common.choices import Attention, KeyExchange, Precision, Recompute
from tests.phaze.exports.titan_launches import launch_of, random_launch

STRICTER = {  # reasons why accelerate would run something, but not the plan
    *(
        "two_axes",
        "cut_layers",
        "pipeline",
        "experts",
        "sequence_parallel",
        "divided_heads",
        "other_order",
        "serial_gradients",
    ),
    *("part_batches", "part_nodes"),  # it rounds batches up and processes per node down
    *("_numbers", "_sequences", "_offload", "_sharding"),
}
PLAIN = UniformPlan(micro_batch_size=1, global_batch_size=16, dp=4, zero_stage=3)


def reason(launch: Launch) -> str | None:
    refused = next((each for each in REFUSALS if next(each(launch), None) is not None), None)
    return None if refused is None else getattr(refused, "func", refused).__name__


def text_of(launch: Launch, path: str) -> str:
    return str(next(file.content for file in EXPORTER.files(launch) if file.path == path))


def refuses(launch: Launch, folder: Path) -> str | None:
    """Why accelerate does not start what is exported of ``launch``; None where it does."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    if launch.degrees.exchange not in ROTATION or launch.degrees.precision not in FORMATS:
        return "there is no word for it"
    file = folder / "accelerate.yaml"
    file.write_text(text_of(launch, "accelerate.yaml"))
    given = ["--config_file", str(file), "--main_process_port", "0"]
    if launch.nodes > 1:
        given += ["--machine_rank", "0", "--main_process_ip", "127.0.0.1"]
    before = dict(os.environ)
    try:
        arguments, _, _ = _validate_launch_command(
            launch_command_parser().parse_args([*given, "train.py"])
        )
        devices = launch.degrees.devices
        if int(arguments.num_processes) != devices:
            return f"it starts {arguments.num_processes} processes"
        if devices == 1:
            return None
        os.environ.update(prepare_multi_gpu_env(arguments))
        if int(arguments.nproc_per_node) * launch.nodes != devices:
            return f"it starts {arguments.nproc_per_node} processes on each of {launch.nodes} nodes"
        if arguments.use_fsdp:
            FullyShardedDataParallelPlugin()
        if arguments.use_parallelism_config:
            kind = DistributedType.FSDP if arguments.use_fsdp else DistributedType.MULTI_GPU
            state = SimpleNamespace(
                num_processes=devices, multi_device=not arguments.use_fsdp, distributed_type=kind
            )
            ParallelismConfig()._validate_accelerator(
                SimpleNamespace(
                    **vars(state), is_fsdp2=bool(arguments.use_fsdp), is_main_process=False
                )  # type: ignore[arg-type]
            )
    except Exception as error:  # noqa: BLE001 whatever a target raises is a refusal
        return f"{type(error).__name__}: {error}"
    finally:
        os.environ.clear()
        os.environ.update(before)
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.some(2)
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_accelerate_agrees_on_random_launches(tmp_path: Path, first: int) -> None:
    """What is accepted here its launcher starts; what it starts and is refused here is listed
    above."""
    pytest.importorskip("accelerate", reason="accelerate 1.15.0 is not installed")
    accepted, seen = 0, Counter[str | None]()
    for seed in range(first, first + 100):
        # few pipelines and experts, so that much is left that accelerate could run
        launch = random_launch(random.Random(seed), strange=0.05)
        if seed % 4:
            launch = launch_of(
                replace(launch.degrees, pp=1, interleave=1, gpipe=False, ep=1, stage_layers=None),
                launch.plan.model,
            )
        refused, own = reason(launch), refuses(launch, tmp_path)
        accepted += refused is None
        seen[refused] += own is None
        assert refused is not None or own is None, (
            f"seed {seed} is accepted, but accelerate says {own}"
        )
    assert accepted >= 10
    assert {each for each, count in seen.items() if count} - {None} <= STRICTER


def test_the_file_says_how_processes_share_the_model() -> None:
    launch = launch_of(
        replace(PLAIN, tp=2, cp=2, recompute=Recompute.FULL, exchange=KeyExchange.RING)
    )
    found = yaml.safe_load(text_of(launch, "accelerate.yaml"))
    assert found["distributed_type"] == "FSDP"
    assert (found["num_processes"], found["num_machines"]) == (16, 2)
    assert found["mixed_precision"] == "bf16"
    assert found["fsdp_config"]["fsdp_version"] == 2
    assert found["fsdp_config"]["fsdp_reshard_after_forward"] is True
    assert found["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert found["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 1,
        "parallelism_config_dp_shard_size": 4,
        "parallelism_config_tp_size": 2,
        "parallelism_config_cp_size": 2,
        "parallelism_config_cp_comm_strategy": "alltoall",
    }


@pytest.mark.parametrize(
    ("stage", "kind", "reshard", "each"),
    [
        (0, "MULTI_GPU", None, False),
        (1, "FSDP", False, False),
        (2, "FSDP", False, True),
        (3, "FSDP", True, True),
    ],
)
def test_stages_of_zero(stage: int, kind: str, reshard: bool | None, each: bool) -> None:
    launch = launch_of(replace(PLAIN, zero_stage=stage))
    found = yaml.safe_load(text_of(launch, "accelerate.yaml"))
    assert found["distributed_type"] == kind
    assert found.get("fsdp_config", {}).get("fsdp_reshard_after_forward") is reshard
    settings = text_of(launch, "settings.py")
    assert f"sync_each_batch={each}" in settings
    assert "ACCUMULATION_STEPS = 4  # 4 x 1 x 4 replicas = 16" in settings
    compile(settings, "settings.py", "exec")


def test_one_device_is_no_group() -> None:
    found = yaml.safe_load(
        text_of(
            launch_of(
                UniformPlan(micro_batch_size=1, global_batch_size=8, recompute=Recompute.FULL)
            ),
            "accelerate.yaml",
        )
    )
    assert found["distributed_type"] == "NO"
    assert "parallelism_config" not in found


@pytest.mark.parametrize(
    ("degrees", "sentence", "near"),
    [
        ({"pp": 2}, "has no pipeline", {"pp": 1, "dp": 8, "zero_stage": 3}),
        ({"ep": 2}, "no expert parallelism", {"ep": 1}),
        (
            {"tp": 2, "sequence_parallel": True},
            "no sequence parallelism",
            {"sequence_parallel": False},
        ),
        ({"tp": 2, "zero_stage": 0}, "always share out parameters", {"zero_stage": 1}),
        ({"cp": 2, "exchange": KeyExchange.ULYSSES}, "Ulysses", {"exchange": "gather"}),
        ({"cp": 2, "attention": Attention.EAGER}, "attention is fused", {"attention": "flash"}),
        ({"precision": Precision.FP8}, "one of three libraries", {"precision": "bf16"}),
        ({"recompute": Recompute.SELECTIVE}, "whole blocks or nothing", {"recompute": "full"}),
        (
            {"offload": Offload(optimizer=1.0)},
            "all together",
            {"offload": ("optimizer", "gradients", "weights")},
        ),
        (
            {"offload": Offload(activations=1.0)},
            "what recomputed blocks begin with",
            {"offload": NO_OFFLOAD},
        ),
        (
            {"offload": Offload(1.0, 1.0, 1.0), "zero_stage": 1},
            "only where it shards them",
            {"zero_stage": 2},
        ),
        (
            {"offload": Offload(1.0, 1.0, 1.0), "zero_stage": 0},
            "FSDP shards nothing",
            {"offload": NO_OFFLOAD},
        ),
        ({"global_batch_size": 15}, "no multiple of 4", {"global_batch_size": 16}),
    ],
)
def test_refusals_say_why_and_what_is_near(
    degrees: dict[str, Any], sentence: str, near: dict[str, object]
) -> None:
    refused = EXPORTER.unsupported(launch_of(replace(PLAIN, **degrees)))
    assert refused is not None
    assert sentence in refused.what
    assert near.items() <= dict(refused.nearest).items()


def test_recomputed_activations_go_to_the_host() -> None:
    launch = launch_of(
        replace(PLAIN, recompute=Recompute.FULL, offload=Offload(1.0, 1.0, 1.0, 1.0))
    )
    assert EXPORTER.unsupported(launch) is None
    found = yaml.safe_load(text_of(launch, "accelerate.yaml"))["fsdp_config"]
    assert found["fsdp_offload_params"] is True
    assert found["fsdp_activation_checkpointing_offload"] is True
