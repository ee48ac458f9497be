"""Records of what a chip with memory as it is sold takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChipPart:
    """One part of a whole: millimetres squared, watts, dollars or kilograms, as the list that it is
    in says."""

    name: str
    amount: float  # in the unit of the key it is listed under


@dataclass(frozen=True)
class BoughtCluster:
    """What money bought for a plan: ``devices`` for ``cluster_usd``, so that ``left_usd`` is left.

    It would have bought ``affordable_devices`` of the chip, of the ``most_devices`` that there are.
    """

    devices: int
    cluster_usd: float
    left_usd: float
    affordable_devices: int
    most_devices: int

    @property
    def money_binds(self) -> bool:
        """Whether no more devices are to be had for the money, rather than for want of devices."""
        return self.affordable_devices < self.most_devices


@dataclass(frozen=True)
class ChipUse:
    """A chip in the plan of one model: mean watts, joules of a sample on all devices, dollars and
    kilograms of CO2 equivalents.

    Watts are of all that the chip does. Joules, and what money and carbon count of them, are of
    operators and of what is drawn all the time, as objectives have them; ``beside_j`` come to a
    sample beside them (``PlanReport.beside_operators_j``).

    Money and carbon count all devices of the cluster while a million tokens are trained, and the
    electricity that they take; where the cluster is ``bought`` these are the devices of the plan.
    """

    average_w: float  # power of a device in training
    sample_j: float  # energy of a sample, with what chips draw all the time
    usd_per_million_tokens: float  # of devices and energy
    kg_per_million_tokens: float  # CO2 equivalents of energy and making
    beside_j: float = 0.0
    bought: BoughtCluster | None = None


@dataclass(frozen=True)
class ChipReport:
    """One chip, its parts adding up: ``cost_usd`` is what it costs by itself, ``owning_usd`` with
    its share of the cluster."""

    dies: int  # of a chip
    frequency_hz: float
    voltage_v: float  # supply
    area_mm2: tuple[ChipPart, ...]
    peak_w: tuple[ChipPart, ...]
    cost_usd: tuple[ChipPart, ...]
    owning_usd: float
    embodied_kg: tuple[ChipPart, ...]
    uses: dict[str, ChipUse]  # what it draws, costs and emits in training, by model
