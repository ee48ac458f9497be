"""Bytes of a parameter's training state under a framework."""

from __future__ import annotations

from dataclasses import dataclass, replace

from Estimator.devices.software import Software
from Estimator.plans.state_formats import StateFormats
from phaze_common.choices import Precision, StateDtype


@dataclass(frozen=True)
class StateBytes:
    """Bytes per parameter where nothing is sharded; mixed-precision Adam is 2 + 2 + 4 + 8
    (Rajbhandari et al. 2020).

    ``main_weight`` is the optimizer's own copy, 0 where it updates the ``weight`` itself.
    ``second_gradient`` are those of the passes, kept beside the sums of ``gradient`` bytes. Where
    weights are held in fp8, those that no product of a block reads take ``wider`` bytes more than
    ``weight`` (Transformer Engine, ``fp8_model_init``, and torchao convert linear layers alone).
    Where weights are ``gathered`` from shards of the optimizer's copy, there are no others between
    passes. What is no matrix of a block has moments of ``more_moments`` bytes more.
    """

    weight: float
    gradient: float
    main_weight: float
    moments: float
    second_gradient: float = 0.0
    wider: float = 0.0
    gathered: bool = False
    more_moments: float = 0.0

    @property
    def optimizer(self) -> float:
        """What the optimizer keeps."""
        return self.main_weight + self.moments

    @property
    def step(self) -> float:
        """HBM traffic of one step: gradient and state read, state and weight written."""
        updated = 2 * self.main_weight + self.weight if self.main_weight else 2 * self.weight
        return self.gradient + updated + 2 * self.moments

    def under(self, software: Software, precision: Precision, formats: StateFormats) -> StateBytes:
        """The same with gradients as a framework keeps them, unless ``formats`` say how."""
        stated = formats.gradient_dtype
        gradient = max(self.gradient, software.gradient_bytes_in(precision))
        if stated is not None:
            gradient = stated.bytes
        second = 0.0 if software.second_gradient is None else software.second_gradient.value
        if gradient <= second:
            second = 0.0  # sums no wider than the gradients of a pass are those themselves
        gathered = software.gathers_main_weights and self.main_weight > 0.0
        return replace(self, gradient=gradient, second_gradient=second, gathered=gathered)


@dataclass(frozen=True)
class Orthogonalisation:
    """Of a matrix's momentum: ``iterations`` of three products, and ``kernels`` that touch
    ``kernel_bytes`` of each element, all together; the host issues each in ``issue_s``, or as fast
    as others."""

    iterations: int
    kernels: int
    kernel_bytes: float
    issue_s: float


@dataclass(frozen=True)
class OptimizerState:
    """``moments`` per parameter, ``more_moments`` of what is no matrix of a block, and whether
    weights in fewer bits have fp32 copies."""

    moments: int
    main_weights: bool
    more_moments: int = 0
    orthogonal: Orthogonalisation | None = None

    def bytes_in(self, precision: Precision, formats: StateFormats) -> StateBytes:
        """Bytes of a parameter trained in ``precision``, as ``formats`` and usage have it."""
        whole = precision is Precision.FP32
        width = 4.0 if whole else 2.0
        weight = 1.0 if formats.fp8_weights else width
        stated = formats.main_weight_dtype
        main = 4.0 if self.main_weights or formats.fp8_weights else 0.0
        main = main if stated is None else stated.bytes
        if whole or (stated is not None and stated.value == precision.value):
            main = 0.0  # weights of that format are updated in place
        if stated is StateDtype.BF16 and precision.is_reduced and not formats.fp8_weights:
            main = 0.0  # the weights of a training in fp8 are bf16 where they are not held in fp8
        moment = 4.0 if formats.moment_dtype is None else formats.moment_dtype.bytes
        gradient = width if formats.gradient_dtype is None else formats.gradient_dtype.bytes
        more = self.more_moments * moment
        moments, wider = self.moments * moment, width - weight
        return StateBytes(weight, gradient, main, moments, wider=wider, more_moments=more)
