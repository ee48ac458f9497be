"""The plugin that looks after the programs tests start, in sessions of pytest of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders.processes import ended, finished, programs, started

TESTS = Path(__file__).resolve().parent
ENDLESS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
WITH_A_CHILD = [sys.executable, "-c", f"import subprocess; subprocess.Popen({ENDLESS!r}).wait()"]


def session(folder: Path, source: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A session of pytest with the plugin alone, on one file; it waits but a moment for programs
    that are ending."""
    (folder / "conftest.py").write_text(
        "from tests.builders import processes\n\nprocesses.GRACE_S = 0.1\n"
    )
    (folder / "test_it.py").write_text(source)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.builders.processes",
        "-p",
        "no:cacheprovider",
        folder,
    ]
    environment = os.environ | {
        "PYTHONPATH": str(TESTS.parent),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return finished(words, cwd=folder, env=environment, **options)


def is_running(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(autouse=True)
def _needs_a_list_of_processes() -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("this system does not list its processes under /proc")


FAILING = """
import subprocess, sys

def test_it():
    for more in ({}, {"start_new_session": True}):
        program = subprocess.Popen(WORDS, stdout=subprocess.PIPE, **more)
        assert program.stdout.readline() == b"up\\n"
        print(f"pid {program.pid}")
    assert False
"""


def test_a_failing_test_leaves_no_program_and_is_told_which_it_left(tmp_path: Path) -> None:
    done = session(tmp_path, FAILING.replace("WORDS", repr(ENDLESS)))
    pids = {int(pid) for pid in re.findall(r"^pid (\d+)$", done.stdout, re.MULTILINE)}
    assert done.returncode == 1 and len(pids) == 2
    assert "1 failed, 1 error" in done.stdout
    assert done.stdout.count("still running behind the last test, and killed:") >= 1
    assert not any(is_running(pid) for pid in pids)


def test_programs_that_end_are_no_error(tmp_path: Path) -> None:
    done = session(
        tmp_path,
        "import subprocess\n\ndef test_it():\n    subprocess.run(['sleep', '0'], check=True)\n",
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True)


INTERRUPTED = """
import os, signal, subprocess, sys

def test_it():
    os.kill(os.getpid(), signal.SIGINT)  # goes on being ignored here
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\\n"
"""


def test_an_interrupt_reaches_what_tests_start_where_their_shell_ignores_it(tmp_path: Path) -> None:
    done = session(
        tmp_path, INTERRUPTED, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    )
    assert done.returncode == 0, done.stdout


def test_what_was_started_goes_with_its_whole_group() -> None:
    mark = os.environ["PHAZE_STARTED_BY_TESTS"]
    with (
        pytest.raises(RuntimeError, match="in the middle"),
        started(WITH_A_CHILD, stdout=subprocess.PIPE) as program,
    ):
        assert program.stdout is not None and program.stdout.readline() == "up\n"
        assert len(programs(mark)) == 2
        raise RuntimeError("in the middle")
    assert ended(mark) == []


def test_what_is_finished_tells_what_it_said() -> None:
    done = finished(
        [
            sys.executable,
            "-c",
            "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)",
        ]
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_programs_are_those_of_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHAZE_STARTED_BY_TESTS", "another")
    with started(ENDLESS, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None and program.stdout.readline() == "up\n"
        assert [each.pid for each in programs("another")] == [program.pid]
        assert programs("nobody") == []
    while programs("another"):
        time.sleep(0.01)
