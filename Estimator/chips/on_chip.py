"""What a product takes on the chip, on one tensor core and on all of them, and what that follows
from: neither memory, clock nor energies."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.chips.accelerator import Platform, TensorCores
from phaze_common.array_types import FloatArray, fieldwise
from phaze_common.bounded_memo import BoundedMemo
from phaze_common.sealed import digest

HELD_BYTES = 256 * 2**20  # of products of the whole space of 2024: some hundreds


@dataclass(frozen=True, eq=False)
class OnChip:
    """Cycles between the GLB and the arrays and those of the arrays alone, GLB and L2 bytes, MACs;
    arrays (configurations,)."""

    cycles: FloatArray
    compute_cycles: FloatArray
    glb_bytes: FloatArray
    l2_bytes: FloatArray
    macs: FloatArray

    def times(self, steps: int) -> OnChip:
        """``steps`` such products one after another."""
        return self if steps == 1 else fieldwise(lambda value: value * steps, self)


@dataclass(frozen=True, eq=False)
class OnChipPrices:
    """A product undivided on one core, and spread over all cores."""

    single: OnChip
    spread: OnChip


OnChipMemo = BoundedMemo[tuple[OnChipPrices, ...]]  # of each dataflow of a platform


def on_chip_memo() -> OnChipMemo:
    """Of the products that graphs share, on chips and platforms that need not be the same."""
    return OnChipMemo(
        HELD_BYTES,
        lambda prices: sum(
            array.nbytes
            for each in prices
            for way in (each.single, each.spread)
            for array in vars(way).values()
        ),
    )


def decisive(cores: TensorCores, platform: Platform) -> tuple[object, ...]:
    """All of ``cores`` and ``platform`` that ``OnChipPrices`` depend on."""
    return (
        digest(cores.num.tobytes(), cores.width.tobytes(), cores.depth.tobytes()),
        platform.dataflows,
        platform.glb_bandwidth_bytes_per_cycle,
        platform.concurrent_tc_share,
        platform.weight_rows_per_cycle,
        platform.l2_bytes_per_pe,
        platform.l2_minimum_bytes,
        platform.bytes_per_element,
    )
