"""The machine that a database was measured on, as its ``machine.yaml`` states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from phaze_common import file_formats
from phaze_common.errors import InputError
from phaze_common.files import write_atomically
from phaze_common.records import read_yaml, to_record

MACHINE = "machine.yaml"
LONGEST_NAME = 100


class DeviceKind(StrEnum):
    """What ran the operators."""

    CPU = "cpu"
    CUDA = "cuda"


class Clock(StrEnum):
    """What seconds of operators are: time of the one thread that ran them, time that passed, or
    time between CUDA events."""

    THREAD = "thread"
    WALL = "wall"
    EVENTS = "events"


@dataclass(frozen=True)
class MachineRecord:
    """A machine, and how it was measured.

    ``description`` is its processor or accelerator, ``devices`` how many of it (or processes on it)
    a cluster of such machines is taken to have. ``threads`` are those of an operator. ``power``
    says what was known of clocks and limits, ``dropout`` whether operators were measured with it.
    """

    name: str
    description: str
    device_kind: DeviceKind  # what ran the operators
    memory_bytes: float
    devices: int
    threads: int
    # what seconds of operators are: of the thread, of the wall clock, between CUDA events
    clock: Clock
    date: str  # when it was measured
    versions: Mapping[str, str]  # of the software that measured
    power: str = ""
    dropout: bool = True


def profile_folder(text: str | Path) -> Path | None:
    """The folder of the database that ``text`` names, itself or by its ``machine.yaml``; None where
    there is none."""
    path = Path(text).expanduser()
    try:
        if path.name == MACHINE and path.is_file():
            return path.parent
        return path if (path / MACHINE).is_file() else None
    except OSError:  # a name the file system cannot hold
        return None


def read_machine(folder: Path) -> MachineRecord:
    """The record of a database.

    Raises:
        InputError: there is none, or it is not as it must be; names the file and the key.
    """
    path = folder / MACHINE
    machine = to_record(
        MachineRecord, file_formats.MACHINE.current(read_yaml(path), str(path)), str(path)
    )
    if not 0 < len(machine.name) <= LONGEST_NAME:
        raise InputError(
            f"{path}: name has {len(machine.name)} characters; give it 1 to {LONGEST_NAME}"
        )
    for key, value in (
        ("memory_bytes", machine.memory_bytes),
        ("devices", machine.devices),
        ("threads", machine.threads),
    ):
        if value <= 0:
            raise InputError(f"{path}: {key} is {value}; it must be positive")
    return machine


def write_machine(folder: Path, machine: MachineRecord) -> None:
    """Write the record; an interrupted write leaves the old one.

    Raises:
        InputError: nothing can be written there.
    """
    import yaml

    content = {
        key: value.value if isinstance(value, StrEnum) else value
        for key, value in asdict(machine).items()
    }
    content = file_formats.MACHINE.stamped(content)
    text = "# A machine whose operators were measured (phaze profile).\n" + yaml.safe_dump(
        content, sort_keys=False, width=130
    )
    write_atomically(folder / MACHINE, text.encode())
