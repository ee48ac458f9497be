"""What the joules of an operator on one accelerator go to: cores, on-chip memories, HBM, links
between devices."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add

from Estimator.chips.accelerator import Accelerator, AcceleratorSet, Platform
from Estimator.chips.signatures import operator_signature, sent_bytes
from Estimator.chips.tensor_core import (
    JOULES_PER_PJ,
    REGISTER_ACCESSES_PER_MAC,
    CoreEstimate,
    TensorCoreModel,
)
from Estimator.chips.vector_core import VectorCoreModel
from GraphExtractor.graph import Operator
from phaze_common.array_types import fieldwise


@dataclass(frozen=True)
class EnergyParts:
    """Joules by where they go; ``on_chip_memory_j`` is of the buffers of the cores and the global
    one, both ways."""

    tensor_cores_j: float = 0.0  # multiply-accumulates
    vector_cores_j: float = 0.0  # vector functions
    on_chip_memory_j: float = 0.0
    hbm_j: float = 0.0  # device memory
    network_j: float = 0.0  # links between devices

    @property
    def total_j(self) -> float:
        """All of them."""
        return float(sum(astuple(self)))

    def __add__(self, other: EnergyParts) -> EnergyParts:
        return fieldwise(add, self, other)

    def times(self, factor: float) -> EnergyParts:
        """So often."""
        return fieldwise(lambda each: factor * each, self)


@dataclass(frozen=True)
class OperatorTraffic:
    """Off-chip bytes of an operator on one accelerator, re-reads included, and where its joules
    go."""

    hbm_bytes: float
    energy: EnergyParts


class OperatorEnergy:
    """Splits the joules of operators on one chip; the sums are those of ``LatencyTable``."""

    def __init__(self, chip: Accelerator, platform: Platform) -> None:
        self._platform = platform.at(chip.variant)
        cores = AcceleratorSet.of([chip])
        self._tensor = TensorCoreModel(cores.tensor_cores, self._platform)
        self._vector = VectorCoreModel(cores.vector_cores, self._platform)

    def traffic(self, operator: Operator, *, all_cores: bool) -> OperatorTraffic:
        """Of ``operator`` on one core, or spread over all cores of its type."""
        technology, platform = self._platform.technology, self._platform
        sent = sent_bytes(operator)
        hbm_pj = 2 * sent * technology.hbm_energy.value
        network_pj = sent * technology.network_energy.value
        energy = EnergyParts(hbm_j=hbm_pj * JOULES_PER_PJ, network_j=network_pj * JOULES_PER_PJ)
        signature, moved = operator_signature(operator), 2.0 * sent
        if signature.tensor is not None:
            macs = signature.tensor.macs
            registers = macs * REGISTER_ACCESSES_PER_MAC * platform.bytes_per_element
            arithmetic_pj = (
                macs * technology.mac_energy.value + registers * technology.l1_energy.value
            )
            hbm_bytes, split = self._split(
                self._tensor.estimate(signature.tensor), arithmetic_pj, all_cores=all_cores
            )
            moved, energy = moved + hbm_bytes, energy + split
        for element in (signature.element, signature.merges):
            if element is None:
                continue
            cycles = sum(
                piece.elements * self._vector.cycles_per_element(piece.function)
                for piece in element.vector
            )
            lane_pj = (
                technology.vector_lane_energy.value
                + platform.bytes_per_element * technology.l1_energy.value
            )
            hbm_bytes, split = self._split(
                self._vector.estimate(element), cycles * lane_pj, all_cores=all_cores
            )
            on_vector = EnergyParts(0.0, split.tensor_cores_j, split.on_chip_memory_j, split.hbm_j)
            moved, energy = moved + hbm_bytes, energy + on_vector
        return OperatorTraffic(moved, energy)

    def _split(
        self, price: CoreEstimate, arithmetic_pj: float, *, all_cores: bool
    ) -> tuple[float, EnergyParts]:
        """HBM bytes, and joules with those of arithmetic under ``tensor_cores_j``; the rest moves
        data on the chip."""
        if all_cores:
            joules, moved = price.all_j, price.all_hbm_bytes
        else:
            joules, moved = price.single_j, price.single_hbm_bytes
        arithmetic_j, hbm_bytes = arithmetic_pj * JOULES_PER_PJ, float(moved[0])
        hbm_j = hbm_bytes * self._platform.technology.hbm_energy.value * JOULES_PER_PJ
        return hbm_bytes, EnergyParts(
            arithmetic_j, 0.0, max(float(joules[0]) - arithmetic_j - hbm_j, 0.0), hbm_j
        )
