"""Optimizers: bytes per parameter, what of them ZeRO divides, and the traffic of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Common.choices import Precision
from Common.records import read_yaml, to_record
from Estimator.devices.software import Software
from Plans.offload import NOTHING, Offload

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingPolicy:
    """Bytes per parameter and how they are sharded: ZeRO stage 1 shards optimizer state, 2 gradients too, 3 weights too.

    Mixed-precision Adam is 2 + 2 + 12 (Rajbhandari et al. 2020); ``optimizer_step_bytes`` is a step's HBM traffic per parameter.
    """

    optimizer: str
    weight_bytes: float
    gradient_bytes: float
    optimizer_state_bytes: float
    optimizer_step_bytes: float
    zero_stage: int
    second_gradient_bytes: float = 0.0  # of gradients that are kept beside those

    def under(self, software: Software, precision: Precision) -> TrainingPolicy:
        """The policy as a framework keeps gradients in a training in ``precision``."""
        beside = 0.0 if software.second_gradient is None else software.second_gradient.value
        return replace(self.with_gradients_of(software.gradient_bytes_in(precision)), second_gradient_bytes=beside)

    def with_gradients_of(self, gradient_bytes: float) -> TrainingPolicy:
        """The policy of a framework that keeps, reduces and reads gradients of at least ``gradient_bytes`` each."""
        more = max(gradient_bytes - self.gradient_bytes, 0.0)
        return replace(self, gradient_bytes=self.gradient_bytes + more, optimizer_step_bytes=self.optimizer_step_bytes + more)

    def resident_bytes(self, copies: IntArray, offload: Offload = NOTHING) -> FloatArray:
        """Weight, gradient and optimizer bytes each of ``copies`` devices keeps per parameter (Rajbhandari et al., figure 1).

        Without the parts of them that it keeps in its host's memory (``offload``).
        """
        weight, gradient, state = self.parts_bytes(copies)
        kept: FloatArray = (
            weight * (1.0 - offload.weights) + gradient * (1.0 - offload.gradients) + state * (1.0 - offload.optimizer)
        )
        return kept

    def parts_bytes(self, copies: IntArray) -> FloatArray:
        """Weight, gradient and optimizer bytes of each of ``copies`` devices per parameter, shape (3, ...)."""
        weight, gradient, state = (np.where(self.zero_stage >= stage, copies, 1) for stage in (3, 2, 1))
        gradients = self.gradient_bytes + self.second_gradient_bytes
        return np.stack([self.weight_bytes / weight, gradients / gradient, self.optimizer_state_bytes / state])

    def updated_part(self, copies: IntArray) -> FloatArray:
        """Part of the parameters that each of ``copies`` devices updates: from ZeRO-1 on its own."""
        return 1.0 / copies if self.zero_stage >= 1 else np.ones(copies.shape)

    def step_s(self, copies: IntArray, bandwidth_bytes_per_s: float) -> FloatArray:
        """Seconds per parameter of the memory-bound step; from ZeRO-1 on each of ``copies`` devices updates its part."""
        parts = copies if self.zero_stage >= 1 else np.ones_like(copies)
        seconds: FloatArray = self.optimizer_step_bytes / bandwidth_bytes_per_s / parts
        return seconds

    @property
    def whole_bytes(self) -> float:
        """What a device holds per parameter of a layer at work beyond its own part of it.

        From ZeRO-2 on the whole gradient, until it is reduced; under ZeRO-3 also the gathered weights, and the next layer's.
        """
        gradient = self.gradient_bytes if self.zero_stage >= 2 else 0.0
        return gradient + (2 * self.weight_bytes if self.zero_stage == 3 else 0.0)


@cache  # of the file that ships; a search asks for every plan
def training_policy(optimizer: str, zero_stage: int, precision: Precision = Precision.BF16) -> TrainingPolicy:
    """The entry of ``optimizer`` in ``policies.yaml``, sharded as ``zero_stage`` says; in fp32 one of its own."""
    path = Path(__file__).with_name("policies.yaml")
    name = f"{optimizer}_fp32" if precision is Precision.FP32 else optimizer
    entry = {**read_yaml(path)[name], "optimizer": optimizer, "zero_stage": zero_stage}
    return to_record(TrainingPolicy, entry, f"{path} ({optimizer})")
