"""What is priced beside other cost models: the manual prints what comes out, and names what the
runs that differ share."""

from pathlib import Path

import numpy as np
import pytest

from Estimator.chips.accelerator import Dataflow
from Estimator.hardware_files import HARDWARE, hardware_names
from phaze_common.records import read_yaml
from tests.builders.other_cost_models import (
    AT_ONCE,
    BOTH,
    MANUAL,
    NO_STARTUP,
    a100,
    error,
    llmcompass,
    stored,
    sunstone_run,
    table,
    zigzag_constants,
    zigzag_run,
)

STATIONARY = (Dataflow.WEIGHT_STATIONARY,)


def test_the_manual_shows_the_table_as_it_is_printed(shared_data: Path) -> None:
    assert table(shared_data) in MANUAL.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", hardware_names("platforms"))
def test_every_platform_has_what_the_table_calls_as_it_ships(name: str) -> None:
    """Besides clock and bandwidths, which do not change cycles of computation, they are alike; so
    the table is of one of them."""
    stated = read_yaml(HARDWARE / "platforms" / f"{name}.yaml")
    assert [Dataflow(each) for each in stated["dataflows"]] == list(BOTH)
    assert stated["weight_load"]["value"] == 1.0
    assert stated["l2_per_pe"]["value"] == 16.0


def test_zigzag_differs_where_a_tile_of_weights_takes_longer_to_load_than_to_stream_past(
    shared_data: Path,
) -> None:
    """It loads a tile in a cycle; so with all else as in its runs those far off have fewer rows of
    A than the array has rows."""
    runs = [each for each in stored(shared_data, "zigzag") if each["ports"] == "wide_ports"]
    assert len(runs) == 28
    far = [
        each
        for each in runs
        if abs(error(zigzag_run(each), zigzag_constants(each), STATIONARY)) > 0.10
    ]
    assert far and all(each["M"] < each["rows_K"] for each in far)
    at_once = [
        error(zigzag_run(each), (*zigzag_constants(each), AT_ONCE), STATIONARY) for each in runs
    ]
    assert np.median(np.abs(at_once)) < 0.005
    differing = {
        (each["M"], each["rows_K"])
        for each, value in zip(runs, at_once, strict=True)
        if abs(value) > 0.05
    }
    assert differing == {
        (197, 256),
        (197, 128),
    }  # skew of the array, which ZigZag has not, and ports of the memory
    assert np.abs(at_once).max() < 0.075


def test_one_port_takes_zigzag_longer_where_partial_sums_pass_it_again(shared_data: Path) -> None:
    runs = [each for each in stored(shared_data, "zigzag") if each["ports"] == "shared_port"]
    assert len(runs) == 5
    for each in runs:
        value = error(zigzag_run(each), zigzag_constants(each), STATIONARY)
        assert abs(value) < 0.01 if each["K"] <= each["rows_K"] else value < -0.3


def test_sunstone_agrees_only_where_its_bandwidths_suffice_for_the_array(shared_data: Path) -> None:
    """They do not grow with the array or with the cores: those of 64x64 are as priced, larger and
    more ones wait for them."""
    own = NO_STARTUP, "platform.hbm_bandwidth=2.688e11", "platform.glb_bandwidth=512"
    runs = [sunstone_run(each) for each in stored(shared_data, "sunstone")]
    for run in runs:
        odd = run.gemm.m == 1000  # sizes that none of its tiles divides
        if run.rows == 64 and not odd:
            assert abs(error(run, own)) < 0.02
        else:
            assert error(run, own) < -0.15


def test_arrays_of_16x16_wait_for_the_global_buffer_with_the_local_memory_of_a_platform() -> None:
    starved, fed = (float(each.errors[0]) for each in llmcompass())
    assert starved > 1 and abs(fed) < 0.10


def test_large_products_of_an_a100_are_priced_too_fast_by_a_quarter_at_most(
    shared_data: Path,
) -> None:
    *_, long = a100(shared_data)
    assert len(long.errors) > 10 and -0.25 < long.errors.min() < long.errors.max() < 0
