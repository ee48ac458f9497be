"""Seconds of an operator timed by itself, as operator tables have it: with its launch, at the clock
of a short measurement."""

from dataclasses import dataclass

from Estimator.devices.device import Device
from Estimator.devices.functions import traffic_bytes
from Estimator.devices.gemm import product_time
from GraphExtractor.graph import Gemm


@dataclass(frozen=True)
class Stream:
    """One kernel that applies ``function`` to ``rows`` rows of ``row_length`` elements."""

    function: str
    rows: int
    row_length: int

    def seconds(self, device: Device, element_bytes: int) -> float:
        """Time on the device, without launch: its traffic at the part of the bandwidth that the
        function reaches."""
        memory, elements = device.memory, self.rows * self.row_length
        times = device.reads_again(self.function, self.row_length * element_bytes)
        read_again_bytes = elements * element_bytes * times
        moved = traffic_bytes(self.function, elements, element_bytes) + read_again_bytes
        return moved / memory.stream_bytes_per_s((self.function,))


@dataclass(frozen=True)
class IsolatedOperator:
    """Kernels that were timed together: matrix products, then streams. ``launch`` names what their
    launch costs in the device."""

    launch: str
    number_format: str
    element_bytes: int
    products: tuple[Gemm, ...] = ()
    streams: tuple[Stream, ...] = ()

    def work_s(self, device: Device, year: int | None = None) -> float:
        """Seconds of the kernels, with matrix libraries of a ``year``, and of the gaps between
        them."""
        products = sum(
            product_time(
                gemm, device, self.number_format, self.element_bytes, sustained=False, year=year
            ).seconds
            for gemm in self.products
        )
        streams = sum(stream.seconds(device, self.element_bytes) for stream in self.streams)
        gaps = len(self.products) + len(self.streams) - 1
        return products + streams + gaps * device.launch.gap.value


def isolated_s(operator: IsolatedOperator, device: Device, year: int | None = None) -> float:
    """Seconds that a measurement of ``operator`` alone shows: the device's work behind its launch,
    or the host's if longer.

    Matrix libraries are of the ``year``, None: those that the device is described with.

    Raises:
        InputError: the device does not compute in the operator's number format.
    """
    launch = device.launch
    alone_s = (
        launch.alone[operator.launch].value if operator.launch in launch.alone else launch.gap.value
    )
    floor_s = launch.floor[operator.launch].value if operator.launch in launch.floor else 0.0
    return max(floor_s, alone_s + operator.work_s(device, year))
