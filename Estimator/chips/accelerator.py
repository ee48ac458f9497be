"""Records of accelerators and what they share. Numbers come from ``Estimator/hardware/*/*.yaml``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.technology import FloatArray, Technology

IntArray = NDArray[np.int64]


class Dataflow(StrEnum):
    """What a systolic array keeps in place: weights, outputs or inputs."""

    WEIGHT_STATIONARY = "ws"
    OUTPUT_STATIONARY = "os"
    INPUT_STATIONARY = "is"


@dataclass(frozen=True)
class VectorFunctions:
    """Cycles per element and lane of every known vector function; unknown ones cost as much as ``add``."""

    cycles_per_element: dict[str, float]


@dataclass(frozen=True)
class Platform:
    """What all accelerators of a design space share.

    ``concurrent_tc_share`` is the part of GLB and HBM (capacity and bandwidth) that the tensor cores get while operators run on
    single cores; the vector cores get the rest. Each core of a type gets an equal part of its type's share, so no schedule
    can exceed the chip. An operator spread over all cores of its type runs alone and has everything.
    """

    frequency_hz: float
    hbm_bandwidth_bytes_per_s: float
    glb_bandwidth_bytes_per_cycle: float
    dataflows: tuple[Dataflow, ...]
    startup_s: float  # fixed cost of starting an operator
    concurrent_tc_share: float
    weight_rows_per_cycle: float  # how fast a systolic array takes a new stationary tile
    l2_bytes_per_pe: int  # core-local buffer, bytes per processing element
    l2_minimum_bytes: int
    bytes_per_element: int
    technology: Technology
    vector_functions: VectorFunctions


@dataclass(frozen=True)
class Accelerator:
    """One chip: ``num_tc`` tensor cores (``depth`` rows x ``width`` columns), ``num_vc`` vector cores of ``width_vc`` lanes."""

    num_tc: int
    num_vc: int
    width: int
    depth: int
    width_vc: int
    glb_bytes: int
    area_mm2: float


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

    @classmethod
    def of(cls, accelerators: Sequence[Accelerator]) -> AcceleratorSet:
        """The given accelerators, in their order."""
        columns = {field.name: np.array([getattr(each, field.name) for each in accelerators]) for field in fields(Accelerator)}
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.num_tc)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content."""
        columns = b"".join(getattr(self, field.name).tobytes() for field in fields(self))
        return hashlib.blake2b(columns, digest_size=10).hexdigest()

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
        return Accelerator(*(getattr(self, field.name)[index].item() for field in fields(Accelerator)))

    def find(self, accelerator: Accelerator) -> int | None:
        """Index of the accelerator with these cores and buffer, None where it is not in the set."""
        parameters = ("num_tc", "num_vc", "width", "depth", "width_vc", "glb_bytes")
        found = np.flatnonzero(np.all([getattr(self, name) == getattr(accelerator, name) for name in parameters], axis=0))
        return int(found[0]) if len(found) else None


def _distinct(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows of the columns, and for every row the index of its like."""
    rows, index = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return rows, index.reshape(-1)
