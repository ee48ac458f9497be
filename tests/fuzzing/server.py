"""Runs commands in forks of a process that has imported everything, each under limits.

    python -m tests.fuzzing.server FOLDER

``FOLDER/live`` has ``work``, in which commands run, and ``home``. Every line of standard input is a list
of words in JSON, answered in a line that holds an ``Outcome``; of ``["warm", ...]`` the other words
run in this process, so that forks find compiled code loaded.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

CPU_S = 60  # that a command may take; a machine with other work on it makes it wait longer
WALL_S = 180.0
MEMORY_BYTES = 4 * 2**30
LARGEST_FILE_BYTES = 2**30
POLL_S = 0.004
PAGE_BYTES = resource.getpagesize()
RESERVES_ADDRESSES = frozenset({"report"})  # has an engine that reserves far more than it uses
FORKS_WELL = frozenset({"jemalloc_bg_thd"})  # threads that their library starts again in a fork
WARM = "warm"
HEAVY = (  # what modes import when they run, none of it starting a thread
    *("numba", "scipy.optimize", "pandas", "pyarrow.parquet", "pydantic", "rich.table", "jinja2"),
    *("rich.progress", "altair", "joblib", "networkx", "gurobipy", "GraphExtractor.extract"),
    *("phaze.studies.search_run", "phaze.studies.evaluation", "phaze.studies.sweep.run"),
    *("phaze.studies.explain.repeat", "phaze.report.pages.search_report", "phaze.validation.run"),
    *("phaze.report.tables.search_tables", "GraphExtractor.sources.hf_config"),
    *("GraphExtractor.sources.user_module", "Estimator.network.calibration", "phaze.cli.doctor"),
)


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit ``status``, or minus the signal that ended it; ``limit`` is the
    one it went over, ``lost`` what it lost or wrote elsewhere."""

    status: int
    stderr: str = ""
    stdout: str = ""
    limit: str | None = None
    lost: tuple[str, ...] = ()


def serve(root: Path) -> None:
    """Answer commands until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _import_all()
    for line in sys.stdin:
        words = json.loads(line)
        warm = words[0] == WARM
        outcome = Outcome(_warm(root, words[1:])) if warm else _forked(root, words)
        answers.write(json.dumps(asdict(outcome)) + "\n")
        answers.flush()


def _import_all() -> None:
    from GraphExtractor.attention import register_attention
    from GraphExtractor.graph import Attention
    from phaze_common.compiled_code import find_place

    find_place()
    for name in HEAVY:
        with contextlib.suppress(ModuleNotFoundError):  # optional
            import_module(name)
    register_attention(Attention.FLASH)  # which imports what models are made of
    sys.modules["pyarrow"].set_cpu_count(1)


def _main(words: list[str]) -> int:
    """Run phaze, or the module of a bridge."""
    if words[0].startswith("third_party."):
        return int(import_module(words[0]).main(words[1:]))
    from phaze import main

    return main(words)


def _warm(root: Path, words: list[str]) -> int:
    """Run a command that starts no thread, which a fork would not have."""
    with contextlib.chdir(root / "live" / "work"), contextlib.redirect_stdout(io.StringIO()):
        status = _main([*words, "--quiet"])
    tasks = {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    lost = tasks - FORKS_WELL - {Path("/proc/self/comm").read_text().strip()}
    if lost:
        raise RuntimeError(f"threads that a fork would not have run after {words}: {lost}")
    gc.collect()
    gc.freeze()
    return status


def _forked(root: Path, words: list[str]) -> Outcome:
    files = {1: root / "stdout", 2: root / "stderr"}
    pid, started, limit = os.fork(), time.monotonic(), None
    if pid == 0:
        _child(root, files, words)
    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(POLL_S)
        limit = limit or _limit_passed(pid, time.monotonic() - started)
        if limit is not None:
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what it started
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == -signal.SIGXCPU:
        limit = f"{CPU_S} s of a core"
    stdout, stderr = (path.read_bytes().decode("utf-8", "replace") for path in files.values())
    return Outcome(status, stderr, stdout, limit)


def _limit_passed(pid: int, wall_s: float) -> str | None:
    with contextlib.suppress(OSError, IndexError):  # it ended
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        if pages * PAGE_BYTES > MEMORY_BYTES:
            return f"{MEMORY_BYTES / 2**30:.0f} GiB of memory"
    return f"{WALL_S:.0f} s" if wall_s > WALL_S else None


def _child(root: Path, files: dict[int, Path], words: list[str]) -> None:
    """The forked process: runs ``words`` and ends; never returns."""
    from phaze.settings import folders

    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, path in files.items():
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            file = io.FileIO(descriptor, "w", closefd=False)
            stream = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
            setattr(sys, "stdout" if descriptor == 1 else "stderr", stream)
        work = root / "live" / "work"
        os.chdir(work)
        os.environ |= {"HOME": str(root / "live" / "home"), "COLUMNS": "200"}
        sys.argv = ["phaze", *words]
        _set_limits(words[0])
        folders.REPOSITORY = work  # as where phaze is installed without its sources
        warnings.filterwarnings("default", category=RuntimeWarning)  # also those shown before
        status = _main(words)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 - the outermost frame, as of the interpreter
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


def _set_limits(mode: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_BYTES, LARGEST_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if mode not in RESERVES_ADDRESSES:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
