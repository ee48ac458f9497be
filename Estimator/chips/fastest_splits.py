"""Compiled: the fastest of many ways to split a product over tensor cores, on many arrays; bytes
that cores exchange with the global buffer."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.chips.tiling import ACCUMULATOR_BYTES
from Estimator.compiled import borrowing_inner, borrowing_outer
from phaze_common.array_types import FloatArray, IntArray


class Ways(NamedTuple):
    """Ways to split a product, in rising order of ``parts``: arrays of shape (ways,).

    Sizes of a part, of which there are ``products`` and those of the batch; bytes of a split
    reduction, and those that are the least to exchange with the GLB."""

    parts: IntArray
    batch: FloatArray
    m: FloatArray
    k: FloatArray
    n: FloatArray
    products: FloatArray
    reduction_bytes: FloatArray
    least_bytes: FloatArray


class Arrays(NamedTuple):
    """Distinct arrays, (arrays,): their sizes, cycles until the next tile is there, parts that they
    execute of a product's cycles and of its work, and which of ``capacities`` their local buffer
    has."""

    rows: FloatArray
    columns: FloatArray
    move: FloatArray
    cycles_part: FloatArray
    work_part: FloatArray
    buffer: IntArray
    capacities: FloatArray


@borrowing_inner
def least_traffic(m: float, k: float, n: float, capacity: float, element: int) -> float:
    """Bytes of all operands under the best of the tilings of ``tile_traffic``."""
    a_bytes, b_bytes, c_bytes = m * k * element, k * n * element, m * n * element
    least = np.inf
    panel = np.floor((capacity - 2 * k * element) / (k * element + ACCUMULATOR_BYTES))
    if panel >= 1:
        least = min(
            a_bytes + np.ceil(m / panel) * b_bytes + c_bytes,
            np.ceil(n / panel) * a_bytes + b_bytes + c_bytes,
        )
    for which in range(2):
        first, second = (m, n) if which == 0 else (n, m)
        first_bytes, second_bytes = (b_bytes, a_bytes) if which == 0 else (a_bytes, b_bytes)
        side, one = 1.0, 0.0
        while one < first:
            one = min(side, first)
            side *= 2.0
            other = np.floor(
                (capacity - 2 * one * element) / (ACCUMULATOR_BYTES * one + 2 * element)
            )
            if one == 1:
                other = max(other, 1.0)
            if other >= 1:
                of_first = np.ceil(first / one) * first_bytes
                of_second = np.ceil(second / other) * second_bytes
                least = min(least, of_first + of_second + c_bytes)
    return least


@borrowing_outer
def fill_least_traffic(
    m: FloatArray,
    k: FloatArray,
    n: FloatArray,
    capacities: FloatArray,
    element: int,
    least: FloatArray,
) -> None:
    """Fill ``least`` (products, capacities) with the traffic of products of such sizes."""
    for product in range(len(m)):
        for place in range(len(capacities)):
            least[product, place] = least_traffic(
                m[product], k[product], n[product], capacities[place], element
            )


@borrowing_outer
def fill_faster(
    ways: Ways,
    others: IntArray,
    arrays: Arrays,
    on: IntArray,
    stationary: int,
    macs: float,
    bandwidth: float,
    element: int,
    scratch: FloatArray,
    bytes_of: FloatArray,
    best: FloatArray,
) -> None:
    """Where one of ``others`` is faster than ``best`` (3, arrays) on one of the arrays ``on``, put
    its cycles, those of the array alone and the bytes of the GLB there.

    A part of a split streams at most a useful row a cycle, so too few parts are too slow; and it
    moves its operands at least once. By that bound the way that may be fastest is priced first, and
    then those that may still be faster. A fold holds B, A or the result: ``stationary`` 0, 1 or 2.
    ``scratch`` (2, others) and ``bytes_of`` (others, capacities) are room."""
    bytes_of[:] = -1.0
    for array in on:
        rows, columns, move = arrays.rows[array], arrays.columns[array], arrays.move[array]
        cycles_part, work_part = arrays.cycles_part[array], arrays.work_part[array]
        buffer, known = arrays.buffer[array], best[0, array]
        fewest = macs / (rows * columns * known) * cycles_part * (1 - 1e-9)
        first = -1
        for place in range(len(others)):
            way = others[place]
            if ways.parts[way] < fewest:
                scratch[1, place] = np.inf
                continue
            m, k, n = ways.m[way], ways.k[way], ways.n[way]
            if stationary == 0:
                folds, stream = np.ceil(k / rows) * np.ceil(n / columns), m
            elif stationary == 1:
                folds, stream = np.ceil(k / rows) * np.ceil(m / columns), n
            else:
                folds, stream = np.ceil(m / rows) * np.ceil(n / columns), k
            steady = ((ways.batch[way] * folds - 1) * max(stream, move) + stream) * cycles_part
            least = max(steady, ways.least_bytes[way] * work_part / bandwidth)
            least += ways.reduction_bytes[way] / bandwidth
            scratch[0, place], scratch[1, place] = steady, least
            if first < 0 or least < scratch[1, first]:
                first = place
        if first < 0:
            continue
        for turn in range(-1, len(others)):
            place = first if turn < 0 else turn
            if turn < 0:
                limit = known
            if turn == 0:
                limit = best[0, array]
            if scratch[1, place] >= limit or turn == first:
                continue
            way = others[place]
            if bytes_of[place, buffer] < 0.0:
                bytes_of[place, buffer] = ways.products[way] * least_traffic(
                    ways.m[way], ways.k[way], ways.n[way], arrays.capacities[buffer], element
                )
            moved, reduction = bytes_of[place, buffer] * work_part, ways.reduction_bytes[way]
            cycles = max(scratch[0, place], moved / bandwidth) + reduction / bandwidth
            if cycles < best[0, array]:
                best[0, array], best[1, array] = cycles, scratch[0, place]
                best[2, array] = moved + reduction
