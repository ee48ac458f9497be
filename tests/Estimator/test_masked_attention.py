"""What masked attention costs: scores that a mask leaves, tiles with any of them, against counts of
every single score."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.chips.accelerator import Dataflow
from Estimator.chips.attention import attention_traffic, streamed_rows_past
from Estimator.chips.score_tiles import BACKWARD, FORWARD, executed, met_tiles
from Estimator.chips.systolic import divide_up
from GraphExtractor.graph import (
    Attention,
    Gemm,
    Operand,
    OperandRole,
    Operator,
    OperatorKind,
    Phase,
    Yields,
)
from GraphExtractor.score_mask import ScoreMask, mask_of, masked_flops, score_mask

WINDOWS = st.one_of(st.none(), st.integers(0, 45))


def square(mask):
    """Whether each score of the whole square is left."""
    rows, columns = np.indices((mask.columns, mask.columns))
    distance = rows - columns
    left = np.ones_like(distance, dtype=bool)
    if mask.causal:
        left &= distance >= 0
    if mask.window is not None:
        left &= np.abs(distance) <= mask.window
    return left


def of_devices(mask):
    """The same by device, each with its early and its late rows."""
    chunks = [chunk * mask.columns // (2 * mask.devices) for chunk in range(2 * mask.devices + 1)]
    rows = [list(range(*pair)) for pair in pairwise(chunks)]
    whole = square(mask)
    return [
        whole[rows[device] + rows[2 * mask.devices - 1 - device]] for device in range(mask.devices)
    ]


def slowest(mask):
    """Those of the first device that has most."""
    return max(of_devices(mask), key=np.sum)


@st.composite
def any_mask(draw):
    rows, causal, window = draw(st.integers(1, 16)), draw(st.booleans()), draw(WINDOWS)
    return ScoreMask(rows, rows * draw(st.integers(1, 5)), causal or window is None, window)


masks = any_mask()


def starts(side, tile):
    return range(0, side, tile)


@given(masks)
def test_the_scores_left_are_those_counted_one_by_one(mask):
    assert mask.left == slowest(mask).sum()
    assert mask.left_of_all == square(mask).sum()
    assert all(len(device) == mask.rows for device in of_devices(mask))


@given(masks, st.integers(1, 16), st.integers(1, 16))
def test_a_tile_is_met_where_any_of_its_scores_is_left(mask, height, width):
    left = slowest(mask)
    rows, columns = left.shape
    met = sum(
        left[row : row + height, column : column + width].any()
        for row in starts(rows, height)
        for column in starts(columns, width)
    )
    assert met_tiles(mask, height, width) == met


@given(masks, st.integers(1, 80), st.booleans())
def test_past_each_tile_streams_what_meets_it(mask, passes, keys_kept):
    """Queries kept and keys streamed, or turned round."""
    left = slowest(mask).T if keys_kept else slowest(mask)
    passes = min(passes, len(left))

    def past(tiles):
        bounds = [-(-each * len(left) // tiles) for each in range(tiles + 1)]
        return sum(left[first:end].any(axis=0).sum() for first, end in pairwise(bounds))

    least = past(passes) if mask.devices == 1 else min(map(past, range(passes, len(left) + 1)))
    assert streamed_rows_past(mask, passes, keys_kept=keys_kept) == least


@given(masks, st.integers(1, 80), st.booleans())
def test_more_tiles_never_stream_less(mask, passes, keys_kept):
    if passes < (mask.columns if keys_kept else mask.rows):
        more = streamed_rows_past(mask, passes + 1, keys_kept=keys_kept)
        assert streamed_rows_past(mask, passes, keys_kept=keys_kept) <= more


@given(
    masks, st.integers(1, 9), st.integers(1, 9), st.integers(0, 12), st.sampled_from(list(Dataflow))
)
def test_an_array_runs_the_folds_that_meet_a_score(mask, rows, columns, move, dataflow):
    """Of every product of both passes: a fold takes as long as it streams, or as the next tile
    needs to move."""
    left, width = slowest(mask), 3
    height, side = left.shape
    for axes in {*FORWARD, *BACKWARD}:
        sizes = [width] * 3
        sizes[axes.rows], sizes[axes.columns] = height, side
        held = {
            "output": (rows, 0, columns),
            "weight": (0, rows, columns),
            "input": (columns, rows, 0),
        }[dataflow.name.split("_")[0].lower()]
        row_tile, column_tile = held[axes.rows], held[axes.columns]
        streams = side if row_tile else height
        cycles = whole = work = folds = 0.0
        for row in starts(height, row_tile or height):
            for column in starts(side, column_tile or side):
                tile, folds = (
                    left[row : row + (row_tile or height), column : column + (column_tile or side)],
                    folds + 1,
                )
                if row_tile and column_tile:
                    cycles, work, whole = cycles + tile.any(), work + tile.any(), whole + 1
                else:
                    met = tile.any(axis=0 if row_tile else 1).sum()
                    cycles, work, whole = cycles + max(met, move), work + met, whole + streams
        expected = (
            (cycles / whole, work / whole)
            if row_tile and column_tile
            else (cycles / (folds * max(streams, move)), work / whole)
        )
        array = (np.array([rows]), np.array([columns]), np.array([float(move)]))
        found = executed(mask, axes, dataflow, *array)
        assert (found.cycles[0], found.work[0]) == pytest.approx(expected)


@pytest.mark.parametrize(("cp", "excess"), [(2, 1.07), (4, 1.07), (8, 1.07)])
def test_at_32k_tokens_the_slowest_device_of_a_window_is_above_the_mean_and_all_wait_for_it(
    cp, excess
):
    mask = ScoreMask(32768 // cp, 32768, True, 4095)
    mean = mask.left_of_all / cp
    assert 1.0 < mask.left / mean < excess
    alone = ScoreMask(32768, 32768, True, 4095)
    arrays = np.array([128]), np.array([128]), np.array([128.0])
    for axes in {*FORWARD, *BACKWARD}:
        for dataflow in Dataflow:
            share, of_one = (
                executed(each, axes, dataflow, *arrays).work[0] for each in (mask, alone)
            )
            assert share > of_one * (1.0 if cp > 2 else 0.999)


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
            window = executed(
                mask_of(replace(whole, causal=True, window=511)), axes, dataflow, *arrays
            ).work[0]
            assert 0.5 < half < 0.52  # the tiles on the diagonal are computed whole
            assert 0.11 < window < 0.16  # about 512 of 4096 of each row, and the edges of tiles
    assert executed(mask_of(whole), FORWARD[0], Dataflow.WEIGHT_STATIONARY, *arrays).work[0] == 1


@given(st.integers(1, 6), st.integers(1, 8))
def test_devices_that_share_a_sequence_have_equal_parts_of_its_scores(chunk, cp):
    """Device d of a zig-zag has the d-th chunk from the front and the d-th from behind: each has as
    many scores."""
    side = 2 * cp * chunk
    mask = score_mask(side // cp, side, True, None)
    assert {int(device.sum()) for device in of_devices(mask)} == {mask.left}
    assert mask.left * cp == mask.left_of_all


@given(
    masks, st.integers(1, 4), st.integers(200, 4000), st.integers(0, 2000), st.sampled_from(Phase)
)
def test_a_mask_never_adds_traffic_and_a_larger_buffer_never_does(
    mask, head, capacity, more, phase
):
    gemms = attention(mask.rows, mask.columns, width=head, phase=phase).gemms
    capacities = np.array([capacity, capacity + more], dtype=np.float64)
    whole = sum(attention_traffic(gemms, 10_000.0, capacities, 2))
    masked = sum(attention_traffic(gemms, 10_000.0, capacities, 2, mask))
    assert (masked <= whole).all() and masked[1] <= masked[0] and (masked >= 10_000).all()


@pytest.mark.parametrize(("kind", "backward"), [(Attention.EAGER, 2.0), (Attention.FLASH, 2.5)])
def test_flops_of_masked_scores_are_told_of_the_backward_pass_too(extracted, kind, backward):
    layers = extracted("gpt2", sequence_length=128, attention=kind).layers
    forward, behind = (
        sum(
            masked_flops(part.operators, 128) for layer in layers for part in [getattr(layer, name)]
        )
        for name in ("forward", "backward")
    )
    assert forward > 0 and behind == pytest.approx(backward * forward, rel=1e-6)


def test_flops_of_masked_scores_are_what_is_counted_and_not_left():
    side = 16
    operator = attention(side, side)
    assert (
        masked_flops([operator], side) == operator.flops - 2 * 2 * 64 * 4 * side * (side + 1) // 2
    )
    separate = replace(operator, kind=OperatorKind.GEMM, gemms=operator.gemms[:1])
    assert masked_flops([separate], side) == separate.flops - 2 * 64 * 4 * side * (side + 1) // 2
    assert masked_flops([replace(operator, causal=False)], side) == 0
    window = {
        "causal": True,
        "window": 2,
    }  # each of four devices counts the mean, whatever the slowest computes
    assert 4 * masked_flops([attention(side // 4, side, **window)], side) == masked_flops(
        [attention(side, side, **window)], side
    )
    assert mask_of(separate) is None and mask_of(attention(side, side + 1)) is None


def test_moving_tiles_is_not_saved_by_a_mask():
    """Where the next tile takes longer to move than anything streams, a mask that meets every tile
    saves no cycle."""
    mask = ScoreMask(64, 64, True, None)
    found = executed(
        mask,
        FORWARD[0],
        Dataflow.WEIGHT_STATIONARY,
        np.array([8]),
        np.array([8]),
        divide_up(np.array([8000]), 1.0),
    )
    assert found.cycles[0] == 1 and found.work[0] < 0.6
