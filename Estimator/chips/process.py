"""Constants of a silicon process that a die needs beside cores and buffers: interfaces, clock,
leakage, yield, carbon."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from Estimator.quantity import UncertainQuantity
from phaze_common.errors import InputError


@dataclass(frozen=True)
class ProductFormat:
    """A processing element of another number format than the 16-bit floating point of
    ``Technology``."""

    pe_area: Annotated[UncertainQuantity, "um2"]  # one processing element of a tensor core
    mac_energy: Annotated[UncertainQuantity, "pJ"]  # one multiply-accumulate


@dataclass(frozen=True)
class DieProcess:
    """What a die costs in this process beside arithmetic and memories: area, energy, clock, yield
    and carbon.

    ``leakage`` is at ``leakage_temperature`` and the nominal voltage, and so are the energies of
    ``Technology``. Frequencies are of a chip, not of a transistor: ``nominal_frequency`` is what
    pipelines of tensor cores reach at ``nominal_voltage``.
    """

    formats: dict[str, ProductFormat]  # processing elements of other number formats, by name
    network_core_area: Annotated[UncertainQuantity, "mm2"]  # a router and its port, per core
    # of the chip's network, per bandwidth of a core
    network_bandwidth_area: Annotated[UncertainQuantity, "mm2 per bytes/cycle"]
    network_energy: Annotated[UncertainQuantity, "pJ/byte"]  # of crossing the chip
    # area of memory controllers here, of that at 7 nm
    controller_scale: Annotated[UncertainQuantity, "fraction"]
    phy_scale: Annotated[UncertainQuantity, "fraction"]  # the same of PHYs
    link_area: Annotated[UncertainQuantity, "mm2 per GB/s"]  # PHY and controller, per GB/s each way
    link_edge: Annotated[UncertainQuantity, "mm per GB/s"]  # of the die's edge, per GB/s each way
    # interfaces between dies of a package
    die_to_die_area: Annotated[UncertainQuantity, "mm2 per GB/s"]
    die_to_die_energy: Annotated[UncertainQuantity, "pJ/byte"]  # of crossing from die to die
    # of the memory's, between neighbouring dies
    die_to_die_bandwidth: Annotated[UncertainQuantity, "fraction"]
    # control, test, clock and padding, of all else
    control_share: Annotated[UncertainQuantity, "fraction"]
    # of a GPU: a lane with its share of schedulers, load/store and texture
    simt_lane_area: Annotated[UncertainQuantity, "um2"]
    # of a GPU: operands and instructions, per product
    scheduler_energy: Annotated[UncertainQuantity, "pJ"]
    # tags, crossbar and atomics of a cache, of a scratchpad's area
    cache_overhead: Annotated[UncertainQuantity, "fraction"]
    # clock tree and its registers, per cycle
    clock_energy: Annotated[UncertainQuantity, "pJ per mm2"]
    leakage: Annotated[UncertainQuantity, "W per mm2"]
    leakage_temperature: Annotated[UncertainQuantity, "C"]
    leakage_doubling: Annotated[UncertainQuantity, "K"]  # so much warmer, leakage is twice as much
    nominal_voltage: Annotated[UncertainQuantity, "V"]
    threshold_voltage: Annotated[UncertainQuantity, "V"]  # of transistors
    minimum_voltage: Annotated[UncertainQuantity, "V"]  # that the chip works at
    maximum_voltage: Annotated[UncertainQuantity, "V"]  # that the chip may run at
    # the exponent of the alpha-power law
    velocity_saturation: Annotated[UncertainQuantity, "count"]
    nominal_frequency: Annotated[UncertainQuantity, "Hz"]
    maximum_frequency: Annotated[UncertainQuantity, "Hz"]  # whatever the voltage
    wafer_price: Annotated[UncertainQuantity, "USD"]  # processed
    wafer_diameter: Annotated[UncertainQuantity, "mm"]  # of the whole wafer
    defect_density: Annotated[UncertainQuantity, "per cm2"]  # that make a die fail
    defect_clustering: Annotated[UncertainQuantity, "count"]  # alpha of the negative binomial
    reticle: Annotated[UncertainQuantity, "mm2"]  # the largest die
    wafer_energy: Annotated[UncertainQuantity, "kWh per cm2"]  # of making it, per area
    wafer_gases: Annotated[UncertainQuantity, "kg per cm2"]  # CO2 equivalents of gases
    # CO2 equivalents of procuring materials
    wafer_materials: Annotated[UncertainQuantity, "kg per cm2"]


POSITIVE = (
    *("nominal_voltage", "minimum_voltage", "maximum_voltage", "velocity_saturation"),
    *("nominal_frequency", "maximum_frequency", "leakage_doubling"),
    *("wafer_diameter", "defect_clustering", "reticle"),
)
RISING = ("threshold_voltage", "minimum_voltage", "nominal_voltage", "maximum_voltage")


def process_problems(die: DieProcess, key: str = "die") -> Iterator[InputError]:
    """What cannot be of a process whose constants are all numbers: divisors that are 0, voltages
    that do not rise.

    The supply is always above the threshold.
    """
    for name in POSITIVE:
        quantity: UncertainQuantity = getattr(die, name)
        if quantity.value <= 0:
            yield InputError(
                f"{key}.{name} is {quantity.value:g} {quantity.unit}; it must be positive"
            )
    values = [float(getattr(die, name).value) for name in RISING]
    if not values[0] < values[1] <= values[2] <= values[3]:
        text = ", ".join(f"{name} {value:g} V" for name, value in zip(RISING, values, strict=True))
        yield InputError(
            f"{key}: {text}; they must rise in this order, the minimum above the threshold"
        )
