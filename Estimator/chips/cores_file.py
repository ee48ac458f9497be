"""Accelerators in the format of Phaze's ``cores.json``."""

import json
from dataclasses import astuple, dataclass
from pathlib import Path

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.area import UM2_PER_MM2
from Estimator.chips.axes import COLUMNS
from Estimator.chips.design_space_files import LARGEST_VALUE
from phaze_common.errors import InputError
from phaze_common.files import read_json
from phaze_common.numbers import number
from phaze_common.records import to_record

LARGEST_BUFFER_OR_AREA = 2.0**40  # bytes, um2: far beyond any chip, far from overflow


@dataclass(frozen=True)
class CoresEntry:
    """One accelerator as Phaze's cores.json writes it: buffer in bytes, area in um2."""

    num_tc: int
    num_vc: int
    width: int
    depth: int
    width_vc: int
    GLB_Buffer: int
    area: float


def cores_json(accelerators: AcceleratorSet) -> bytes:
    """The set in the format of Phaze's ``cores.json``, one accelerator a line."""
    lines = []
    for index in range(len(accelerators)):
        chip = {name: getattr(accelerators, name)[index].item() for name in COLUMNS}
        glb_bytes, area = chip.pop("glb_bytes"), chip.pop("area_mm2")
        lines.append(json.dumps({**chip, "GLB_Buffer": glb_bytes, "area": area * UM2_PER_MM2}))
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode()


def read_cores_json(path: Path) -> AcceleratorSet:
    """Read accelerators in the format of Phaze's ``cores.json``.

    Raises: InputError: unreadable, not JSON, a field missing, of the wrong type or not positive, or
        no accelerator at all.
    """
    entries = to_record(tuple[CoresEntry, ...], read_json(path, "a cores.json"), str(path))
    if not entries:
        raise InputError(f"{path} lists no accelerator; delete it to have it generated again")
    for position, entry in enumerate(entries):
        for key, value in vars(entry).items():
            most = LARGEST_BUFFER_OR_AREA if key in {"GLB_Buffer", "area"} else LARGEST_VALUE
            if not 0 < value <= most:
                raise InputError(
                    f"{path}: {position}.{key} is {value}; it must be positive and at most "
                    f"{number(most)}"
                )
    return AcceleratorSet.of(
        [Accelerator(*(*astuple(entry)[:-1], entry.area / UM2_PER_MM2)) for entry in entries]
    )
