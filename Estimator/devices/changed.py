"""A device with other sizes than its data sheet has: more or less memory, of another bandwidth, or
another peak."""

from __future__ import annotations

from dataclasses import dataclass, replace

from Estimator.chips.technology import Quantity
from Estimator.devices.device import Device
from phaze_common.errors import InputError
from phaze_common.numbers import number
from phaze_common.units import GIB, GIGA

TERA = 1e12
# formats that a stated peak is that of, the first that a device has
SIXTEEN_BITS = ("bfloat16", "float16")


@dataclass(frozen=True)
class DeviceSizes:
    """Sizes that replace those of a device (None: its own): GiB, GB/s, and dense TFLOP/s of its
    matrix units in 16 bits."""

    memory_size: float | None = None
    memory_bandwidth: float | None = None
    peak_flops: float | None = None


def with_sizes(device: Device, sizes: DeviceSizes) -> Device:
    """``device`` with ``sizes``; its efficiencies stay, its peaks in other formats grow alike, its
    title says what differs.

    Raises:
        InputError: the device was profiled, and its rates are asked for.
    """
    if device.profile is not None and (
        sizes.memory_bandwidth is not None or sizes.peak_flops is not None
    ):
        raise InputError(
            f"{device.title} is priced from what was measured, which no other peak or bandwidth "
            "changes; leave peak_flops and "
            "memory_bandwidth out, or fit a device to it with 'phaze calibrate'"
        )
    memory, matrix, changes = device.memory, device.matrix, []
    if sizes.memory_size is not None:
        memory = replace(memory, capacity=_new(sizes.memory_size * GIB, memory.capacity))
        changes.append(f"{number(sizes.memory_size)} GiB")
    if sizes.memory_bandwidth is not None:
        memory = replace(memory, bandwidth=_new(sizes.memory_bandwidth * GIGA, memory.bandwidth))
        changes.append(f"{number(sizes.memory_bandwidth)} GB/s")
    if sizes.peak_flops is not None:
        own = next(
            (matrix.peak[name].value for name in SIXTEEN_BITS if name in matrix.peak),
            max(_values(device)),
        )
        peak_flops = sizes.peak_flops * TERA
        peaks = matrix.peak.items()
        new = {name: _new(peak_flops * (peak.value / own), peak) for name, peak in peaks}
        matrix = replace(matrix, peak=new)
        changes.append(f"{number(sizes.peak_flops)} TFLOP/s")
    if not changes:
        return device
    return replace(
        device, title=f"{device.title} with {', '.join(changes)}", memory=memory, matrix=matrix
    )


def _new(value: float, own: Quantity) -> Quantity:
    return Quantity(value, own.unit, "asked for in place of the device's own")


def _values(device: Device) -> list[float]:
    return [peak.value for peak in device.matrix.peak.values()]
