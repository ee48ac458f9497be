"""Refusals beside a launch file blame what is wrong: the command line for its own values, and the
file for those of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import phaze
from phaze.exports.launchers import Content, reading_of
from phaze.settings.launched import KeyKind
from phaze.settings.request import settings_for
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode
from phaze_common.setting_values import Kind
from tests.phaze.exports.launch_samples import FILES

NUMBERS = [
    setting.flags[0]
    for setting in settings_for(Mode.EVALUATE).settings
    if setting.kind is Kind.INTEGER
]
SIZES = "--num-layers 2 --hidden-size 64 --seq-length 8 --micro-batch-size 1"
REFUSED = ("nan", "1e20", "-3", "0x8", "$N", "1.5", "0" * 13 + "x")


def refusal_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line in which the command is refused."""
    assert phaze.main(["evaluate", *words]) == 2
    return capsys.readouterr().err.strip().splitlines()[-1].removeprefix("phaze: ")


def launches(folder: Path) -> list[Path]:
    """One file of every kind that is read."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return [folder / name for name in FILES]


@pytest.mark.some(6)
@pytest.mark.parametrize("flag", NUMBERS)
def test_values_of_the_command_line_are_not_blamed_on_the_file(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in launches(tmp_path):
        for value in REFUSED:
            said = refusal_of(["--from", str(file), "--device", "h100", flag, value], capsys)
            assert said.startswith(
                f"command line: {flag} is {value!r}, but must be a whole number from "
            ), said


def test_a_model_of_the_command_line_is_not_blamed_on_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in launches(tmp_path):
        said = refusal_of(["--from", str(file), "--device", "h100", "--model", "gpt9000"], capsys)
        assert said.startswith("unknown model 'gpt9000'"), said


@pytest.mark.parametrize("value", ["nan", "-1", "1.5", "1" * 13, "$N"])
def test_a_size_of_a_command_is_refused_with_what_is_allowed(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "launch.sh"
    file.write_text(f"torchrun pretrain_gpt.py {SIZES} --tensor-model-parallel-size {value}\n")
    said = refusal_of(["--from", str(file), "--device", "h100"], capsys)
    assert "whole number of at least 1 in at most 12 digits" in said and said.endswith(
        "or give --tp"
    )
    assert ("set the variable" in said) == ("$" in value)


DEEPSPEED_ELSEWHERE = {  # files that leave ZeRO to a configuration of DeepSpeed
    "arguments of Trainer": "per_device_train_batch_size: 4\nbf16: true\ndeepspeed: ds.json\n",
    "arguments of Trainer, written out": "per_device_train_batch_size: 4\ndeepspeed: "
    "{zero_optimization: {stage: 3, a: b}}\n",
    "accelerate": "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: "
    "{deepspeed_config_file: ds.json}\n",
}


@pytest.mark.parametrize("kind", DEEPSPEED_ELSEWHERE)
def test_the_stage_of_the_command_line_stands_for_a_file_of_deepspeed(kind: str) -> None:
    text = DEEPSPEED_ELSEWHERE[kind]
    with pytest.raises(InputError, match="its stage with --zero-stage"):
        reading_of(Content(text, given={})).check_expressible(())
    found = reading_of(Content(text, given={"zero_stage": "3"}))  # as the refusal says
    found.check_expressible(())
    assert not any(
        "deepspeed" in key.name and key.name != "deepspeed_config"
        for key in found.of_kind(KeyKind.READ)
    )


@pytest.mark.parametrize("name", FILES)
def test_what_is_read_cannot_be_ignored(name: str) -> None:
    found = reading_of(Content(FILES[name], given={"devices": "16"}))
    others = {key.bare for key in found.keys if key.kind is not KeyKind.READ}
    read = [key.bare for key in found.of_kind(KeyKind.READ) if key.bare not in others]
    assert read
    for key in read:
        with pytest.raises(
            InputError, match=r"is read, and --ignore is for keys that no plan says"
        ):
            found.ignoring([key])


def test_what_a_launch_leaves_out_is_not_said_to_be_given() -> None:
    sizes = (
        "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 8 "
        "--max-position-embeddings 8 --vocab-size 99"
    )
    rest = (
        "--micro-batch-size 1 --bf16 --swiglu --position-embedding-type rope "
        "--untie-embeddings-and-output-weights"
    )
    launch = f"torchrun pretrain_gpt.py {sizes} {rest} --exp-avg-dtype bf16\n"
    found = reading_of(Content(launch, given={}))
    with pytest.raises(
        InputError,
        match=r"gives --exp-avg-dtype bf16 \(.*\) and leaves out --disable-bias-linear \(",
    ):
        found.check_expressible(())
    assert all(key.given == (key.name in launch) for key in found.of_kind(KeyKind.NOT_EXPRESSIBLE))


TITAN = '[model]\nflavor = "8B"\n[training]\nseq_len = 64\n'
CHOICES = {  # keys that take a word of a list, in a file of their program with a place for the word
    "torchtitan, dtype": TITAN + "dtype = {}\n",
    "torchtitan, resharding": TITAN + "[parallelism]\nfsdp_reshard_after_forward = {}\n",
    "torchtitan, recomputation": TITAN + "[activation_checkpoint]\nmode = {}\n",
    "accelerate, kind": "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\n",
    "accelerate, precision": "compute_environment: LOCAL_MACHINE\ndistributed_type: "
    "MULTI_GPU\nmixed_precision: {}\n",
    "accelerate, sharding": "distributed_type: FSDP\nfsdp_config: {{fsdp_sharding_strategy: {}}}\n",
    "accelerate, offload": "distributed_type: DEEPSPEED\ndeepspeed_config: {{zero_stage: 2, "
    "offload_optimizer_device: {}}}\n",
    "accelerate, recomputation": "distributed_type: MEGATRON_LM\nmegatron_lm_config: "
    "{{megatron_lm_recompute_granularity: {}}}\n",
    "Trainer, sharding": "per_device_train_batch_size: 4\nfsdp: {}\n",
    "DeepSpeed, stage": '{{"zero_optimization": {{"stage": {}}}}}',
}


@pytest.mark.parametrize(
    ("value", "shown"),
    [('"Some"', "'Some'"), ('"12"', "'12'"), ('"two words"', "'two words'"), ("57", "57")],
)
@pytest.mark.parametrize("kind", CHOICES)
def test_a_word_that_is_none_of_a_list_is_shown_as_it_is_written_with_what_to_give(
    kind: str, value: str, shown: str
) -> None:
    if (kind, value) == ("Trainer, sharding", "57"):
        pytest.skip("Trainer reads whatever is no text and no list as not given")
    with pytest.raises(InputError, match=rf" is {shown}; (give|it must be) "):
        reading_of(Content(CHOICES[kind].format(value), given={"devices": "8"}))
