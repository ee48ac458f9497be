"""Memories from their YAML files, and as they are asked for: ``hbm3e:4``."""

from __future__ import annotations

from pathlib import Path

from Estimator.chips.memory import Memory, MemorySystem
from Estimator.hardware_files import hardware_path
from Estimator.quantity import quantity_problems
from phaze_common.errors import InputError
from phaze_common.file_formats import MEMORY
from phaze_common.records import read_yaml, to_record

MOST_STACKS = 64


def load_memory(name_or_path: str, relative_to: Path | None = None) -> Memory:
    """Read a memory generation.

    Raises:
        InputError: no such file, or what is wrong in it.
    """
    path = hardware_path("memories", name_or_path, relative_to)
    memory = to_record(Memory, MEMORY.current(read_yaml(path), str(path)), str(path))
    for problem in quantity_problems(memory):
        raise InputError(f"{path}: {problem}")
    check_memory(memory, str(path))
    return memory


def check_memory(memory: Memory, source: str) -> None:
    """Refuse a memory that holds or moves nothing.

    Raises:
        InputError: names ``source`` and the key.
    """
    for key in ("stack_bytes", "stack_bandwidth_bytes_per_s"):
        if getattr(memory, key) <= 0:
            raise InputError(f"{source}: {key} is {getattr(memory, key):g}; it must be positive")


def memory_system(text: str, relative_to: Path | None = None) -> MemorySystem:
    """Read ``hbm3e:4``: a memory (name or path) and a number of stacks.

    Raises:
        InputError: another form, an unknown memory, or a number of stacks that is none.
    """
    name, separator, count = text.rpartition(":")
    if (
        not separator
        or not name
        or not (count.isascii() and count.isdigit())
        or not 1 <= int(count[:9]) <= MOST_STACKS
    ):
        raise InputError(
            f"memory is {text!r}; give a generation and 1 to {MOST_STACKS} stacks of it, such as "
            "hbm3e:4"
        )
    return MemorySystem(load_memory(name, relative_to), int(count))
