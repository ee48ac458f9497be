"""Configurations of torchtitan in one file, of both generations of names, and what of a module can
be followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from Estimator.plans.degrees import UniformPlan
from phaze.exports.launchers import read_launch
from phaze.exports.torchtitan.exporter import EXPORTER
from phaze.exports.torchtitan.files import module
from phaze.exports.torchtitan.reader import read, read_toml
from phaze.settings.launched import KeyKind
from phaze_common.choices import Dispatcher
from phaze_common.errors import InputError
from tests.phaze.exports.launches import launch_of

REGISTRY = """
from dataclasses import replace
from torchtitan.models.llama3 import model_registry

LENGTH = 4096

def small():
    return Trainer.Config(
        model_spec=model_registry("debugmodel", converters=[Float8LinearConverter.Config()]),
        training=TrainingConfig(local_batch_size=8, seq_len=2048),
    )

def big():
    config = small()
    config.model_spec = model_registry("70B")
    config.training.seq_len = 2 * LENGTH
    config.training.local_batch_size = 1
    config.parallelism.tensor_parallel_degree = 8
    config.activation_checkpoint = FullAC.Config()
    return config

def replaced():
    return replace(big(), training=TrainingConfig(seq_len=LENGTH, local_batch_size=4), activation_checkpoint=None)

def wide(degree=4):
    config = big()
    _widen(config, degree)
    return config

def _widen(config, degree):
    config.parallelism.tensor_parallel_degree = degree

def branching(long=True):
    config = big()
    if torch.cuda.is_available():
        config.training.seq_len = 1024
    return config
"""


def settings(name: str, text: str = REGISTRY) -> dict[str, Any]:
    return dict(read(text, name).settings)


def test_two_configurations_are_never_mixed() -> None:
    small, big = settings("small"), settings("big")
    assert (
        small["precision"],
        small["sequence_length"],
        small["micro_batch_size"],
        small["tp"],
    ) == ("fp8", 2048, 8, 1)
    assert (big["precision"], big["sequence_length"], big["micro_batch_size"], big["tp"]) == (
        "bf16",
        8192,
        1,
        8,
    )
    assert (small["recompute"], big["recompute"]) == ("second_products", "full")
    assert (small["model"].split(",")[0], big["model"]) == ("llama:layers=6", "llama3-70b")


def test_changes_behind_another_configuration_are_followed() -> None:
    replaced, wide = settings("replaced"), settings("wide")
    assert (
        replaced["sequence_length"],
        replaced["micro_batch_size"],
        replaced["recompute"],
        replaced["tp"],
    ) == (
        4096,
        4,
        "none",
        8,
    )
    assert (wide["tp"], wide["sequence_length"]) == (4, 8192)
    assert settings("big")["tp"] == 8  # none changed it


def test_what_only_running_the_file_would_tell_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"training.seq_len is a value of a branch in line 35; only whole numbers"
    ):
        settings("branching")


def test_several_configurations_are_listed_and_chosen_behind_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config_registry.py"
    file.write_text(REGISTRY)
    with pytest.raises(
        InputError,
        match=r"5 configurations.*--from FILE.py:small: small, big, replaced, wide, branching",
    ):
        read_launch(file)
    for colons in (":", "::"):
        assert read_launch(Path(f"{file}{colons}big")).settings["model"] == "llama3-70b"
    with pytest.raises(InputError, match="did you mean 'big'"):
        read_launch(Path(f"{file}:bigg"))
    one = tmp_path / "one:two.py"  # a file may be called so
    one.write_text("def f():\n return Trainer.Config(training=TrainingConfig(seq_len=512))\n")
    assert read_launch(one).settings["sequence_length"] == 512


def test_the_folder_names_the_model_of_relative_imports(tmp_path: Path) -> None:
    (tmp_path / "qwen3").mkdir()
    file = tmp_path / "qwen3" / "config_registry.py"
    file.write_text(
        "from . import model_registry\n"
        "def f():\n model_spec = model_registry('8B')\n return "
        "Trainer.Config(model_spec=model_spec, training=TrainingConfig())\n"
    )
    assert read_launch(file).settings["model"] == "qwen3-8b"
    (tmp_path / "other.py").write_text(file.read_text())
    assert "model" not in read_launch(tmp_path / "other.py").settings


OLD = "TrainingConfig(seq_len=8192, local_batch_size=2, global_batch_size=64)"
NEW = """TrainingConfig(
    max_context_length=8192, num_tokens_per_microbatch_per_dp_rank=2 * 8192, num_tokens_per_train_step=64 * 8192)"""


def test_both_generations_of_names_say_the_same() -> None:
    found = [
        read(f"{text}\nParallelismConfig(data_parallel_shard_degree=8)").settings
        for text in (OLD, NEW)
    ]
    assert found[0] == found[1]
    assert (
        found[0]["sequence_length"],
        found[0]["micro_batch_size"],
        found[0]["global_batch_size"],
    ) == (8192, 2, 64)
    piped = "ParallelismConfig(data_parallel_shard_degree=4, pipeline_parallel_degree=2, "
    old = read(
        "TrainingConfig(seq_len=1024, "
        f"local_batch_size=8)\n{piped}pipeline_parallel_microbatch_size=2)"
    ).settings
    new = read(
        "TrainingConfig(max_context_length=1024, num_tokens_per_microbatch_per_dp_rank=2048)\n"
        + piped
        + "num_pp_microbatches=4)"
    ).settings
    assert old == new
    assert (old["micro_batch_size"], old["global_batch_size"]) == (2, 32)
    with pytest.raises(InputError, match="names of two versions"):
        read("TrainingConfig(max_context_length=1024, local_batch_size=8)")
    with pytest.raises(InputError, match="no multiple of max_context_length"):
        read("TrainingConfig(max_context_length=1000, num_tokens_per_microbatch_per_dp_rank=2048)")


@pytest.mark.parametrize(
    ("policy", "recompute"),
    [
        ("None", "none"),
        ("FullAC.Config()", "full"),
        ("SelectiveAC.Config()", "second_products"),
        ('ActivationCheckpointConfig(mode="none")', "none"),
        ('ActivationCheckpointConfig(mode="full")', "full"),
        (
            'ActivationCheckpointConfig(mode="selective", selective_ac_option="op")',
            "second_products",
        ),
        ("ActivationCheckpointConfig()", "second_products"),
        ("MemoryBudgetAC.Config(memory_budget=0.3)", None),
        ('ActivationCheckpointConfig(mode="memory_budget")', None),
        ('ActivationCheckpointConfig(mode="selective", selective_ac_option="4")', None),
    ],
)
def test_both_generations_of_recomputation(policy: str, recompute: str | None) -> None:
    found = read(
        "def f():\n return Trainer.Config(training=TrainingConfig(), "
        f"activation_checkpoint={policy})"
    )
    if recompute is None:
        with pytest.raises(InputError, match="--ignore activation_checkpoint"):
            found.check_expressible(())
        found.check_expressible([key.name for key in found.of_kind(KeyKind.NOT_EXPRESSIBLE)])
    else:
        found.check_expressible(())
        assert found.settings["recompute"] == recompute


def test_arguments_that_are_unpacked_are_read_where_they_are_written_out() -> None:
    written = (
        'WIDTHS = {"tensor_parallel_degree": '
        '4}\nTrainingConfig()\nParallelismConfig(**WIDTHS, **{"context_parallel_degree": 2})'
    )
    found = read(written).settings
    assert (found["tp"], found["cp"]) == (4, 2)
    with pytest.raises(InputError, match=r"ParallelismConfig\(\*\*...\) unpacks a value"):
        read("TrainingConfig()\nParallelismConfig(**load('x.yaml'))")


def test_a_record_given_twice_is_refused_and_one_of_another_training_is_no_configuration() -> None:
    with pytest.raises(InputError, match="of one kind twice"):
        read("TrainingConfig(seq_len=1)\nTrainingConfig(seq_len=2)")
    with pytest.raises(InputError, match="no function that returns"):
        read(
            "def f():\n return "
            "RLTrainer.Config(trainer=Trainer.Config(training=TrainingConfig()), "
            "generator=G.Config())"
        )


def test_what_no_plan_says_is_told_with_its_reason() -> None:
    found = read(
        "def f():\n return Trainer.Config(model_spec=model_registry('8B', "
        "converters=[FP6LinearConverter.Config()]),\n"
        " training=TrainingConfig(dtype='bfloat16'), debug=DebugConfig(deterministic=True),\n"
        " parallelism=ParallelismConfig(data_parallel_replicate_degree=2, "
        "data_parallel_shard_degree=4,\n"
        "  pipeline_parallel_degree=2, pipeline_parallel_schedule='ZBVZeroBubble',\n"
        "  tensor_parallel_degree=2, expert_parallel_degree=4))"
    )
    names = {key.name for key in found.of_kind(KeyKind.NOT_EXPRESSIBLE)}
    assert names - {"training.dtype"} == {
        "model_spec",
        "debug.deterministic",
        "parallelism.pipeline_parallel_schedule",
    }
    assert found.settings["etp"] == "1"  # experts are shared by tensor-parallel devices too
    assert found.settings["dp"] == 8 and found.settings["schedule"] == "1f1b"


def test_an_optimizer_that_is_not_adam_is_told() -> None:
    text = "def f():\n return Trainer.Config(training=TrainingConfig(), optimizer={}(lr=1e-3))"
    read(text.format("default_adamw")).check_expressible(())
    with pytest.raises(InputError, match="--ignore optimizer"):
        read(text.format("default_lion")).check_expressible(())
    assert read(text.format("default_muon")).settings["optimizer"] == "muon"


OLDER_TOML = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 4
seq_len = 8192
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
[experimental]
context_parallel_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_split_points = ["layers.16"]
enable_async_tensor_parallel = true
"""


def test_degrees_under_their_older_homes() -> None:
    """Before 0.1.0 they stood in [training] and [experimental], and a pipeline's micro-batches were
    its stages by default."""
    found = read_toml(OLDER_TOML)
    right = {
        "tp": 2,
        "pp": 2,
        "cp": 2,
        "dp": 4,
        "micro_batch_size": 2,
        "global_batch_size": 16,
        "overlap_tensor": True,
    }
    assert right.items() <= found.settings.items()
    kinds = {key.name: key.kind for key in found.keys}
    assert kinds.pop("experimental.pipeline_parallel_split_points") == "not expressible"
    named = [name for name in kinds if name.startswith(("experimental", "training"))]
    assert len(named) > 6 and {kinds[name] for name in named} == {"read"}
    with pytest.raises(InputError, match="no multiple of 3 micro-batches"):
        read_toml(OLDER_TOML + "pipeline_parallel_microbatches = 3\n")


TOML = """
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = 8
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""


def test_train_configurations_in_toml() -> None:
    found = read_toml(TOML).settings
    right = {
        "model": "llama3-8b",
        "precision": "fp8",
        "sequence_length": 8192,
        "micro_batch_size": 1,
        "recompute": "second_products",
    }
    assert right.items() <= found.items() and found["dp"] == 8 and found["zero_stage"] == 3
    with pytest.raises(InputError, match="finite"):
        read_toml(TOML + "[optimizer]\nlr = nan\n")
    with pytest.raises(InputError, match="not valid TOML"):
        read_toml(TOML + "[[")


def test_the_case_of_several_configurations(shared_data: Path) -> None:
    file = shared_data / "cases_2026" / "torchtitan_several_configs" / "config_registry.py"
    if not file.exists():
        pytest.skip("the case is not there")
    with pytest.raises(InputError, match="small, eight_billion"):
        read_launch(file)
    found = read_launch(Path(f"{file}:eight_billion")).settings
    right = {
        "model": "llama3-8b",
        "micro_batch_size": 1,
        "sequence_length": 8192,
        "precision": "bf16",
        "recompute": "second_products",
    }
    assert right.items() <= found.items()


PIPELINED = """
[model]
name = "llama3"
flavor = "8B"
[training]
seq_len = 2048
local_batch_size = 8
global_batch_size = {batch}
[parallelism]
pipeline_parallel_degree = {pp}
data_parallel_shard_degree = {shards}
"""


@pytest.mark.parametrize(
    ("pp", "shards", "batch", "given", "rounds"),
    [
        (4, 2, 16, {}, None),
        (4, 2, 64, {}, 4),
        (1, 2, 64, {}, None),  # without a pipeline there is nothing to empty
        (4, 2, 64, {"devices": "32"}, None),  # eight replicas
        (4, -1, 64, {"devices": "8"}, 4),
        (4, 2, -1, {}, None),
        (4, 2, -1, {"global_batch_size": "32"}, 2),
    ],
)
def test_a_pipeline_that_is_emptied_between_rounds_is_not_priced_as_one_in_silence(
    pp: int, shards: int, batch: int, given: dict[str, str], rounds: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "train.toml"
    path.write_text(PIPELINED.format(pp=pp, shards=shards, batch=batch))
    found = read_launch(path, given)
    refused = found.of_kind(KeyKind.NOT_EXPRESSIBLE)
    assert [f"over {rounds} rounds" in key.reason for key in refused] == (
        [] if rounds is None else [True]
    )
    if rounds is not None:
        with pytest.raises(InputError, match="--ignore " + refused[0].name):
            found.check_expressible(())
        found.check_expressible([refused[0].name])


def test_rounds_of_tokens_empty_the_pipeline_too() -> None:
    text = (
        "from torchtitan.config import ParallelismConfig\n"
        "def one():\n"
        "    return Trainer.Config(\n"
        "        training=TrainingConfig(max_context_length=1024, "
        "num_tokens_per_microbatch_per_dp_rank=2048,\n"
        "            num_tokens_per_train_step={tokens}),\n"
        "        parallelism=ParallelismConfig(\n"
        "            pipeline_parallel_degree=2, num_pp_microbatches=4, "
        "data_parallel_shard_degree=2),\n"
        "    )\n"
    )
    one, two = (read(text.format(tokens=tokens)) for tokens in (2048 * 4 * 2, 2048 * 4 * 2 * 2))
    assert not one.of_kind(KeyKind.NOT_EXPRESSIBLE)
    assert [key.name for key in two.of_kind(KeyKind.NOT_EXPRESSIBLE)] == [
        "training.num_tokens_per_train_step"
    ]


def test_all_devices_that_are_left_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(PIPELINED.format(pp=2, shards=-1, batch=-1))
    with pytest.raises(
        InputError, match=r"data_parallel_shard_degree is -1, .*give --devices or --dp"
    ):
        read_launch(path, {})
    assert read_launch(path, {"devices": "16"}).settings["global_batch_size"] == 8 * 8
    assert read_launch(path, {"dp": "3"}).settings["global_batch_size"] == 3 * 8


def test_weights_that_are_gathered_in_fp8_are_read() -> None:
    found = read_toml(TOML + "[float8]\nenable_fsdp_float8_all_gather = true\n")
    assert found.settings["fp8_weights"] is True and not found.of_kind(KeyKind.NOT_EXPRESSIBLE)
    assert "fp8_weights" not in read_toml(TOML).settings
    made = REGISTRY.replace(
        "Float8LinearConverter.Config()",
        "Float8LinearConverter.Config(enable_fsdp_float8_all_gather=True)",
    )
    found = read(made, "small")
    assert found.settings["fp8_weights"] is True and not found.of_kind(KeyKind.NOT_EXPRESSIBLE)
    assert "fp8_weights" not in read(REGISTRY, "small").settings


def test_a_value_that_is_set_by_name_is_read_where_the_name_is_told() -> None:
    text = "c = Trainer.Config(parallelism=ParallelismConfig())\nsetattr(c.training, {}, 2)\n"
    assert read(text.format("'local_batch_size'")).settings["micro_batch_size"] == 2
    with pytest.raises(
        InputError,
        match=r"setattr\(...\) in line 2 may change training .*; write its arguments out",
    ):
        read(text.format("sys.argv[1]"))


EXPERTS = "[training]\nseq_len = 64\n[parallelism]\nexpert_parallel_degree = {ep}\n{more}\n"


@pytest.mark.parametrize(
    ("ep", "more", "right"),
    [
        (4, "", {"dispatcher": None, "expert_load": None}),
        (4, 'expert_parallel_comm_backend = "standard"', {"dispatcher": "alltoall"}),
        (4, 'expert_parallel_comm_backend = "deepep"', {"dispatcher": "deepep"}),
        (4, 'expert_parallel_comm_backend = "hybridep"', {"dispatcher": "hybridep"}),
        (1, 'expert_parallel_comm_backend = "deepep"', {"dispatcher": None}),
        (4, "[debug]\nmoe_force_load_balance = true", {"expert_load": 1.0}),
        (1, "[debug]\nmoe_force_load_balance = true", {"expert_load": None}),
    ],
)
def test_how_tokens_get_to_experts_is_read(ep: int, more: str, right: dict[str, object]) -> None:
    reading = read_toml(EXPERTS.format(ep=ep, more=more))
    reading.check_expressible(())
    assert {key: reading.settings.get(key) for key in right} == right


def test_an_unknown_library_of_exchanges_is_refused() -> None:
    text = EXPERTS.format(ep=4, more='expert_parallel_comm_backend = "nvshmem"')
    with pytest.raises(InputError, match="give standard, deepep, hybridep"):
        read_toml(text)


@pytest.mark.parametrize("backend", ["deepep", "hybridep"])
def test_the_library_that_a_model_is_made_with_is_read(backend: str) -> None:
    text = f"""
from torchtitan.models.deepseek_v3 import model_registry

def plan() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("671B", moe_comm_backend="{backend}"),
        training=TrainingConfig(),
        parallelism=ParallelismConfig(expert_parallel_degree=8, data_parallel_shard_degree=8),
    )
"""
    assert read(text, "", "", {}).settings["dispatcher"] == backend


@pytest.mark.parametrize("dispatcher", [Dispatcher.DEEPEP, Dispatcher.HYBRIDEP])
def test_the_dispatcher_of_a_plan_is_read_again(dispatcher: Dispatcher) -> None:
    plan = UniformPlan(dp=8, ep=8, zero_stage=3, global_batch_size=16, dispatcher=dispatcher)
    launch = replace(launch_of(plan, "qwen3-30b-a3b"), dispatcher=dispatcher)
    assert EXPORTER.unsupported(launch) is None
    assert read(module(launch), "", "", {}).settings["dispatcher"] == dispatcher.value


FORMATS = """
[training]
seq_len = 64
[parallelism]
tensor_parallel_degree = 1
[model]
converters = {converters}
{more}
"""


@pytest.mark.parametrize(
    ("converters", "more", "precision"),
    [
        ('["float8"]', "[float8]\nrecipe_name = 'rowwise'", "fp8"),
        ('["float8"]', "[float8]\nrecipe_name = 'tensorwise'", "fp8"),
        ('["mx"]', "[mx]\nrecipe_name = 'mxfp8_cublas'", "mxfp8"),
        ('["mx"]', "[float8]\nrecipe_name = 'rowwise'", "mxfp8"),
        ('["float8"]', "[quantize.linear.float8]\nrecipe_name = 'rowwise'", "fp8"),
        ('["quantize.linear.mx"]', "[quantize.linear.mx]\nrecipe_name = 'mxfp8_rceil'", "mxfp8"),
    ],
)
def test_recipes_of_converters_are_read(converters: str, more: str, precision: str) -> None:
    reading = read_toml(FORMATS.format(converters=converters, more=more))
    reading.check_expressible(())
    assert reading.settings["precision"] == precision


@pytest.mark.parametrize(
    ("converters", "more", "sentence"),
    [
        ('["mx"]', "[mx]\nrecipe_name = 'mxfp4_cutlass'", "give mxfp8_rceil or mxfp8_cublas"),
        ('["mx"]', "[mx]\nrecipe_name = 'mxpf8'", "give mxfp8_rceil or mxfp8_cublas"),
        ('["float8"]', "[float8]\nrecipe_name = 'rowise'", "give tensorwise or rowwise"),
        ('["float8"]', "[float8]\nrecipe_name = 'rowwise_with_gw_hp'", "in 16 bits"),
        ('["float8", "mx"]', "", "to several formats: fp8, mxfp8"),
    ],
)
def test_formats_that_no_plan_says_are_refused(converters: str, more: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_toml(FORMATS.format(converters=converters, more=more)).check_expressible(())


def test_a_converter_to_four_bits_and_a_recipe_in_python_are_read() -> None:
    text = (
        "def f():\n return Trainer.Config(model_spec=model_registry('8B', converters=[{}]),\n"
        "  training=TrainingConfig(), parallelism=ParallelismConfig(tensor_parallel_degree=2))"
    )
    assert read(text.format("NVFP4LinearConverter.Config()")).settings["precision"] == "nvfp4"
    made = "MXFP8LinearConverter.Config(recipe_name='mxfp8_rceil')"
    assert read(text.format(made)).settings["precision"] == "mxfp8"
    with pytest.raises(InputError, match="give mxfp8_rceil"):
        read(text.format("MXFP8LinearConverter.Config(recipe_name='mxfp4')"))


@pytest.mark.parametrize(
    ("option", "recompute", "left"),
    [
        ('selective_ac_option = "op"', "second_products", ""),
        ('selective_ac_option = "1"', "full", ""),
        (
            'selective_ac_option = "2"',
            "second_products",
            "activation_checkpoint.selective_ac_option",
        ),
        ("", "second_products", "activation_checkpoint.mode"),
    ],
)
def test_selective_recomputation_is_that_of_its_option(
    option: str, recompute: str, left: str
) -> None:
    text = "[training]\nseq_len = 64\n[parallelism]\ntensor_parallel_degree = 1\n"
    found = read_toml(f'{text}[activation_checkpoint]\nmode = "selective"\n{option}\n')
    assert found.settings["recompute"] == recompute
    assert [key.name for key in found.of_kind(KeyKind.NOT_EXPRESSIBLE)] == [left] * bool(left)


def test_a_misspelt_option_of_selective_recomputation_is_refused() -> None:
    text = "[training]\nseq_len = 64\n[parallelism]\ntensor_parallel_degree = 1\n"
    more = '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op2"\n'
    with pytest.raises(InputError, match="give op, or one of how many blocks"):
        read_toml(text + more)
