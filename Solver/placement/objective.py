"""The iteration-time and memory model of a placement: the one place that knows its formulas.

An iteration of S stages, m micro-batches per pipeline and dp replicas under 1F1B takes

    sum of stage loads + (m - 1) · largest load + gradient synchronisation + tied synchronisation + optimizer step

where a load is one micro-batch's forward, backward and recomputation time and its exposed transfers (activations in,
gradients in). For equal stages this is the (m + S - 1) · load of Narayanan et al. 2021 (section 2.2); for stages with one
ratio of forward to backward time it bounds the event-by-event 1F1B schedule from above (``tests/placement/test_1f1b.py``).
All functions take arrays over candidate degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Solver.placement.links import CollectivePrice
from Solver.placement.problem import FloatArray, IntArray, TrainingPolicy

TOLERANCE = 1e-12  # relative: loads, parameter sums and memory closer than this are equal


@dataclass(frozen=True, eq=False)
class Price:
    """Seconds for each parameter of a stage, plus seconds that do not depend on its size; shape of the degrees given."""

    per_parameter_s: FloatArray
    fixed_s: FloatArray


def micro_batches_per_pipeline(micro_batches: int, dp: IntArray) -> IntArray:
    """Micro-batches of the most loaded pipeline."""
    return -(-micro_batches // dp)


def resident_bytes_per_parameter(policy: TrainingPolicy, dp: IntArray) -> FloatArray:
    """Weight, gradient and optimizer bytes a device keeps per parameter (Rajbhandari et al. 2020, ZeRO, figure 1)."""
    weight, gradient, optimizer = (np.where(policy.zero_stage >= stage, dp, 1) for stage in (3, 2, 1))
    resident: FloatArray = (
        policy.weight_bytes / weight + policy.gradient_bytes / gradient + policy.optimizer_state_bytes / optimizer
    )
    return resident


def gradient_sync(policy: TrainingPolicy, half: CollectivePrice, micro_batches: IntArray) -> Price:
    """Reduce-scatter of a stage's gradients over its replicas and, below ZeRO-3, all-gather of what they update.

    Without ZeRO the gradients themselves are gathered (together an all-reduce), with ZeRO-1/2 the updated weights; ZeRO-3 gathers
    weights when they are used (``weight_gather``). From ZeRO-2 on no device has room to add up whole gradients, so those of
    every one of a pipeline's ``micro_batches`` are reduced by themselves (Rajbhandari et al. 2020, section 5.2).
    """
    gathered = {0: policy.gradient_bytes, 1: policy.weight_bytes, 2: policy.weight_bytes, 3: 0.0}[policy.zero_stage]
    reductions = micro_batches if policy.zero_stage >= 2 else np.ones_like(micro_batches)
    gathers = 0 if policy.zero_stage == 3 else 1
    return Price((policy.gradient_bytes * reductions + gathered) * half.per_byte_s, (reductions + gathers) * half.fixed_s)


def weight_gather(policy: TrainingPolicy, halves: Sequence[CollectivePrice], parameters: float, layers: int) -> Price:
    """ZeRO-3's all-gathers of a layer's weights, forward and backward, per micro-batch (``fixed_s`` is per layer); else 0.

    All layers use the algorithm that is the fastest for the whole chain of ``layers`` layers with ``parameters`` parameters.
    """
    if policy.zero_stage < 3:
        return Price(np.zeros_like(halves[0].per_byte_s), np.zeros_like(halves[0].fixed_s))
    total_s = [half.per_byte_s * policy.weight_bytes * parameters + half.fixed_s * layers for half in halves]
    fastest = np.argmin(total_s, axis=0)
    return Price(
        2.0 * policy.weight_bytes * np.choose(fastest, [half.per_byte_s for half in halves]),
        2.0 * np.choose(fastest, [half.fixed_s for half in halves]),
    )


def optimizer_s_per_parameter(policy: TrainingPolicy, dp: IntArray, hbm_bandwidth_bytes_per_s: float) -> FloatArray:
    """Memory-bound optimizer step; from ZeRO-1 on each replica updates its part."""
    shards = dp if policy.zero_stage >= 1 else np.ones_like(dp)
    step: FloatArray = policy.optimizer_step_bytes / hbm_bandwidth_bytes_per_s / shards
    return step


def tied_sync_s(policy: TrainingPolicy, tied: float, seconds_per_byte: FloatArray, latency_s: FloatArray) -> FloatArray:
    """Ring all-reduce of the tied parameters' gradients between first and last stage (two ranks); 0 without tied parameters."""
    if tied == 0.0:
        return np.zeros_like(seconds_per_byte)
    seconds: FloatArray = tied * policy.gradient_bytes * seconds_per_byte + 2.0 * latency_s
    return seconds


def transfer_s(message_bytes: FloatArray, seconds_per_byte: float, latency_s: float) -> FloatArray:
    """Point-to-point messages; an empty message is not sent."""
    return np.where(message_bytes > 0.0, message_bytes * seconds_per_byte + latency_s, 0.0)
