"""``phaze evaluate`` from the command line to its tables: small models on devices that ship, every
room real."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import phaze
from Estimator.devices.files import load_device
from Estimator.devices.written_yaml import written_yaml
from Estimator.plans.results import Breakdown
from phaze.report.sentences.designs import PARTS, hidden_s
from phaze.report.tables.training_tables import fullest_memory_text
from phaze_common.numbers import number
from phaze_common.units import GIB

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A model of 14 layers on one kind of device, its graph in a folder of its own."""
    folder = tmp_path_factory.mktemp("graphs")
    return (
        "evaluate --model bertbase --seq 64 --device a100_80gb --cluster nvlink_infiniband "
        f"--output {folder} --quiet".split()
    )


def record(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert phaze.main([*words, "--format", "json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


PLAN = [
    "--pp",
    "2",
    "--dp",
    "4",
    "--global-batch-size",
    "64",
    "--recompute",
    "full",
    "--zero-stage",
    "1",
]


def test_a_price_whose_graph_is_there_imports_little(words: list[str]) -> None:
    assert phaze.main(words) == 0
    program = (
        "import sys; from phaze.__main__ import main; status = main(); "
        "heavy = {'torch', 'transformers', 'numba', 'scipy', 'pandas', 'altair'}; "
        "sys.exit(f'{status} {heavy & set(sys.modules)}')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.stderr == "0 set()\n"


def test_the_record_is_consistent(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = record(capsys, *words, *PLAN)
    assert (found["model"], found["device"], found["cluster"], found["status"]) == (
        "bertbase",
        "a100_80gb",
        "nvlink_infiniband",
        "feasible",
    )
    assert found["devices"] == 8
    assert found["plan"]["sequence_length"] == 64
    assert found["samples_per_s"] == pytest.approx(64 / found["iteration_s"])
    assert found["tokens_per_s"] == pytest.approx(64 * 64 / found["iteration_s"])
    assert found["hardware_tflops_per_device"] > found["model_tflops_per_device"] > 0
    exposed = [
        seconds for name, seconds in found["breakdown_s"].items() if not name.startswith("hidden_")
    ]
    assert sum(exposed) == pytest.approx(found["iteration_s"])
    assert found["breakdown_s"]["recompute_s"] > 0
    assert [len(stage["layers"]) for stage in found["stages"]] == [7, 7]
    assert found["stages"][0]["layers"][:2] == ["embedding", "block.0"]
    for stage in found["stages"]:
        assert stage["load_s"] == pytest.approx(stage["forward_s"] + stage["backward_s"])
        parts = ("parameter_state_bytes", "activation_bytes", "workspace_bytes", "reserved_bytes")
        assert stage["memory_bytes"] == pytest.approx(sum(stage[part] for part in parts))
    assert (
        found["memory_bytes"]
        == max(stage["memory_bytes"] for stage in found["stages"])
        < found["memory_capacity_bytes"]
    )


def test_a_record_s_plan_evaluates_to_the_same(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = record(capsys, *words, *PLAN)
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(found["plan"]))
    assert record(capsys, *words, "--plan", str(tmp_path / "plan.yaml")) == found
    assert (
        record(capsys, *words, "--plan", str(tmp_path / "plan.yaml"), "--set", "recompute=none")
        != found
    )


def test_the_tables_say_what_the_record_says(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(capsys, *words, *PLAN)
    assert phaze.main([*words, *PLAN]) == 0
    shown = capsys.readouterr().out
    cells = dict(re.findall(r"^  (\w[\w\-/ ]*?) {2,}(.+)$", shown, re.MULTILINE))
    assert cells["status"] == "feasible"
    assert (
        cells["devices"]
        == "8 x NVIDIA A100 SXM 80 GB on nvlink_infiniband: tp 1 x pp 2 x dp 4, ZeRO stage 1"
    )
    assert float(cells["iteration"].split()[0].replace(",", "")) == pytest.approx(
        1e3 * found["iteration_s"], rel=1e-3
    )
    assert cells["tokens/s"] == f"{found['tokens_per_s']:,.0f}"
    assert f"MFU {found['model_flops_utilization']:.1%}" in shown
    assert f"HFU {found['hardware_flops_utilization']:.1%}" in shown
    assert shown.count("yes\n") == 2


def test_the_rows_of_the_breakdown_are_those_of_the_file_and_a_sum_that_seems_off_is_told(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main([*words, *PLAN]) == 0
    breakdown = capsys.readouterr().out.partition("where the time goes")[2].partition("stages")[0]
    rows = re.findall(r"^  (\w[\w\- ]*?) {2,}([\d,.]+) +[\d.]+%$", breakdown, re.MULTILINE)
    shown = {name: float(milliseconds.replace(",", "")) for name, milliseconds in rows}
    total = shown.pop("iteration")
    assert {"recomputation", "data-parallel communication"} <= shown.keys() <= {*PARTS.values()}
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    decimals = len(rows[-1][1].partition(".")[2])
    assert (sum(shown.values()) == pytest.approx(total, abs=1e-9)) == (
        "each number rounded by itself" not in breakdown
    )
    found = record(capsys, *words, *PLAN)
    of_file = {
        PARTS[name.removesuffix("_s")]: each
        for name, each in found["breakdown_s"].items()
        if not name.startswith("hidden")
    }
    assert total == round(1e3 * found["iteration_s"], decimals)
    assert shown == {part: round(1e3 * of_file[part], decimals) for part in shown}


def test_chunks_that_no_search_would_choose_are_told(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = "chunks of unequal numbers of layers are priced as they are"
    for pp, interleave, uneven in (("3", "2", False), ("3", "3", True), ("5", "1", False)):
        degrees = [
            "--pp",
            pp,
            "--dp",
            "1",
            "--interleave",
            interleave,
            "--global-batch-size",
            "30",
            "--micro-batch-size",
            "1",
        ]
        assert phaze.main([*words, *degrees]) == 0
        text = capsys.readouterr().out
        assert (said in text) is uneven
    assert (
        phaze.main(
            [*words, "--pp", "3", "--dp", "1", "--interleave", "3", "--global-batch-size", "30"]
        )
        == 0
    )
    assert "9 chunks" in capsys.readouterr().out


def test_memory_is_told_in_gib_and_little_room_with_a_warning(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(capsys, *words, *PLAN)
    assert phaze.main([*words, *PLAN]) == 0
    text = capsys.readouterr().out
    assert (
        f"{number(found['memory_bytes'] / GIB)} of {number(found['memory_capacity_bytes'] / GIB)} "
        "GiB" in text
    )
    assert "total GiB" in text
    assert not re.search(r"\d GB\b", text.replace("SXM 80 GB", ""))
    assert fullest_memory_text(96.0, 100.0).endswith(
        "more than 95%, which fragmentation could overflow"
    )
    assert "more than" not in fullest_memory_text(95.0, 100.0) + fullest_memory_text(101.0, 100.0)


def test_every_part_of_a_breakdown_has_a_row() -> None:
    fields = set(Breakdown.__dataclass_fields__)
    hidden = hidden_s(Breakdown(**dict.fromkeys(fields, 1.0)))
    assert {f"{part}_s" for part in PARTS} | {f"hidden_{part}_s" for part in hidden} == fields
    assert len(PARTS) == len(set(PARTS.values()))


def test_hidden_communication_is_listed_apart(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    overlapped = [*words, *PLAN, "--overlap-gradients", "--zero-stage", "0"]
    found = record(capsys, *overlapped)
    assert found["breakdown_s"]["hidden_data_communication_s"] > 0
    assert phaze.main(overlapped) == 0
    breakdown = capsys.readouterr().out.partition("where the time goes")[2].partition("stages")[0]
    assert (
        breakdown.index("optimizer")
        < breakdown.index("iteration")
        < breakdown.index("hidden data-parallel communication")
    )


@pytest.fixture
def small_device(tmp_path: Path) -> str:
    """An A100 whose memory holds next to nothing."""
    a100 = load_device("a100_80gb")
    memory = replace(a100.memory, capacity=replace(a100.memory.capacity, value=3e9))
    path = tmp_path / "small.yaml"
    path.write_text(written_yaml(replace(a100, name="small", memory=memory)))
    return str(path)


def test_a_plan_that_does_not_fit_is_printed_with_status_3(
    words: list[str], small_device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*words, "--device", small_device]
    found = record(capsys, *asked, status=3)
    assert (found["status"], found["device"], found["memory_capacity_bytes"]) == (
        "infeasible",
        small_device,
        3e9,
    )
    assert "stage 1 of 1 needs" in found["reason"]
    assert found["iteration_s"] > 0
    assert phaze.main(asked) == 3
    captured = capsys.readouterr()
    assert f"infeasible: {found['reason']}" in captured.out
    assert captured.out.rstrip().endswith("no")
    assert captured.err == ""


REFUSED = {
    "more devices than there are": ("--dp 100000 --global-batch-size 100000", "devices"),
    "more stages than blocks": ("--pp 13", "pp x interleave is 13, for 12 blocks; give at most 12"),
    "stages that are not the model's": (
        "--pp 2 --stage-layers 3 3",
        "adds up to 6 layers, but the model has 14",
    ),
    "width that does not divide": ("--tp 5", "use one of 1, 2, 3, 4"),
    "uneven interleaving": ("--pp 2 --interleave 2 --global-batch-size 5", "multiples of pp 2"),
    "no units for it": ("--precision fp8", "has no matrix units for float8"),
}


@pytest.mark.parametrize(("asked", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_a_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str], asked: str, said: str
) -> None:
    assert phaze.main([*words, *asked.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


FREE = {
    "--pp": ["1", "2", "3", "12", "13"],
    "--dp": ["1", "2", "7", "64"],
    "--devices": ["8", "12"],
    "--global-batch-size": ["1", "12", "64", "100"],
    "--interleave": ["1", "2", "6"],
    "--schedule": ["1f1b", "gpipe", "interleaved"],
    "--stage-layers": ["14", "7 7", "1 13", "4 4 6"],
    "--recompute": ["none", "selective", "full"],
    "--zero-stage": ["0", "1", "2", "3"],
    "--fsdp": ["", "false"],
    "--optimizer": ["sgd", "sgd_momentum"],
    "--group-order": ["tensor-pipeline-data", "x"],
    "--overlap-gradients": ["", "false"],
    "--overlap-tensor": ["true"],
    "--cluster": ["phaze_icml24", "dgx_a100"],
    "--set": ["dp=null", "pp=[2]", "ep=2", "cp=1", "zero_stage=yes"],
}
flags = st.sampled_from(sorted(FREE)).flatmap(
    lambda flag: st.sampled_from(FREE[flag]).map(lambda value: [flag, *value.split()])
)


@given(st.lists(flags, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_plan_is_priced_or_refused(
    words: list[str], capsys: pytest.CaptureFixture[str], asked: list[list[str]]
) -> None:
    status = phaze.main([*words, *(word for flag in asked for word in flag), "--format", "json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    if status == 2:
        assert captured.out == ""
        heading, *listed = captured.err.splitlines()
        assert (
            heading == f"phaze: {len(listed)} problems:"
            if listed
            else heading.startswith("phaze: ")
        )
        return
    assert status in {0, 3}
    found = json.loads(captured.out)
    assert found["iteration_s"] > 0
    exposed = [
        seconds for name, seconds in found["breakdown_s"].items() if not name.startswith("hidden_")
    ]
    assert min(found["breakdown_s"].values()) >= 0
    assert sum(exposed) == pytest.approx(found["iteration_s"])
    assert (status == 3) == (found["memory_bytes"] > found["memory_capacity_bytes"])


def test_a_stored_graph_needs_no_torch(words: list[str]) -> None:
    phaze.main(words)
    code = (
        "import sys, phaze; phaze.main(sys.argv[1:]); print(sorted({'torch', 'transformers'} & "
        "sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_kernel_of_attention_can_be_another(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [*words, "--seq", "4096", "--device", "h100", "--cluster", "dgx_h100"]
    own = record(capsys, *long)["iteration_s"]
    seconds = [
        record(capsys, *long, "--attention-kernel", name)["iteration_s"]
        for name in ("cudnn", "flash_2", "flash_3")
    ]
    assert seconds[0] == own and seconds[2] < own < seconds[1]
    file = REPOSITORY / "Estimator" / "hardware" / "attention" / "flash_3.yaml"
    slower = tmp_path / "slower.yaml"
    slower.write_text(file.read_text().replace("flash_3", "mine"))
    mine = record(capsys, *long, "--attention-kernel", str(slower))["iteration_s"]
    assert mine > own  # of which the device says nothing
    assert phaze.main([*long, "--attention-kernel", "fast"]) == 2
    assert "no attention named 'fast'" in capsys.readouterr().err
