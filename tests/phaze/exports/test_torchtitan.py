"""Plans for torchtitan: 1,000 random ones judged by torchtitan itself, stages and refusals by hand,
and read again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from Estimator.devices.architectures import architectures
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from phaze.exports.launch import Launch
from phaze.exports.refusals import NO_OFFLOAD, ON_HOST
from phaze.exports.torchtitan.exporter import EXPORTER, REFUSALS
from phaze.exports.torchtitan.reader import read as read_file
from phaze_common.choices import (
    Attention,
    GroupOrder,
    KeyExchange,
    Precision,
    Recompute,
    StageCuts,
    TensorLayout,
)
from phaze_common.errors import InputError
from tests.phaze.exports.titan_launches import launch_of, random_launch
from tests.phaze.exports.titan_target import Titan

STRICTER = {  # reasons why torchtitan would run something, but not the plan
    *(
        "two_axes",
        "cut_layers",
        "other_order",
        "serial_gradients",
        "_training",
        "_offload",
        "_sharding",
    ),
    "_model",  # of families that it lacks, and widths that tensor parallelism would cut unequally
    "_experts",  # over devices of tensor parallelism
    "_sequences",  # another exchange of keys and values; blocks of masks are met only by data
    "_pipeline",  # schedules are built with data
}
PLAIN = UniformPlan(micro_batch_size=1, global_batch_size=16, dp=2, zero_stage=2)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Titan]:
    """torchtitan, where it is installed."""
    pytest.importorskip("torchtitan", reason="torchtitan 0.3.0 is not installed")
    pytest.importorskip("triton", reason="torchtitan 0.3.0 imports triton")
    import logging

    yield Titan(monkeypatch, tmp_path)
    logging.disable(logging.NOTSET)


def reason(launch: Launch) -> str | None:
    refused = next((each for each in REFUSALS if next(each(launch), None) is not None), None)
    return None if refused is None else getattr(refused, "func", refused).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.some(2)
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_torchtitan_agrees_on_random_launches(target: Titan, first: int) -> None:
    """What is accepted here its Trainer accepts; what it accepts and is refused here is listed
    above."""
    accepted = 0
    for seed in range(first, first + 50):
        launch = random_launch(random.Random(seed), strange=0.05)
        refused, own = reason(launch), target.refuses(launch)
        accepted += refused is None
        assert refused is not None or own is None, (
            f"seed {seed} is accepted, but torchtitan says {own}"
        )
        assert own is not None or refused is None or refused in STRICTER, (
            f"seed {seed}: torchtitan runs what {refused} refuses"
        )
    assert accepted >= 5


def module_of(launch: Launch) -> str:
    assert EXPORTER.unsupported(launch) is None
    return str(EXPORTER.files(launch)[0].content)


def test_modules_compile_and_every_choice_has_its_comment() -> None:
    accepted = [
        launch
        for seed in range(300)
        if reason(launch := random_launch(random.Random(seed), strange=0.03)) is None
    ]
    assert len(accepted) > 60
    for launch in accepted:
        text = module_of(launch)
        compile(text, "phaze_plan.py", "exec")
    text = module_of(launch_of(PLAIN))
    for choice in (
        "activation_checkpoint=None,  #",
        "# ZeRO 2: weights stay gathered",
        "disable_cuda_graphs=True,  #",
    ):
        assert choice in text


def test_unequal_stages_are_those_of_the_plan() -> None:
    degrees = UniformPlan(
        micro_batch_size=1, global_batch_size=8, pp=2, interleave=2, dp=1, stage_layers=(4, 1, 2, 3)
    )
    text = module_of(launch_of(degrees))
    parts = """\
            module_fqns_per_model_part=[
                ["tok_embeddings", "layers.0", "layers.1", "layers.2"],
                ["layers.3"],
                ["layers.4", "layers.5"],
                ["layers.6", "layers.7", "norm", "lm_head"],
            ],
"""
    assert parts in text
    assert 'pipeline_parallel_schedule="Interleaved1F1B",  # 2 chunks per stage' in text
    assert "local_batch_size=8,  # all 8 micro-batches" in text


@pytest.mark.parametrize(
    ("stage", "pp", "written"),
    [
        (0, 1, (2, 1, "never")),
        (2, 1, (1, 2, "never")),
        (3, 1, (1, 2, "always")),
        (0, 2, (2, 1, "never")),
        (1, 2, (1, 2, "never")),
    ],
)
def test_stages_of_zero_are_degrees_of_data_parallelism(
    stage: int, pp: int, written: tuple[int, int, str]
) -> None:
    text = module_of(launch_of(replace(PLAIN, zero_stage=stage, pp=pp)))
    replicas, shards, policy = written
    assert f"data_parallel_replicate_degree={replicas}," in text
    assert f"data_parallel_shard_degree={shards}," in text
    assert f'fsdp_reshard_after_forward="{policy}",' in text


def test_the_script_starts_a_process_per_device() -> None:
    alone = EXPORTER.files(launch_of(PLAIN))[1]
    assert alone.executable
    assert "torchrun --nnodes 1 --nproc-per-node 2 --standalone" in str(alone.content)
    several = str(
        EXPORTER.files(launch_of(replace(PLAIN, tp=4, dp=4, global_batch_size=16)))[1].content
    )
    assert (
        'torchrun --nnodes 2 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr '
        '"$MASTER_ADDR"' in several
    )
    assert "-m torchtitan.train --module phaze_plan --config plan" in several


REFUSED = [
    (
        {"recompute": Recompute.SELECTIVE},
        {},
        "selective recomputation",
        {"recompute": "second_products"},
    ),
    ({"precision": Precision.FP16}, {}, "bfloat16 or float32", {"precision": "bf16"}),
    ({"optimizer": "sgd"}, {}, "it has Adam, not sgd", {"optimizer": "adam"}),
    ({"attention": Attention.EAGER}, {}, "attention is fused", {"attention": "flash"}),
    ({"zero_stage": 1}, {}, "without a pipeline is ZeRO 2", {"zero_stage": 2}),
    ({"zero_stage": 3, "pp": 2}, {}, "which is ZeRO 1", {"zero_stage": 1}),
    ({"zero_stage": 0, "cp": 2}, {}, "always shards parameters", {"zero_stage": 2}),
    (
        {"cp": 2, "exchange": KeyExchange.RING},
        {},
        "gathers keys and values",
        {"exchange": "gather"},
    ),
    ({"cp": 4}, {"sequence_length": 1000}, "no multiple of 512", {"sequence_length": 1024}),
    ({"global_batch_size": 15}, {}, "no multiple of 2", {"global_batch_size": 16}),
    (
        {"pp": 4, "global_batch_size": 6, "zero_stage": 1},
        {},
        "a micro-batch for each of 4 stages",
        {"global_batch_size": 8},
    ),
    ({"tp": 8}, {}, "does not divide 8 heads and 4", {"tp": 4, "dp": 4}),
    ({"ep": 2}, {}, "has no experts", {"ep": 1}),
    (
        {"ep": 2, "tp": 2},
        {"model": "mixtral-8x7b"},
        "over the devices of tensor parallelism",
        {"etp": "1"},
    ),
    (
        {"ep": 2, "zero_stage": 0},
        {"model": "mixtral-8x7b"},
        "only over devices that shard",
        {"zero_stage": 2},
    ),
    ({"pp": 2, "zero_stage": 1}, {"model": "qwen3-0.6b"}, "does not tie the head", {}),
    ({}, {"model": "gpt:layers=8,hidden=512,heads=8"}, "no blocks of gpt", {}),
    (
        {"offload": Offload(optimizer=0.5)},
        {},
        "all together or not at all",
        {"offload": ON_HOST.terms},
    ),
    (
        {"offload": Offload(activations=1.0)},
        {},
        "all together or not at all",
        {"offload": NO_OFFLOAD},
    ),
    (
        {"layout": TensorLayout.TWO_D, "tp": 2, "tp2": 2},
        {},
        "two tensor axes",
        {"layout": "1d", "tp": 4, "tp2": 1},
    ),
    ({"stage_cuts": StageCuts.INSIDE}, {}, "not inside them", {"stage_cuts": "between"}),
    ({"overlap_gradients": False}, {}, "reduces gradients while", {"overlap_gradients": True}),
    ({"dp": 3, "tp": 4, "global_batch_size": 6}, {}, "12 devices do not fill 2 nodes of 8", {}),
    (
        {"pp": 2, "zero_stage": 1, "group_order": GroupOrder.PIPELINE_INNER},
        {},
        "nest as tensor-data-pipeline",
        {"group_order": "tensor-data-pipeline"},
    ),
    (
        {"pp": 2, "zero_stage": 1, "cp": 2, "stage_layers": (1, 9)},
        {},
        "has an attention",
        {"stage_layers": (5, 5)},
    ),
]


@pytest.mark.parametrize(("degrees", "around", "sentence", "near"), REFUSED)
def test_refusals_say_why_and_what_is_near(
    degrees: dict[str, Any], around: dict[str, Any], sentence: str, near: dict[str, object]
) -> None:
    refused = EXPORTER.unsupported(launch_of(replace(PLAIN, **degrees), **around))
    assert refused is not None
    assert sentence in refused.what
    assert near.items() <= dict(refused.nearest).items()
    assert near or not refused.nearest


def test_an_assignment_that_nests_alike_is_accepted() -> None:
    degrees = replace(PLAIN, tp=2, pp=2, zero_stage=1)
    nested = Assignment((2, 1), (1, 1), (1, 1), (2, 1), (1, 2), (1, 1))
    assert EXPORTER.unsupported(launch_of(replace(degrees, group_order=nested))) is None
    turned = replace(nested, dp=(1, 2), pp=(2, 1))
    assert EXPORTER.unsupported(launch_of(replace(degrees, group_order=turned))) is not None


def test_what_is_exported_is_read_again() -> None:
    read = 0
    for seed in range(300):
        launch = random_launch(random.Random(seed), strange=0.03)
        if reason(launch) is not None:
            continue
        read += 1
        degrees, found = launch.degrees, read_file(module_of(launch)).settings
        names = (
            "tp",
            "pp",
            "dp",
            "cp",
            "ep",
            "micro_batch_size",
            "global_batch_size",
            "sequence_parallel",
        )
        assert {name: found[name] for name in names} == {
            name: getattr(degrees, name) for name in names
        }
        assert found["model"] == launch.plan.model
        assert found["sequence_length"] == launch.plan.sequence_length
        assert found["recompute"] == degrees.recompute.value
        assert found["precision"] == degrees.precision.value
        assert found.get("zero_stage", degrees.zero_stage) == degrees.zero_stage
        assert ("zero_stage" in found) == (degrees.dp * degrees.cp > 1)
        assert found.get("interleave", 1) == degrees.interleave
        if degrees.pp > 1:
            assert found["stage_layers"] == list(degrees.stage_layers or ())
            assert found["schedule"] == degrees.schedule.value
        assert tuple(found.get("offload", ())) == degrees.offload.terms  # type: ignore[arg-type]
    assert read > 60


@pytest.mark.parametrize(
    ("precision", "converter"),
    [(Precision.FP8, "Float8LinearConverter"), (Precision.MXFP8, "MXFP8LinearConverter")],
)
def test_recipes_are_converters_and_read_again(precision: Precision, converter: str) -> None:
    text = module_of(launch_of(replace(PLAIN, precision=precision)))
    compile(text, "phaze_plan.py", "exec")
    assert f"{converter}.Config(" in text
    assert read_file(text).settings["precision"] == precision.value


@pytest.mark.parametrize(
    ("precision", "near"),
    [
        (Precision.FP8_CURRENT, "fp8"),
        (Precision.FP8_BLOCK, "fp8"),
        (Precision.NVFP4, "mxfp8"),
        (Precision.FP16, "bf16"),
    ],
)
def test_recipes_that_it_has_not_are_refused(precision: Precision, near: str) -> None:
    refused = EXPORTER.unsupported(launch_of(replace(PLAIN, precision=precision)))
    assert refused is not None and dict(refused.nearest)["precision"] == near
    chips = [each.reduced for each in architectures().values() if precision in each.reduced]
    assert all(near in reduced for reduced in chips)


def test_files_of_others_are_read_without_running_them() -> None:
    text = """
raise RuntimeError("not to be run")
from torchtitan.models.llama3 import model_registry
def mine():
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=4, seq_len=8192),
        parallelism=ParallelismConfig(data_parallel_shard_degree=8, tensor_parallel_degree=2),
        activation_checkpoint=SelectiveAC.Config(),
    )
"""
    found = read_file(text).settings
    assert found["model"] == "llama3-8b"
    assert {
        name: found[name]
        for name in ("dp", "tp", "zero_stage", "micro_batch_size", "global_batch_size")
    } == {
        **{"dp": 8, "tp": 2, "zero_stage": 3},
        **{"micro_batch_size": 4, "global_batch_size": 32},
    }
    assert found["recompute"] == "second_products"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def", "no Python file"),
        ("x = 1", "neither ParallelismConfig"),
        ("ParallelismConfig(tensor_parallel_degree=int('2'))", "only whole numbers"),
        ("ParallelismConfig(**given())", "write its arguments out"),
        (
            "ParallelismConfig(pipeline_parallel_degree=2, "
            "module_fqns_per_model_part=[['layers.0']])",
            "a multiple of 2 parts",
        ),
    ],
)
def test_files_that_are_no_plan_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_file(text)
