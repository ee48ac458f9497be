"""Times of collectives and transfers at any size, interpolated between what a database measured."""

import math

import numpy as np

from .database import Database

US_PER_S = 1e6
MIB_PER_GIB = 1024.0


def collective_us(database: Database, name: str, devices: int, size_mib: float) -> float | None:
    """Microseconds of a collective; absent where it was not measured over so many devices.

    Below the smallest measured size it takes as long as that (its latency), above the largest in
    proportion.
    """
    found = database.collectives.get((name, devices))
    if found is None or not found.us_by_mib:
        return None
    sizes = np.array(sorted(found.us_by_mib), dtype=float)
    times = np.array([found.us_by_mib[int(size)] for size in sizes])
    if size_mib > sizes[-1] > 0:
        return float(times[-1] * size_mib / sizes[-1])
    return float(np.interp(size_mib, sizes, times))


def all_reduce_us(database: Database, devices: int, size_mib: float) -> float:
    """Microseconds of an all-reduce within a node.

    Where it was not measured it is a reduce-scatter and an all-gather of equal times; else a ring
    at the bandwidth of pairs.
    """
    if devices == 1 or size_mib <= 0:
        return 0.0
    measured = collective_us(database, "all_reduce", devices, size_mib)
    if measured is not None:
        return measured
    gathered = collective_us(database, "all_gather", devices, size_mib / devices)
    if gathered is not None:
        return 2.0 * gathered
    return 2.0 * (devices - 1) * pair_us(database, size_mib / devices, between_nodes=False)


def pair_us(database: Database, size_mib: float, *, between_nodes: bool) -> float:
    """Microseconds from one device to another, at the bandwidth measured for this size (in GiB/s,
    for powers of two of MiB)."""
    if size_mib <= 0:
        return 0.0
    bandwidths = database.between_nodes if between_nodes else database.within_node
    at = min(max(math.log2(size_mib), 0.0), len(bandwidths) - 1.0)
    gib_per_s = float(np.interp(at, np.arange(len(bandwidths)), bandwidths))
    return size_mib / MIB_PER_GIB / gib_per_s * US_PER_S
