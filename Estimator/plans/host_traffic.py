"""Compiled: what travels between a device and its host, and what of it computation does not hide.

Both directions run beside whatever the device does in a pass, or in the step, its exposed
communication included: all of that counts as products do (``Estimator.network.contention``), and
slows host traffic down and is slowed down by it. What of a layer travels cannot hide behind this
layer itself, so one layer's part of a stage always shows. Where one after the other is faster than
all at once, they do not overlap. So more bandwidth never takes longer, and more computation never
less.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.compiled import borrowing_inner

FloatArray = NDArray[np.float64]

BUSY, TO_DEVICE, FROM_DEVICE = range(3)


class HostRates(NamedTuple):
    """What a plan keeps in host memory, per parameter. Arrays of shape (2,) tell dense parameters
    from experts.

    ``weights`` and ``gradients`` are bytes on their way in one direction of one pass, ``step_in``
    and ``step_out`` those of a step, ``state`` those of optimizer state on a device, ``kept`` all
    bytes in host memory. ``slowdown`` (3, 3) is that of busy devices, traffic to them and traffic
    from them by each other.
    """

    used: bool
    seconds_per_byte: float  # one way, all devices at once
    slowdown: FloatArray
    weights: FloatArray
    gradients: FloatArray
    state: FloatArray
    step_in: FloatArray
    step_out: FloatArray
    kept: FloatArray
    kept_gradient: float  # of a sparse row's parameter
    in_flight: float  # micro-batches of which a stage keeps activations at most
    room_bytes: float  # of host memory for each device; infinite where that is not known


class PassTraffic(NamedTuple):
    """Bytes of one pass, to the device and from it."""

    to_device: float
    from_device: float


class HostSeconds(NamedTuple):
    """What traffic adds to a pass, and what of it by itself computation hides."""

    exposed_s: float
    hidden_s: float


@borrowing_inner
def together_s(busy_s: float, to_s: float, from_s: float, slowdown: FloatArray) -> float:
    """Seconds until all three end that start together (``contention.joint_s`` of one row)."""
    total_s = 0.0
    for _ in range(3):
        slower_busy, slower_to, slower_from = 1.0, 1.0, 1.0
        if busy_s > 0.0:
            slower_busy += slowdown[BUSY, BUSY]
            slower_to += slowdown[TO_DEVICE, BUSY]
            slower_from += slowdown[FROM_DEVICE, BUSY]
        if to_s > 0.0:
            slower_busy += slowdown[BUSY, TO_DEVICE]
            slower_to += slowdown[TO_DEVICE, TO_DEVICE]
            slower_from += slowdown[FROM_DEVICE, TO_DEVICE]
        if from_s > 0.0:
            slower_busy += slowdown[BUSY, FROM_DEVICE]
            slower_to += slowdown[TO_DEVICE, FROM_DEVICE]
            slower_from += slowdown[FROM_DEVICE, FROM_DEVICE]
        step_s = np.inf
        if busy_s > 0.0:
            step_s = min(step_s, busy_s * slower_busy)
        if to_s > 0.0:
            step_s = min(step_s, to_s * slower_to)
        if from_s > 0.0:
            step_s = min(step_s, from_s * slower_from)
        if step_s == np.inf:
            break
        total_s += step_s
        ended_s = step_s * (1.0 + 1e-12)
        busy_s = busy_s - step_s / slower_busy if busy_s * slower_busy > ended_s else 0.0
        to_s = to_s - step_s / slower_to if to_s * slower_to > ended_s else 0.0
        from_s = from_s - step_s / slower_from if from_s * slower_from > ended_s else 0.0
    return total_s


@borrowing_inner
def host_seconds(
    host: HostRates, traffic: PassTraffic, busy_s: float, layers: float
) -> HostSeconds:
    """What ``traffic`` takes beside ``busy_s`` of a pass through ``layers`` layers."""
    if traffic.to_device <= 0.0 and traffic.from_device <= 0.0:
        return HostSeconds(0.0, 0.0)
    one, rest = 1.0 / layers, (layers - 1.0) / layers
    to_s = traffic.to_device * host.seconds_per_byte
    from_s = traffic.from_device * host.seconds_per_byte
    alone_s = together_s(0.0, to_s, from_s, host.slowdown)
    added_s = together_s(busy_s * rest, to_s * rest, from_s * rest, host.slowdown) - busy_s * rest
    exposed_s = alone_s * one + min(max(added_s, 0.0), alone_s * rest)
    return HostSeconds(exposed_s, alone_s - exposed_s)
