"""Device and software YAML: what ships loads and is complete, what is wrong is refused with the
file and the key."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.chips.technology import Quantity
from Estimator.devices.device import Evidence
from Estimator.devices.files import device_names, device_of_run, load_device, load_software
from Estimator.devices.written_yaml import written_yaml
from Estimator.hardware_files import HARDWARE, load_cluster
from phaze.runs.plan_files import evaluate_request
from phaze.studies.evaluation import evaluated
from phaze_common.echo import steers
from phaze_common.errors import InputError

Edit = Callable[[dict[str, Any]], object]
SOFTWARE = sorted(path.stem for path in (HARDWARE / "software").glob("*.yaml"))


@pytest.mark.parametrize("name", device_names())
def test_shipped_device_is_complete(name: str) -> None:
    path = HARDWARE / "devices" / f"{name}.yaml"
    device = load_device(name)
    assert device == load_device(str(path))
    assert device.name == name
    load_software(device.software)
    cluster = load_cluster(device.cluster)
    assert cluster.num_devices >= cluster.tiers[0].group_size > 1
    sixteen = [
        peak.value
        for number_format, peak in device.matrix.peak.items()
        if number_format in {"float16", "bfloat16"}
    ]
    assert device.scans is not None
    assert sixteen and min(sixteen) >= device.peak_flops("float32") >= device.scans.peak.value
    assert device.matrix.peak.get("float8", device.matrix.peak["float32"]).value not in sixteen


@pytest.mark.parametrize("name", SOFTWARE)
def test_shipped_software_loads_by_name_and_by_path(name: str) -> None:
    assert load_software(name) == load_software(str(HARDWARE / "software" / f"{name}.yaml"))
    assert load_software(name).name == name


def quantities(record: object) -> list[Quantity]:
    if isinstance(record, Quantity):
        return [record]
    if isinstance(record, dict):
        return [found for value in record.values() for found in quantities(value)]
    if is_dataclass(record):
        return [
            found for entry in fields(record) for found in quantities(getattr(record, entry.name))
        ]
    return []


@pytest.mark.parametrize("name", device_names())
def test_every_constant_says_where_it_comes_from(name: str) -> None:
    found = quantities(load_device(name))
    assert len(found) > 15
    assert [quantity for quantity in found if len(quantity.source) < len("assumption")] == []


@pytest.mark.parametrize("name", device_names())
def test_a_device_is_measured_where_constants_are_fitted_to_it(name: str) -> None:
    device = load_device(name)
    fitted = [
        quantity for quantity in quantities(device) if quantity.source.startswith("fitted to")
    ]
    assert (device.evidence is Evidence.MEASURED) == bool(fitted)
    assert not device.calibration or fitted


@pytest.mark.parametrize("name", device_names())
def test_a_plan_is_priced_on_every_device(name: str) -> None:
    device = load_device(name)
    precision = "bf16" if "bfloat16" in device.matrix.peak else "fp16"
    given = {
        "model": "gpt2",
        "device": name,
        "devices": 1,
        "micro_batch_size": 1,
        "global_batch_size": 2,
        "precision": precision,
    }
    found = evaluated(evaluate_request(None, given))
    assert found.iteration.iteration_s > 0 and found.hardware.title == device.title
    six_flops = 6 * 124e6 * 2 * 1024  # of 2 sequences, per parameter and token
    assert found.iteration.iteration_s > six_flops / max(
        peak.value for peak in device.matrix.peak.values()
    )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("A100-80GB-SXM", "a100_80gb"),
        ("A100 80GB", "a100_80gb"),
        ("A100-40GB-SXM", "a100_40gb"),
        ("H100-80GB-SXM", "h100"),
        ("H200", "h200"),
        ("B200", "b200"),
        ("V100-32GB", "v100_32gb"),
        ("V100-16GB", "v100_16gb"),
        ("MI210-64GB", "mi210"),
        ("TPU v3", "tpu_v3"),
        ("tpu-V4", "tpu_v4"),
    ],
)
def test_published_runs_name_devices_in_many_ways(given: str, name: str) -> None:
    assert device_of_run(given) == load_device(name) == load_device(given)


def test_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'Z80'; known: .*a100_80gb"):
        load_device("Z80")
    with pytest.raises(InputError, match=r"'Z80'; known are .*a100_80gb"):
        device_of_run("Z80")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("matrix"), "matrix is missing"),
        (lambda d: d.pop("evidence"), "evidence is missing"),
        (lambda d: d.update(evidence="guessed"), "evidence is 'guessed'.*measured.*data_sheet"),
        (
            lambda d: d["matrix"].update(operand_bandwidth=d["memory"]["bandwidth"]),
            r"operand_bandwidth\.unit is 'bytes/s'.*'fraction'",
        ),
        (lambda d: d.update(colour="green"), "colour"),
        (lambda d: d["memory"].update(resident_row=1), r"memory\.resident_row"),
        (
            lambda d: d["matrix"]["efficiency"].update(unit="percent"),
            r"matrix\.efficiency\.unit is 'percent'.*'fraction'",
        ),
        (
            lambda d: d["matrix"]["efficiency"].update(value=94.0),
            r"matrix\.efficiency\.value is 94.*at most 1",
        ),
        (
            lambda d: d["matrix"]["efficiency"].update(value=0.0),
            r"matrix\.efficiency\.value is 0.*positive",
        ),
        (
            lambda d: d["matrix"]["efficiency"].update(value="most"),
            r"matrix\.efficiency\.value.*most",
        ),
        (lambda d: d["matrix"].update(peak={}), r"matrix\.peak is empty"),
        (
            lambda d: d["matrix"]["peak"]["float16"].update(unit="TFLOP/s"),
            r"matrix\.peak\.float16\.unit is 'TFLOP/s'",
        ),
        (lambda d: d["matrix"].update(tiles=[]), r"matrix\.tiles is empty"),
        (lambda d: d["matrix"]["tiles"][0].update(efficiency=1.5), r"matrix\.tiles is .*at most 1"),
        (
            lambda d: d["memory"]["bandwidth"].update(value=-1.0),
            r"memory\.bandwidth\.value is -1.*positive",
        ),
        (
            lambda d: d["memory"]["functions"].update(layernorm=d["memory"]["efficiency"]),
            r"functions is given 'layernorm'.*layer_norm",
        ),
        (
            lambda d: d["memory"]["passes"]["layer_norm"]["reads"].update(value=0.5),
            r"layer_norm\.reads\.value is 0\.5",
        ),
        (
            lambda d: d["memory"]["passes"]["layer_norm"]["rows"].update(unit="rows"),
            r"layer_norm\.rows\.unit is 'rows'",
        ),
        (
            lambda d: d["launch"]["alone"]["gemm"].update(unit="us"),
            r"launch\.alone\.gemm\.unit is 'us'.*'s'",
        ),
        (lambda d: d["launch"]["gap"].update(value=-1e-6), r"launch\.gap\.value is -1e-06"),
    ],
)
def test_bad_device_is_refused(tmp_path: Path, edit: Edit, message: str) -> None:
    content = yaml.safe_load((HARDWARE / "devices" / "a100_80gb.yaml").read_text())
    edit(content)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message) as refused:
        load_device(str(path))
    assert "mine.yaml" in str(refused.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("host_issue"), "host_issue is missing"),
        (lambda d: d["host_issue"].update(unit="us"), r"host_issue\.unit is 'us'"),
        (lambda d: d["gradient_bytes"].update(value=0), r"gradient_bytes\.value is 0"),
        (lambda d: d["fused_tails"].append("geloo"), "fused_tails is given 'geloo'.*gelu"),
        (
            lambda data: data["unfused_softmax_bytes"].pop("forward"),
            "unfused_softmax_bytes is given for backward.*and forward",
        ),
        (
            lambda data: data["unfused_softmax_kernels"].update(value=1e-9),
            r"unfused_softmax_kernels\.value.*1e-09.*whole number",
        ),
        (
            lambda data: data["fused_softmax_multiple"].update(value=2.5),
            r"fused_softmax_multiple\.value.*2\.5.*whole number",
        ),
    ],
)
def test_bad_software_is_refused(tmp_path: Path, edit: Edit, message: str) -> None:
    content = yaml.safe_load((HARDWARE / "software" / "megatron_2022.yaml").read_text())
    edit(content)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message):
        load_software(str(path))


@pytest.mark.parametrize("name", device_names())
def test_written_device_reads_back_the_same(tmp_path: Path, name: str) -> None:
    device = load_device(name)
    path = tmp_path / "written.yaml"
    path.write_text(written_yaml(device))
    assert load_device(str(path)) == device


@settings(max_examples=20)
@given(
    value=st.floats(min_value=1e-30, max_value=1e18),
    source=st.text(min_size=1).filter(lambda text: not steers(text)),
)
def test_written_numbers_and_sources_are_exact(
    tmp_path_factory: pytest.TempPathFactory, value: float, source: str
) -> None:
    device = load_device("a100_80gb")
    odd = replace(
        device, memory=replace(device.memory, bandwidth=Quantity(value, "bytes/s", source))
    )
    path = tmp_path_factory.mktemp("written") / "device.yaml"
    path.write_text(written_yaml(odd), encoding="utf-8")
    assert load_device(str(path)) == odd


def numbers_in(content: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where the numbers of a document stand."""
    if isinstance(content, dict):
        return [found for key, each in content.items() for found in numbers_in(each, (*path, key))]
    if isinstance(content, list):
        return [
            found
            for place, each in enumerate(content)
            for found in numbers_in(each, (*path, place))
        ]
    return [path] if isinstance(content, int | float) and not isinstance(content, bool) else []


def number_at(content: Any, path: tuple[str | int, ...]) -> Any:
    """What stands there."""
    return content if not path else number_at(content[path[0]], path[1:])


def with_number(content: Any, path: tuple[str | int, ...], value: float) -> Any:
    """A document with another number there."""
    if not path:
        return value
    items = enumerate(content) if isinstance(content, list) else content.items()
    changed = {
        key: with_number(each, path[1:], value) if key == path[0] else each for key, each in items
    }
    return list(changed.values()) if isinstance(content, list) else changed


DOCUMENT = yaml.safe_load((HARDWARE / "devices" / "a100_80gb.yaml").read_text())


@pytest.mark.parametrize("path", numbers_in(DOCUMENT), ids=lambda path: ".".join(map(str, path)))
def test_every_number_of_a_device_has_a_range(path: tuple[str | int, ...], tmp_path: Path) -> None:
    """None may be negative, and no fraction above 1."""
    bad = [-1.0 if isinstance(number_at(DOCUMENT, path), float) else -1, float("nan")]
    if path[-1] == "efficiency" or (
        path[-1] == "value" and number_at(DOCUMENT, path[:-1])["unit"] == "fraction"
    ):
        bad.append(1.5)
    for value in bad:
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(with_number(DOCUMENT, path, value)))
        named = "" if value != value else str(path[0])
        with pytest.raises(InputError, match=rf"mine\.yaml.*{named}"):
            load_device(str(tmp_path / "mine.yaml"))
