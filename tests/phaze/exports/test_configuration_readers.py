"""Configurations of DeepSpeed, accelerate, NeMo, Megatron Bridge and Trainer, by hand, and the
remedies of their refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import phaze
from phaze.exports.launchers import Content, read_launch, reading_of
from phaze.exports.nemo.exporter import RECIPES
from phaze.settings.launched import KeyKind, LaunchReading
from phaze_common.choices import Precision
from phaze_common.errors import InputError

SMALL_MEGATRON = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
    "--micro-batch-size 1 --vocab-size 128"
)
ZERO = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 2}


def deepspeed(**changes: Any) -> LaunchReading:
    return reading_of(Content(json.dumps({**ZERO, **changes})))


def from_yaml(content: object, **given: str) -> LaunchReading:
    return reading_of(Content(yaml.safe_dump(content), given=given))


@pytest.mark.parametrize(
    ("formats", "precision"),
    [
        ({}, "fp32"),
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"bf16": {"enabled": "auto"}}, None),
        ({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, None),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": "auto"}}, None),
        ({"bf16": {"enabled": "auto"}, "fp16": {"enabled": True}}, "fp16"),
        ({"bf16": {"enabled": False}}, "fp32"),
        ({"bf16": {"enabled": False}, "gradient_clipping": "auto"}, "fp32"),
        (
            {"gradient_clipping": "auto"},
            None,
        ),  # the Trainer, which fills that in, gives the format too
    ],
)
def test_auto_is_left_to_the_command_line(formats: dict[str, Any], precision: str | None) -> None:
    found = deepspeed(**formats)
    assert found.settings.get("precision") == precision
    found.check_expressible(())


def test_auto_is_not_said_to_be_read() -> None:
    found = deepspeed(
        bf16={"enabled": "auto"}, train_batch_size="auto", wall_clock_breakdown="auto"
    )
    assert {key.name for key in found.of_kind(KeyKind.USUAL) if "left open" in key.reason} == {
        "bf16.enabled",
        "train_batch_size",
    }
    assert "auto" not in [key.value for key in found.of_kind(KeyKind.READ)]


@pytest.mark.parametrize(
    ("asked", "recompute"),
    [
        ({}, "none"),
        ({"partition_activations": False, "cpu_checkpointing": False, "profile": False}, "none"),
        ({"partition_activations": False, "number_checkpoints": None}, "none"),
        ({"partition_activations": True}, "full"),
        ({"cpu_checkpointing": True}, "full"),
        ({"number_checkpoints": 4}, "full"),
    ],
)
def test_activation_checkpointing_with_everything_false_is_none(
    asked: dict[str, Any], recompute: str
) -> None:
    assert deepspeed(activation_checkpointing=asked).settings["recompute"] == recompute


@pytest.mark.parametrize("off", [None, {"device": "none"}, {"device": None}, {}])
def test_offloads_that_are_off_are_none(off: object) -> None:
    found = deepspeed(
        zero_optimization={"stage": 3, "offload_optimizer": off, "offload_param": off}
    )
    assert "offload" not in found.settings
    found.check_expressible(())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (
            {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}},
            "zero_optimization.zero_hpz_partition_size",
        ),
        (
            {"zero_optimization": {"stage": 3, "zero_quantized_gradients": True}},
            "zero_optimization.zero_quantized_gradients",
        ),
        (
            {"zero_optimization": {"stage": 3, "mics_shard_size": 8}},
            "zero_optimization.mics_shard_size",
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
            "zero_optimization.offload_param.device",
        ),
        (
            {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e9}},
            "zero_optimization.stage3_param_persistence_threshold",
        ),
        ({"communication_data_type": "fp32", "bf16": {"enabled": True}}, "communication_data_type"),
        ({"optimizer": {"type": "OneBitAdam"}}, "optimizer.type"),
        ({"amp": {"enabled": True}}, "amp.enabled"),
        (
            {"pipeline": {"activation_checkpoint_interval": 2}},
            "pipeline.activation_checkpoint_interval",
        ),
        (
            {"curriculum_learning": {"enabled": True, "curriculum_type": "seqlen"}},
            "curriculum_learning.enabled",
        ),
    ],
)
def test_what_no_plan_says_is_refused_and_priced_where_it_is_ignored(
    changes: dict[str, Any], name: str
) -> None:
    found = deepspeed(**changes)
    assert [key.name for key in found.of_kind(KeyKind.NOT_EXPRESSIBLE)] == [name]
    with pytest.raises(InputError, match=f"--ignore {name}"):
        found.check_expressible(())
    found.check_expressible([name])


def test_formats_of_state_are_read() -> None:
    asked = {
        "bf16": {
            "enabled": True,
            "bf16_master_weights_and_grads": True,
            "bf16_optimizer_states": True,
        }
    }
    names = ("gradient_dtype", "moment_dtype", "main_weight_dtype")
    found = deepspeed(**asked)
    assert {name: found.settings[name] for name in names} == dict.fromkeys(names, "bf16")
    found.check_expressible(())
    other = deepspeed(
        bf16={"enabled": True},
        data_types={"grad_accum_dtype": "fp32"},
        communication_data_type="fp32",
    )
    assert other.settings["gradient_dtype"] == "fp32"
    other.check_expressible(())


@pytest.mark.parametrize(
    ("changes", "gradients"),
    [
        ({}, "bf16"),
        ({"zero_optimization": {"stage": 1}}, "bf16"),
        ({"zero_optimization": {"stage": 3}}, "bf16"),
        ({"zero_optimization": {"stage": 0}}, "fp32"),
        ({"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}, "fp32"),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": True}}, None),
    ],
)
def test_gradients_are_added_up_as_deepspeed_does_where_no_key_says_so(
    changes: dict[str, Any], gradients: str | None
) -> None:
    assert (
        deepspeed(**{"bf16": {"enabled": True}, **changes}).settings.get("gradient_dtype")
        == gradients
    )


def test_an_accumulation_beside_a_batch_that_is_left_open_counts() -> None:
    text = json.dumps({**ZERO, "train_batch_size": "auto", "gradient_accumulation_steps": 4})
    assert reading_of(Content(text, given={"devices": "8"})).settings["global_batch_size"] == 64


def test_a_nemo_file_that_merges_others_or_takes_all_devices_says_so() -> None:
    found = from_yaml(
        {
            **NEMO_1,
            "defaults": ["base", "_self_"],
            "trainer": {"devices": -1, "num_nodes": 2, "precision": "bf16"},
        }
    )
    assert "dp" not in found.settings
    assert [key.name for key in found.of_kind(KeyKind.NOT_EXPRESSIBLE)] == ["defaults"]
    assert "trainer.devices" in [key.name for key in found.of_kind(KeyKind.USUAL)]


def test_keys_beside_a_file_of_deepspeed_count() -> None:
    part = {"zero_stage": 3, "offload_optimizer_device": "cpu", "deepspeed_config_file": "ds.json"}
    found = from_yaml(
        {
            "distributed_type": "DEEPSPEED",
            "num_processes": 16,
            "mixed_precision": "bf16",
            "deepspeed_config": part,
        }
    )
    assert found.settings["zero_stage"] == 3 and "offload" in found.settings
    with pytest.raises(InputError, match="deepspeed_config_file"):
        found.check_expressible(())


def test_a_script_that_only_starts_another_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text(
        f"torchrun --nproc-per-node 2 pretrain_gpt.py {SMALL_MEGATRON}\n"
    )
    wrapper = tmp_path / "wrapper.sh"
    wrapper.write_text("#!/bin/bash\nexport X=1\nbash inner.sh\n")
    assert read_launch(wrapper).settings["dp"] == 2


def test_contexts_experts_and_stages_of_deepspeed() -> None:
    found = deepspeed(
        sequence_parallel_size=2,
        expert_parallel={"enabled": True, "autoep_size": 4},
        pipeline={"stages": 2},
        train_batch_size=16,
        gradient_accumulation_steps=1,
    ).settings
    assert (found["cp"], found["exchange"], found["ep"], found["pp"], found["dp"]) == (
        2,
        "ulysses",
        4,
        2,
        8,
    )


FSDP: dict[str, Any] = {"distributed_type": "FSDP", "num_processes": 8, "mixed_precision": "bf16"}


@pytest.mark.parametrize(
    ("config", "stage"),
    [
        ({"fsdp_sharding_strategy": "FULL_SHARD"}, 3),
        ({"fsdp_sharding_strategy": 1}, 3),
        ({"fsdp_sharding_strategy": "SHARD_GRAD_OP"}, 2),
        ({"fsdp_sharding_strategy": 2}, 2),
        ({"fsdp_sharding_strategy": "NO_SHARD"}, 0),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": True}, 3),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": False}, 2),
        ({"fsdp_version": 2}, 3),
        ({}, 3),
    ],
)
def test_fsdp_of_both_versions(config: dict[str, Any], stage: int) -> None:
    found = from_yaml({**FSDP, "fsdp_config": config})
    assert found.settings["zero_stage"] == stage and found.settings["dp"] == 8
    found.check_expressible(())


def test_words_of_yaml_that_it_reads_as_false() -> None:
    found = reading_of(
        Content("distributed_type: NO\nnum_processes: 1\nmixed_precision: no\n")
    ).settings
    assert (found["precision"], found["dp"], found["zero_stage"]) == ("fp32", 1, 0)


def test_accelerate_with_deepspeed_and_with_megatron() -> None:
    plugin = {
        "zero_stage": 3,
        "offload_optimizer_device": "cpu",
        "offload_param_device": "none",
        "gradient_accumulation_steps": 4,
    }
    config = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 8,
        "mixed_precision": "bf16",
        "deepspeed_config": plugin,
    }
    with pytest.raises(InputError, match="give --micro-batch-size"):
        from_yaml(config).check_expressible(())
    found = from_yaml(config, micro_batch_size="2")  # as the refusal says
    found.check_expressible(())
    assert found.settings["global_batch_size"] == 2 * 4 * 8
    assert (
        found.settings["offload"] == ["optimizer", "gradients"]
        and found.settings["zero_stage"] == 3
    )
    from_yaml(config, global_batch_size="64").check_expressible(())
    words = {
        "tp_degree": 2,
        "pp_degree": 2,
        "recompute_activations": True,
        "use_distributed_optimizer": True,
    }
    lm = {"distributed_type": "MEGATRON_LM", "num_processes": 8, "mixed_precision": "bf16"}
    lm["megatron_lm_config"] = {f"megatron_lm_{name}": value for name, value in words.items()}
    right = {"tp": 2, "pp": 2, "dp": 2, "recompute": "selective", "zero_stage": 1}
    assert right.items() <= from_yaml(lm).settings.items()


def test_a_file_of_deepspeed_that_accelerate_names_is_read_as_the_refusal_says(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "ds.json"
    inner.write_text(json.dumps(ZERO))
    config = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 8,
        "deepspeed_config": {"deepspeed_config_file": str(inner)},
    }
    with pytest.raises(InputError, match="give it with --from"):
        from_yaml(config).check_expressible(())
    read_launch(inner).check_expressible(())


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"distributed_type": "MULTI"}, "give NO, MULTI_GPU"),
        ({"mixed_precision": "int8"}, "give no, bf16"),
        (
            {"num_processes": 6, "parallelism_config": {"parallelism_config_tp_size": 4}},
            "no multiple of",
        ),
        ({"fsdp_config": {"fsdp_sharding_strategy": "SOME"}}, "give FULL_SHARD"),
        ({"fsdp_config": 3}, "takes an object"),
    ],
)
def test_values_that_accelerate_does_not_take_are_refused(
    config: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        from_yaml({**FSDP, **config})


NEMO_1 = {
    "trainer": {"devices": 8, "num_nodes": 4, "precision": "bf16-mixed"},
    "model": {
        **{
            "micro_batch_size": 1,
            "global_batch_size": 128,
            "tensor_model_parallel_size": 4,
            "pipeline_model_parallel_size": 2,
        },
        **{
            "virtual_pipeline_model_parallel_size": 2,
            "encoder_seq_length": 4096,
            "max_position_embeddings": "${.encoder_seq_length}",
        },
        **{
            "num_layers": 32,
            "hidden_size": 4096,
            "ffn_hidden_size": 11008,
            "num_attention_heads": 32,
            "num_query_groups": None,
        },
        **{
            "normalization": "rmsnorm",
            "activation": "fast-swiglu",
            "bias": False,
            "position_embedding_type": "rope",
        },
        **{
            "share_embeddings_and_output_weights": False,
            "sequence_parallel": True,
            "optim": {"name": "distributed_fused_adam"},
        },
    },
}
NEMO_2 = {
    "trainer": {
        **{"devices": 8, "num_nodes": 4, "plugins": {"precision": "bf16-mixed"}},
        "strategy": {
            **{
                "tensor_model_parallel_size": 4,
                "pipeline_model_parallel_size": 2,
                "virtual_pipeline_model_parallel_size": 2,
            },
            **{"sequence_parallel": True, "ddp": {"use_distributed_optimizer": True}},
        },
    },
    "data": {"micro_batch_size": 1, "global_batch_size": 128, "seq_length": 4096},
    "optim": {"config": {"optimizer": "adam"}},
}


def test_nemo_of_both_generations() -> None:
    old, new = from_yaml(NEMO_1), from_yaml(NEMO_2)
    right = {
        "tp": 4,
        "pp": 2,
        "interleave": 2,
        "dp": 4,
        "micro_batch_size": 1,
        "global_batch_size": 128,
        "sequence_length": 4096,
    }
    right |= {"precision": "bf16", "zero_stage": 1, "sequence_parallel": True, "optimizer": "adam"}  # type: ignore[dict-item]
    for found in (old, new):
        assert right.items() <= found.settings.items()
        found.check_expressible(())
        assert found.of_kind(KeyKind.UNKNOWN) == ()
    assert str(old.settings["model"]).startswith("llama") and "model" not in new.settings


def test_what_is_taken_for_a_model_is_said() -> None:
    found = from_yaml(NEMO_1)
    taken = {key.name: key.reason for key in found.of_kind(KeyKind.USUAL) if not key.given}
    assert "32,000 tokens are taken" in taken["model.vocab_size"]
    told = from_yaml({**NEMO_1, "tokenizer": {"vocab_size": 32000}})
    assert "model.vocab_size" not in [key.name for key in told.keys]


@pytest.mark.parametrize(
    ("recipe", "precision"),
    [
        ("nvfp4", "nvfp4"),
        ("bf16_with_nvfp4_mixed", "nvfp4"),
        ("bf16_with_mxfp8_mixed", "mxfp8"),
        ("bf16_with_fp8_current_scaling_mixed", "fp8_current"),
        # whose recipe is blockwise in spite of its name
        ("nanov2_bf16_with_fp8_current_scaling_mixed", "fp8_block"),
        ("nemotron_h_bf16_with_fp8_current_scaling_mixed", "fp8_current"),
        ("nemotron_3_super_bf16_with_nvfp4_mixed", "nvfp4"),
        ("bf16-with-mxfp8-mixed", "mxfp8"),
        ("bf16_with_fp8_subchannel_scaling_mixed", "fp8_block"),
        ("bf16_with_fp8_delayed_scaling_mixed", "fp8"),
    ],
)
def test_names_of_recipes_are_precisions(recipe: str, precision: str) -> None:
    found = from_yaml({**NEMO_1, "trainer": {**NEMO_1["trainer"], "precision": recipe}})
    assert found.settings["precision"] == precision
    found.check_expressible(())


RECIPE = """
def plan():
    config = ConfigContainer(model=GPTModelProvider(num_layers=2), train=TrainingConfig(micro_batch_size=1))
    config.mixed_precision = {made}
    {more}
    return config
"""


@pytest.mark.parametrize(
    ("made", "more", "precision", "held"),
    [
        ("bf16_with_mxfp8_mixed()", "", "mxfp8", True),
        ("'bf16_with_mxfp8_mixed'", "", "mxfp8", True),
        (
            "bf16_with_mxfp8_mixed()",
            "config.mixed_precision.fp8_param_gather = False",
            "mxfp8",
            None,
        ),
        (
            "bf16_with_mxfp8_mixed()",
            "config.mixed_precision.fp8_recipe = 'blockwise'",
            "fp8_block",
            True,
        ),
        ("bf16_with_fp8_subchannel_scaling_mixed()", "", "fp8_block", None),
        ("bf16_with_nvfp4_mixed()", "", "nvfp4", None),
        ("bf16_mixed()", "config.mixed_precision.fp8 = None", "bf16", None),
        ("bf16_mixed()", "config.mixed_precision.fp8_recipe = 'tensorwise'", "bf16", None),
        ("MixedPrecisionConfig(bf16=True, fp8='e4m3', fp8_recipe='mxfp8')", "", "mxfp8", None),
    ],
)
def test_recipes_of_bridge_say_products_and_weights(
    made: str, more: str, precision: str, held: bool | None
) -> None:
    reading = reading_of(Content(RECIPE.format(made=made, more=more)))
    found = reading.settings
    assert (found["precision"], found.get("fp8_weights")) == (precision, held)
    reading.check_expressible(())


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"fp8": "e4m3", "fp4": "e2m1"}, "of which Megatron takes one"),
        ({"fp8": "hybrid", "fp8_recipe": "mxpf8"}, "give delayed, tensorwise, blockwise, mxfp8"),
        ({"fp8": "e5m3"}, "give hybrid or e4m3"),
        ({"precision": "bf16_with_fp6_mixed"}, "a recipe of mixed precision"),
    ],
)
def test_formats_that_megatron_refuses_are_refused(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_yaml({"model": {"tensor_model_parallel_size": 1}, "mixed_precision": keys})


def test_a_recipe_of_fp8_without_fp8_is_said_to_have_no_effect() -> None:
    keys = {"bf16": True, "fp8_recipe": "mxfp8"}
    found = from_yaml({"model": {"tensor_model_parallel_size": 1}, "mixed_precision": keys})
    assert found.settings["precision"] == "bf16"
    reasons = {key.name: key.reason for key in found.of_kind(KeyKind.USUAL)}
    assert reasons == {"mixed_precision.fp8_recipe": "has no effect without fp8"}


def test_recipes_that_are_written_are_read() -> None:
    assert {each for each in Precision if each.is_reduced} <= {*RECIPES}
    for precision, recipe in RECIPES.items():
        found = from_yaml({**NEMO_1, "trainer": {**NEMO_1["trainer"], "precision": recipe}})
        assert found.settings["precision"] == precision.value


def test_chunks_beside_a_layout_are_not_said_to_be_read() -> None:
    model = {**NEMO_1["model"], "pipeline_model_parallel_layout": "Et*16|t*16L"}
    found = from_yaml({**NEMO_1, "model": model})
    assert found.settings["interleave"] == 1
    assert [key.reason for key in found.keys if "virtual" in key.name] == [
        "not used: the layout says the chunks"
    ]


def test_a_model_of_another_kind_is_not_read_as_a_decoder() -> None:
    found = from_yaml({**NEMO_1, "name": "megatron_bert"})
    assert "model" not in found.settings
    assert "bert" in found.no_model


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (
            "yaml",
            yaml.safe_dump({**NEMO_1, "model": {**NEMO_1["model"], "bias": True}}),
            "model.bias: ",
        ),
        (
            "toml",
            '[model]\nname = "llama3"\nflavor = "9B"\n[training]\nseq_len = 64\n[parallelism]\n',
            "9B is none of the",
        ),
    ],
)
def test_why_a_model_that_is_named_is_not_read_is_said(
    kind: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"launch.{kind}"
    file.write_text(text)
    assert phaze.main(["evaluate", "--from", str(file), "--device", "h100", "--devices", "8"]) == 2
    assert re.search(
        rf"its model is not read \(.*{said}.*\); name it with --model", capsys.readouterr().err
    )


@pytest.mark.parametrize("value", ['"64"', "64.5", "true"])
def test_a_value_of_another_type_is_shown_as_it_is_written(value: str) -> None:
    text = (
        f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = {value}\n[parallelism]\n'
    )
    shown = value.replace('"', "'").replace("true", "True")
    with pytest.raises(
        InputError, match=rf"training\.seq_len is {shown}; only whole numbers .*: give one"
    ):
        reading_of(Content(text, given={"devices": "8"}))


@pytest.mark.parametrize("value", [False, True])
def test_what_compilers_do_is_priced_as_the_software_is_described(value: bool) -> None:
    text = (
        '[model]\nname = "llama3"\nflavor = "8B"\n[compile]\nenable = '
        f"{str(value).lower()}\n[training]\nseq_len = 64\n"
    )
    (key,) = [
        key
        for key in reading_of(Content(text, given={"devices": "8"})).keys
        if key.name == "compile.enable"
    ]
    assert key.kind is (KeyKind.USUAL if value else KeyKind.NO_EFFECT)


def test_overrides_of_a_recipe_leave_the_rest_to_the_command_line() -> None:
    found = from_yaml(
        {
            "train": {"micro_batch_size": 1, "global_batch_size": 8},
            "model": {"context_parallel_size": 2},
        }
    )
    assert found.settings == {
        "cp": 2,
        "exchange": "ring",
        "micro_batch_size": 1,
        "global_batch_size": 8,
    }


TRAINER: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 8,
    "bf16": True,
    "fsdp": "full_shard",
}


def test_arguments_of_trainer_in_yaml_and_in_python() -> None:
    with pytest.raises(InputError, match="give --devices, --dp or --global-batch-size"):
        from_yaml(TRAINER).check_expressible(())
    found = from_yaml(TRAINER, dp="8")  # as the refusal says
    found.check_expressible(())
    assert found.settings["global_batch_size"] == 4 * 8 * 8
    from_yaml(TRAINER, global_batch_size="256").check_expressible(())
    words = ", ".join(f"{name}={value!r}" for name, value in TRAINER.items())
    python = reading_of(
        Content(
            f"def main():\n    args = TrainingArguments(output_dir='x', {words})\n    return args",
            given={"dp": "8"},
        )
    )
    assert python.settings == found.settings
    for kind, reason in (
        ({"optim": "adamw_bnb_8bit"}, "optim"),
        ({"deepspeed": "ds.json"}, "deepspeed"),
        ({"use_peft": True}, "use_peft"),
    ):
        with pytest.raises(InputError, match=f"--ignore {reason}"):
            from_yaml({**TRAINER, **kind}, dp="8").check_expressible(())


def test_the_case_of_auto(shared_data: Path) -> None:
    file = shared_data / "cases_2026" / "deepspeed_auto_bf16" / "ds_config.json"
    if not file.exists():
        pytest.skip("the case is not there")
    assert "precision" not in read_launch(file).settings


OF_COMMON = """
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.mixed_precision import bf16_with_mxfp8_mixed

_ID = "Qwen/Qwen3-30B-A3B"

def first() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained(_ID, revision="x").to_megatron_provider(load_weights=False)
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.expert_model_parallel_size = 4
    cfg.model.moe_token_dispatcher_type = "alltoall"
    cfg.model.moe_flex_dispatcher_backend = "hybridep"
    cfg.train.micro_batch_size = 2
    cfg.mixed_precision = bf16_with_mxfp8_mixed()
    return cfg

def second() -> ConfigContainer:
    cfg = first()
    cfg.model.tensor_model_parallel_size = 2
    apply_flex_dispatcher_backend(cfg.model, cfg.model.moe_flex_dispatcher_backend)
    return cfg
"""


def test_recipes_over_those_of_another_file_are_read_by_name() -> None:
    one, two = (
        reading_of(Content(OF_COMMON, name, given={})).settings for name in ("first", "second")
    )
    right = {"model": "qwen3-30b-a3b", "ep": 4, "micro_batch_size": 2, "precision": "mxfp8"}
    assert right.items() <= one.items() and right.items() <= two.items()
    assert (one["tp"], two["tp"]) == (4, 2)
    assert (one["dispatcher"], two["dispatcher"]) == ("alltoall", "hybridep")
    with pytest.raises(InputError, match="2 functions that do: first, second"):
        reading_of(Content(OF_COMMON))


def test_what_another_file_says_of_a_recipe_is_told() -> None:
    found = reading_of(Content(OF_COMMON, "first"))
    assert "_pretrain_common()" in [key.name for key in found.of_kind(KeyKind.UNKNOWN)]


def test_a_repository_of_no_listed_model_is_told() -> None:
    found = reading_of(Content(OF_COMMON.replace("Qwen3-30B-A3B", "Qwen9-1B"), "first"))
    assert "model" not in found.settings and "Qwen9-1B" in found.no_model
