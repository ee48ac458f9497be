"""``python -m third_party.amped``: what it prints and writes, and bad input in one sentence with
exit status 2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.third_party.amped_cases import LEFT_OUT, answer, document, written
from third_party.amped import estimate_training_time, estimateTrainingTime
from third_party.amped.command_line import main
from third_party.amped.corrections import NAMES
from third_party.amped.estimate import EXAMPLE

REPOSITORY = Path(__file__).resolve().parents[2]
ALL_FILES = {
    "config_summary.txt",
    "training_time_breakdown.txt",
    "gemm_breakdown.txt",
    "visual_graph.txt",
    "mat_dims.txt",
}
LABELS = """\
Total time to train (s)
Total time to train (days)
Total time to train (years)
Computation time forward pass (s)
Computation time backward pass (s)
Computation time weight updates (s)
Total computation time (s)
Communication time forward pass: tensor parallelism intra node (s)
Communication time forward pass: tensor parallelism inter node (s)
Communication time forward pass: pipeline parallelism (s)
Communication time forward pass: Zero-DP (ad-hoc model gathering) (s)
Total communication time forward pass (s)
Communication time backward pass: tensor parallelism intra node (s)
Communication time backward pass: tensor parallelism inter node (s)
Communication time backward pass: pipeline parallelism (s)
Communication time backward pass: Zero-DP (ad-hoc model gathering) (s)
Total communication time backward pass (s)
Communication time: all-reduce gradients for DP intra node (s)
Communication time: all-reduce gradients for DP inter node (s)
Communication time: all-reduce gradients for DP total (s)
Total communication time (s)
Waiting Time due to pipeline bubbles (s)
total MACs
TFLOPS
total TFLOPS/sec
TFLOP/sec/GPU
TFLOP/sec/GPU (peak)
MoE FW pass communication overhead time (s)
MoE BW pass communication overhead time (s)
MoE Gating network: compute overhead time (s)
Total MoE communication overhead time
""".splitlines()


def run(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> tuple[str, str]:
    assert main([str(word) for word in words]) == status
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_run_writes_and_prints_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = written(tmp_path, document()), tmp_path / "made"
    out, err = run(
        capsys, "run", path, "--output", folder, "--GEMM", "--compute_graph", "--mat-dims"
    )
    printed = json.loads(out)
    assert not err
    assert (
        {each.name for each in folder.iterdir()}
        == ALL_FILES
        == {Path(each).name for each in printed["files"]}
    )
    assert list(printed["breakdown"]) == LABELS
    lines = (folder / "training_time_breakdown.txt").read_text().splitlines()
    assert lines[:2] == ["TRAINING TIME BREAKDOWN", ""]
    for line, (label, value) in zip(lines[2:], printed["breakdown"].items(), strict=True):
        assert line.startswith(label) and float(line.removeprefix(label).lstrip("-")) == value
    single = answer()
    assert printed["total_time_s"] == printed["breakdown"][LABELS[0]] == single.seconds
    assert [each["name"] for each in printed["corrections"]] == list(NAMES)
    assert printed["as_published"]["total_time_s"] == answer(NAMES).seconds
    assert printed["memory"] == {"required_bytes": 8784, "available_bytes": 1e6, "fits": True}


@pytest.mark.parametrize(
    "name", ["config_summary.txt", "training_time_breakdown.txt", "gemm_breakdown.txt"]
)
def test_nothing_is_replaced_that_no_run_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path, folder = written(tmp_path, document()), tmp_path / "made"
    folder.mkdir()
    (folder / name).write_text("precious")
    _, err = run(capsys, "run", path, "--output", folder, "--GEMM", status=2)
    assert f"{name} was written by no run of AMPeD's formulas" in err and err.count("\n") == 1
    assert [(each.name, each.read_text()) for each in folder.iterdir()] == [(name, "precious")]
    (folder / name).unlink()
    for _ in range(2):  # its own files are
        run(capsys, "run", path, "--output", folder, "--GEMM")


def test_only_what_is_asked_for_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = written(tmp_path, document()), tmp_path / "made"
    out, _ = run(capsys, "run", path, "--output", folder, "--format", "text", "--mat-dims", "plain")
    assert {each.name for each in folder.iterdir()} == {
        "config_summary.txt",
        "training_time_breakdown.txt",
        "mat_dims.txt",
    }
    assert all(
        len(line.split()) == 3 for line in (folder / "mat_dims.txt").read_text().splitlines()
    )
    assert out.startswith((folder / "training_time_breakdown.txt").read_text())
    for name in NAMES:
        assert name in out
    run(capsys, "run", path, "--output", tmp_path / "stamped", "--timestamp")
    stamped = {each.name for each in (tmp_path / "stamped").iterdir()}
    assert (
        all(re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[a-z_]+\.txt", name) for name in stamped)
        and len(stamped) == 2
    )


def test_published_formulas_are_kept_as_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = written(tmp_path, document()), ("--output", tmp_path / "made")
    printed = json.loads(run(capsys, "run", path, *made, "--as-published")[0])
    assert printed["total_time_s"] == answer(NAMES).seconds and printed["corrections"] == []
    assert printed["kept_as_published"] == list(NAMES)
    summary = (tmp_path / "made" / "config_summary.txt").read_text()
    assert summary.count("kept as published") == len(NAMES)
    printed = json.loads(run(capsys, "run", path, *made, "--keep", "bubble", "head_width")[0])
    assert printed["total_time_s"] == answer(("bubble", "head_width")).seconds
    assert printed["kept_as_published"] == ["head_width", "bubble"]


def test_reconstructed_formulas_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "run", written(tmp_path, document()), "--output", tmp_path / "made")
    summary = (tmp_path / "made" / "config_summary.txt").read_text()
    for words in (
        "# RECONSTRUCTED FORMULAS",
        "efficiency_curve_limit",
        "MoE all-to-all: reconstructed",
        "total MACs: reconstructed",
    ):
        assert words in summary


def test_the_best_permutations_and_their_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, document(batch_size=[4, 8]))
    printed = json.loads(run(capsys, "optimize", path, "--best", 3)[0])
    assert len(printed["best"]) == 3
    best, certificate = printed["best"][0], printed["certificate"]
    assert (
        certificate["permutations"]
        == 2 * 3 * 6
        == certificate["feasible"] + sum(certificate["infeasible"].values())
    )
    assert (
        certificate["optimum_total_time_s"] == best["total_time_s"]
        and certificate["all_feasible_evaluated"]
    )
    degrees = {name: best[name] for name in best if "_node_" in name}
    assert best["total_time_s"] == answer(**degrees, batch_size=best["batch_size"]).seconds
    text = run(capsys, "optimize", path, "--format", "text", "--batch-sizes", 8)[0]
    assert (
        text.startswith("BEST PARALLELIZATIONS")
        and "18 permutations: 1 batch size x 3 splits of 2" in text
    )
    of_one_size = json.loads(run(capsys, "optimize", path, "--batch-sizes", 8)[0])["best"]
    assert f"the best takes {of_one_size[0]['total_time_s']!r} s." in text


def test_nothing_possible_is_status_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "optimize", written(tmp_path, document(memory="1 B")), status=3)
    assert (
        not out and len(err.splitlines()) == 1 and "none of the 18 permutations is possible" in err
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"training": ' + "9" * 5000 + "}", "digits"),
        ("[]", "give an object with the categories"),
        ("null", "give an object with the categories"),
        ("{}", "has no neural_network_training_parameters"),
        ("\x00\x01", "control character"),
        (json.dumps(document(layers=0)), "layers is 0"),
        (json.dumps(document(layers=-1)), "layers is -1"),
        (json.dumps(document(tokens_to_train=float("inf"))), "is Infinity in line 1"),
        (json.dumps(document(tokens_to_train=1e300)), "tokens_to_train"),
        (json.dumps(document(frequency=1e-300)), "frequency"),
        (json.dumps(document(layers=LEFT_OUT)), "parameter 'layers'"),
        (json.dumps(document(inter_node_latency="5 GB")), "give a time such as '5 us'"),
        (
            json.dumps(document(batch_size={"calculated": True})),
            "batch_size -> minibatch_size -> batch_size",
        ),
    ],
)
def test_bad_input_is_one_sentence_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    path = written(tmp_path, content)
    for command in ("run", "optimize"):
        if command == "optimize" and "minibatch_size ->" in words:
            continue  # which replaces the batch size
        out, err = run(
            capsys,
            command,
            path,
            *(("--output", tmp_path / "made") if command == "run" else ()),
            status=2,
        )
        assert not out and len(err.splitlines()) == 1 and words in err and str(path) in err
        assert not (tmp_path / "made").exists()


def test_bad_flags_are_one_sentence_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, document())
    a_file = tmp_path / "a_file"
    a_file.write_text("mine")
    for words, reason in (
        (("run", tmp_path / "nowhere.json"), "nowhere.json"),
        (("run", tmp_path), "cannot read"),
        (("run", path, "--lookup-tables", tmp_path / "nowhere.json"), "nowhere.json"),
        (
            ("run", path, "--keep", "bubbles"),
            "unknown correction 'bubbles'; did you mean 'bubble'?",
        ),
        (("run", path, "--output", a_file), "cannot write"),
        (("optimize", path, "--best", "0"), "--best is 0; give a whole number"),
        (("optimize", path, "--batch-sizes", "-4"), "batch_size is -4"),
    ):
        out, err = run(capsys, *words, status=2)
        assert not out and len(err.splitlines()) == 1 and reason in err
    assert a_file.read_text() == "mine"


def test_the_module_runs_the_shipped_example(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "third_party.amped",
        "run",
        str(EXAMPLE),
        "--output",
        str(tmp_path),
    ]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    printed: dict[str, Any] = json.loads(ended.stdout)
    assert printed["total_time_days"] == estimate_training_time().days
    assert (printed["transformer"], printed["accelerator"]) == ("GPT-3 175B", "A100")
    assert not ended.stderr


def test_the_name_that_amped_has_for_it_is_there() -> None:
    assert estimateTrainingTime is estimate_training_time
    assert (
        estimateTrainingTime("H100 PCIe").days
        < estimateTrainingTime("A100").days
        < estimateTrainingTime("V100").days
    )
