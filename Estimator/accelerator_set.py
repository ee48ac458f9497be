"""Many accelerators as arrays, with the distinct core configurations that operators are priced on, and the cores.json file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from Common.errors import InputError
from Common.files import write_atomically
from Common.records import to_record
from Estimator.accelerator import Accelerator, FloatArray, IntArray
from Estimator.area import UM2_PER_MM2


@dataclass(frozen=True, eq=False)
class TensorCores:
    """Distinct tensor-core configurations; arrays of shape (configurations,)."""

    num: IntArray
    width: IntArray
    depth: IntArray
    glb_bytes: IntArray

    def __len__(self) -> int:
        return len(self.num)


@dataclass(frozen=True, eq=False)
class VectorCores:
    """Distinct vector-core configurations; arrays of shape (configurations,)."""

    num: IntArray
    width: IntArray
    glb_bytes: IntArray

    def __len__(self) -> int:
        return len(self.num)


@dataclass(frozen=True, eq=False)
class AcceleratorSet:
    """N accelerators as arrays of shape (N,); ``tc_index``/``vc_index`` say which distinct core configurations each has."""

    num_tc: IntArray
    num_vc: IntArray
    width: IntArray
    depth: IntArray
    width_vc: IntArray
    glb_bytes: IntArray
    area_mm2: FloatArray

    def __len__(self) -> int:
        return len(self.num_tc)

    @cached_property
    def _tensor(self) -> tuple[IntArray, IntArray]:
        return _distinct(self.num_tc, self.width, self.depth, self.glb_bytes)

    @cached_property
    def _vector(self) -> tuple[IntArray, IntArray]:
        return _distinct(self.num_vc, self.width_vc, self.glb_bytes)

    @property
    def tc_index(self) -> IntArray:
        """Position of each accelerator's tensor cores in ``tensor_cores``; shape (N,)."""
        return self._tensor[1]

    @property
    def vc_index(self) -> IntArray:
        """Position of each accelerator's vector cores in ``vector_cores``; shape (N,)."""
        return self._vector[1]

    @cached_property
    def tensor_cores(self) -> TensorCores:
        """The distinct tensor-core configurations."""
        return TensorCores(*self._tensor[0].T)

    @cached_property
    def vector_cores(self) -> VectorCores:
        """The distinct vector-core configurations."""
        return VectorCores(*self._vector[0].T)

    def accelerator(self, index: int) -> Accelerator:
        """One of them as a record."""
        return Accelerator(
            num_tc=int(self.num_tc[index]),
            num_vc=int(self.num_vc[index]),
            width=int(self.width[index]),
            depth=int(self.depth[index]),
            width_vc=int(self.width_vc[index]),
            glb_bytes=int(self.glb_bytes[index]),
            area_mm2=float(self.area_mm2[index]),
        )

    def find(self, accelerator: Accelerator) -> int | None:
        """Index of the accelerator with these cores and buffer, None where it is not in the set."""
        parameters = ("num_tc", "num_vc", "width", "depth", "width_vc", "glb_bytes")
        found = np.flatnonzero(np.all([getattr(self, name) == getattr(accelerator, name) for name in parameters], axis=0))
        return int(found[0]) if len(found) else None

    def extended_by(self, accelerators: list[Accelerator]) -> AcceleratorSet:
        """The set followed by those of ``accelerators`` that are not in it."""
        return from_accelerators(
            [self.accelerator(i) for i in range(len(self))] + [each for each in accelerators if self.find(each) is None]
        )


def from_accelerators(accelerators: list[Accelerator]) -> AcceleratorSet:
    """A set of the given accelerators, in their order."""
    return AcceleratorSet(
        num_tc=np.array([each.num_tc for each in accelerators], dtype=np.int64),
        num_vc=np.array([each.num_vc for each in accelerators], dtype=np.int64),
        width=np.array([each.width for each in accelerators], dtype=np.int64),
        depth=np.array([each.depth for each in accelerators], dtype=np.int64),
        width_vc=np.array([each.width_vc for each in accelerators], dtype=np.int64),
        glb_bytes=np.array([each.glb_bytes for each in accelerators], dtype=np.int64),
        area_mm2=np.array([each.area_mm2 for each in accelerators], dtype=np.float64),
    )


def _distinct(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows of the columns, and for every row the index of its like."""
    rows, index = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return rows, index.reshape(-1)


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


def write_cores_json(accelerators: AcceleratorSet, path: Path) -> None:
    """Write the set in the format of Phaze's ``cores.json``, one accelerator a line.

    Raises:
        PhazeError: the file cannot be written.
    """
    lines = []
    for index in range(len(accelerators)):
        chip = dict(vars(accelerators.accelerator(index)))
        glb_bytes, area = chip.pop("glb_bytes"), chip.pop("area_mm2")
        lines.append(json.dumps({**chip, "GLB_Buffer": glb_bytes, "area": area * UM2_PER_MM2}))
    write_atomically(path, ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def read_cores_json(path: Path) -> AcceleratorSet:
    """Read accelerators in the format of Phaze's ``cores.json``.

    Raises:
        InputError: unreadable, not JSON, a field missing, of the wrong type or not positive, or no accelerator at all.
    """
    try:
        entries = to_record(tuple[CoresEntry, ...], json.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give an existing cores.json") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); correct it or delete it to have it generated again") from error
    if not entries:
        raise InputError(f"{path} lists no accelerator; delete it to have it generated again")
    for position, entry in enumerate(entries):
        for key, value in vars(entry).items():
            if value <= 0:
                raise InputError(f"{path}: {position}.{key} is {value}; it must be positive")
    return from_accelerators(
        [
            Accelerator(
                num_tc=entry.num_tc,
                num_vc=entry.num_vc,
                width=entry.width,
                depth=entry.depth,
                width_vc=entry.width_vc,
                glb_bytes=entry.GLB_Buffer,
                area_mm2=entry.area / UM2_PER_MM2,
            )
            for entry in entries
        ]
    )
