"""Every device, calibrated to rows and validated on the same: errors are the same, and so are
products in prices of training."""

import csv
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phaze
from Estimator.chips.technology import Quantity
from Estimator.devices.calibration import calibrate, read_measurements
from Estimator.devices.calibration_tables import measured_function, measured_product
from Estimator.devices.device import Device, Libraries
from Estimator.devices.files import device_names, load_device, load_software
from Estimator.devices.isolated import isolated_s
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.written_yaml import written_yaml
from GraphExtractor.graph import Gemm

SIZES = (
    (512, 1024, 512),
    (2048, 2048, 2048),
    (4096, 8192, 4096),
    (8192, 4096, 8192),
    (12288, 4096, 4096),
)
FUNCTIONS = ("softmax", "gelu", "layer_norm")
SLOWER = 0.8  # of what the device is said to reach


def slowed(device: Device) -> Device:
    """A device that reaches less than is stated, of its peak and of its bandwidth."""
    engine, memory = device.matrix, device.memory
    efficiency = replace(engine.efficiency, value=SLOWER * engine.efficiency.value)
    functions = {
        name: replace(each, value=SLOWER * each.value) for name, each in memory.functions.items()
    }
    copies = replace(memory.efficiency, value=SLOWER * memory.efficiency.value)
    return replace(
        device,
        matrix=replace(engine, efficiency=efficiency),
        memory=replace(memory, efficiency=copies, functions=functions),
    )


def measured(device: Device, path: Path, formats: Iterable[str]) -> Path:
    """What a slower device of the kind would show, a hundredth up and down."""
    truth, random = slowed(device), np.random.default_rng(7)
    rows = list[tuple[object, ...]]()
    for number_format in formats:
        for m, k, n in SIZES:
            operator = measured_product(Gemm(1, m, k, n), number_format, 1.0, "").operator
            rows.append(
                (
                    "gemm",
                    m,
                    k,
                    n,
                    "",
                    "",
                    number_format,
                    isolated_s(operator, truth) * random.normal(1.0, 0.01),
                )
            )
    for function in FUNCTIONS:
        for lines in (256, 2048, 16384):
            operator = measured_function(function, lines, 4096, "float16", 1.0, "").operator
            seconds = isolated_s(operator, truth) * random.normal(1.0, 0.01)
            rows.append((function, "", "", "", lines, 4096, "float16", seconds))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("operator", "m", "k", "n", "rows", "row_length", "dtype", "seconds"), *rows]
        )
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert phaze.main([*map(str, words), "--format", "json", "--quiet"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.some(5)
@pytest.mark.parametrize("name", device_names())
def test_errors_of_the_fit_are_those_of_validate_on_the_same_rows(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = load_device(name)
    formats = [each for each in ("bfloat16", "float16", "float8") if each in device.matrix.peak]
    table, output = measured(device, tmp_path / "operators.csv", formats), tmp_path / "mine.yaml"
    fitted = asked(capsys, "calibrate", "--device", name, "--table", table, "--output", output)
    again = asked(capsys, "validate", table, "--device", output)
    of_fit = {
        each["table"]: (each["rows"], each["mape"], each["bias"]) for each in fitted["tables"]
    }
    of_validate = {
        each["table"]: (each["rows"], each["mape"], each["bias"]) for each in again["tables"]
    }
    assert of_fit.keys() == of_validate.keys() and len(of_fit) == 1 + len(FUNCTIONS)
    for each, (rows, mape, bias) in of_fit.items():
        assert of_validate[each][0] == rows
        assert of_validate[each][1:] == pytest.approx(
            (mape, bias), abs=1e-4
        )  # what the file says is rounded to that
        assert mape < 0.04
    assert again["software"] == load_software(device.software).name


@pytest.mark.some(5)
@pytest.mark.parametrize("name", device_names())
def test_products_in_training_are_slower_than_those_measured_by_the_sustained_clock_alone(
    name: str, tmp_path: Path
) -> None:
    """What a price applies to large products is what the fit applied, and the stated clock of
    training: no other constant."""
    device = load_device(name)
    formats = [each for each in ("bfloat16", "float16", "float8") if each in device.matrix.peak]
    path = tmp_path / "mine.yaml"
    path.write_text(
        written_yaml(
            calibrate(
                device, [read_measurements(measured(device, tmp_path / "t.csv", formats))]
            ).device
        )
    )
    fitted, large = load_device(str(path)), Gemm(1, 8192, 8192, 8192)
    for number_format in formats:
        model = DeviceModel(fitted, load_software(fitted.software), number_format)
        priced_s = model._product_time(large, number_format, 2).arithmetic_s
        alone_s = measured_product(large, number_format, 1.0, "").operator.work_s(fitted)
        assert priced_s * fitted.matrix.sustained.value == pytest.approx(alone_s, rel=1e-9), (
            number_format
        )


def test_libraries_of_earlier_years_and_of_formats_that_were_not_measured_stay(
    tmp_path: Path,
) -> None:
    device = load_device("b200")
    year = load_software(device.software).year
    share = Quantity(0.7, "fraction", "a test")
    earlier = Libraries(year - 2, {"bfloat16": share})
    own = Libraries(year, {"bfloat16": share, "float8": replace(share, value=0.63)})
    device = replace(device, matrix=replace(device.matrix, libraries=(earlier, own)))
    found = calibrate(
        device, [read_measurements(measured(device, tmp_path / "t.csv", ["bfloat16"]))]
    ).device
    assert found.matrix.libraries == (
        earlier,
        Libraries(year, {"float8": replace(share, value=0.9)}),
    )  # in proportion


def test_formats_are_fitted_where_several_are_measured(tmp_path: Path) -> None:
    device = load_device("mi300x")
    truth = {**device.matrix.formats, "float8": replace(device.matrix.formats["float8"], value=0.6)}
    changed = replace(device, matrix=replace(device.matrix, formats=truth))
    table = read_measurements(measured(changed, tmp_path / "t.csv", ["bfloat16", "float8"]))
    found = calibrate(device, [table]).device
    assert found.matrix.formats["float8"].value == pytest.approx(0.6, rel=0.05)
    alone = read_measurements(measured(changed, tmp_path / "one.csv", ["float8"]))
    assert calibrate(device, [alone]).device.matrix.formats == device.matrix.formats


def test_a_table_of_operators_needs_a_device_and_nothing_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = measured(load_device("a100_80gb"), tmp_path / "operators.csv", ["float16"])
    assert phaze.main(["validate", str(table)]) == 2
    assert "which does not say its device; give --device" in capsys.readouterr().err
    assert (
        phaze.main(["validate", str(table), "--device", "a100_80gb", "--cluster", "dgx_a100"]) == 2
    )
    assert "--cluster is about training runs" in capsys.readouterr().err
    assert phaze.main(["validate", str(table), "--device", "a100_80gb"]) == 0
    shown = capsys.readouterr().out
    assert (
        shown.startswith("operators of a100_80gb under megatron_2022")
        and "operators.csv: gemm" in shown
    )
