"""Records of what a chip with memory as it is sold takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChipPart:
    """One part of a whole: millimetres squared, watts, dollars or kilograms, as the list that it is in says."""

    name: str
    amount: float


@dataclass(frozen=True)
class ChipUse:
    """A chip in the plan of one model: mean watts, joules of a sample on all devices, dollars and kilograms of CO2 equivalents.

    Money and carbon count all devices of the cluster while a million tokens are trained, and the electricity that they take.
    """

    average_w: float
    sample_j: float
    usd_per_million_tokens: float
    kg_per_million_tokens: float


@dataclass(frozen=True)
class ChipReport:
    """One chip, its parts adding up: ``cost_usd`` is what it costs by itself, ``owning_usd`` with its share of the cluster."""

    dies: int
    frequency_hz: float
    voltage_v: float
    area_mm2: tuple[ChipPart, ...]
    peak_w: tuple[ChipPart, ...]
    cost_usd: tuple[ChipPart, ...]
    owning_usd: float
    embodied_kg: tuple[ChipPart, ...]
    uses: dict[str, ChipUse]
