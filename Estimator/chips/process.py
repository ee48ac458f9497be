"""Constants of a silicon process that a die needs beside cores and buffers: interfaces, clock, leakage, yield, carbon."""

from dataclasses import dataclass
from typing import Annotated

from Estimator.quantity import UncertainQuantity


@dataclass(frozen=True)
class ProductFormat:
    """A processing element of another number format than the 16-bit floating point of ``Technology``."""

    pe_area: Annotated[UncertainQuantity, "um2"]
    mac_energy: Annotated[UncertainQuantity, "pJ"]


@dataclass(frozen=True)
class DieProcess:
    """What a die costs in this process beside arithmetic and memories: area, energy, clock, yield and carbon.

    ``leakage`` is at ``leakage_temperature`` and the nominal voltage, and so are the energies of ``Technology``. Frequencies
    are of a chip, not of a transistor: ``nominal_frequency`` is what pipelines of tensor cores reach at ``nominal_voltage``.
    """

    formats: dict[str, ProductFormat]
    network_core_area: Annotated[UncertainQuantity, "mm2"]  # a router and its port, per core
    network_bandwidth_area: Annotated[UncertainQuantity, "mm2 per bytes/cycle"]
    network_energy: Annotated[UncertainQuantity, "pJ/byte"]  # of crossing the chip
    controller_scale: Annotated[UncertainQuantity, "fraction"]  # area of memory controllers here, of that at 7 nm
    phy_scale: Annotated[UncertainQuantity, "fraction"]  # the same of PHYs
    link_area: Annotated[UncertainQuantity, "mm2 per GB/s"]  # PHY and controller, per GB/s each way
    link_edge: Annotated[UncertainQuantity, "mm per GB/s"]
    link_energy: Annotated[UncertainQuantity, "pJ/byte"]
    die_to_die_area: Annotated[UncertainQuantity, "mm2 per GB/s"]
    die_to_die_energy: Annotated[UncertainQuantity, "pJ/byte"]
    die_to_die_bandwidth: Annotated[UncertainQuantity, "fraction"]  # of the memory's, between neighbouring dies
    control_share: Annotated[UncertainQuantity, "fraction"]  # control, test, clock and padding, of all else
    simt_lane_area: Annotated[UncertainQuantity, "um2"]  # of a GPU: a lane with its share of schedulers, load/store and texture
    scheduler_energy: Annotated[UncertainQuantity, "pJ"]  # of a GPU: operands and instructions, per product
    cache_overhead: Annotated[UncertainQuantity, "fraction"]  # tags, crossbar and atomics of a cache, of a scratchpad's area
    clock_energy: Annotated[UncertainQuantity, "pJ per mm2"]  # clock tree and its registers, per cycle
    leakage: Annotated[UncertainQuantity, "W per mm2"]
    leakage_temperature: Annotated[UncertainQuantity, "C"]
    leakage_doubling: Annotated[UncertainQuantity, "K"]  # so much warmer, leakage is twice as much
    nominal_voltage: Annotated[UncertainQuantity, "V"]
    threshold_voltage: Annotated[UncertainQuantity, "V"]
    minimum_voltage: Annotated[UncertainQuantity, "V"]
    maximum_voltage: Annotated[UncertainQuantity, "V"]
    velocity_saturation: Annotated[UncertainQuantity, "count"]  # the exponent of the alpha-power law
    nominal_frequency: Annotated[UncertainQuantity, "Hz"]
    maximum_frequency: Annotated[UncertainQuantity, "Hz"]
    wafer_price: Annotated[UncertainQuantity, "USD"]
    wafer_diameter: Annotated[UncertainQuantity, "mm"]
    defect_density: Annotated[UncertainQuantity, "per cm2"]
    defect_clustering: Annotated[UncertainQuantity, "count"]  # alpha of the negative binomial
    reticle: Annotated[UncertainQuantity, "mm2"]
    wafer_energy: Annotated[UncertainQuantity, "kWh per cm2"]
    wafer_gases: Annotated[UncertainQuantity, "kg per cm2"]  # CO2 equivalents of gases
    wafer_materials: Annotated[UncertainQuantity, "kg per cm2"]  # CO2 equivalents of procuring materials
