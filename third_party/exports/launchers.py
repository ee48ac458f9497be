"""What launch files of other programs say, as settings of a plan: which program a file is of is read from the file."""

from __future__ import annotations

from pathlib import Path

from Common.errors import InputError

LARGEST_BYTES = 2**20  # of a file that people write


def settings_from(path: Path) -> dict[str, object]:
    """Settings of ``phaze evaluate`` that a Megatron-LM command, a torchtitan module or a DeepSpeed configuration says.

    Raises:
        InputError: the file cannot be read, is of none of them, or lacks what a plan needs.
    """
    text = _text(path)
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


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError(f"{path} has more than {LARGEST_BYTES:,} bytes; give a launch file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give a launch file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text; give a launch file") from error
