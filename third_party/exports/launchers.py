"""What launch files of other programs say, as settings of a plan: which program a file is of is read from the file."""

from __future__ import annotations

from pathlib import Path

from Common.errors import InputError
from Common.files import read_text


def settings_from(path: Path) -> dict[str, object]:
    """Settings of ``phaze evaluate`` that a Megatron-LM command, a torchtitan module or a DeepSpeed configuration says.

    Raises:
        InputError: the file cannot be read, is of none of them, or lacks what a plan needs.
    """
    text = read_text(path, "a launch file")
    try:
        if path.suffix == ".json":
            from third_party.exports.deepspeed_reading import settings_of
        elif path.suffix == ".py":
            from third_party.exports.torchtitan_reading import settings_of
        elif "--micro-batch-size" in text or "--tensor-model-parallel-size" in text:
            from third_party.exports.megatron_reading import settings_of
        else:
            raise InputError(
                "it is no launch file that is known; give a Megatron-LM command (its arguments in any text), a torchtitan module "
                "(.py) or a DeepSpeed configuration (.json)"
            )
        return settings_of(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
