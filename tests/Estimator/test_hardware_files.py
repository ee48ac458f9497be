"""Hardware YAML: what ships loads, what is wrong is refused with the file and the key."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from Estimator.chips.cost import load_prices
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.memory_files import load_memory
from Estimator.chips.published import load_die
from Estimator.devices.files import load_attention, load_contention, load_device, load_software
from Estimator.hardware_files import (
    HARDWARE,
    load_cluster,
    load_platform,
    load_technology,
    load_vector_functions,
)
from phaze_common.errors import InputError
from phaze_common.quantities import is_measured, unit_of_key
from phaze_common.records import read_yaml
from phaze_common.refusals import SeveralProblemsError

Edit = Callable[[dict[str, Any]], object]


def load_any_platform(path: str) -> object:
    return load_platform(path, load_technology("phaze_22nm"), load_vector_functions("phaze"))


LOADERS: dict[str, Callable[[str], object]] = {
    "technologies": load_technology,
    "platforms": load_any_platform,
    "design_spaces": load_design_space,
    "clusters": load_cluster,
    "vector_functions": load_vector_functions,
    "devices": load_device,
    "software": load_software,
    "contention": load_contention,
    "attention": load_attention,
    "memories": load_memory,
    "prices": load_prices,
    "dies": load_die,
}
SHIPPED = sorted(HARDWARE.glob("*/*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_files_load_by_name_and_by_path(path: Path) -> None:
    load = LOADERS[path.parent.name]
    assert load(path.stem) == load(str(path))


LARGER = {
    "bytes": "kB",
    "bytes/s": "GB/s",
    "FLOP/s": "TFLOP/s",
    "Hz": "MHz",
    "s": "us",
    "fraction": "%",
}
TIMES = {"kB": -3, "GB/s": -9, "TFLOP/s": -12, "MHz": -6, "us": 6, "%": 2}


def written_out(content: Any, unit: str = "") -> Any:
    """``content`` with every measured number as a text with a unit, the larger one where people
    would write that."""
    if isinstance(content, dict):
        own = content.get("unit", unit)
        return {
            name: written_out(each, own if name == "value" else unit_of_key(name))
            for name, each in content.items()
        }
    if isinstance(content, list):
        return [written_out(each, unit) for each in content]
    if not isinstance(content, int | float) or not is_measured(unit):
        return content
    shown = LARGER.get(unit, unit)
    return f"{Decimal(repr(content)).scaleb(TIMES.get(shown, 0)):f} {shown}"


@pytest.mark.some(40)
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_quantities_written_with_units_are_the_same_record(path: Path, tmp_path: Path) -> None:
    changed = written_out(read_yaml(path))
    assert (changed == read_yaml(path)) is (
        path.parent.name == "vector_functions"
    )  # whose numbers are cycles
    copy = tmp_path / path.name
    copy.write_text(yaml.safe_dump(changed))
    load = LOADERS[path.parent.name]
    assert load(str(copy)) == load(str(path))


def test_a_text_stands_for_a_constant_without_a_source(tmp_path: Path) -> None:
    content = read_yaml(HARDWARE / "devices" / "h100.yaml")
    content["memory"] |= {"capacity": "80 GB", "bandwidth": "3.35 TB/s"}
    content["launch"]["gap"] = "2.5 us"
    content["matrix"]["peak"]["bfloat16"] = "989.4 TFLOP/s"
    content["board_power"] = "0.7 kW"
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(content))
    found, known = load_device(str(own)), load_device("h100")
    assert (found.memory.capacity.value, found.memory.bandwidth.value) == (80e9, 3.35e12)
    assert (found.launch.gap.value, found.peak_flops("bfloat16")) == (
        2.5e-6,
        known.peak_flops("bfloat16"),
    )
    assert found.board_power is not None and known.board_power is not None
    assert (found.board_power.value, found.board_power.unit) == (known.board_power.value, "W")


@pytest.mark.parametrize("kind", LOADERS)
def test_unknown_name_lists_the_known_ones(kind: str) -> None:
    known = next(path.stem for path in SHIPPED if path.parent.name == kind)
    with pytest.raises(InputError, match=f"'nonsense'; known: .*{known}"):
        LOADERS[kind]("nonsense")


@pytest.mark.parametrize(
    ("kind", "name", "edit", "message"),
    [
        ("technologies", "phaze_22nm", lambda d: d.pop("mac_energy"), "mac_energy"),
        ("technologies", "phaze_22nm", lambda d: d.update(colour="red"), "colour"),
        (
            "technologies",
            "phaze_22nm",
            lambda d: d["mac_energy"].update(unit="nJ"),
            r"mac_energy\.unit is 'nJ'.*'pJ'",
        ),
        (
            "technologies",
            "phaze_22nm",
            lambda d: d["mac_energy"].update(value=-1.0),
            r"mac_energy\.value is -1",
        ),
        (
            "technologies",
            "phaze_22nm",
            lambda d: d["l2_area"]["value"].pop(),
            r"l2_area\.value is 10 numbers",
        ),
        (
            "technologies",
            "phaze_22nm",
            lambda d: d["glb_area"]["capacity_bytes"].reverse(),
            r"glb_area\.capacity_bytes",
        ),
        (
            "platforms",
            "phaze_hbm2",
            lambda d: d["frequency"].update(value=0.0),
            "frequency_hz is 0",
        ),
        (
            "platforms",
            "phaze_hbm2",
            lambda d: d["frequency"].update(value="fast"),
            r"frequency\.value.*fast",
        ),
        ("platforms", "phaze_hbm2", lambda d: d.update(dataflows=[]), "dataflows is empty"),
        (
            "platforms",
            "phaze_hbm2",
            lambda d: d.update(dataflows=["diagonal"]),
            r"dataflows\.0.*diagonal",
        ),
        (
            "platforms",
            "phaze_hbm2",
            lambda d: d["concurrent_tc_share"].update(value=1.0),
            "between 0 and 1",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["axes"].update(width=[]),
            r"axes\.width is empty",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["axes"].update(width=[4, -4]),
            r"axes\.width.*positive",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["axes"].update(width=[4, 4]),
            "without repetition",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["references"].append(d["references"][0]),
            "several times.*name of its own",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["axes"].update(width=[10**30]),
            r"axes\.width\.0 is 1e\+30, .* at most",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["axes"].update(width=[2**21]),
            r"axes\.width is 2097152; .* at most",
        ),
        (
            *("design_spaces", "phaze_icml24"),
            lambda d: d["axes"].update(num_tc=list(range(1, 3000)), num_vc=list(range(1, 60000))),
            "at most 50,000,000,000",  # in 10,000 parts of 5,000,000, see test_space_parts.py
        ),
        ("design_spaces", "phaze_icml24", lambda d: d["axes"].pop("depth"), r"axes\.depth"),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["budget"].update(area_mm2=5.0),
            "budget is .*either",
        ),
        ("design_spaces", "phaze_icml24", lambda d: d.update(budget={}), "budget is .*either"),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["keep"].update(minimum_area_fraction=1.5),
            "between 0 and 1",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d.update(technology="3nm"),
            "no technology named '3nm'",
        ),
        ("clusters", "phaze_icml24", lambda d: d.update(tiers=[]), "tiers is empty"),
        ("clusters", "phaze_icml24", lambda d: d.update(num_devices=2048), "a last tier of 1024"),
        (
            "clusters",
            "nvlink_infiniband",
            lambda d: d["tiers"][1].update(group_size=12),
            r"tiers\.1\.group_size is 12",
        ),
        (
            "clusters",
            "nvlink_infiniband",
            lambda d: d["tiers"][0].update(bandwidth_bytes_per_s=0.0),
            r"tiers\.0\.bandwidth",
        ),
        (
            "clusters",
            "phaze_icml24",
            lambda d: d["tiers"][0].update(latency_s=float("inf")),
            "not finite",
        ),
        (
            "clusters",
            "phaze_icml24",
            lambda d: d["tiers"][0].update(latency_s="4 GB/s"),
            r"latency_s is '4 GB/s'; it is a time",
        ),
        (
            "platforms",
            "phaze_hbm2",
            lambda d: d["frequency"].update(value="1 GB"),
            r"frequency\.value is '1 GB'; .* a frequency",
        ),
        (
            "design_spaces",
            "phaze_icml24",
            lambda d: d["axes"].update(glb_mib=["1 MB"]),
            r"glb_mib\.0 is '1 MB'; .* whole number",
        ),
        (
            "devices",
            "h100",
            lambda d: d.update(board_power="700 J"),
            r"board_power is '700 J'; it is a power: give W, or",
        ),
        (
            "devices",
            "h100",
            lambda d: d["board_power"].update(unit="kW"),
            r"board_power\.unit is 'kW'.*'W'",
        ),
        ("devices", "h100", lambda d: d["board_power"].update(value=0), r"board_power\.value is 0"),
        ("vector_functions", "phaze", lambda d: d["functions"].pop("add"), "without 'add'"),
        (
            "vector_functions",
            "phaze",
            lambda d: d["functions"]["exp"].update(cycles=0),
            r"functions\.exp\.cycles is 0",
        ),
        (
            "vector_functions",
            "phaze",
            lambda d: d["functions"]["exp"].update(source="hearsay"),
            "hearsay",
        ),
    ],
)
def test_bad_file_is_refused(
    tmp_path: Path, kind: str, name: str, edit: Edit, message: str
) -> None:
    content = yaml.safe_load((HARDWARE / kind / f"{name}.yaml").read_text())
    edit(content)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message) as refused:
        LOADERS[kind](str(path))
    assert "mine.yaml" in str(refused.value) or "known:" in str(refused.value)


def test_design_space_names_files_relative_to_itself(tmp_path: Path) -> None:
    content = yaml.safe_load((HARDWARE / "design_spaces" / "phaze_icml24.yaml").read_text())
    platform = yaml.safe_load((HARDWARE / "platforms" / "phaze_hbm2.yaml").read_text())
    platform["frequency"]["value"] = 2.0e9
    (tmp_path / "fast.yaml").write_text(yaml.safe_dump(platform))
    (tmp_path / "space.yaml").write_text(yaml.safe_dump({**content, "platform": "./fast.yaml"}))
    assert load_design_space(str(tmp_path / "space.yaml")).platform.frequency_hz == 2.0e9


def test_capacity_table_is_exact_at_its_points_and_monotone_between() -> None:
    table = load_technology("phaze_22nm").glb_area
    assert table.at(table.capacity_bytes).tolist() == list(table.value)
    between = table.at([2 << 20, 3 << 20, 4 << 20, 192 << 20, 256 << 20])
    assert (between[1:] > between[:-1]).all()


def test_every_value_of_a_file_that_makes_no_sense_is_named_at_once(tmp_path: Path) -> None:
    text = (HARDWARE / "clusters" / "dgx_a100.yaml").read_text()
    text = text.replace("group_size: {value: 8,", "group_size: {value: 0,").replace(
        "efficiency: {value: 0.95", "efficiency: {value: 1.95"
    )
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("num_devices: {value: 4096", "num_devices: {value: -1"))
    with pytest.raises(SeveralProblemsError) as refused:
        load_cluster(str(mine))
    assert [problem.partition(" is ")[0] for problem in refused.value.problems] == [
        f"{mine}: num_devices",
        f"{mine}: tiers.0.group_size",
        f"{mine}: tiers.1.efficiency",
    ]
