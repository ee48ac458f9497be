"""Errors that the manual states are those that come out."""

import math
import re
from pathlib import Path

import pytest

from Estimator.devices.calibration import read_measurements
from Estimator.devices.files import load_contention, load_device, load_software
from Estimator.devices.isolated import isolated_s
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.network.calibration_errors import network_errors
from Estimator.network.calibration_tables import read_collectives
from Estimator.network.contention_fit import fit_contention, read_joint_rows
from Estimator.plans.rates import device_machine, straggler_excess
from phaze.validation.run import validate
from phaze_common.progress import SilentProgress

REPOSITORY = Path(__file__).resolve().parents[2]
DEVICES = REPOSITORY / "docs" / "explanation" / "devices-and-networks.md"
PREDICTIONS = REPOSITORY / "docs" / "explanation" / "predictions.md"


def stated(share: float, sign: bool = False) -> str:
    return f"{share:+.1%}".replace("%", " %") if sign else f"{share:.1%}".replace("%", " %")


def test_errors_of_measured_operators(shared_data: Path) -> None:
    device, errors, rows = load_device("a100_80gb"), [], []
    for name in ("matmul", "softmax", "layernorm", "gelu"):
        measured = read_measurements(shared_data / "measured" / f"{name}_A100.csv").rows
        sizes = [abs(isolated_s(row.operator, device) / row.seconds - 1) for row in measured]
        errors.append(stated(math.fsum(sizes) / len(sizes)))
        rows.append(len(sizes))
    found = re.findall(
        r"(?:LLMCompass \(ISCA 2024\)|the same), (\d+) rows \| ([\d.]+ %) \|",
        DEVICES.read_text(encoding="utf-8"),
    )
    assert found == [(str(count), error) for count, error in zip(rows, errors, strict=True)]


def test_errors_of_measured_collectives(shared_data: Path) -> None:
    samples = read_collectives(shared_data / "layouts" / "nccl_perlmutter_measured.csv")
    errors = network_errors(samples, load_cluster("perlmutter"))
    assert errors.large is not None
    page = DEVICES.read_text(encoding="utf-8")
    devices = max(each.num_nodes * each.devices_per_node for each in samples)
    assert (
        f"NCCL on Perlmutter, up to {devices} GPUs, messages above 32 MB | "
        f"{stated(errors.large.mape)} |" in page
    )
    assert f"the same, all sizes | {stated(errors.all.mape)} |" in page


@pytest.mark.thorough
def test_errors_of_joint_times(shared_data: Path) -> None:
    fit = fit_contention(read_joint_rows(shared_data / "mist" / "overlap_a100_40gb.csv"))
    assert f"held-out rows: {stated(fit.held_out_mape)} mean error" in " ".join(
        DEVICES.read_text(encoding="utf-8").split()
    )


def test_what_overlap_and_the_slowest_device_cost() -> None:
    contention, page = load_contention("a100_40gb"), DEVICES.read_text(encoding="utf-8")
    near, far = (
        contention.hiding(near=each, link_share=contention.link_share.value).shown_part
        for each in (True, False)
    )
    assert "Within a node nearly half of the hidden seconds show, across nodes a ninth." in page
    assert 0.45 < near < 0.5 and far == pytest.approx(1 / 9, rel=0.02)
    device = load_device("a100_80gb")
    machine = device_machine(
        DeviceModel(device, load_software("megatron_core"), "bfloat16"),
        load_cluster(device.cluster),
    )
    longer = [stated(float(straggler_excess(machine, devices))) for devices in (8, 512)]
    assert f"{longer[0]} on 8 devices, {longer[1]} on 512, nothing on one" in PREDICTIONS.read_text(
        encoding="utf-8"
    )
    assert float(straggler_excess(machine, 1)) == 0.0


@pytest.mark.thorough
def test_errors_of_published_runs(request: pytest.FixtureRequest) -> None:
    graphs = Path(request.config.cache.mkdir("validation_graphs"))
    report = validate(None, None, None, None, graphs, SilentProgress(), None)  # type: ignore[arg-type]  # no row has a plan file
    page = PREDICTIONS.read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| [^|]*\((\d+)[^|]*\)[^|]*\| \**([\d.]+ %)\** \| \**([-+][\d.]+ %)\** \|",
        page,
        re.MULTILINE,
    )
    groups = [*report.sources, report.overall]
    expected = {
        (str(each.rows), stated(each.time_mape), stated(each.time_bias, sign=True))
        for each in groups
    }
    assert expected <= set(rows) and len(rows) == len(groups) + 2  # two of runs that do not ship
    worst = max(abs(each.predicted_s / each.measured_s - 1) for each in report.runs)
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    said = (
        f"on {report.overall.rows} published training runs the mean error is "
        f"{stated(report.overall.time_mape)}, the bias {stated(report.overall.time_bias, sign=True)}"
    )
    assert f"{said}, and up to {100 * worst:.0f} %" in readme
