"""A search killed without warning and given again ends as if nothing had happened."""

import json
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from small_study import small_study, solved

from phaze.settings.resolve import resolve
from phaze_common.arrays import read_arrays
from tests.builders.processes import started

REPOSITORY = Path(__file__).resolve().parents[3]
DEADLINE_S = 120.0

pytestmark = pytest.mark.kill


ON_DEVICES = {
    "model": "bertbase",
    "sequence_length": 64,
    "device": "a100_80gb",
    "devices": 8,
    "global_batch_size": 64,
    "micro_batch_size": [1, 2],
    "tp": 1,
}


def asked(folder, kind):
    return (
        small_study(folder, hbm_size=16)
        if kind == "chips"
        else resolve({}, ON_DEVICES | {"output": str(folder / "out")})
    )


def command(folder, kind):
    (folder / "study.yaml").write_text(yaml.safe_dump(asked(folder, kind).as_mapping()))
    return [
        sys.executable,
        str(REPOSITORY / "phaze.py"),
        "run_solver",
        "--config",
        str(folder / "study.yaml"),
        "--format",
        "json",
    ]


def run_until(words, reached):
    """Start the search and SIGKILL it as soon as ``reached()``; whether it was still running
    then."""
    with started(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        start = time.monotonic()
        while not reached() and process.poll() is None and time.monotonic() - start < DEADLINE_S:
            time.sleep(0.002)
        killed = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return killed


def without_paths(document):
    """The document without the names of its hardware files, which are in another folder."""
    return document | {
        "hardware": {
            key: document["hardware"][key] for key in document["hardware"] if key not in NAMES
        }
    }


NAMES = ("cluster", "design_space")


def answer(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a search of each kind in this process, which nothing disturbs, with the graphs
    that it made."""

    @cache
    def folder(kind):
        path = tmp_path_factory.mktemp(kind)
        solved(asked(path, kind), limits=True)
        return path / "out"

    return folder


MOMENTS = [
    ("chips", "**/layer_times-*.npz"),
    ("devices", "**/points-*.npz"),
    ("chips", "**/points-*.npz"),
]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("kind", "moment"), MOMENTS, ids=["layer times", "points on devices", "points"]
)
def test_a_killed_search_resumes_to_the_same_answer(kind, moment, undisturbed, tmp_path):
    words = command(tmp_path, kind)
    out = tmp_path / "out"
    shutil.copytree(
        undisturbed(kind) / "GraphExtractor", out / "GraphExtractor"
    )  # so that no time goes into tracing
    assert run_until(words, lambda: any(out.glob(moment))), (
        "the search ended before it could be killed"
    )
    before = {
        path: path.stat().st_mtime_ns
        for path in out.glob("**/*.npz")
        if "layer_times" not in path.name
    }
    times = {path: read_arrays(path) for path in out.glob("**/layer_times-*.npz")}
    resumed = answer(words)
    counts = resumed["counts"]
    assert (
        sum(counts[name] for name in ("evaluated", "dominated", "pruned", "infeasible"))
        == counts["space"]
    )
    # the folder is in the name; a resumed search may prune what the other evaluated
    differing = ("study", "counts", "run_directory", "digest")
    calm = json.loads((undisturbed(kind) / "best.json").read_text())
    assert without_paths(
        {key: resumed[key] for key in resumed if key not in differing}
    ) == without_paths({key: calm[key] for key in calm if key not in differing})
    assert before == {path: path.stat().st_mtime_ns for path in before}, (
        "finished work was done again"
    )
    for path, known in times.items():
        now = read_arrays(path)
        kept = (now["node_limit"] == known["node_limit"])[:, 0]
        assert np.all(now["node_limit"] >= known["node_limit"]), "what is proven was forgotten"
        assert all(
            np.array_equal(now[name][:, kept], known[name][:, kept])
            for name in ("seconds", "least_s", "joules")
        )


@pytest.mark.thorough
def test_two_runs_of_one_study_at_once_end_with_the_same_answer(undisturbed, tmp_path):
    words = command(tmp_path, "chips")
    shutil.copytree(undisturbed("chips") / "GraphExtractor", tmp_path / "out" / "GraphExtractor")
    runs = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run in runs:
        stdout, stderr = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 0, stderr
        assert (
            json.loads(stdout)["value"]
            == json.loads((undisturbed("chips") / "best.json").read_text())["value"]
        )
