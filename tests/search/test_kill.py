"""A search killed without warning and given again ends as if nothing had happened."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from processes import started
from small_study import small_study

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 120.0

pytestmark = pytest.mark.kill


def command(folder):
    study = small_study(folder)
    (folder / "study.yaml").write_text(yaml.safe_dump(study.as_mapping()))
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
    """Start the search and SIGKILL it as soon as ``reached()``; whether it was still running then."""
    with started(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        start = time.monotonic()
        while not reached() and process.poll() is None and time.monotonic() - start < DEADLINE_S:
            time.sleep(0.002)
        killed = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return killed


def answer(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    document.pop("run_directory")
    return document


@pytest.fixture(scope="module")
def first_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("undisturbed")


@pytest.fixture(scope="module")
def undisturbed(first_folder):
    return answer(command(first_folder))


@pytest.mark.parametrize("moment", ["**/layer_times-*.npz", "**/points-*.npz"], ids=["layer times", "points"])
def test_a_killed_search_resumes_to_the_same_answer(moment, undisturbed, first_folder, tmp_path):
    words = command(tmp_path)
    out = tmp_path / "out"
    shutil.copytree(first_folder / "out" / "GraphExtractor", out / "GraphExtractor")  # both moments come after these
    assert run_until(words, lambda: any(out.glob(moment))), "the search ended before it could be killed"
    before = {path: path.stat().st_mtime_ns for path in out.glob("**/*.npz")}
    resumed = answer(words)
    counts = resumed["counts"]
    assert counts["evaluated"] + counts["pruned"] + counts["infeasible"] == counts["space"]
    differing = ("study", "counts")  # the folder is in the name; a resumed search may prune what the other evaluated
    assert {key: resumed[key] for key in resumed if key not in differing} == {
        key: undisturbed[key] for key in undisturbed if key not in differing
    }
    assert before == {path: path.stat().st_mtime_ns for path in before}, "finished work was done again"


def test_two_runs_of_one_study_at_once_end_with_the_same_answer(undisturbed, tmp_path):
    words = command(tmp_path)
    runs = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for run in runs:
        stdout, stderr = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 0, stderr
        assert json.loads(stdout)["value"] == undisturbed["value"]
