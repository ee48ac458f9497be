"""``phaze sweep`` as a process: what it prints where, exit statuses, interrupts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweep_cases import SMALL, with_graphs_of, write

from phaze import main as front_door
from tests.builders.processes import started
from tests.builders.samples import sampled

REPOSITORY = Path(__file__).resolve().parents[4]


def words(*more):
    return [sys.executable, str(REPOSITORY / "phaze.py"), "sweep", *map(str, more)]


def phaze(*more):
    return subprocess.run(words(*more), capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def swept(warm, tmp_path_factory):
    """A sweep with an impossible point, run in this order: listed, run, run again."""
    folder = tmp_path_factory.mktemp("command")
    path = write(folder, SMALL | {"name": "small", "hbm_size": [1, 0.001], "tp": [1, 5]})
    output = with_graphs_of(warm, folder / "out")
    more = [path, "--output", output]
    return (
        phaze(*more, "--dry-run"),
        phaze(*more, "--workers", 2),
        phaze(*more, "--format", "json", "--workers", 1),
        output,
    )


def test_a_dry_run_lists_the_points_with_their_sizes_and_computes_nothing(swept):
    listed = swept[0]
    assert (listed.returncode, listed.stderr) == (
        2,
        "warning: 2 of 4 points are impossible; give other values in their place\n",
    )
    lines = [line.split() for line in listed.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [line[:4] for line in lines] == [
        ["1", "bertbase", "1", "1"],
        ["2", "bertbase", "1", "5"],
        ["3", "bertbase", "0.001", "1"],
        ["4", "bertbase", "0.001", "5"],
    ]
    assert lines[0][4:] == ["108", "to", "compute"]
    assert "impossible: tensor parallel width 5 does not divide bertbase" in listed.stdout


def test_lines_go_to_standard_error_and_the_table_to_standard_output(swept):
    first = swept[1]
    assert first.returncode == 2, first.stderr
    assert (
        first.stdout.startswith("small: 1 of 4 points\n")
        and "points without an answer" in first.stdout
    )
    lines = first.stderr.splitlines()
    assert lines[0].startswith(
        "warning: [1/4] bertbase, hbm_size 1, tp 5: impossible: tensor parallel width 5"
    )
    assert any(
        (line.startswith("[3/4] bertbase, hbm_size ") and "proven (" in line)
        or "infeasible" in line
        for line in lines
    )
    assert lines[-1] == "warning: 2 of 4 points are impossible; give other values in their place"
    assert "\x1b" not in first.stdout + first.stderr
    assert (swept[3] / "sweep.yaml").exists() and (swept[3] / "table.parquet").exists()


def test_a_second_run_finds_everything_and_gives_clean_json(swept):
    second = swept[2]
    rows = json.loads(second.stdout)
    assert (rows["failed"], rows["impossible"]) == (0, 2)
    assert [row["status"] for row in rows["points"]] == [
        "optimal",
        "impossible",
        "infeasible",
        "impossible",
    ]
    assert second.stderr.count("already there") == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--set", "modle=gpt2"], "phaze: --set: unknown key 'modle'; did you mean 'model'?"),
        (
            ["--set", "tp=5"],
            "phaze: {path} with --set tp: no point of the sweep is possible; the first: tensor "
            "parallel width 5 does not divide",
        ),
        (["--workers", "0"], "phaze: --workers 0 is not possible"),
        (["--address", "auto"], "phaze: --address is that of a Ray cluster"),
    ],
)
def test_wrong_input_is_one_sentence_and_status_2(tmp_path, capsys, more, said):
    path = write(tmp_path, SMALL | {"hbm_size": [1, 2]})
    assert front_door(["sweep", str(path), "--output", str(tmp_path / "out"), *more]) == 2
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.startswith(said.format(path=path)) and len(refused.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
@pytest.mark.kill
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("workers", "sent", "said"),
    sampled(
        [(1, "SIGINT", "interrupted"), (2, "SIGINT", "interrupted"), (2, "SIGTERM", "terminated")],
        [(2, "SIGTERM", "terminated")],  # any program meets both signals in test_process.py
    ),
)
def test_an_interrupt_ends_the_workers_and_keeps_what_is_finished(
    warm, tmp_path, workers, sent, said
):
    path = write(tmp_path, SMALL | {"hbm_size": [size / 8 for size in range(8, 400)]})
    output = with_graphs_of(warm, tmp_path / "out")
    more = words(path, "--output", output, "--workers", workers)
    deadline = time.monotonic() + 60
    with started(more, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        while (
            len(list(output.glob("points/*/point.json"))) < 3
            and child.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        os.killpg(child.pid, signal.Signals[sent])
        stdout, stderr = child.communicate(timeout=60)
        assert child.returncode == 128 + signal.Signals[sent], stderr
        assert stdout == ""
        last = stderr.splitlines()[-1]
        assert last.startswith(f"phaze: {said}; everything finished so far is kept")
        assert all(line.startswith(("[", "points of ")) for line in stderr.splitlines()[:-1]), (
            stderr
        )
        assert len(list(output.glob("points/*/point.json"))) >= 3
        while is_there(child.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_there(child.pid), "a worker is left"


def is_there(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_micro_batch_script_asks_for_every_size(tmp_path):
    checkout = tmp_path / "a checkout"
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / "scripts").mkdir()
    for name in ("common.sh", "sweep_microbatch.sh"):
        (checkout / "scripts" / name).write_bytes((REPOSITORY / "scripts" / name).read_bytes())
    fakes = {
        "setup.sh": "exit 0",
        ".venv/bin/python": 'shift; cat "$2"; shift 2; printf "<%s>" "$@"; echo',
    }
    for name, line in fakes.items():
        (checkout / name).write_text(f"#!/usr/bin/env bash\n{line}\n")
        (checkout / name).chmod(0o755)

    def script(*more):
        said = ["bash", str(checkout / "scripts" / "sweep_microbatch.sh"), *more]
        return subprocess.run(said, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (
        script("gpt2").stdout
        == "micro_batch_size: [1,2,4,8]\nhbm_size: [32,64,80]\n<--set><model=gpt2>\n"
    )
    chosen = script("./my model.py", "1 2", "--csv").stdout
    assert (
        chosen
        == "micro_batch_size: [1,2]\nhbm_size: [32,64,80]\n<--set><model=./my model.py><--csv>\n"
    )
    assert script("--csv").returncode == 2


def test_a_sweep_file_that_no_sweep_wrote_is_not_replaced(tmp_path, monkeypatch, capsys):
    path = write(tmp_path, SMALL | {"output": "."}).rename(tmp_path / "sweep.yaml")
    asked = path.read_text()
    monkeypatch.chdir(tmp_path)
    assert front_door(["sweep", str(path)]) == 2
    assert (
        f"{path} was written by no sweep of phaze, and this one would replace it; give another"
        in capsys.readouterr().err
    )
    assert path.read_text() == asked
    assert {each.suffix for each in tmp_path.iterdir()} == {".yaml"}  # nothing was made
