"""Optimizers: what ZeRO divides of a parameter's state, and what a step takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Estimator.devices.software import Software
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import NOTHING, Offload
from Estimator.plans.outer_step import STATE_BYTES, STEP_BYTES, OuterStep
from Estimator.plans.state_bytes import OptimizerState, StateBytes
from Estimator.plans.state_formats import AS_USUAL, StateFormats
from phaze_common.choices import Precision, StateDtype
from phaze_common.errors import InputError
from phaze_common.records import read_yaml, to_record

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingPolicy:
    """State of parameters and how it is sharded: ZeRO stage 1 shards optimizer state, 2 gradients
    too, 3 weights too.

    ``zero_stage`` may be an array that broadcasts with the ``copies`` that methods are given.
    """

    state: StateBytes
    zero_stage: int | IntArray
    outer: OuterStep | None = None

    def resident_bytes(self, copies: IntArray, offload: Offload = NOTHING) -> FloatArray:
        """Weight, gradient and optimizer bytes each of ``copies`` devices keeps per parameter
        (Rajbhandari et al., figure 1).

        Without the parts of them that it keeps in its host's memory (``offload``).
        """
        weight, gradient, state = self.parts_bytes(copies)
        kept: FloatArray = (
            weight * (1.0 - offload.weights)
            + gradient * (1.0 - offload.gradients)
            + state * (1.0 - offload.optimizer)
        )
        if self.outer is not None:
            kept = kept + STATE_BYTES * self.updated_part(copies)
        return kept

    def parts_bytes(self, copies: IntArray) -> FloatArray:
        """Weight, gradient, optimizer bytes per parameter on each of ``copies``, (3, ...)."""
        weight, gradient, state = (
            np.where(self.zero_stage >= stage, copies, 1) for stage in (3, 2, 1)
        )
        gradients = self.state.gradient + self.state.second_gradient
        # shards of weights that are made of those of the optimizer's copy count there
        of_weights = self.state.weight if self.state.gathered else 0.0
        twice = np.where(np.greater_equal(self.zero_stage, 3), of_weights, 0.0)
        optimizer = self.state.optimizer - twice
        return np.stack([self.state.weight / weight, gradients / gradient, optimizer / state])

    def wide(self, copies: IntArray, offload: Offload, bandwidth_bytes_per_s: float) -> FloatArray:
        """What a parameter takes more that is no matrix of a block, shape (..., 4): its weight is
        not held in fp8 where others are, and it has a second moment under Muon too.

        Bytes on a device, bytes that are gathered, seconds of a step, and bytes in host memory
        (``PlanRates.wide``); ``copies`` have any shape.
        """
        # of what is gathered from the optimizer's own copy nothing else is kept
        kept = self.state.wider * np.where(self.state.gathered & np.equal(self.zero_stage, 3), 0, 1)
        whole = kept / np.where(self.zero_stage == 3, copies, 1)
        updated = self.updated_part(copies)
        written_s = (self.state.wider + 2 * self.state.more_moments) * updated
        sent, held = np.full(np.shape(copies), self.state.wider), whole * (1.0 - offload.weights)
        moments = self.state.more_moments * updated
        columns = [held + moments, sent, written_s / bandwidth_bytes_per_s, whole * offload.weights]
        return np.stack(columns, axis=-1)

    def updated_part(self, copies: IntArray) -> FloatArray:
        """Part of the parameters that each of ``copies`` updates: from ZeRO-1 on its own."""
        part: FloatArray = np.where(self.zero_stage >= 1, 1.0 / copies, 1.0)
        return part

    def step_s(
        self, copies: IntArray, bandwidth_bytes_per_s: float, devices: IntArray
    ) -> FloatArray:
        """Seconds per parameter of the memory-bound step on each of ``copies`` among the
        ``devices`` of a plan, with an iteration's part of an outer one."""
        step_s = self.state.step / bandwidth_bytes_per_s * self.updated_part(copies)
        return step_s + self.outer_s(copies, bandwidth_bytes_per_s, devices)

    def outer_s(
        self, copies: IntArray, bandwidth_bytes_per_s: float, devices: IntArray
    ) -> FloatArray:
        """Of ``step_s`` the outer step's."""
        if self.outer is None:
            return np.zeros(np.shape(copies))
        step_s = STEP_BYTES / bandwidth_bytes_per_s * self.updated_part(copies) / self.outer.steps
        return step_s + self.outer.exchange_s(copies, devices)

    @property
    def whole_bytes(self) -> FloatArray:
        """What a device holds beyond its own part of a layer at work, and of one beside it, per
        parameter: shape (2, 2).

        From ZeRO-2 on the whole gradient of the layer, until it is reduced; under ZeRO-3 also its
        gathered weights, and those of the layer that is gathered ahead of its work (FSDP prefetches
        one, as DeepSpeed does in so many bytes). The second row is what weights that are not held
        in fp8 take more.
        """
        gradient = self.state.gradient if self.zero_stage >= 2 else 0.0
        weight, wider = (
            (self.state.weight, self.state.wider) if self.zero_stage == 3 else (0.0, 0.0)
        )
        return np.array([[gradient + weight, weight], [wider, wider]])


@cache  # of the file that ships; a search asks for every plan
def optimizer_state(optimizer: str) -> OptimizerState:
    """The entry of ``optimizer`` in ``policies.yaml``."""
    path = Path(__file__).with_name("policies.yaml")
    return to_record(OptimizerState, read_yaml(path)[optimizer], f"{path} ({optimizer})")


@cache
def training_policy(
    optimizer: str,
    zero_stage: int,
    precision: Precision = Precision.BF16,
    formats: StateFormats = AS_USUAL,
) -> TrainingPolicy:
    """The state that ``optimizer`` keeps, sharded as ``zero_stage`` says; of gradients as wide as
    weights where nobody says."""
    return TrainingPolicy(optimizer_state(optimizer).bytes_in(precision, formats), zero_stage)


def policy_under(
    software: Software, plan: UniformPlan, zero_stage: int | IntArray | None = None
) -> TrainingPolicy:
    """How ``plan`` trains as ``software`` keeps gradients, or under another ZeRO stage."""
    zero = plan.sharding if zero_stage is None else zero_stage
    state = training_policy(plan.optimizer, 0, plan.precision, plan.state_formats).state
    state = state.under(software, plan.precision, plan.state_formats)
    return TrainingPolicy(state, zero, OuterStep.of(plan))


def check_formats(plan: UniformPlan) -> None:
    """Refuse number formats of state that the training of ``plan`` cannot have.

    Raises:
        InputError: says what was given and what is allowed.
    """
    formats, precision = plan.state_formats, plan.precision
    if formats.fp8_weights and not precision.reads_fp8:
        raise InputError(
            f"fp8_weights is true, but products in {precision} do not read weights in fp8; give "
            "precision fp8, or leave fp8_weights out"
        )
    if precision is Precision.FP32 and formats.main_weight_dtype not in {None, StateDtype.FP32}:
        raise InputError(
            f"main_weight_dtype is {formats.main_weight_dtype}, but a training in fp32 updates its "
            "fp32 weights themselves; leave main_weight_dtype out, or give another precision"
        )
    if formats.moment_dtype is not None and not optimizer_state(plan.optimizer).moments:
        raise InputError(
            f"moment_dtype is {formats.moment_dtype}, but the optimizer {plan.optimizer} keeps no "
            "moments; leave moment_dtype out, or give optimizer adam"
        )
    if plan.offload.optimizer and optimizer_state(plan.optimizer).orthogonal is not None:
        raise InputError(
            f"the state of {plan.optimizer} stays on the device, where its matrices are "
            "orthogonalised; leave offload optimizer out, or give optimizer adam"
        )
