"""Constants of the hardware that a request changes, and what a finished run would have answered
under others."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import phaze
from Estimator.chips.design_space_files import load_chip
from Estimator.constants import Kind, changed, constant_changes
from Estimator.hardware_files import HARDWARE, load_cluster
from Estimator.quantity import Quantity, UncertainQuantity
from phaze.runs.finished_run import FinishedRun, open_run
from phaze.settings.resolve import resolve
from phaze.studies.explain.what_if import what_if
from phaze.studies.robust.uncertain import Physics, uncertain_constants, with_factors
from phaze_common.errors import InputError
from tests.Solver.designs.small_study import small_study, solved, write_hardware


def asked(**settings: Any) -> Any:
    return resolve({}, {"model": "bertbase", **settings})


def values_of(record: Any) -> Any:
    """The same with constants as their values alone, and without areas, which follow from them."""
    if isinstance(record, dict):
        return (
            record["value"]
            if "value" in record
            else {key: values_of(each) for key, each in record.items()}
        )
    if isinstance(record, tuple | list):
        return tuple(values_of(each) for each in record)
    return float(f"{record:.12g}") if isinstance(record, float) else record


def test_a_change_is_what_an_edited_file_says(tmp_path: Path) -> None:
    platform = yaml.safe_load((HARDWARE / "platforms" / "phaze_hbm2.yaml").read_text())
    platform["glb_bandwidth"]["value"] *= 2
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(platform))
    space = yaml.safe_load((HARDWARE / "design_spaces" / "phaze_icml24.yaml").read_text())
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space | {"platform": "./mine.yaml"}))
    edited = asked(design_space=str(tmp_path / "space.yaml")).records.space
    for change in (
        ["platform.glb_bandwidth=2x"],
        ["platform.glb_bandwidth=16384"],
        ["platform.glb_bandwidth_bytes_per_cycle=2x"],
    ):
        assert asked(constants=change).records.space.platform == edited.platform


def test_shorthands_mean_constants() -> None:
    base = asked().records.space.platform
    assert asked(frequency="2.1 GHz").records.space.platform.frequency_hz == 2.1e9
    assert asked(frequency="2100 MHz").records.space.platform.frequency_hz == 2.1e9
    assert asked(hbm_bandwidth="2.4TB/s").records.space.platform.hbm_bandwidth_bytes_per_s == 2.4e12
    assert asked(frequency="2x").records.space.platform.frequency_hz == 2 * base.frequency_hz
    assert asked(hbm_bandwidth="1x").records.space == asked().records.space
    assert asked(hbm_bandwidth=2400).records.space.platform.hbm_bandwidth_bytes_per_s == 2.4e12
    sold = asked(design_space="tpu_like_7nm", hbm_bandwidth="2x").records.space.platform.memories
    assert [each.bandwidth_bytes_per_s for each in sold] == [
        2 * each.bandwidth_bytes_per_s
        for each in asked(design_space="tpu_like_7nm").records.space.platform.memories
    ]


def test_questions_with_other_constants_are_other_questions() -> None:
    changes = [
        {},
        {"constants": ["platform.startup=0"]},
        {"constants": ["platform.startup=2x"]},
        {"frequency": "2x"},
    ]
    assert len({asked(**each).output.name for each in changes}) == 4
    assert resolve({"model": "bertbase", "platform.startup": "2x"}, {}) == asked(
        constants=["platform.startup=2x"]
    )


def test_constants_of_a_file_and_of_the_command_line_count_together() -> None:
    request = resolve(
        {"platform.glb_bandwidth": "2x"}, {"model": "bertbase", "constants": ["platform.startup=0"]}
    )
    assert request.hardware.constants == ("platform.glb_bandwidth=2x", "platform.startup=0")


def test_a_factor_of_a_device_is_of_what_the_study_states() -> None:
    stated = {"device": "h100", "memory_bandwidth": 1000}
    doubled = asked(**stated, constants=["device.memory.bandwidth=2x"]).records.device
    assert (
        doubled.memory.bandwidth.value
        == asked(device="h100", memory_bandwidth=2000).records.device.memory.bandwidth.value
    )


def test_every_entry_of_a_list_and_ranges_change_alike() -> None:
    cluster = load_cluster("dgx_h100")
    faster = changed(
        cluster,
        Kind.CLUSTER,
        constant_changes(["cluster.tiers.*.bandwidth=3x", "cluster.tiers.0.latency_s=0"]),
    )
    assert [each.bandwidth_bytes_per_s for each in faster.tiers] == [
        3 * each.bandwidth_bytes_per_s for each in cluster.tiers
    ]
    assert (
        faster.tiers[0].latency_s == 0.0 and faster.tiers[1].latency_s == cluster.tiers[1].latency_s
    )
    prices = asked(
        design_space="tpu_like_7nm", constants=["prices.electricity=0.166"]
    ).records.space.prices
    before = asked(design_space="tpu_like_7nm").records.space.prices
    assert prices.electricity.value == 0.166 and prices.electricity.high == pytest.approx(
        2 * before.electricity.high
    )


def test_what_is_uncertain_can_be_asked_by_its_name_and_is_the_same_then() -> None:
    before = asked(design_space="tpu_like_7nm").records
    physics = Physics(before.space, before.cluster)
    for constant in uncertain_constants(physics):
        factor = constant.low if constant.low < 1.0 else constant.high
        found = asked(
            design_space="tpu_like_7nm", constants=[f"{constant.name}={factor!r}x"]
        ).records
        meant = with_factors(physics, [constant], [factor])
        asked_for, sampled, stated = (
            values_of([asdict(each) for each in (space.platform, space.prices, cluster)])
            for space, cluster in (
                (found.space, found.cluster),
                (meant.space, meant.cluster),
                (before.space, before.cluster),
            )
        )
        assert asked_for == sampled != stated, constant.name


def test_a_memory_by_its_name_changes_alone() -> None:
    found = asked(
        design_space="tpu_like_7nm",
        constants=["memory.hbm3.price_per_gib=2x", "memory.idle_power=0"],
    ).records.space
    before = asked(design_space="tpu_like_7nm").records.space
    for each, stated in zip(found.platform.memories, before.platform.memories, strict=True):
        times = 2.0 if each.memory.name == "hbm3" else 1.0
        assert each.memory.price_per_gib.value == times * stated.memory.price_per_gib.value
        assert each.memory.idle_power.value == 0.0 < stated.memory.idle_power.value


def test_a_chip_file_that_names_its_memory_goes_with_a_memory_that_a_request_changed(
    tmp_path: Path,
) -> None:
    space = asked(design_space="tpu_like_7nm", constants=["memory.price_per_gib=2x"]).records.space
    chip = tmp_path / "chip.yaml"
    chip.write_text(
        "{num_tc: 1, width: 128, depth: 128, num_vc: 1, width_vc: 128, glb_mib: 8, memory: "
        "'hbm2e:4'}"
    )
    assert load_chip(chip, space).memory_system == "hbm2e:4"


def test_nothing_is_a_value_of_a_table_by_capacity() -> None:
    space = asked(
        design_space="tpu_like_7nm", constants=["technology.sram_energy=0x"]
    ).records.space
    assert space.platform.technology.sram_energy.at([1e3, 1e6, 1e9]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"constants": ["platform"]}, "write KIND.NAME=VALUE"),
        ({"constants": ["plattform.startup=1"]}, "did you mean 'platform'"),
        ({"constants": ["platform.start=1"]}, "platform has no constant 'start'|must be"),
        ({"constants": ["platform.startup=fast"]}, "must be zero or a positive number"),
        ({"constants": ["platform.startup=-1"]}, "must be zero or a positive number"),
        ({"constants": ["technology.glb_area=5"]}, "a table by capacity; give a factor"),
        ({"constants": ["platform.technology=2x"]}, "it is a group of .* name one of its parts"),
        ({"constants": ["cluster.tiers.7.latency=1"]}, "'7' is none of 1 entries"),
        ({"constants": ["platform.startup.value=1"]}, "nothing called 'value' below it"),
        ({"constants": ["prices.pue=2"]}, "about memory as it is sold and prices"),
        ({"constants": ["device.memory.capacity=2x"]}, "belongs to devices that exist"),
        ({"device": "h100", "constants": ["platform.startup=0"]}, "is about chips to design"),
        ({"frequency": "fast"}, "give a number in GHz, or a factor"),
        (
            {"frequency": "0.0005"},
            "'frequency 0.0005': frequency is 0.0005 GHz; it must be at least 0.001",
        ),
        (
            {"frequency": "1.2", "constants": ["platform.frequency_hz=1e9"]},
            "both change frequency_hz; leave one of them out",
        ),
        (
            {"hbm_bandwidth": "2x", "constants": ["platform.hbm_bandwidth=3x"]},
            "both change hbm_bandwidth_bytes_per_s",
        ),
        (
            {"design_space": "tpu_like_7nm", "constants": ["memory.hbm9.edge=2x"]},
            "'hbm9' is no memory of these chips; give hbm2",
        ),
        ({"design_space": "tpu_like_7nm", "constants": ["platform.memories=0"]}, "it is a list of"),
        (
            {"design_space": "tpu_like_7nm", "hbm_bandwidth": "1200"},
            "memory as it is sold has its own",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        asked(**settings)


@pytest.mark.parametrize(
    "value",
    ["0", "-3", "nan", "1e300", "1e-300", "0x", "1e300x", "nanx", "0 {unit}", "1e300 {unit}"],
)
@pytest.mark.parametrize(("key", "unit"), [("frequency", "GHz"), ("hbm_bandwidth", "TB/s")])
def test_a_shorthand_beyond_what_can_be_is_refused_by_its_name_with_what_is_allowed(
    key: str, unit: str, value: str
) -> None:
    given = value.format(unit=unit)
    with pytest.raises(
        InputError, match=rf"^{key} is '{given}'; give a (number|factor) from 1e-06 to 1,000,000"
    ):
        asked(**{key: given})


def leaves(record: Any, at: str) -> list[str]:
    """The places of all numbers in a record of hardware, ``tiers.0.latency_s``."""
    if isinstance(record, dict | tuple):
        named = record.items() if isinstance(record, dict) else enumerate(record)
        return [leaf for key, each in named for leaf in leaves(each, f"{at}.{key}")]
    if is_dataclass(record) and not isinstance(record, Quantity | UncertainQuantity):
        return [
            leaf
            for entry in fields(record)
            for leaf in leaves(getattr(record, entry.name), f"{at}.{entry.name}")
        ]
    number = isinstance(record, Quantity | UncertainQuantity | int | float) and not isinstance(
        record, bool
    )
    return [at] if number else []


@pytest.mark.parametrize("kind", ["platform", "cluster", "software", "device"])
def test_a_constant_that_cannot_be_is_blamed_on_the_change_and_not_on_a_file(kind: str) -> None:
    stated: dict[str, Any] = {} if kind == "platform" else {"device": "h100", "devices": 2}
    hardware = asked(**stated).records
    record = {"platform": hardware.space and hardware.space.platform, "device": hardware.device}
    record |= {"cluster": hardware.cluster, "software": hardware.software}
    refused = 0
    for place in leaves(record[kind], kind):
        for value in ("0", "0x", "1e300", "1e-300"):
            change = f"{place}={value}"
            try:
                asked(**stated, constants=[change])
            except InputError as error:
                assert change in str(error), change
                refused += 1
    assert refused > 5


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    folder = tmp_path_factory.mktemp("asked")
    solved(small_study(folder, micro_batch_size=[1], recompute="none"))
    return open_run(folder / "out")


def test_nothing_changed_changes_nothing_and_more_is_never_worse(finished: FinishedRun) -> None:
    same = what_if(finished, "hbm_bandwidth=1x")
    assert (same.same, same.best, same.same_design, same.same_plan) == (
        pytest.approx(1.0),
        pytest.approx(1.0),
        True,
        True,
    )
    for better in (
        "hbm_bandwidth=2x",
        "network_bandwidth=2x,startup=0",
        "platform.glb_bandwidth=2x",
    ):
        answer = what_if(finished, better)
        assert answer.same is not None and answer.best is not None
        assert 1.0 - 1e-9 <= answer.same <= answer.best * (1 + 1e-9)


def test_a_what_if_is_what_the_study_answers(finished: FinishedRun, tmp_path: Path) -> None:
    answer = what_if(finished, "devices=8")
    asked_anew = solved(small_study(tmp_path, micro_batch_size=[1], recompute="none", devices=8))
    assert answer.point is not None and asked_anew.best is not None
    assert answer.point.value == pytest.approx(asked_anew.best.value, rel=1e-9)


def test_it_is_asked_and_refused_on_the_command_line(
    finished: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        phaze.main(["explain", str(finished.folder), "--what-if", "glb_bandwidth=2x", "--quiet"])
        == 0
    )
    assert "under other circumstances" in capsys.readouterr().out
    for wrong in ("nosuch=1", "hbm_bandwidth", "platform.nosuch=2x", "devices=0"):
        assert phaze.main(["explain", str(finished.folder), "--what-if", wrong, "--quiet"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("phaze: ") and error.count("\n") <= 3


@pytest.mark.parametrize(
    ("asked_for", "said"),
    [
        ("devices=abc", "devices is 'abc', but must be a whole number from 1 to 1048576"),
        ("hbm_bandwith=2x", "unknown key 'hbm_bandwith'; did you mean 'hbm_bandwidth'?"),
        (
            "seq=64,sequence_length=32",
            "'seq' and 'sequence_length' are the same setting; give one of them",
        ),
        ("prices=nowhere", "no price named 'nowhere'; known: datacenter_2025"),
        ("micro_batch_size=4000", "micro-batch size 4000 exceeds the global batch size 64"),
        ("device=h100", "the run designed chips, and a device takes a search of its own"),
        ("memory_size=80", "memory_size belongs to devices that exist"),
        ("model=gpt2", "model is no circumstance of what the run asked, but another question"),
        ("objective=throughput", "objective is no circumstance"),
        ("setting=today", "setting is no circumstance"),
        ("output=elsewhere", "output is no circumstance"),
    ],
)
def test_a_refused_what_if_names_itself_and_not_the_study(
    finished: FinishedRun, asked_for: str, said: str
) -> None:
    with pytest.raises(InputError) as refused:
        what_if(finished, asked_for)
    assert str(refused.value).startswith(
        f"--what-if {asked_for}: {said}"
    ) and "study.yaml" not in str(refused.value)


def test_a_what_if_may_name_a_setting_by_another_name_or_its_rival(finished: FinishedRun) -> None:
    assert what_if(finished, "seq=128").best == pytest.approx(1.0)
    assert what_if(finished, "max_tp=1").best == pytest.approx(1.0)


def test_set_takes_constants_by_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware = write_hardware(tmp_path)
    words = (
        f"--model bertbase --chip {tmp_path / 'chip.yaml'} --design-space "
        f"{hardware['design_space']} --dry-run"
    )
    (tmp_path / "chip.yaml").write_text(
        "{num_tc: 4, num_vc: 4, width: 64, depth: 64, width_vc: 64, glb_mib: 8}"
    )
    changes = "--set platform.startup=0 --set cluster.tiers.*.bandwidth=2x"
    assert phaze.main([*words.split(), *changes.split()]) == 0
    assert "size of the space" in capsys.readouterr().out
    assert resolve({}, {"model": "gpt2", "platform.startup": 0}).hardware.constants == (
        "platform.startup=0",
    )
