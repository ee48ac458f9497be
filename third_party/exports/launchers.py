"""What launch files of other programs say, as settings of a plan: which program a file is of is read from the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from Common.errors import InputError
from Common.files import read_text
from third_party.exports.launch_keys import LaunchReading

A_SCRIPT = "a file that a script reads"


def read_launch(path: Path, given: Mapping[str, str] | None = None) -> LaunchReading:
    """Settings of ``phaze evaluate`` that a Megatron-LM command, a torchtitan module or a DeepSpeed configuration says.

    Settings ``given`` besides, by their keys, count before what the file says.

    Raises:
        InputError: the file cannot be read, is of none of them, or lacks what a plan needs.
    """
    text = read_text(path, "a launch file")
    try:
        if path.suffix == ".json":
            from third_party.exports.deepspeed_reading import settings_of as of_deepspeed

            return LaunchReading("DeepSpeed", of_deepspeed(text))
        if path.suffix == ".py":
            from third_party.exports.torchtitan_reading import settings_of as of_torchtitan

            return LaunchReading("torchtitan", of_torchtitan(text))
        from third_party.exports.megatron_reading import is_megatron, read

        if is_megatron(text):
            return read(text, given or {}, lambda name: _beside(path, name))
        raise InputError(
            "it is no launch file that is known; give a Megatron-LM command (its arguments in any text), a torchtitan module "
            "(.py) or a DeepSpeed configuration (.json)"
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _beside(path: Path, name: str) -> str | None:
    """The text of a file that a script reads, where it lies beside it."""
    other = path.parent / name
    return read_text(other, A_SCRIPT) if other.is_file() and other != path else None
