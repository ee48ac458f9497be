"""Refusals beside a launch file blame what is wrong: the command line for its own values, and the file for those of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import phaze
from Common.setting_values import Kind
from Studies.annotations import Mode
from Studies.request import settings_for
from tests.exports.launch_samples import FILES

NUMBERS = [setting.flags[0] for setting in settings_for(Mode.EVALUATE).settings if setting.kind is Kind.INTEGER]
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


@pytest.mark.parametrize("flag", NUMBERS)
def test_values_of_the_command_line_are_not_blamed_on_the_file(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in launches(tmp_path):
        for value in REFUSED:
            said = refusal_of(["--from", str(file), "--device", "h100", flag, value], capsys)
            assert said.startswith(f"command line: {flag} is {value!r}, but must be a whole number from "), said


def test_a_model_of_the_command_line_is_not_blamed_on_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in launches(tmp_path):
        said = refusal_of(["--from", str(file), "--device", "h100", "--model", "gpt9000"], capsys)
        assert said.startswith("unknown model 'gpt9000'"), said


@pytest.mark.parametrize("value", ["nan", "-1", "1.5", "1" * 13, "$N"])
def test_a_size_of_a_command_is_refused_with_what_is_allowed(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "launch.sh"
    file.write_text(
        f"torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --seq-length 8 --micro-batch-size 1 --tensor-model-parallel-size {value}\n"
    )
    said = refusal_of(["--from", str(file), "--device", "h100"], capsys)
    assert "whole number of at least 1 in at most 12 digits" in said and said.endswith("or give --tp")
    assert ("set the variable" in said) == ("$" in value)
