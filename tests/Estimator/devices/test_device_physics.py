"""What must hold on every device: more work never takes less time, better hardware never more, a
launch only adds."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from Estimator.chips.technology import Quantity
from Estimator.devices.device import Device, Tile
from Estimator.devices.files import device_names, load_device
from Estimator.devices.functions import TENSORS_MOVED
from Estimator.devices.gemm import product_time
from Estimator.devices.isolated import IsolatedOperator, Stream, isolated_s
from GraphExtractor.graph import Gemm

DEVICE_NAMES = st.sampled_from(device_names())
DIMENSIONS = st.one_of(
    st.integers(1, 300), st.sampled_from([511, 512, 513, 1024, 2047, 2048, 2049, 12288, 51200])
)
GEMMS = st.builds(Gemm, st.sampled_from([1, 2, 3, 16, 96]), DIMENSIONS, DIMENSIONS, DIMENSIONS)
FUNCTIONS = st.sampled_from(sorted(TENSORS_MOVED))
CLOSE = 1 + 1e-12

device = lru_cache(maxsize=None)(load_device)


def formats(name: str) -> str:
    return "bfloat16" if "bfloat16" in device(name).matrix.peak else "float16"


def seconds(gemm: Gemm, on: Device, name: str) -> float:
    return product_time(gemm, on, formats(name), 2).seconds


def scaled(quantity: Quantity, factor: float) -> Quantity:
    return replace(quantity, value=quantity.value * factor)


@example(
    name="a100_80gb", gemm=Gemm(1, 64, 511, 64), dimension="k", more=1
)  # from where two processors share the sum
@given(
    name=DEVICE_NAMES,
    gemm=GEMMS,
    dimension=st.sampled_from(["batch", "m", "k", "n"]),
    more=st.integers(1, 300),
)
def test_a_larger_product_never_takes_less(
    name: str, gemm: Gemm, dimension: str, more: int
) -> None:
    larger = replace(gemm, **{dimension: getattr(gemm, dimension) + more})
    assert seconds(gemm, device(name), name) <= seconds(larger, device(name), name) * CLOSE


def with_processors(on: Device, factor: float) -> Device:
    engine = on.matrix
    more = Quantity(round(engine.processors.value * factor), "count", "")
    whole = more.value / engine.processors.value
    peak = {key: scaled(value, whole) for key, value in engine.peak.items()}
    return replace(on, matrix=replace(engine, processors=more, peak=peak))


IMPROVEMENTS: dict[str, Callable[[Device, float], Device]] = {
    "processors": with_processors,
    "peak": lambda on, factor: replace(
        on,
        matrix=replace(
            on.matrix, peak={key: scaled(value, factor) for key, value in on.matrix.peak.items()}
        ),
    ),
    "efficiency": lambda on, factor: replace(
        on, matrix=replace(on.matrix, efficiency=scaled(on.matrix.efficiency, factor))
    ),
    "sustained": lambda on, factor: replace(
        on, matrix=replace(on.matrix, sustained=scaled(on.matrix.sustained, factor))
    ),
    "fill": lambda on, factor: replace(
        on, matrix=replace(on.matrix, fill=scaled(on.matrix.fill, 1 / factor))
    ),
    "bandwidth": lambda on, factor: replace(
        on, memory=replace(on.memory, bandwidth=scaled(on.memory.bandwidth, factor))
    ),
    "tiles": lambda on, factor: replace(
        on, matrix=replace(on.matrix, tiles=(*on.matrix.tiles, Tile(32, 32, 0.4)))
    ),
}


@given(
    name=DEVICE_NAMES,
    gemm=GEMMS,
    better=st.sampled_from(sorted(IMPROVEMENTS)),
    factor=st.floats(1.0, 4.0),
)
def test_better_hardware_never_takes_longer(
    name: str, gemm: Gemm, better: str, factor: float
) -> None:
    assert (
        seconds(gemm, IMPROVEMENTS[better](device(name), factor), name)
        <= seconds(gemm, device(name), name) * CLOSE
    )


@given(name=DEVICE_NAMES, gemm=GEMMS)
def test_no_product_beats_peak_or_bandwidth(name: str, gemm: Gemm) -> None:
    on = device(name)
    moved = 2 * gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
    time = product_time(gemm, on, formats(name), 2, sustained=False)
    assert time.arithmetic_s >= 2 * gemm.macs / on.peak_flops(formats(name)) / CLOSE
    assert time.traffic_s >= moved / on.memory.bandwidth.value / CLOSE


@given(name=DEVICE_NAMES, gemm=GEMMS)
def test_training_is_no_faster_than_a_measurement_without_launch(name: str, gemm: Gemm) -> None:
    assert (
        seconds(gemm, device(name), name)
        >= product_time(gemm, device(name), formats(name), 2, sustained=False).seconds
    )


@given(
    name=DEVICE_NAMES,
    function=FUNCTIONS,
    rows=st.integers(1, 4096),
    length=st.integers(1, 65536),
    more=st.integers(1, 4096),
)
def test_more_rows_and_longer_rows_never_take_less(
    name: str, function: str, rows: int, length: int, more: int
) -> None:
    base = Stream(function, rows, length).seconds(device(name), 2)
    assert base <= Stream(function, rows + more, length).seconds(device(name), 2)
    assert base <= Stream(function, rows, length + more).seconds(device(name), 2)


@given(
    name=DEVICE_NAMES, function=FUNCTIONS, rows=st.integers(1, 4096), length=st.integers(1, 4096)
)
def test_a_vector_function_moves_its_operands_at_most_at_the_bandwidth(
    name: str, function: str, rows: int, length: int
) -> None:
    moved = 2 * rows * length * TENSORS_MOVED[function]
    assert (
        Stream(function, rows, length).seconds(device(name), 2)
        >= moved / device(name).memory.bandwidth.value / CLOSE
    )


def test_long_rows_are_read_again_where_the_cache_does_not_hold_them() -> None:
    a100, v100 = device("a100_80gb"), device("v100_32gb")
    assert a100.reads_again("layer_norm", 8192 * 2) == 0
    assert (
        0
        < a100.reads_again("layer_norm", 16384 * 2)
        < a100.reads_again("layer_norm", 32768 * 2)
        == 2
    )
    assert v100.reads_again("layer_norm", 2048 * 2) == 0  # its cache is smaller
    assert v100.reads_again("layer_norm", 5120 * 2) == 1
    assert a100.reads_again("softmax", 32768 * 2) == 0


@given(
    name=DEVICE_NAMES,
    gemm=GEMMS,
    alone_s=st.floats(0, 1e-3),
    floor_s=st.floats(0, 1e-3),
)
def test_a_launch_only_adds(name: str, gemm: Gemm, alone_s: float, floor_s: float) -> None:
    on = device(name)
    operator = IsolatedOperator(
        "gemm", formats(name), 2, products=(gemm,), streams=(Stream("copy", gemm.m, gemm.n),)
    )
    alone, floor = {"gemm": Quantity(alone_s, "s", "")}, {"gemm": Quantity(floor_s, "s", "")}
    bare = isolated_s(
        operator,
        replace(on, launch=replace(on.launch, alone={"gemm": Quantity(0, "s", "")}, floor={})),
    )
    launched = isolated_s(
        operator, replace(on, launch=replace(on.launch, alone=alone, floor=floor))
    )
    assert launched == pytest.approx(max(floor_s, bare + alone_s))
    assert bare >= product_time(gemm, on, formats(name), 2, sustained=False).seconds
