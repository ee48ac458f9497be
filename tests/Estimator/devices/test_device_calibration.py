"""`calibrate` on operator tables: finds constants that made a table, leaves the others, refuses bad
tables with file and line."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.chips.technology import Quantity
from Estimator.devices.calibration import calibrate, read_measurements
from Estimator.devices.calibration_tables import (
    MeasuredOperator,
    OperatorTable,
    measured_function,
    measured_product,
)
from Estimator.devices.device import Device, Evidence
from Estimator.devices.files import load_device
from Estimator.devices.isolated import isolated_s
from Estimator.devices.written_yaml import written_yaml
from GraphExtractor.graph import Gemm
from phaze_common.errors import InputError

A100 = load_device("a100_80gb")
HEADER = "operator,batch,m,k,n,rows,row_length,dtype,seconds\n"


def made_by(device: Device, rows: Sequence[MeasuredOperator]) -> OperatorTable:
    """The times that ``device`` would show."""
    return OperatorTable(
        "made.csv", tuple(replace(row, seconds=isolated_s(row.operator, device)) for row in rows)
    )


def launched(device: Device, launch: str, alone_s: float, floor_s: float) -> Device:
    alone, floor = (
        {**part, launch: Quantity(value, "s", "test")}
        for part, value in ((device.launch.alone, alone_s), (device.launch.floor, floor_s))
    )
    return replace(device, launch=replace(device.launch, alone=alone, floor=floor))


FUNCTION_ROWS = [
    measured_function("softmax", 2**size, 1024, "float16", 1.0, "here") for size in range(1, 20)
]
PRODUCT_ROWS = [
    measured_product(Gemm(1, m, k, n), "float16", 1.0, "here")
    for m in (64, 512, 4096, 32768)
    for k in (256, 1024, 8192)
    for n in (256, 2048, 16384)
]
BATCHED_ROWS = [
    measured_product(Gemm(batch, 2048, 2048, 64), "float16", 1.0, "here") for batch in (8, 32, 128)
]


@settings(max_examples=15)
@given(efficiency=st.floats(0.2, 0.95), alone_s=st.floats(5e-6, 5e-5), above=st.floats(1.1, 3.0))
def test_constants_of_a_function_are_found(efficiency: float, alone_s: float, above: float) -> None:
    floor_s = above * alone_s
    functions = {**A100.memory.functions, "softmax": Quantity(efficiency, "fraction", "test")}
    truth = launched(
        replace(A100, memory=replace(A100.memory, functions=functions)), "softmax", alone_s, floor_s
    )
    found = calibrate(A100, [made_by(truth, FUNCTION_ROWS)])
    assert found.device.memory.functions["softmax"].value == pytest.approx(efficiency, rel=0.01)
    assert found.device.launch.alone["softmax"].value == pytest.approx(alone_s, rel=0.05)
    assert found.device.launch.floor["softmax"].value == pytest.approx(floor_s, rel=0.01)
    assert max(abs(each.error) for each in found.residuals) < 0.01


@pytest.mark.thorough
@settings(max_examples=8)
@given(efficiency=st.floats(0.4, 0.95), fill=st.floats(20, 300), alone_s=st.floats(5e-6, 5e-5))
def test_constants_of_products_are_found(efficiency: float, fill: float, alone_s: float) -> None:
    engine = replace(
        A100.matrix,
        efficiency=Quantity(efficiency, "fraction", "test"),
        fill=Quantity(fill, "steps of k", "test"),
    )
    truth = launched(replace(A100, matrix=engine), "gemm", alone_s, 0.0)
    found = calibrate(A100, [made_by(truth, PRODUCT_ROWS)])
    assert found.device.matrix.efficiency.value == pytest.approx(efficiency, rel=0.03)
    assert found.device.matrix.fill.value == pytest.approx(fill, rel=0.2, abs=10)
    assert found.device.launch.alone["gemm"].value == pytest.approx(alone_s, rel=0.1)
    assert max(abs(each.error) for each in found.residuals) < 0.03


@settings(max_examples=8)
@given(share=st.floats(0.2, 0.9))
def test_bandwidth_of_batched_products_is_found(share: float) -> None:
    truth = replace(
        A100, matrix=replace(A100.matrix, batched_bandwidth=Quantity(share, "fraction", "test"))
    )
    found = calibrate(A100, [made_by(truth, [*PRODUCT_ROWS, *BATCHED_ROWS])])
    assert found.device.matrix.batched_bandwidth.value == pytest.approx(share, rel=0.03)


def test_what_a_table_does_not_determine_stays() -> None:
    found = calibrate(A100, [made_by(A100, FUNCTION_ROWS)]).device
    assert found.matrix == A100.matrix
    assert {key: value for key, value in found.memory.functions.items() if key != "softmax"} == {
        key: value for key, value in A100.memory.functions.items() if key != "softmax"
    }
    assert found.memory.efficiency == A100.memory.efficiency
    assert found.launch.alone["gemm"] == A100.launch.alone["gemm"]
    products = calibrate(A100, [made_by(A100, PRODUCT_ROWS)]).device
    assert products.matrix.batched_bandwidth == A100.matrix.batched_bandwidth
    assert products.memory == A100.memory


def test_kernels_too_short_to_see_the_device_say_nothing_about_it() -> None:
    rows = [measured_function("softmax", rows, 32, "float16", 20e-6, "here") for rows in (1, 2, 4)]
    found = calibrate(A100, [OperatorTable("short.csv", tuple(rows))]).device
    assert found.memory.functions["softmax"] == A100.memory.functions["softmax"]
    assert max(
        part["softmax"].value
        for part in (found.launch.floor, found.launch.alone)
        if "softmax" in part
    ) == pytest.approx(20e-6, rel=0.02)


def test_operands_have_a_bandwidth_of_their_own_where_the_device_says_so() -> None:
    own = Quantity(0.3, "fraction", "test")
    truth = replace(A100, matrix=replace(A100.matrix, operand_bandwidth=own))
    start = replace(
        A100, matrix=replace(A100.matrix, operand_bandwidth=Quantity(0.7, "fraction", "test"))
    )
    table = made_by(truth, PRODUCT_ROWS)
    found = calibrate(start, [table]).device
    assert found.matrix.operand_bandwidth is not None
    assert found.matrix.operand_bandwidth.value == pytest.approx(0.3, rel=0.02)
    assert found.memory == A100.memory
    assert calibrate(A100, [table]).device.matrix.operand_bandwidth is None


def test_functions_without_an_entry_share_the_efficiency() -> None:
    slower = replace(
        A100, memory=replace(A100.memory, efficiency=Quantity(0.4, "fraction", "test"))
    )
    rows = [
        measured_function(name, 2**size, 1024, "float16", 1.0, "here")
        for name in ("gelu", "add")
        for size in range(8, 19)
    ]
    found = calibrate(A100, [made_by(slower, rows)]).device
    assert found.memory.efficiency.value == pytest.approx(0.4, rel=0.01)
    assert found.memory.functions == A100.memory.functions
    assert {"add", "gelu"} <= found.launch.alone.keys()


def test_fit_says_its_table_rows_and_error(tmp_path: Path) -> None:
    rows = made_by(A100, FUNCTION_ROWS).rows
    noisy = OperatorTable(
        "mine.csv",
        tuple(
            replace(row, seconds=row.seconds * (1.1 if i % 2 else 0.9))
            for i, row in enumerate(rows)
        ),
    )
    device = calibrate(A100, [noisy]).device
    entry = next(each for each in device.calibration if each.table == "mine.csv: softmax")
    assert entry.rows == len(rows)
    assert 0.08 < entry.mape < 0.12
    assert abs(entry.bias) < 0.05
    assert (
        device.memory.functions["softmax"].source
        == f"fitted to mine.csv, {len(rows)} rows, MAPE {100 * entry.mape:.1f} %"
    )
    assert {each.table for each in A100.calibration} < {each.table for each in device.calibration}
    again = calibrate(device, [noisy]).device
    assert len(again.calibration) == len(device.calibration)
    path = tmp_path / "fitted.yaml"
    path.write_text(written_yaml(device))
    assert load_device(str(path)) == device


def test_one_outlier_does_not_decide() -> None:
    table = made_by(A100, FUNCTION_ROWS)
    spoilt = replace(
        table, rows=(*table.rows[:-1], replace(table.rows[-1], seconds=10 * table.rows[-1].seconds))
    )
    found = calibrate(A100, [spoilt]).device.memory.functions["softmax"].value
    assert found == pytest.approx(A100.memory.functions["softmax"].value, rel=0.1)


# ---- tables


def test_our_own_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "﻿" + HEADER + "gemm,,512,1024,256,,,float16,1e-4\n\nsoftmax, , , , ,4096, "
        "2048,bfloat16,5e-5\ngemm,8,512,64,512,,,float32,2e-4\n"
    )
    first, second, third = read_measurements(path).rows
    assert first.operator.products == (Gemm(1, 512, 1024, 256),)
    assert (second.operator.streams[0].rows, second.operator.streams[0].row_length) == (4096, 2048)
    assert second.operator.number_format == "bfloat16"
    assert (third.operator.products[0].batch, third.operator.element_bytes, third.seconds) == (
        8,
        4,
        2e-4,
    )
    assert third.where == f"{path}:5"


def test_columns_that_no_row_needs_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("seconds,operator,dtype,n,m,k\n1e-4,gemm,float16,256,512,1024\n")
    assert read_measurements(path).rows[0].operator.products == (Gemm(1, 512, 1024, 256),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "mine.csv is empty"),
        (HEADER, "mine.csv has a header and no measurement"),
        (
            "operator,m,k,n,dtype,colour,seconds\ngemm,1,1,1,float16,red,1\n",
            r"mine\.csv:1: has the unknown column 'colour'",
        ),
        ("operator,m,m,dtype,seconds\ngemm,1,1,float16,1\n", r"mine\.csv:1: has a column twice"),
        ("operator,m,k,dtype,seconds\ngemm,1,1,float16,1\n", r"mine\.csv:2: n is missing"),
        ("operator,m,k,n,seconds\ngemm,1,1,1,1\n", r"mine\.csv:2: dtype is missing"),
        (HEADER + "gemm,1,8,8,8,,,float16\n", r"mine\.csv:2: has 8 cells; it must have 9"),
        (
            HEADER + "gemm,1,8,8,8,,,float16,1\nfft,,,,,8,8,float16,1\n",
            r"mine\.csv:3: operator is 'fft'; it must be gemm or one of .*gelu",
        ),
        (
            HEADER + "gemm,1,8,8,8,,,float7,1\n",
            r"mine\.csv:2: dtype is 'float7'; it must be one of .*float16",
        ),
        (
            HEADER + "gemm,1,8,8.5,8,,,float16,1\n",
            r"mine\.csv:2: k is '8\.5'; it must be a whole number",
        ),
        (HEADER + "gemm,0,8,8,8,,,float16,1\n", r"mine\.csv:2: batch is '0'"),
        (HEADER + "gemm,1,8,8," + "9" * 5000 + ",,,float16,1\n", r"mine\.csv:2: n is '999"),
        (HEADER + "gelu,,,,,8,,float16,1\n", r"mine\.csv:2: row_length is missing"),
        (
            HEADER + "gemm,1,8,8,8,,,float16,0\n",
            r"mine\.csv:2: seconds is '0'; it must be a positive number",
        ),
        (HEADER + "gemm,1,8,8,8,,,float16,-1e-5\n", r"mine\.csv:2: seconds is '-1e-5'"),
        (HEADER + "gemm,1,8,8,8,,,float16,nan\n", r"mine\.csv:2: seconds is 'nan'"),
        (HEADER + "gemm,1,8,8,8,,,float16,inf\n", r"mine\.csv:2: seconds is 'inf'"),
        (HEADER + "gemm,1,8,8,8,,,float16,fast\n", r"mine\.csv:2: seconds is 'fast'"),
        (HEADER + "gemm,1,8,8,8,,,float16,\n", r"mine\.csv:2: seconds is missing"),
        (
            "64, 64, 64, 0.1ms, 5Tflops\n",
            r"mine\.csv:1 is no header with the columns operator.*matmul, softmax",
        ),
    ],
)
def test_bad_table_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_measurements(path)


@pytest.mark.parametrize(
    ("name", "line", "seconds"),
    [
        ("matmul_B7.csv", "64, 12288, 12288, 0.1900ms, 101.7Tflops", 0.19e-3),
        ("softmax_B7.csv", "4096, 1024, 100", 4096 * 1024 / 1e11),
        ("layernorm_B7.csv", "4096, 1024, 100", 4096 * 1024 / 1e11),
        ("gelu_B7.csv", "1048576, 20", 1048576 / 2e10),
    ],
)
def test_tables_without_a_header_are_known_by_their_name(
    tmp_path: Path, name: str, line: str, seconds: float
) -> None:
    path = tmp_path / name
    path.write_text(line + "\n")
    assert read_measurements(path).rows[0].seconds == pytest.approx(seconds)


def test_missing_file_and_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*absent\.csv.*give the path"):
        read_measurements(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="has no files gpt_"):
        read_measurements(tmp_path)
    with pytest.raises(InputError, match="no table"):
        calibrate(A100, [])


def test_a_format_the_device_lacks_is_refused() -> None:
    row = measured_product(Gemm(1, 512, 512, 512), "bfloat16", 1e-4, "here")
    with pytest.raises(InputError, match=r"V100 .* has no matrix units for bfloat16"):
        calibrate(load_device("v100_32gb"), [OperatorTable("mine.csv", (row,))])


ACESO_HEADER = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved\n"


def test_aceso_operators_are_read_with_the_shapes_of_their_file(tmp_path: Path) -> None:
    content = (
        ACESO_HEADER
        + "enc-MLP-GEMM-1,100,200,0,0,0,0,0,0\nenc-MLP-GEMM-2,100,200,0,0,0,0,0,0\ngpt-post-process,1,1,0,0,0,0,0,0\n"
    )
    (tmp_path / "gpt_1_3B_mbs2_tp4_algo0.csv").write_text(content)
    first, second = read_measurements(
        tmp_path
    ).rows  # the others contain an all-reduce, or move more than their operands
    assert first.operator.products == (Gemm(1, 4096, 2048, 2048),)
    assert first.seconds == pytest.approx(100e-6)
    assert second.operator.products == (Gemm(1, 4096, 2048, 2048), Gemm(1, 2048, 4096, 2048))
    assert sum(gemm.macs for gemm in second.operator.products) == 2 * 4096 * 2048 * 2048


def test_softmax_in_several_kernels_is_left_out(tmp_path: Path) -> None:
    content = ACESO_HEADER + "enc-attention-softmax,100,200,0,0,0,0,0,0\n"
    (tmp_path / "gpt_350M_mbs1_tp8_algo0.csv").write_text(content)  # micro-batch x heads = 2
    with pytest.raises(InputError, match="has no files"):
        read_measurements(tmp_path)
    (tmp_path / "gpt_350M_mbs1_tp4_algo0.csv").write_text(content)  # 4
    assert {row.operator.launch for row in read_measurements(tmp_path).rows} == {
        "causal_softmax",
        "causal_softmax_backward",
    }


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (
            "gpt_7T_mbs1_tp1_algo0.csv",
            "enc-MLP-gelu,1,1",
            "no file of a known model; known are .*350M",
        ),
        (
            "gpt_350M_mbs1_tp1_algo0.csv",
            "enc-MLP-gelu,0,1",
            r"algo0\.csv:2: forward-compute is '0'",
        ),
        ("gpt_350M_mbs1_tp1_algo0.csv", "enc-MLP-gelu,1", r"algo0\.csv:2: backward-compute is ''"),
    ],
)
def test_bad_aceso_file_is_refused(tmp_path: Path, name: str, line: str, message: str) -> None:
    (tmp_path / name).write_text(ACESO_HEADER + line + "\n")
    with pytest.raises(InputError, match=message):
        read_measurements(tmp_path)


# ---- measurements of real devices


@pytest.mark.parametrize(
    ("table", "most"), [("matmul", 0.05), ("softmax", 0.08), ("layernorm", 0.05), ("gelu", 0.02)]
)
def test_a100_agrees_with_its_measured_operators(
    shared_data: Path, table: str, most: float
) -> None:
    rows = read_measurements(shared_data / "measured" / f"{table}_A100.csv").rows
    errors = [abs(isolated_s(row.operator, A100) / row.seconds - 1) for row in rows]
    assert len(errors) >= 20
    assert math.fsum(errors) / len(errors) < most


def test_a100_constants_are_those_of_the_fit(shared_data: Path) -> None:
    tables = [
        read_measurements(shared_data / "measured" / f"{name}_A100.csv")
        for name in ("matmul", "softmax", "layernorm", "gelu")
    ]
    found = calibrate(A100, tables).device
    for shipped, fitted in (
        (A100.matrix.efficiency, found.matrix.efficiency),
        (A100.memory.efficiency, found.memory.efficiency),
        (A100.memory.functions["softmax"], found.memory.functions["softmax"]),
        (A100.memory.functions["layer_norm"], found.memory.functions["layer_norm"]),
    ):
        assert shipped.value == pytest.approx(fitted.value, rel=0.01)
        assert shipped.source.startswith(fitted.source.partition(", MAPE")[0])
    for shipped_entry in A100.calibration:
        fitted_entry = next(each for each in found.calibration if each.table == shipped_entry.table)
        assert shipped_entry.mape == pytest.approx(fitted_entry.mape, abs=0.005)


MI210 = load_device("mi210")
MI210_TABLES = ("matmul", "softmax", "layernorm", "gelu")


def test_mi210_agrees_with_its_measured_operators_as_the_fit_said(shared_data: Path) -> None:
    said = {each.table.partition(": ")[0]: each for each in MI210.calibration}
    assert len(said) == len(MI210_TABLES)
    for name in MI210_TABLES:
        table = read_measurements(shared_data / "measured" / f"{name}_MI210.csv")
        errors = [isolated_s(row.operator, MI210) / row.seconds - 1 for row in table.rows]
        assert said[table.name].rows == len(errors)
        assert math.fsum(map(abs, errors)) / len(errors) == pytest.approx(
            said[table.name].mape, abs=0.001
        )
        assert math.fsum(errors) / len(errors) == pytest.approx(said[table.name].bias, abs=0.001)


def test_mi210_constants_are_those_of_the_fit(shared_data: Path) -> None:
    tables = [
        read_measurements(shared_data / "measured" / f"{name}_MI210.csv") for name in MI210_TABLES
    ]
    found = calibrate(MI210, tables).device
    for constants in ("efficiency", "fill", "operand_bandwidth"):
        assert getattr(MI210.matrix, constants).value == pytest.approx(
            getattr(found.matrix, constants).value, rel=0.06
        )
    for function in ("softmax", "layer_norm", "gelu"):
        assert MI210.memory.functions[function].value == pytest.approx(
            found.memory.functions[function].value, rel=0.01
        )
    assert MI210.memory.efficiency == found.memory.efficiency  # of copies, which no table has
    assert found.evidence is Evidence.MEASURED


@pytest.mark.parametrize(
    ("name", "folder"), [("v100_pcie_16gb", "aceso/v100_pcie_1x4"), ("l4", "mist/operators/l4")]
)
def test_devices_profiled_by_aceso_agree_with_its_tables_as_the_fit_said(
    shared_data: Path, name: str, folder: str
) -> None:
    device, table = load_device(name), read_measurements(shared_data / folder)
    errors: dict[str, list[float]] = {}
    for row in table.rows:
        errors.setdefault(f"{table.name}: {row.operator.launch}", []).append(
            isolated_s(row.operator, device) / row.seconds - 1
        )
    for said in device.calibration:
        found = errors[said.table]
        assert said.rows == len(found)
        assert math.fsum(map(abs, found)) / len(found) == pytest.approx(said.mape, abs=0.002)


def test_l4_products_backward_cannot_hold_both_products(shared_data: Path) -> None:
    """Why its fit leaves them out: both at once would run faster than the peak."""
    device, rows = (
        load_device("l4"),
        read_measurements(shared_data / "mist" / "operators" / "l4").rows,
    )
    rates: dict[str, list[float]] = {"gemm": [], "gemm_backward": []}
    for row in rows:
        if row.operator.launch in rates:
            rates[row.operator.launch].append(
                sum(2 * gemm.macs for gemm in row.operator.products) / row.seconds
            )
    assert (
        sorted(rates["gemm_backward"])[len(rates["gemm_backward"]) // 2]
        > device.peak_flops("float16")
        > max(rates["gemm"])
    )
    assert {each.table for each in device.calibration}.isdisjoint(
        {"l4: gemm_backward", "l4: gemm_copy_backward"}
    )


def test_v100_agrees_with_its_profiled_operators(shared_data: Path) -> None:
    device = load_device("v100_32gb")
    errors: dict[str, list[float]] = {}
    for row in read_measurements(shared_data / "aceso" / "v100_nvlink_4x8").rows:
        errors.setdefault(row.operator.launch, []).append(
            abs(isolated_s(row.operator, device) / row.seconds - 1)
        )
    assert sum(map(len, errors.values())) > 1500
    means = {launch: math.fsum(each) / len(each) for launch, each in errors.items()}
    assert max(means.values()) < 0.12
    assert (
        max(mean for launch, mean in means.items() if "softmax" in launch or "dropout" in launch)
        < 0.02
    )
