"""Settings that do not apply to what is asked are refused by name, before a model or a file of
hardware is read."""

from pathlib import Path

import pytest

from phaze import library
from phaze.runs.finished_run import FinishedRun
from phaze.settings import resolve as resolving
from phaze.settings.request import request_fields
from phaze.settings.resolve import resolve
from phaze_common.errors import InputError
from phaze_common.refusals import SeveralProblemsError
from phaze_common.setting_fields import Hardware, Mode

VALUES = {
    "design_space": "phaze_icml24",
    "chip": "tpu_v4",
    "technology": "phaze_22nm",
    "hbm_size": 32,
    "memory": "hbm3e:4",
    "links": "18x25GB/s",
    "max_area": 800,
    "max_power": 700,
    "max_chip_cost": 5000,
    "max_cluster_cost": 1e7,
    "prices": "datacenter_2025",
    "space_part": "1/2",
    "frequency": "2x",
    "hbm_bandwidth": "2x",
    "objective": "throughput",
    "front": "none",
    "combine": "worst",
    "solver": "native",
    "software": "xla",
    "attention_kernel": "flash_2",
    "memory_size": 80,
    "memory_bandwidth": 2000,
    "peak_flops": 300,
    "heterogeneous": True,
    "offload": "optimizer",
    "sites": 4,
    "outer_steps": 100,
    "site_gbit_per_s": 25,
    "outer_dtype": "fp8",
    "cuda_graphs": "layer",
}
ABOUT = {
    field.key: field.about
    for field in request_fields()
    if field.about.hardware is not None and field.key != "device"
}


@pytest.fixture(autouse=True)
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        pytest.fail("it was read before it was refused")

    monkeypatch.setattr(resolving, "find_model", read)
    monkeypatch.setattr(resolving, "canonical_name", read)
    monkeypatch.setattr(resolving, "HardwareFiles", read)


def test_every_setting_of_one_kind_of_hardware_is_tried() -> None:
    assert set(VALUES) == set(ABOUT)


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("key", ABOUT)
def test_a_setting_of_other_hardware_is_refused_from_flags_and_files(key: str, mode: Mode) -> None:
    if mode not in ABOUT[key].modes:
        pytest.skip("the mode does not take it")
    hardware = {"device": "h100"} if ABOUT[key].hardware is Hardware.CHIPS else {"chip": "tpu_v4"}
    given = {"model": "nowhere/model.py", **hardware, key: VALUES[key]}
    flag = f"--{key.replace('_', '-')}"
    with pytest.raises(InputError, match=f"^command line: {flag} "):
        resolve({}, given, mode)
    with pytest.raises(InputError, match=f"^mine.yaml: {key} "):
        resolve(given, {}, mode, source="mine.yaml")


def test_the_device_is_named_as_it_was_given() -> None:
    with pytest.raises(
        InputError,
        match=r"^command line: --hbm-size 32 is about chips to design, but the device h100 is "
        r"given; leave it or device out$",
    ):
        resolve({"model": "gpt2", "device": "h100"}, {"hbm_size": 32}, source="mine.yaml")


def test_several_of_one_place_are_one_sentence_and_places_are_kept_apart() -> None:
    with pytest.raises(SeveralProblemsError) as refused:
        resolve(
            {"model": "gpt2", "device": "h100", "objective": "throughput"},
            {"hbm_size": 32, "solver": "native"},
            source="f",
        )
    assert refused.value.problems == (
        "command line: --hbm-size 32 and --solver native are about chips to design, but the device "
        "h100 is given; leave them or device out",
        "f: objective throughput is about chips to design, but the device h100 is given; leave it "
        "or device out",
    )


def test_a_value_that_is_refused_still_counts_as_given() -> None:
    with pytest.raises(InputError) as refused:
        resolve({}, {"model": "gpt2", "device": True, "software": "xla"})
    assert "non-empty text" in str(refused.value) and "belongs to devices" not in str(refused.value)


def test_what_an_alternative_names_is_checked_before_the_run_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OfDevices(FinishedRun):
        on_device = True
        folder = Path("nowhere")

        def __init__(self) -> None:
            pass

    monkeypatch.setattr(
        "phaze.report.sentences.explanation.explain",
        lambda run: pytest.fail("it was explained first"),
    )
    with pytest.raises(SeveralProblemsError) as refused:
        library.explain(OfDevices(), ["num_tc=4", "pp=x"])
    assert len(refused.value.problems) == 2
