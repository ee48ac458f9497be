"""Records of accelerators and what they share. Numbers come from
``Estimator/hardware/*/*.yaml``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.axes import COLUMNS, SIZES
from Estimator.chips.clock import at_frequency
from Estimator.chips.memory import MemorySystem
from Estimator.chips.technology import Technology
from phaze_common.array_types import FloatArray, IntArray, fieldwise


class Dataflow(StrEnum):
    """What a systolic array keeps in place: weights, outputs or inputs."""

    WEIGHT_STATIONARY = "ws"
    OUTPUT_STATIONARY = "os"
    INPUT_STATIONARY = "is"


@dataclass(frozen=True)
class VectorFunctions:
    """Cycles per element and lane of every known vector function; unknown ones cost as much as
    ``add``."""

    cycles_per_element: dict[str, float]


@dataclass(frozen=True)
class Variant:
    """What chips of a space may differ in besides cores and buffers: memory as it is sold, clock,
    links.

    None: those of the platform, and links as the cluster has them.
    """

    memory: str | None = None  # the label of one of the platform's ``memories``
    frequency_hz: float | None = None
    links: str | None = None  # the label of ``OwnLinks``


STANDARD = Variant()


@dataclass(frozen=True)
class Platform:
    """What all accelerators of a design space share.

    ``concurrent_tc_share`` is the part of GLB and HBM (capacity and bandwidth) that the tensor
    cores get while operators run on single cores; the vector cores get the rest. Each core of a
    type gets an equal part of its type's share, so no schedule can exceed the chip. An operator
    spread over all cores of its type runs alone and has everything. ``memories`` are those that
    chips of the space may have in place of an HBM of ``hbm_bandwidth_bytes_per_s``.
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
    memories: tuple[MemorySystem, ...] = ()
    # that energies of ``technology`` are at, set by ``at``; None: the nominal one of the process
    supply_v: float | None = None

    def memory(self, label: str) -> MemorySystem:
        """The one of ``memories`` that is called so."""
        return next(each for each in self.memories if each.label == label)

    def at(self, variant: Variant) -> Platform:
        """What a chip of ``variant`` runs on: its memory's bandwidth and energy, its clock,
        energies at the voltage of that.

        The global buffer keeps its bytes per cycle. Reading DRAM costs what its interface takes at
        any clock. Energies that have a supply voltage keep it: a platform that is changed after
        this has only what is changed.
        """
        platform, technology = self, self.technology
        if variant.frequency_hz is not None:
            platform = replace(platform, frequency_hz=variant.frequency_hz)
        if technology.die is not None and platform.supply_v is None:
            clock = at_frequency(technology.die, platform.frequency_hz)
            technology = technology.scaled(clock.dynamic_energy_factor)
            platform = replace(platform, supply_v=clock.voltage_v)
        if variant.memory is not None:
            memory = self.memory(variant.memory)
            technology = replace(technology, hbm_energy=memory.access_energy)
            platform = replace(platform, hbm_bandwidth_bytes_per_s=memory.bandwidth_bytes_per_s)
        if technology is platform.technology:
            return platform
        return replace(platform, technology=technology)


@dataclass(frozen=True)
class Accelerator:
    """One chip: ``num_tc`` tensor cores (``depth`` rows x ``width`` columns), ``num_vc`` vector
    cores of ``width_vc`` lanes.

    ``memory_system``, ``frequency_hz`` and ``links`` as of a ``Variant``.
    """

    num_tc: int
    num_vc: int
    width: int
    depth: int
    width_vc: int
    glb_bytes: int
    area_mm2: float
    memory_system: str | None = None
    frequency_hz: float | None = None
    links: str | None = None

    @property
    def variant(self) -> Variant:
        """Its memory, clock and links."""
        return Variant(self.memory_system, self.frequency_hz, self.links)

    @property
    def standard(self) -> Accelerator:
        """The same cores and buffers with the memory and the clock of the platform, and links as
        the cluster has them."""
        return replace(self, memory_system=None, frequency_hz=None, links=None)


@dataclass(frozen=True, eq=False)
class TensorCores:
    """Distinct tensor-core configurations; arrays of shape (configurations,). ``variant`` is a
    place among ``variants``."""

    num: IntArray
    width: IntArray
    depth: IntArray
    glb_bytes: IntArray
    variant: IntArray

    def __len__(self) -> int:
        return len(self.num)

    def some(self, places: IntArray) -> TensorCores:
        """Those at ``places``."""
        return fieldwise(lambda column: column[places], self)


@dataclass(frozen=True, eq=False)
class VectorCores:
    """Distinct vector-core configurations; arrays of shape (configurations,). ``variant`` is a
    place among ``variants``."""

    num: IntArray
    width: IntArray
    glb_bytes: IntArray
    variant: IntArray

    def __len__(self) -> int:
        return len(self.num)

    def some(self, places: IntArray) -> VectorCores:
        """Those at ``places``."""
        return fieldwise(lambda column: column[places], self)


@dataclass(frozen=True, eq=False)
class AcceleratorSet:
    """N accelerators as arrays of shape (N,); ``tc_index``/``vc_index`` say which distinct core
    configurations each has.

    ``variant`` is the place of each one's memory, clock and links among ``variants``.
    """

    num_tc: IntArray
    num_vc: IntArray
    width: IntArray
    depth: IntArray
    width_vc: IntArray
    glb_bytes: IntArray
    area_mm2: FloatArray
    variant: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    variants: tuple[Variant, ...] = (STANDARD,)

    def __post_init__(self) -> None:
        if len(self.variant) != len(self.num_tc):
            object.__setattr__(self, "variant", np.zeros(len(self.num_tc), dtype=np.int64))

    @classmethod
    def of(cls, accelerators: Sequence[Accelerator]) -> AcceleratorSet:
        """The given accelerators, in their order."""
        columns = {
            name: np.array([getattr(each, name) for each in accelerators]) for name in COLUMNS
        }
        variants = tuple(dict.fromkeys(each.variant for each in accelerators))
        places = np.array([variants.index(each.variant) for each in accelerators], dtype=np.int64)
        return cls(**columns, variant=places, variants=variants or (STANDARD,))

    @classmethod
    def joined(cls, sets: Sequence[AcceleratorSet]) -> AcceleratorSet:
        """All of ``sets`` one after another."""
        variants = tuple(dict.fromkeys(variant for each in sets for variant in each.variants))
        places = [
            np.array([variants.index(variant) for variant in each.variants])[each.variant]
            for each in sets
        ]
        columns = {name: np.concatenate([getattr(each, name) for each in sets]) for name in COLUMNS}
        return cls(**columns, variant=np.concatenate(places), variants=variants)

    def __len__(self) -> int:
        return len(self.num_tc)

    def some(self, chosen: NDArray[np.bool_] | IntArray) -> AcceleratorSet:
        """Those that are ``chosen``, a mask or places."""
        columns = {name: getattr(self, name)[chosen] for name in COLUMNS}
        return replace(self, **columns, variant=self.variant[chosen])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content."""
        columns = b"".join(getattr(self, name).tobytes() for name in (*COLUMNS, "variant"))
        return hashlib.blake2b(columns + repr(self.variants).encode(), digest_size=10).hexdigest()

    @cached_property
    def _tensor(self) -> tuple[IntArray, IntArray]:
        return _distinct(self.num_tc, self.width, self.depth, self.glb_bytes, self._core_variant)

    @cached_property
    def _vector(self) -> tuple[IntArray, IntArray]:
        return _distinct(self.num_vc, self.width_vc, self.glb_bytes, self._core_variant)

    @cached_property
    def _core_variant(self) -> IntArray:
        """``variant`` as cores know it: the first that differs in nothing but links, which no core
        sees; shape (N,)."""
        alike = [replace(each, links=None) for each in self.variants]
        firsts: IntArray = np.array([alike.index(each) for each in alike], dtype=np.int64)[
            self.variant
        ]
        return firsts

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

    @property
    def memory_system(self) -> list[str | None]:
        """The memory of each, None where it is the platform's."""
        names = [variant.memory for variant in self.variants]
        return [names[place] for place in self.variant.tolist()]

    @property
    def frequency_hz(self) -> list[float | None]:
        """The clock of each, None where it is the platform's."""
        clocks = [variant.frequency_hz for variant in self.variants]
        return [clocks[place] for place in self.variant.tolist()]

    @property
    def links(self) -> list[str | None]:
        """The links of each, None where they are the cluster's."""
        links = [variant.links for variant in self.variants]
        return [links[place] for place in self.variant.tolist()]

    def accelerator(self, index: int) -> Accelerator:
        """One of them as a record."""
        variant = self.variants[self.variant[index]]
        columns = {name: getattr(self, name)[index].item() for name in COLUMNS}
        return Accelerator(
            **columns,
            memory_system=variant.memory,
            frequency_hz=variant.frequency_hz,
            links=variant.links,
        )

    def find(self, accelerator: Accelerator) -> int | None:
        """Index of the accelerator with these cores, buffer, memory, clock and links, None where it
        is not in the set."""
        if accelerator.variant not in self.variants:
            return None
        same = [getattr(self, name) == getattr(accelerator, name) for name in SIZES]
        found = np.flatnonzero(
            np.all([*same, self.variant == self.variants.index(accelerator.variant)], axis=0)
        )
        return int(found[0]) if len(found) else None


def _distinct(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows of the columns, and for every row the index of its like."""
    rows, index = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return rows, index.reshape(-1)
