"""Every configuration transformer-perf-estimates tries for a training, under its own rules.

tp1         divides the GPUs, the heads and the width e; leaves at least 128 features (1D: of 3 e,
            the queries, keys and values)
tp2         divides the GPUs that are left; leaves at least 128 tokens; 2D: divides e. 1D: 1
pp          divides the layers and the GPUs that are left
dp          is what is left, and divides the global batch
micro-batch divides the batch of a replica; its tokens divide by the GPUs they are split over (2D:
            tp2, else tp1 tp2)
panels      2D: max(tp1, tp2) times powers of two that divide e and leave panels of 512 or more; the
            first where none does
nv          shares of the fast domain, one of each degree that divides it: with the domain's size as
            their product, or all of every degree where everything fits into one domain
"""

import math
from dataclasses import dataclass

import numpy as np

from phaze_common.array_types import IntArray
from phaze_common.errors import InputError

from .configurations import Configurations, LayerLayouts, Strategy, Training

LEAST_FEATURES = LEAST_TOKENS = 128
LEAST_PANEL = 512
MOST_CONFIGURATIONS = 10_000_000  # some 2 GB


@dataclass(frozen=True, eq=False)
class Grid:
    """Tensor parallel degrees with what depends on them alone: (micro-batch, panels) pairs,
    ascending; arrays (choices,)."""

    tp1: int
    tp2: int
    micro_batch: IntArray
    panels: IntArray


@dataclass(frozen=True, eq=False)
class Cell:
    """Degrees of all four kinds, by the place of their grid, and the places of its choices that the
    replica's batch allows."""

    grid: int
    pp: int
    dp: int
    choices: IntArray


def space(training: Training) -> Configurations:
    """All configurations, feasible or not; none where the numbers do not divide. Raises InputError:
    there are more than memory holds."""
    grids = _grids(training)
    cells = [cell for place, grid in enumerate(grids) for cell in _cells(training, place, grid)]
    cell, shares = _shares(training, grids, cells)
    counts = np.array([len(each.choices) for each in cells], dtype=np.int64)[cell]
    total = int(counts.sum())
    _refuse_too_many(total, "configurations")
    if not total:
        return Configurations.of([])
    return _configurations(grids, cells, cell, shares, counts)


def _refuse_too_many(count: int, what: str) -> None:
    if count > MOST_CONFIGURATIONS:
        raise InputError(
            f"the space has {count:,} {what}, at most {MOST_CONFIGURATIONS:,} are searched at "
            "once; give fewer GPUs, a smaller fast domain or a batch with fewer divisors"
        )


def _grids(training: Training) -> list[Grid]:
    model, found = training.model, []
    batches = np.array(divisors(training.global_batch), dtype=np.int64)
    for tp1 in divisors(math.gcd(training.gpus, model.heads, model.hidden)):
        features = 3 * model.hidden if training.strategy is Strategy.ONE_D else model.hidden
        if features // tp1 < LEAST_FEATURES:
            continue
        for tp2 in _second_degrees(training, tp1):
            parts = tp2 if training.strategy is Strategy.TWO_D else tp1 * tp2
            allowed = batches[batches % (parts // math.gcd(parts, model.sequence_length)) == 0]
            panels = panel_counts(training, tp1, tp2)
            found.append(
                Grid(tp1, tp2, np.repeat(allowed, len(panels)), np.tile(panels, len(allowed)))
            )
    return found


def _second_degrees(training: Training, tp1: int) -> list[int]:
    if training.strategy is Strategy.ONE_D:
        return [1]
    left = training.gpus // tp1
    if training.strategy is Strategy.TWO_D:
        left = math.gcd(left, training.model.hidden)
    return [
        each for each in divisors(left) if training.model.sequence_length // each >= LEAST_TOKENS
    ]


def panel_counts(training: Training, tp1: int, tp2: int) -> IntArray:
    """Numbers of panels that are tried on ``tp1`` x ``tp2`` GPUs, ascending; (counts,)."""
    if training.strategy is not Strategy.TWO_D:
        return np.ones(1, dtype=np.int64)
    width, first = training.model.hidden, max(tp1, tp2)
    candidates = [first << power for power in range((width // first).bit_length())]
    wide = [each for each in candidates if width % each == 0 and width // each >= LEAST_PANEL]
    return np.array(wide if width / first >= LEAST_PANEL else [first], dtype=np.int64)


def _cells(training: Training, place: int, grid: Grid) -> list[Cell]:
    left, layers, found = training.gpus // (grid.tp1 * grid.tp2), training.model.layers, []
    for pp in divisors(math.gcd(left, layers)):
        dp = left // pp
        if training.global_batch % dp == 0:
            choices = np.flatnonzero((training.global_batch // dp) % grid.micro_batch == 0)
            found.append(Cell(place, pp, dp, choices))
    return found


def _shares(training: Training, grids: list[Grid], cells: list[Cell]) -> tuple[IntArray, IntArray]:
    """Cells (rows,) with shares of the fast domain (rows, 4), in the order tp1, tp2, pp, dp."""
    degrees = np.array(
        [(grids[each.grid].tp1, grids[each.grid].tp2, each.pp, each.dp) for each in cells],
        dtype=np.int64,
    )
    if not cells or training.gpus <= training.nvlink_size:
        return np.arange(len(cells)), degrees.reshape(-1, 4)
    shares = np.array(_factorisations(training.nvlink_size), dtype=np.int64)
    _refuse_too_many(
        len(cells) * len(shares), "combinations of degrees and shares of the fast domain"
    )
    cell, share = np.nonzero((degrees[:, None, :] % shares == 0).all(axis=2))
    return cell, shares[share]


def _factorisations(size: int) -> list[tuple[int, int, int, int]]:
    return [
        (first, second, third, size // (first * second * third))
        for first in divisors(size)
        for second in divisors(size // first)
        for third in divisors(size // (first * second))
    ]


def _configurations(
    grids: list[Grid], cells: list[Cell], cell: IntArray, shares: IntArray, counts: IntArray
) -> Configurations:
    """Rows of (cell, share) times the choices of the cell; layouts are the choices of a grid times
    its shares of tp1 and tp2."""
    grid = np.array([each.grid for each in cells], dtype=np.int64)[cell]
    most = int(shares[:, :2].max()) + 1
    _, first, placed = np.unique(
        (grid * most + shares[:, 0]) * most + shares[:, 1], return_index=True, return_inverse=True
    )
    of_grid, nv_tp1, nv_tp2 = grid[first], shares[first, 0], shares[first, 1]  # by placed grid
    sizes = np.array([len(each.micro_batch) for each in grids], dtype=np.int64)[of_grid]
    begins = np.cumsum(sizes) - sizes
    chosen = [grids[place] for place in of_grid]
    layouts = LayerLayouts(
        tp1=np.repeat([each.tp1 for each in chosen], sizes),
        tp2=np.repeat([each.tp2 for each in chosen], sizes),
        micro_batch=np.concatenate([each.micro_batch for each in chosen]),
        panels=np.concatenate([each.panels for each in chosen]),
        nv_tp1=np.repeat(nv_tp1, sizes),
        nv_tp2=np.repeat(nv_tp2, sizes),
    )
    choices = np.concatenate([each.choices for each in cells])
    of_cell = np.array([len(each.choices) for each in cells], dtype=np.int64)
    choice_begins = (np.cumsum(of_cell) - of_cell)[cell]
    row_begins = np.cumsum(counts) - counts
    place = np.arange(int(counts.sum())) + np.repeat(choice_begins - row_begins, counts)
    return Configurations(
        layouts=layouts,
        layout=choices[place] + np.repeat(begins[placed], counts),
        pp=np.repeat(np.array([each.pp for each in cells], dtype=np.int64)[cell], counts),
        dp=np.repeat(np.array([each.dp for each in cells], dtype=np.int64)[cell], counts),
        nv_pp=np.repeat(shares[:, 2], counts),
        nv_dp=np.repeat(shares[:, 3], counts),
    )


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return small + [number // each for each in reversed(small) if each * each != number]
