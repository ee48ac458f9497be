"""Prices from what was measured: exactly that where it was, growing with the work between and
beyond, and marked as such."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.devices.changed import DeviceSizes, with_sizes
from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel, PassStarts
from Estimator.hardware_files import load_cluster
from Estimator.network.collectives import collective_s
from Estimator.profiled.cost_model import ProfiledModel, check_model, operator_model, source_counts
from Estimator.profiled.database import append_operator, pack_tables, read_database
from Estimator.profiled.fits import Rates, SizeFit, held_out_errors
from Estimator.profiled.overhead import overhead_of, pass_starts_of, run_again_s_of
from Estimator.profiled.sources import PriceSource
from GraphExtractor.graph import CollectiveKind, Operator, OperatorGraph, Phase
from phaze_common.errors import InputError
from tests.builders.operators_by_hand import attention_operator, recurrent_operator
from tests.builders.profiles_by_hand import (
    OPERATORS,
    PASSES,
    PEAK,
    product,
    row,
    seconds_of,
    stream,
    written,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("database")
    written(path)
    return path


def model_of(folder: Path) -> ProfiledModel:
    device = load_device(str(folder))
    model = operator_model(device, load_software(device.software), "float32")
    assert isinstance(model, ProfiledModel)
    return model


def priced(model: DeviceModel, operator: Operator) -> float:
    return float(model.price(OperatorGraph((operator,), ())).alone.seconds[0, 0])


def test_measured_seconds_are_what_is_priced(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [row(operator, float(rng.uniform(1e-6, 1e-2))) for operator in OPERATORS]
    written(tmp_path, rows)
    model = model_of(tmp_path)
    for each in rows:
        named = replace(each.operator, id=7, name="somewhere.else", forward_id=3)
        assert priced(model, named) == pytest.approx(each.timing.seconds, rel=1e-12)
        assert model.source(named) is PriceSource.MEASURED


def test_between_measured_sizes_is_interpolated_and_beyond_them_fitted(folder: Path) -> None:
    model = model_of(folder)
    for size, source in (
        (16, PriceSource.MEASURED),
        (100, PriceSource.INTERPOLATED),
        (8, PriceSource.FITTED),
        (512, PriceSource.FITTED),
    ):
        operator = product(size, 64, 128)
        assert model.source(operator) is source
        assert priced(model, operator) == pytest.approx(seconds_of(operator), rel=0.15)
    assert model.source(stream("never_seen", 1000)) is PriceSource.FITTED
    assert model.source(recurrent_operator(0, 1, 8, 8)) is PriceSource.FITTED


@settings(max_examples=60)
@given(
    points=st.lists(st.tuples(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3)), min_size=1, max_size=12),
    asked=st.lists(st.floats(1e-10, 1e4), min_size=2, max_size=8),
)
def test_fits_never_fall_however_the_measurements_lie(points, asked) -> None:
    fit = SizeFit.of(*zip(*points, strict=True))
    seconds = [fit.seconds_at(work_s) for work_s in sorted(asked)]
    assert all(np.isfinite(seconds)) and min(seconds) > 0
    assert all(low <= high * (1 + 1e-9) for low, high in pairwise(seconds))


@settings(max_examples=40)
@given(seconds=st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=8))
def test_a_fit_goes_through_measurements_that_rise(seconds) -> None:
    works, rising = [1e-6 * 2**index for index in range(len(seconds))], sorted(seconds)
    fit = SizeFit.of(works, rising)
    for work_s, each in zip(works, rising, strict=True):
        assert fit.seconds_at(work_s) == pytest.approx(each, rel=1e-9)
        assert fit.holds(work_s)
    assert not fit.holds(works[0] / 2) and not fit.holds(works[-1] * 2)


def test_nothing_is_faster_than_the_best_measured_product(tmp_path: Path) -> None:
    fast = product(256, 64, 128)
    written(tmp_path, [row(fast, fast.flops / PEAK), row(stream("add", 2**20))])
    model = model_of(tmp_path)
    assert model.peak_flops("float32")[0] == pytest.approx(PEAK)
    for operator in (product(4096, 4096, 4096), attention_operator(0, 2, 8, 256, 64)):
        assert priced(model, operator) >= operator.flops / PEAK * (1 - 1e-12)


def test_what_a_framework_adds_is_found_in_passes_and_counted_as_launches(tmp_path: Path) -> None:
    overhead = overhead_of(PASSES).phases[Phase.FORWARD]
    assert overhead.per_operator_s == pytest.approx(5e-6, rel=1e-6)
    assert overhead.per_second == pytest.approx(0.1, rel=1e-6)
    written(tmp_path, passes=PASSES)
    model, operator = model_of(tmp_path), OPERATORS[0]
    costs = model.price(OperatorGraph((operator,), ())).alone
    assert costs.launch_s[0, 0] == pytest.approx(5e-6 + 0.1 * seconds_of(operator), rel=1e-6)
    assert (costs.arithmetic_s + costs.memory_s)[0, 0] == pytest.approx(
        seconds_of(operator), rel=1e-12
    )


def test_waits_before_passes_cost_what_most_models_paid_for_them(
    folder: Path, tmp_path: Path
) -> None:
    assert model_of(folder).pass_starts == PassStarts()
    rows = [
        replace(each, model=model, start_s=start_s * (2 if each.phase is Phase.BACKWARD else 1))
        for model, parts in {"a": (3e-4, -1e-4), "b": (5e-4, 1e-4), "c": (9e-3, 0.0)}.items()
        for each, start_s in zip(PASSES, (*parts, *parts), strict=True)
    ]
    found = pass_starts_of(rows)
    assert (found.forward_s, found.backward_s) == pytest.approx((6e-4, 1.2e-3))
    assert pass_starts_of([replace(each, start_s=-1e-4) for each in PASSES]) == PassStarts()
    written(tmp_path, passes=rows)
    assert model_of(tmp_path).pass_starts == found


def test_a_recomputed_layer_costs_what_most_of_those_measured_did(
    folder: Path, tmp_path: Path
) -> None:
    assert model_of(folder).run_again_s == 0.0
    rows = [
        replace(each, again_s=again_s if each.phase is Phase.BACKWARD else None)
        for again_s in (3e-4, -1e-4, 9e-3)
        for each in PASSES
    ]
    assert run_again_s_of(rows) == pytest.approx(3e-4)
    assert run_again_s_of([replace(each, again_s=-1e-4) for each in PASSES]) == 0.0
    written(tmp_path, passes=rows)
    assert model_of(tmp_path).run_again_s == pytest.approx(3e-4)
    pack_tables(tmp_path)
    assert read_database(tmp_path).passes == tuple(dict.fromkeys(rows))


def test_sources_are_counted_with_their_seconds(folder: Path) -> None:
    model = model_of(folder)
    measured, fitted = OPERATORS[0], product(1, 1, 1)
    counts = source_counts([(measured, 3), (replace(measured, id=5), 1), (fitted, 2)], model)
    assert counts.operators == {"measured": 1, "interpolated": 0, "fitted": 1}
    whole = 4 * priced(model, measured) + 2 * priced(model, fitted)
    assert counts.share_of_seconds["measured"] == pytest.approx(4 * priced(model, measured) / whole)
    assert sum(counts.share_of_seconds.values()) == pytest.approx(1)
    assert "1 measured" in counts.words and "none of this model" not in counts.words
    assert "none of this model was measured" in source_counts([(fitted, 1)], model).words


def test_the_network_is_that_of_the_measured_exchanges(folder: Path) -> None:
    cluster = load_cluster(str(folder / "machine.yaml"))
    assert cluster.num_devices == 8
    for size, group in ((2**20, 2), (2**24, 4)):
        measured_s = 1e-4 + 2 * (group - 1) / group * size / 1e9
        assert collective_s(CollectiveKind.ALL_REDUCE, size, group, 1, cluster) == pytest.approx(
            measured_s, rel=0.25
        )


def test_a_number_format_that_was_not_measured_is_refused(folder: Path) -> None:
    device = load_device(str(folder))
    with pytest.raises(
        InputError,
        match="no operators measured in bfloat16, only in float32; give --precision fp32",
    ):
        operator_model(device, load_software(device.software), "bfloat16")


def test_a_database_that_changed_since_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    device = load_device(str(tmp_path))
    append_operator(tmp_path, row(product(5, 5, 5)))
    with pytest.raises(InputError, match="has changed since it was read"):
        operator_model(device, load_software(device.software), "float32")


def test_a_database_without_products_is_no_device(tmp_path: Path) -> None:
    written(tmp_path, [row(stream("add", 100))])
    with pytest.raises(InputError, match="has no measured matrix product"):
        load_device(str(tmp_path))


def test_measured_rates_cannot_be_asked_to_be_others(folder: Path) -> None:
    device = load_device(str(folder))
    assert with_sizes(device, DeviceSizes(memory_size=1.0)).memory.capacity.value == 2**30
    with pytest.raises(InputError, match="priced from what was measured"):
        with_sizes(device, DeviceSizes(peak_flops=1.0))


def test_held_out_rows_of_a_regular_machine_are_predicted() -> None:
    rows = [row(product(size, 64, 128)) for size in (16, 32, 64, 128, 256, 512)]
    errors = held_out_errors(rows, Rates(PEAK, 1e10))
    assert len(errors) == len(rows)
    assert np.abs(errors).max() < 0.15


def test_a_database_of_other_models_alone_is_refused(folder: Path) -> None:
    model = model_of(folder)
    other = product(17, 65, 129)
    with pytest.raises(
        InputError,
        match=r"was measured for by_hand, and has no operator of gpt2; add it with 'phaze profile",
    ):
        check_model(model, "gpt2", [other])
    check_model(model, "by_hand", [other])
    check_model(model, "gpt2", [other, OPERATORS[0]])


def test_probes_are_no_measurement_of_a_model(tmp_path: Path) -> None:
    shared = replace(row(OPERATORS[0]), model="probe")
    written(tmp_path, (shared, *map(row, OPERATORS[1:])))
    with pytest.raises(InputError, match="has no operator of gpt2"):
        check_model(model_of(tmp_path), "gpt2", [OPERATORS[0]])
