"""Activities that run at once: joint times, what of hidden traffic shows, fits to measurements,
files."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from Estimator.devices.files import load_contention, load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.network.contention import ACTIVITIES, Contention, joint_s
from Estimator.network.contention_fit import COLUMNS, fit_contention, read_joint_rows
from Estimator.plans.rates import device_machine
from phaze_common.errors import InputError

MEASURED = load_contention("a100_40gb")
seconds = st.floats(0.0, 10.0).map(lambda value: round(value, 3))
slower = st.floats(0.0, 3.0).map(lambda value: round(value, 3))


def two(products_by_traffic: float, traffic_by_products: float) -> Contention:
    names = {
        "products": {"traffic_beyond": products_by_traffic},
        "traffic_beyond": {"products": traffic_by_products},
    }
    return replace(MEASURED, slowdown=names)


def test_what_runs_alone_takes_as_long_as_alone_and_nothing_takes_nothing() -> None:
    found = joint_s(np.vstack([np.eye(5) * 3.0, np.zeros(5)]), MEASURED.matrix())
    assert found == pytest.approx([3.0] * 5 + [0.0])


def test_the_rest_goes_on_with_fewer() -> None:
    slow = np.array([[0.0, 1.0], [0.5, 0.0]])
    # both for 1.5 s, until the second ends; of the first's 2 s, 0.75 s are done, and 1.25 s are
    # left
    assert joint_s(np.array([[2.0, 1.0]]), slow) == pytest.approx([1.5 + 1.25])


@given(st.lists(seconds, min_size=5, max_size=5))
def test_joint_times_lie_between_the_longest_and_the_slowest(alone_s: list[float]) -> None:
    found = float(joint_s(np.array([alone_s]), MEASURED.matrix())[0])
    matrix = MEASURED.matrix()
    slowest = sum((1.0 + matrix[i].sum()) * each for i, each in enumerate(alone_s))
    assert max(alone_s) * (1 - 1e-12) <= found <= slowest + 1e-9


@given(st.floats(0.01, 10.0), st.floats(0.01, 10.0), slower, slower)
def test_what_shows_of_traffic_is_what_the_joint_time_adds(
    computation_s: float, traffic_s: float, a: float, b: float
) -> None:
    contention = two(a, b)
    hiding = contention.hiding(near=False, link_share=1.0)
    added_s = max(traffic_s * hiding.shown_part, traffic_s - computation_s * hiding.hidden_part)
    joint = float(
        joint_s(np.array([[computation_s, 0.0, traffic_s, 0.0, 0.0]]), contention.matrix())[0]
    )
    assert added_s == pytest.approx(
        min(joint - computation_s, traffic_s) if a * b >= 1 else joint - computation_s, abs=1e-9
    )


def test_links_that_ask_for_less_of_the_memory_cost_products_less() -> None:
    share = MEASURED.link_share.value
    shown = [
        MEASURED.hiding(near=True, link_share=share * part).shown_part
        for part in (0.0, 0.1, 1.0, 2.0)
    ]
    assert shown[0] == 0.0 and shown == sorted(shown)
    a, b = (
        MEASURED.slowdown["products"]["traffic_in_first_tier"],
        MEASURED.slowdown["traffic_in_first_tier"]["products"],
    )
    assert shown[2] == pytest.approx(a * (1 + b) / (1 + a))


def test_the_share_of_the_measured_device_is_that_of_its_files() -> None:
    device, software = load_device("a100_40gb"), load_software("megatron_core")
    machine = device_machine(DeviceModel(device, software, "float16"), load_cluster(device.cluster))
    links = machine.cluster.tiers[0].bandwidth_bytes_per_s
    assert MEASURED.link_share.value == pytest.approx(links / machine.stream_bytes_per_s, rel=2e-3)
    assert machine.hiding(near=True).shown_part > machine.hiding(near=False).shown_part > 0.0
    calm = replace(machine, software=replace(software, contention=None))
    assert (calm.hiding(near=True).shown_part, calm.hiding(near=True).hidden_part) == (0.0, 1.0)


def joint_table(path: Path, true: Contention, random: np.random.Generator, rows: int = 400) -> Path:
    """Measurements as ``true`` would have them, with 1 % of noise."""
    near = random.integers(1, 3, rows) * 2
    nodes = random.integers(1, 3, rows)
    n = random.integers(0, 5, rows) * 20000.0
    traffic = random.integers(0, 4, (rows, 3)) * np.array([400.0, 20.0, 20.0])
    traffic[(n == 0) & (traffic.sum(axis=1) == 0), 1] = 20.0
    between_s = np.where(
        traffic[:, 0] > 0, 1e-4 + traffic[:, 0] * np.where(nodes > 1, 5e-5, 4e-6) * near, 0.0
    )
    product_s = np.where(n > 0, 2e-4 + 2 * 4096 * 4096 * n / 140e12, 0.0)
    host_s = np.where(traffic[:, 1:] > 0, 2e-4 + traffic[:, 1:] / 6e3, 0.0)
    alone_s = np.column_stack(
        [product_s, between_s * (nodes == 1), between_s * (nodes > 1), host_s]
    )
    latency_ms = joint_s(alone_s, true.matrix()) * 1e3 * random.normal(1.0, 0.01, rows)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for place in range(rows):
            sizes = (
                4096,
                n[place],
                4096,
                *traffic[place],
                near[place],
                nodes[place],
                latency_ms[place],
            )
            writer.writerow(("a100_40gb", *map(float, sizes)))
    return path


def test_a_fit_finds_the_slow_downs_that_made_the_measurements(tmp_path: Path) -> None:
    table = joint_table(tmp_path / "joint.csv", MEASURED, np.random.default_rng(5))
    fit = fit_contention(read_joint_rows(table))
    assert fit.held_out_mape < 0.02 and fit.rows == 400
    found, true = fit.slowdown, MEASURED.matrix()
    for slowed, beside in (
        ("products", "traffic_in_first_tier"),
        ("host_to_device", "device_to_host"),
    ):
        i, j = ACTIVITIES.index(slowed), ACTIVITIES.index(beside)  # type: ignore[arg-type]
        assert found[i, j] == pytest.approx(true[i, j], abs=0.1)


def test_rows_held_out_of_measured_ones_are_predicted_within_ten_percent(
    shared_data: Path, tmp_path: Path
) -> None:
    source = shared_data / "mist" / "overlap_a100_40gb.csv"
    lines = source.read_text().splitlines()
    some = tmp_path / "some.csv"
    some.write_text("\n".join([lines[0], *lines[1::12]]) + "\n")
    assert fit_contention(read_joint_rows(some)).held_out_mape < 0.10


WRONG = {
    "a column": (lambda rows: [row[:-1] for row in rows], "has no column latency_ms"),
    "a word": (lambda rows: [rows[0], [*rows[1][:-1], "soon"], *rows[2:]], "latency_ms is 'soon'"),
    "a negative size": (
        lambda rows: [rows[0], ["a100_40gb", "-1", *rows[1][2:]], *rows[2:]],
        "m is '-1'",
    ),
    "no time": (lambda rows: [rows[0], [*rows[1][:-1], "0"], *rows[2:]], "it must be positive"),
    "few rows": (lambda rows: rows[:20], "give 100 or more of one device"),
    "two devices": (lambda rows: [*rows, ["h100", *rows[1][1:]]], "of 2 devices"),
}


@pytest.mark.parametrize("what", WRONG)
def test_tables_of_something_else_are_refused(what: str, tmp_path: Path) -> None:
    change, message = WRONG[what]
    table = joint_table(tmp_path / "joint.csv", MEASURED, np.random.default_rng(5), rows=120)
    rows = change([line.split(",") for line in table.read_text().splitlines()])
    table.write_text("\n".join(",".join(row) for row in rows))
    with pytest.raises(InputError, match=message):
        read_joint_rows(table)


def test_slow_downs_of_what_there_is_not_are_refused_wherever_they_stand(tmp_path: Path) -> None:
    stated = yaml.safe_load(
        Path(load_contention.__code__.co_filename)
        .parents[1]
        .joinpath("hardware/contention/a100_40gb.yaml")
        .read_text()
    )
    for change, message in (
        ({"slowdown": {"pruducts": {}}}, "given for 'pruducts'"),
        ({"slowdown": {"products": {"printer": 1.0}}}, "given by 'printer'"),
        ({"slowdown": {"products": {"traffic_beyond": -1.0}}}, "zero or positive"),
        (
            {"link_share": {"value": 0.0, "unit": "fraction", "source": "x"}},
            "link_share.value is 0.0",
        ),
    ):
        path = tmp_path / "own.yaml"
        path.write_text(yaml.safe_dump(stated | change))
        with pytest.raises(InputError, match=message):
            load_contention(str(path))


def test_a_framework_may_name_a_file_beside_it(tmp_path: Path) -> None:
    shipped = Path(load_software.__code__.co_filename).parents[1] / "hardware"
    (tmp_path / "mine.yaml").write_text(
        (shipped / "contention" / "a100_40gb.yaml").read_text().replace("0.921", "0.5")
    )
    software = (
        (shipped / "software" / "megatron_core.yaml")
        .read_text()
        .replace("contention: a100_40gb", "contention: mine.yaml")
    )
    (tmp_path / "software.yaml").write_text(software)
    found = load_software(str(tmp_path / "software.yaml")).contention
    assert found is not None and found.slowdown["products"]["traffic_in_first_tier"] == 0.5
