"""``phaze training-time`` from the command line to its tables and files: a small model on devices
that ship, every room real."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import phaze
from Estimator.devices.files import device_names, load_device
from Estimator.devices.written_yaml import written_yaml
from Estimator.plans.plan import OF_SITES
from Estimator.plans.state_formats import FORMAT_KEYS
from phaze.settings.request import request_fields
from phaze.studies.training_time.request import plan_of_search, training_request
from phaze.studies.training_time.settings import all_settings, plan_keys, states_a_plan
from phaze_common.errors import InfeasibleError, InputError
from phaze_common.sealed import is_as_written
from phaze_common.setting_fields import Mode

MODEL = "--model bertbase --seq 64"
HARDWARE = "--device a100_80gb --cluster nvlink_infiniband"
PLAN = "--pp 2 --dp 4 --global-batch-size 64"
LIMITS = (
    "--micro-batch-size 4 --tp 1 --recompute none --zero-stage 0 --sequence-parallel false "
    "--interleave 1"
)
MONEY = ["--price-per-device-hour", "2", "--grid-intensity", "0.4 kg/kWh", "--pue", "1.2"]
FAILURES = [
    "--device-mtbf-hours",
    "5000",
    "--checkpoint-bandwidth",
    "10",
    "GB/s",
    "--restart-time",
    "5 min",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def words(folder: Path) -> list[str]:
    """A training with its plan, its files and graph in a folder of its own."""
    return [
        *f"training-time {MODEL} {HARDWARE} {PLAN} --tokens 1e9 --output {folder} --quiet".split(),
        *MONEY,
        *FAILURES,
    ]


def record(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert phaze.main([*words, "--format", "json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_record_is_consistent_with_that_of_an_iteration(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(capsys, *words)
    one = record(capsys, *f"evaluate {MODEL} {HARDWARE} {PLAN} --output {folder} --quiet".split())
    assert found["iteration_s"] == one["iteration_s"]
    assert found["plan"] == one["plan"] and found["devices"] == 8
    assert (
        found["iterations"] == -(-(10**9) // (64 * 64))
        and found["tokens"] == found["iterations"] * 64 * 64
    )
    assert found["work_s"] == pytest.approx(found["iterations"] * one["iteration_s"])
    assert found["model_flops_utilization"] == pytest.approx(one["model_flops_utilization"])
    assert sum(part["total_s"] for part in found["parts"]) == pytest.approx(found["wall_clock_s"])
    for part in found["parts"]:
        if f"{part['name']}_s" in one["breakdown_s"]:
            assert part["total_s"] == pytest.approx(
                found["iterations"] * one["breakdown_s"][f"{part['name']}_s"]
            )
    hours = found["wall_clock_s"] * 8 / 3600
    assert found["device_hours"] == pytest.approx(hours) and found["price"] == pytest.approx(
        2 * hours
    )
    assert found["energy"]["energy_kwh"] == pytest.approx(400 * hours / 1000 * 1.2)
    assert found["energy"]["carbon_kg"] == pytest.approx(400 * hours / 1000 * 1.2 * 0.4)
    assert found["failures"]["checkpoint_s"] == pytest.approx(
        found["failures"]["checkpoint_bytes"] / 10e9
    )
    assert (found["failures"]["restart_s"], found["failures"]["cluster_mtbf_s"]) == (
        300,
        5000 * 3600 / 8,
    )


def test_the_files_are_the_answer_and_ask_it_again(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(capsys, *words)
    document = json.loads((folder / "training_time.json").read_text())
    assert is_as_written(document) and {**found, "digest": document["digest"]} == document
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (
        set(manifest["files"]) == {"study.yaml", "training_time.json"}
        and manifest["versions"]["python"]
    )
    study = yaml.safe_load((folder / "study.yaml").read_text())
    assert (
        study["checkpoint_bandwidth"] == 10e9
        and study["restart_time"] == 300
        and study["grid_intensity"] == 400
    )
    again = record(capsys, "training-time", "--plan", str(folder / "study.yaml"), "--quiet")
    assert again == found
    changed = record(
        capsys, "training-time", "--plan", str(folder / "study.yaml"), "--tokens", "2e9", "--quiet"
    )
    assert changed["iterations"] == pytest.approx(2 * found["iterations"], abs=1)


def test_the_answer_to_another_question_is_kept_beside_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = (
        "--model bertbase --sequence-length 64 --device a100_80gb --devices 2 --pp 2 "
        "--global-batch-size 64"
    )
    words = ["training-time", *plan.split(), "--output", str(tmp_path / "out"), "--quiet"]
    first = record(capsys, *words, "--tokens", "1e9")
    assert record(capsys, *words, "--tokens", "1e9") == first
    assert len(list((tmp_path / "out").glob("training_time*.json"))) == 1
    record(capsys, *words, "--tokens", "2e9")
    (kept,) = (tmp_path / "out").glob("training_time-*.json")
    assert json.loads(kept.read_text())["iterations"] == first["iterations"]


def test_the_tables_say_what_the_record_says(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    warm_up = ["--batch-size-warmup", "16", "16", "1000000"]
    found = record(capsys, *words, *warm_up)
    assert phaze.main([*words, *warm_up]) == 0
    shown = capsys.readouterr().out
    summary = shown.partition("where the time of the training goes")[0]
    cells = dict(re.findall(r"^  (\w[\w\-/ ]*?) {2,}(.+)$", summary, re.MULTILINE))
    assert cells["plan"] == "tp 1 x pp 2 x dp 4, micro-batch 1, recomputation none"
    assert cells["iterations"].startswith(f"{found['iterations']:,}, ")
    assert float(cells["device-hours"].replace(",", "")) == pytest.approx(
        found["device_hours"], rel=1e-4
    )
    assert "thermal design power of the boards alone, an upper bound, PUE 1.2" in cells["energy"]
    assert "(Young-Daly; to higher order" in cells["checkpoints"]
    assert f"{found['failures']['failures']:.3g}"[:4] in cells["failures"]
    parts = shown.partition("where the time of the training goes")[2].partition(
        "warm-up of the batch size"
    )[0]
    hours = [
        float(each) for each in re.findall(r"^  \S.*? +([\d.]+) +[\d.]+%$", parts, re.MULTILINE)
    ]
    assert (
        sum(hours[:-1])
        == pytest.approx(hours[-1], rel=1e-3)
        == pytest.approx(found["wall_clock_s"] / 3600, rel=1e-3)
    )
    levels = shown.partition("warm-up of the batch size")[2]
    assert [row.split()[0] for row in levels.splitlines() if re.match(r"  +\d", row)] == [
        "16",
        "32",
        "48",
        "64",
    ]


def test_what_is_not_given_has_no_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = (
        f"training-time {MODEL} {HARDWARE} {PLAN} --tokens 1e9 --output {folder / 'plain'} "
        "--quiet".split()
    )
    assert phaze.main(plain) == 0
    shown = capsys.readouterr().out
    assert not re.search(
        r"^  (price|carbon|checkpoints|failures|work lost|restarts) ", shown, re.MULTILINE
    )
    assert "warm-up" not in shown and "energy" in shown


def test_a_plan_that_does_not_fit_ends_with_status_3(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = (
        f"training-time {MODEL} {HARDWARE} --micro-batch-size 4096 --tokens 1e9 --output "
        f"{folder / 'large'} --quiet".split()
    )
    found = record(capsys, *large, status=3)
    assert (
        found["status"] == "infeasible" and "needs" in found["reason"] and found["wall_clock_s"] > 0
    )
    assert phaze.main(large) == 3
    assert "training-time --best searches for a plan that does" in capsys.readouterr().out


@pytest.fixture(scope="module")
def searched(folder: Path) -> list[str]:
    """A training with the best of some plans."""
    run = f"--devices 2 --global-batch-size 8 --tokens 1e8 --output {folder / 'best'} --quiet"
    return f"training-time {MODEL} {HARDWARE} {LIMITS} --best {run}".split()


def test_the_best_plan_is_that_of_the_search(
    searched: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(capsys, *searched)
    best = json.loads((folder / "best" / "best.json").read_text())
    (plan,) = best["models"].values()
    assert found["iteration_s"] == pytest.approx(plan["time_per_batch_s"], rel=1e-12)
    assert {key: found["plan"][key] for key in ("tp", "pp", "dp")} == {
        key: plan[key] for key in ("tp", "pp", "dp")
    }
    assert found["plan_searched"] and found["plan_proven"] is best["optimal"]
    assert (
        json.loads((folder / "best" / "training_time.json").read_text())["wall_clock_s"]
        == found["wall_clock_s"]
    )
    again = record(
        capsys,
        "training-time",
        "--plan",
        str(folder / "best" / "best.json"),
        "--tokens",
        "1e8",
        "--quiet",
    )
    assert again["wall_clock_s"] == found["wall_clock_s"] and not again["plan_searched"]
    assert (
        phaze.open_run(folder / "best").result.best is not None
    )  # the training's file does not disturb the run's
    asked = training_request(
        None, {"model": "bertbase", "device": "a100_80gb", "devices": 2, "tokens": 1e9}
    ).request
    assert (
        plan_of_search(folder / "best" / "best.json", asked).folders.graphs == asked.folders.graphs
    )


def test_from_python_it_is_one_line(folder: Path) -> None:
    stated = {
        "model": "bertbase",
        "sequence_length": 64,
        "device": "A100-80GB-SXM",
        "devices": 8,
        "pp": 2,
    }
    stated |= {"cluster": "nvlink_infiniband", "output": folder / "python"}
    found = phaze.training_time(
        **stated,
        tokens=1e9,
        global_batch_size=64,
        checkpoint_bandwidth="10 GB/s",
        device_mtbf_hours=5000,
    )
    assert (found.plan.pp, found.plan.dp, found.devices) == (2, 4, 8)
    assert found.failures is not None and found.failures.checkpoint_s == pytest.approx(
        found.failures.checkpoint_bytes / 10e9
    )
    with pytest.raises(
        InputError,
        match=r"phaze.training_time: checkpoint_bandwidth is '10 GHz'; it is a bandwidth: give "
        r"bytes/s",
    ):
        phaze.training_time(**stated, tokens=1e9, checkpoint_bandwidth="10 GHz")
    parameters = list(inspect.signature(phaze.training_time).parameters)
    assert parameters == ["progress", *all_settings().keys]
    with pytest.raises(InfeasibleError):
        small = {
            "micro_batch_size": 4096,
            "global_batch_size": 4096,
            "pp": 1,
            "best": True,
            "recompute": "none",
        }
        small["output"] = folder / "no plan"
        phaze.training_time(
            **stated | small | {"devices": 1},
            tp=1,
            zero_stage=0,
            sequence_parallel=False,
            tokens=1e9,
        )


def test_without_a_plan_the_best_is_searched_and_with_one_it_is_priced() -> None:
    asked = {
        "model": "bertbase",
        "device": "a100_80gb",
        "devices": 2,
        "tokens": 1e9,
        "global_batch_size": 64,
    }
    assert training_request(None, asked).searched
    assert training_request(None, asked | {"max_tp": 1}).searched
    assert not training_request(None, asked | {"tp": 1}).searched
    assert training_request(None, asked | {"tp": 1, "best": True}).request.plan.tp == (1,)
    assert not training_request(None, asked | {"best": False}).searched
    assert training_request(None, asked | {"tp": "all"}).searched
    assert training_request(None, asked | {"model": "gpt2", "layout": "auto"}).searched


def test_whatever_an_evaluation_takes_of_a_plan_and_a_search_may_choose_says_what_the_plan_is() -> (
    None
):
    """Each setting of a plan alone: those of ``evaluate`` that are of no model, hardware, training
    or folder."""
    others = {
        "model",
        "sequence_length",
        "devices",
        "strict",
        "name",
        "output",
        "csv",
        "setting",
        "constants",
        "solver",
    }
    of_hardware = {
        each.key
        for each in request_fields()
        if each.about.hardware is not None and each.key not in {"offload", *OF_SITES}
    }
    of_hardware |= {"cluster", "fast_domain"}
    of_training = {"global_batch_size", "optimizer", "precision", "attention", *FORMAT_KEYS}
    of_training |= {"expert_load"}
    expected = {each.key for each in request_fields() if Mode.EVALUATE in each.about.modes}
    assert expected - others - of_hardware - of_training == plan_keys() - {"fsdp"}
    assert plan_keys() <= {*all_settings().keys} and "fsdp" in plan_keys()
    asked = {
        "model": "bertbase",
        "device": "a100_80gb",
        "devices": 4,
        "tokens": 1e9,
        "global_batch_size": 64,
    }
    stated = {
        "layout": "2d",
        "tp2": 2,
        "panels": 4,
        "exchange": "ring",
        "offload": "optimizer",
        "stage_cuts": "inside",
        "cp": 2,
    }
    stated |= {
        "recompute": "full",
        "sequence_parallel": True,
        "group_order": "data",
        "schedule": "gpipe",
        "fsdp": True,
    }
    stated |= {"overlap_gradients": True, "overlap_tensor": True, "stage_layers": [14]}
    for key in sorted(plan_keys()):
        assert states_a_plan(asked | {key: stated.get(key, 1)}), key


def test_gpt3_on_1024_a100_takes_as_long_as_was_published(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """34 days for 300 billion tokens (Narayanan et al. 2021, section 5.1, from 140 TFLOP/s a device
    with full recomputation)."""
    plan = (
        "--devices 1024 --tp 8 --pp 8 --recompute full --attention eager --precision fp16 "
        "--global-batch-size 1536"
    )
    hardware = "--device a100_80gb --cluster selene --software megatron_2021"
    command = (
        f"training-time --model gpt3-175b {hardware} {plan} --tokens 300e9 --output "
        f"{folder / 'gpt3'} --quiet"
    )
    found = record(capsys, *command.split())
    assert found["wall_clock_days"] == pytest.approx(34, rel=0.05)
    assert found["hardware_tflops_per_device"] == pytest.approx(140, rel=0.1)
    assert found["iterations"] == -(-300 * 10**9 // (1536 * 2048))


BAD = {
    "no tokens": (
        "",
        "how long the training is was not given; give --tokens, for instance --tokens 300e9",
    ),
    "both": (
        "--tokens 1e9 --samples 1e9",
        "samples and --tokens exclude each other; give one of them",
    ),
    "fewer than an iteration": (
        "--tokens 100",
        "tokens is 100, fewer than the first iteration takes, 64 samples of 64 tokens",
    ),
    "negative tokens": ("--tokens -5", "--tokens is '-5', but must be a number from 1"),
    "negative price": (
        "--tokens 1e9 --price-per-device-hour=-1",
        "--price-per-device-hour is '-1', but must be a number from 0",
    ),
    "power of another kind": (
        "--tokens 1e9 --device-power 5 GB",
        "--device-power is '5 GB'; it is a power: give W, or a number",
    ),
    "intensity of another kind": (
        "--tokens 1e9 --grid-intensity 5 kWh",
        "it is a carbon intensity: give g/kWh",
    ),
    "slow storage": (
        "--tokens 1e9 --checkpoint-bandwidth 100",
        "must be a number from 1000000 to 1000000000000000000 bytes/s",
    ),
    "failures alone": (
        "--tokens 1e9 --device-mtbf-hours 5000",
        "needs the time of a checkpoint; give --checkpoint-bandwidth",
    ),
    "bandwidth alone": (
        "--tokens 1e9 --checkpoint-bandwidth 5 GB/s",
        "give --device-mtbf-hours or --checkpoint-interval",
    ),
    "interval alone": (
        "--tokens 1e9 --checkpoint-interval 1 h",
        "checkpoint_interval needs the time of a checkpoint",
    ),
    "restart alone": (
        "--tokens 1e9 --restart-time 5 min",
        "restart_time is that after a failure; give --device-mtbf-hours",
    ),
    "warm-up of two": (
        "--tokens 1e9 --batch-size-warmup 4 4",
        "has 2 numbers, but must be three: START STEP SAMPLES",
    ),
    "warm-up too high": (
        "--tokens 1e9 --batch-size-warmup 64 4 100",
        "but the global batch size is 64; start below it",
    ),
    "list in a plan": (
        "--tokens 1e9 --tp 1 2",
        "--tp lists 2 values, but a plan has one; give one, or --best to search",
    ),
    "search in a plan": (
        "--tokens 1e9 --use-all-devices",
        "--use-all-devices is about a search; add --best, or leave it out",
    ),
    "plan in a search": (
        "--tokens 1e9 --best --stage-layers 7 7",
        "--stage-layers is about a plan that is given, but the best",
    ),
    "PUE below 1": ("--tokens 1e9 --pue 0.5", "--pue is '0.5', but must be a number from 1 to 10"),
    "unknown": ("--tokens 1e9 --token 3", "unknown flag '--token' of training-time; did you mean"),
}


@pytest.mark.parametrize(("more", "said"), BAD.values(), ids=BAD)
def test_bad_input_ends_with_status_2_and_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], more: str, said: str
) -> None:
    command = f"training-time {MODEL} {HARDWARE} {PLAN} --output {folder / 'bad'} {more}"
    assert phaze.main(command.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err and len(captured.err.splitlines()) == 1
    assert not (folder / "bad" / "training_time.json").exists()


def test_images_have_samples_instead_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        phaze.main(
            [
                "training-time",
                "--model",
                "resnet50",
                "--device",
                "a100_80gb",
                "--dp",
                "1",
                "--tokens",
                "1e9",
            ]
        )
        == 2
    )
    assert (
        "resnet-50 is not trained on tokens; give --samples instead of --tokens"
        in capsys.readouterr().err
    )


def test_energy_on_a_device_without_a_power_is_refused_unless_it_is_given(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(written_yaml(replace(load_device("a100_80gb"), board_power=None)))
    asked = {"model": "bertbase", "device": str(own), "dp": 8, "tokens": 1e9}
    assert not training_request(None, asked | {"device_power": "300 W", "pue": 1.1}).searched
    for key in ("grid_intensity", "pue"):
        with pytest.raises(
            InputError,
            match=f"{key} is about energy, but NVIDIA A100 SXM 80 GB states no power; give "
            "--device-power",
        ):
            training_request(None, asked | {key: 2})


def test_too_little_to_train_on_is_refused_before_anything_is_searched() -> None:
    asked = {"model": "gpt3-175b", "device": "h100", "devices": 1024, "global_batch_size": 1536}
    with pytest.raises(
        InputError,
        match="1,536 samples of 2,048 tokens = 3,145,728; give more, or a smaller "
        "--global-batch-size",
    ):
        training_request(None, asked | {"tokens": 3e6})
    with pytest.raises(InputError, match="16 samples of 2,048 tokens = 32,768"):
        training_request(None, asked | {"tokens": 3e4, "batch_size_warmup": [16, 16, 1000]})


def test_devices_that_ship_state_the_power_of_their_board() -> None:
    powers = {name: load_device(name).board_power for name in device_names()}
    assert {name for name, power in powers.items() if power is None} == {
        "tpu_v5e",
        "tpu_v5p",
        "tpu_v6e",
        "tpu_v7x",
        "trainium1",
        "trainium2",
    }  # Google and AWS say none
    assert all(
        50 <= power.value <= 1500 and power.source for power in powers.values() if power is not None
    )
