"""What masked attention costs: scores that a mask leaves, tiles with any of them, against counts of every single score."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.chips.accelerator import Dataflow
from Estimator.chips.attention import attention_traffic, streamed_in_square
from Estimator.chips.score_tiles import BACKWARD, FORWARD, executed, met_tiles
from Estimator.chips.systolic import divide_up
from GraphExtractor.graph import Gemm, Operand, OperandRole, Operator, OperatorKind, Phase, Yields
from GraphExtractor.score_mask import ScoreMask, mask_of, masked_flops, score_mask

SIDES = st.integers(1, 40)
WINDOWS = st.one_of(st.none(), st.integers(0, 45))


def scores(mask):
    """Whether each score of the whole square is left."""
    rows, columns = np.indices((mask.columns, mask.columns))
    distance = rows - columns
    left = np.ones_like(distance, dtype=bool)
    if mask.causal:
        left &= distance >= 0
    if mask.window is not None:
        left &= np.abs(distance) <= mask.window
    return left


masks = st.builds(
    lambda side, causal, window: ScoreMask(side, side, causal or window is None, window), SIDES, st.booleans(), WINDOWS
)


def starts(side, tile):
    return range(0, side, tile)


@given(masks)
def test_the_scores_left_are_those_counted_one_by_one(mask):
    assert mask.left == scores(mask).sum()


@given(masks, st.integers(1, 16), st.integers(1, 16))
def test_a_tile_is_met_where_any_of_its_scores_is_left(mask, height, width):
    left = scores(mask)
    side = mask.columns
    met = sum(
        left[row : row + height, column : column + width].any() for row in starts(side, height) for column in starts(side, width)
    )
    assert met_tiles(mask, height, width) == met


@given(masks, st.integers(1, 40))
def test_past_each_tile_streams_what_meets_it(mask, passes):
    """Queries kept and keys streamed, or turned round."""
    passes = min(passes, mask.columns)
    left = scores(mask)
    bounds = [-(-each * mask.columns // passes) for each in range(passes + 1)]
    tiles = [left[first:end].any(axis=0).sum() for first, end in pairwise(bounds)]
    assert streamed_in_square(mask, passes) == sum(tiles)


@given(masks, st.integers(1, 39))
def test_more_tiles_never_stream_less(mask, passes):
    if passes < mask.columns:
        assert streamed_in_square(mask, passes) <= streamed_in_square(mask, passes + 1)


@given(masks, st.integers(1, 9), st.integers(1, 9), st.integers(0, 12), st.sampled_from(list(Dataflow)))
def test_an_array_runs_the_folds_that_meet_a_score(mask, rows, columns, move, dataflow):
    """Of every product of both passes: a fold takes as long as it streams, or as the next tile needs to move."""
    left, side, width = scores(mask), mask.columns, 3
    for axes in {*FORWARD, *BACKWARD}:
        sizes = [width] * 3
        sizes[axes.rows] = sizes[axes.columns] = side
        held = {"output": (rows, 0, columns), "weight": (0, rows, columns), "input": (columns, rows, 0)}[
            dataflow.name.split("_")[0].lower()
        ]
        row_tile, column_tile = held[axes.rows], held[axes.columns]
        cycles = whole = work = 0.0
        for row in starts(side, row_tile or side):
            for column in starts(side, column_tile or side):
                tile = left[row : row + (row_tile or side), column : column + (column_tile or side)]
                if row_tile and column_tile:
                    cycles, work, whole = cycles + tile.any(), work + tile.any(), whole + 1
                else:
                    met = tile.any(axis=0 if row_tile else 1).sum()
                    cycles, work, whole = cycles + max(met, move), work + met, whole + side
        folds = whole / side
        expected = (
            (cycles / whole, work / whole) if row_tile and column_tile else (cycles / (folds * max(side, move)), work / whole)
        )
        array = (np.array([rows]), np.array([columns]), np.array([float(move)]))
        found = executed(mask, axes, dataflow, *array)
        assert (found.cycles[0], found.work[0]) == pytest.approx(expected)


def attention(rows, columns, causal=True, window=None, width=64, heads=4, phase=Phase.FORWARD):
    operand = Operand((heads, rows, width), "bfloat16", OperandRole.ACTIVATION)
    forward = (Gemm(heads, rows, width, columns), Gemm(heads, rows, columns, width))
    backward = (
        forward[0],
        Gemm(heads, columns, rows, width),
        Gemm(heads, rows, width, columns),
        forward[1],
        Gemm(heads, columns, rows, width),
    )
    gemms = forward if phase is Phase.FORWARD else backward
    return Operator(
        1,
        "attention",
        OperatorKind.ATTENTION,
        phase,
        Yields.OUTPUT,
        gemms,
        reads=(operand,) * 3,
        writes=(operand,),
        core_attention=True,
        causal=causal,
        window=window,
    )


@pytest.mark.parametrize("phase", Phase)
def test_a_long_causal_attention_multiplies_half_and_a_window_its_part(phase):
    whole = attention(4096, 4096, causal=False, phase=phase)
    arrays = np.array([128]), np.array([128]), np.array([128.0])
    for axes in FORWARD if phase is Phase.FORWARD else BACKWARD:
        for dataflow in Dataflow:
            half = executed(mask_of(replace(whole, causal=True)), axes, dataflow, *arrays).work[0]
            window = executed(mask_of(replace(whole, causal=True, window=511)), axes, dataflow, *arrays).work[0]
            assert 0.5 < half < 0.52  # the tiles on the diagonal are computed whole
            assert 0.11 < window < 0.16  # about 512 of 4096 of each row, and the edges of tiles
    assert executed(mask_of(whole), FORWARD[0], Dataflow.WEIGHT_STATIONARY, *arrays).work[0] == 1


@given(st.integers(1, 6), st.integers(1, 8))
def test_devices_that_share_a_sequence_have_equal_parts_of_its_scores(chunk, cp):
    """Device d of a zig-zag has the d-th chunk from the front and the d-th from behind: each has as many scores."""
    side = 2 * cp * chunk
    mask = score_mask(side // cp, side, True, None)
    left = scores(mask)
    chunks = left.reshape(2 * cp, chunk, side).sum(axis=(1, 2))
    assert {int(chunks[device] + chunks[-1 - device]) for device in range(cp)} == {mask.left}


@given(masks, st.integers(1, 4), st.integers(200, 4000), st.integers(0, 2000), st.sampled_from(Phase))
def test_a_mask_never_adds_traffic_and_a_larger_buffer_never_does(mask, head, capacity, more, phase):
    gemms = attention(mask.rows, mask.columns, width=head, phase=phase).gemms
    capacities = np.array([capacity, capacity + more], dtype=np.float64)
    whole = sum(attention_traffic(gemms, 10_000.0, capacities, 2))
    masked = sum(attention_traffic(gemms, 10_000.0, capacities, 2, mask))
    assert (masked <= whole).all() and masked[1] <= masked[0] and (masked >= 10_000).all()


def test_flops_of_masked_scores_are_what_is_counted_and_not_left():
    side = 16
    operator = attention(side, side)
    assert masked_flops([operator], side) == operator.flops - 2 * 2 * 64 * 4 * side * (side + 1) // 2
    separate = replace(operator, kind=OperatorKind.GEMM, gemms=operator.gemms[:1])
    assert masked_flops([separate], side) == separate.flops - 2 * 64 * 4 * side * (side + 1) // 2
    assert masked_flops([replace(operator, causal=False)], side) == 0
    assert mask_of(separate) is None and mask_of(attention(side, side + 1)) is None


def test_moving_tiles_is_not_saved_by_a_mask():
    """Where the next tile takes longer to move than anything streams, a mask that meets every tile saves no cycle."""
    mask = ScoreMask(64, 64, True, None)
    found = executed(mask, FORWARD[0], Dataflow.WEIGHT_STATIONARY, np.array([8]), np.array([8]), divide_up(np.array([8000]), 1.0))
    assert found.cycles[0] == 1 and found.work[0] < 0.6
