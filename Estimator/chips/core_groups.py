"""Seconds of operators on some of the cores of a type, while others run beside them.

A group of k of n cores is priced as a whole chip of k cores with k/n of its type's share of the
global buffer and of the bandwidths to it and to HBM (``Platform.concurrent_tc_share``): each core
has what it has while operators run on single cores, so no schedule of groups exceeds the chip, and
products find their best split over k cores and their best tiling in that buffer. One core is one
core as before, to the digit. An operator spread over all cores of its type still runs alone and has
everything: a group has at most n - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from Estimator.chips.accelerator import Platform, TensorCores, VectorCores
from Estimator.chips.latency_table import LatencyTable
from Estimator.chips.technology import FloatArray
from Estimator.chips.tensor_core import TensorCoreModel
from Estimator.chips.vector_core import VectorCoreModel

EVERY_COUNT = 16  # of cores up to which every size of a group is priced
SIDE_BY_SIDE = 8  # groups of equal size, up to which the largest that fit are priced


def group_sizes(cores: int) -> tuple[int, ...]:
    """Sizes of groups to price, ascending from one core, all below ``cores`` (but for a single
    core).

    Every one of up to 16 cores; of more powers of two, the largest of which 2 to 8 fit side by
    side, and what those leave.
    """
    if cores <= EVERY_COUNT:
        return tuple(range(1, max(cores, 2)))
    powers = [1 << power for power in range(cores.bit_length()) if 1 << power < cores]
    shares = [cores // count for count in range(2, SIDE_BY_SIDE + 1)]
    return tuple(sorted({*powers, *shares, *(cores - size for size in powers + shares)}))


@dataclass(frozen=True, eq=False)
class CoreGroups:
    """Prices of the work of ``table`` on groups of the cores of its accelerator ``row``."""

    table: LatencyTable
    row: int
    _tensor: dict[int, FloatArray] = field(default_factory=dict)
    _vector: dict[int, FloatArray] = field(default_factory=dict)

    @property
    def num_tc(self) -> int:
        """Tensor cores of the chip."""
        return int(self.table.accelerators.num_tc[self.row])

    @property
    def num_vc(self) -> int:
        """Vector cores of the chip."""
        return int(self.table.accelerators.num_vc[self.row])

    def priced(self, tc: int, vc: int) -> LatencyTable:
        """The table of that chip alone, in which one core of each type is a group of ``tc`` tensor
        or ``vc`` vector cores.

        Joules stay those of one core and of all.
        """
        table, chip = self.table, self.table.accelerators.some(np.array([self.row]))
        tensor, vector = (
            table.accelerators.tc_index[[self.row]],
            table.accelerators.vc_index[[self.row]],
        )
        own = (table.tensor, tensor), (table.vector, vector)
        of_chip = [
            {name: array[:, at] for name, array in vars(prices).items()} for prices, at in own
        ]
        return replace(
            table,
            accelerators=chip,
            tensor=type(table.tensor)(
                **of_chip[0] | {"single_s": self._tensor_s(tc, of_chip[0]["single_s"])}
            ),
            vector=type(table.vector)(
                **of_chip[1] | {"single_s": self._vector_s(vc, of_chip[1]["single_s"])}
            ),
        )

    def _platform(self, share: float) -> Platform:
        """That of the chip, of which a group has ``share``."""
        accelerators = self.table.accelerators
        platform = self.table.platform.at(accelerators.variants[accelerators.variant[self.row]])
        return replace(
            platform,
            glb_bandwidth_bytes_per_cycle=platform.glb_bandwidth_bytes_per_cycle * share,
            hbm_bandwidth_bytes_per_s=platform.hbm_bandwidth_bytes_per_s * share,
        )

    def _tensor_s(self, cores: int, single_s: FloatArray) -> FloatArray:
        """Seconds of the distinct products on a group of tensor cores, shape (works, 1)."""
        if cores == 1:
            return single_s
        if cores not in self._tensor:
            chips, row = self.table.accelerators, self.row
            share = self.table.platform.concurrent_tc_share * cores / self.num_tc
            columns = (
                cores,
                chips.width[row],
                chips.depth[row],
                int(share * chips.glb_bytes[row]),
                0,
            )
            model = TensorCoreModel(
                TensorCores(*(np.array([each], np.int64) for each in columns)),
                self._platform(share),
            )
            found = [model.estimate(work).all_s for work in self.table.work.tensor]
            self._tensor[cores] = np.array(found).reshape(len(found), 1)
        return self._tensor[cores]

    def _vector_s(self, cores: int, single_s: FloatArray) -> FloatArray:
        """Seconds of the distinct vector work on a group of vector cores, shape (works, 1)."""
        if cores == 1:
            return single_s
        if cores not in self._vector:
            chips, row = self.table.accelerators, self.row
            share = (1.0 - self.table.platform.concurrent_tc_share) * cores / self.num_vc
            columns = cores, chips.width_vc[row], chips.glb_bytes[row], 0
            model = VectorCoreModel(
                VectorCores(*(np.array([each], np.int64) for each in columns)),
                self._platform(share),
            )
            found = [model.estimate(work).all_s for work in self.table.work.element]
            self._vector[cores] = np.array(found).reshape(len(found), 1)
        return self._vector[cores]
