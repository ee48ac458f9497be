"""Runs inputs in forks of a process that has imported everything, each in its own folder, under
limits."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import shutil
import signal
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

CPU_S = 60.0  # that an input may take; a machine with other work on it makes it wait longer
WALL_S = 180.0
MEMORY_BYTES = 4 * 2**30
LARGEST_FILE_BYTES = 2**30
POLL_S, WATCH_S = 0.004, 0.05
RESERVES_ADDRESSES = frozenset(
    {"report"}
)  # modes with an engine that reserves far more than it uses
BUILT = "built-"  # begins the name of the mark of a slot that is ready
IN_SLOT = frozenset({"pristine", "live", "stdout", "stderr"})
FORKS_WELL = frozenset({"jemalloc_bg_thd"})  # threads that their library starts again in a fork
PAGE_BYTES = resource.getpagesize()

# Imported before the first fork: what modes import when they run, none of it starting a thread.
HEAVY = (
    *(
        "numba",
        "scipy.optimize",
        "pandas",
        "pyarrow.parquet",
        "pydantic",
        "rich.table",
        "rich.progress",
    ),
    *(
        "altair",
        "jinja2",
        "joblib",
        "networkx",
        "gurobipy",
        "phaze.studies.search_run",
        "phaze.studies.evaluation",
        "phaze.runs.plan_files",
    ),
    *(
        "phaze.studies.many",
        "phaze.studies.sweep.run",
        "phaze.report.sentences.explanation",
        "phaze.studies.explain.repeat",
        "GraphExtractor.extract",
    ),
    *(
        "GraphExtractor.sources.hf_config",
        "GraphExtractor.sources.user_module",
        "phaze.report.pages.search_report",
    ),
    *(
        "phaze.report.pages.comparison_report",
        "phaze.report.pages.page",
        "phaze.report.tables.search_tables",
        "phaze.report.trace.timeline",
    ),
    *(
        "phaze.report.tables.validation_tables",
        "phaze.report.tables.explain_tables",
        "phaze.report.tables.sweep_tables",
        "phaze.report.tables.training_tables",
    ),
    *(
        "phaze.validation.run",
        "Estimator.devices.calibration",
        "Estimator.network.calibration",
        "phaze.cli.doctor",
    ),
    *(
        "third_party.nest.placement",
        "third_party.phaze_icml24.placement",
        "third_party.phaze_icml24.schedule",
    ),
    *("third_party.transformer_perf_estimates.command_line", "third_party.amped", "phaze"),
)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its exit ``status``, or minus the signal that ended it; ``limit`` says which
    limit it went over."""

    status: int
    limit: str | None
    stdout: str
    stderr: str
    cpu_s: float
    wall_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Slot:
    """Folders of one run at a time: ``pristine`` files and the ``live`` copy that the run reads and
    writes."""

    root: Path

    @property
    def pristine(self) -> Path:
        """Files as they are before every run."""
        return self.root / "pristine"

    @property
    def live(self) -> Path:
        """Files of the run; ``work`` in it is the current folder, ``home`` the home folder."""
        return self.root / "live"

    @property
    def work(self) -> Path:
        """The current folder of the run."""
        return self.live / "work"

    def strange(self) -> list[str]:
        """Names of what lies in the slot and is not of it."""
        return [
            path.name
            for path in self.root.iterdir()
            if path.name not in IN_SLOT and not path.name.startswith(BUILT)
        ]

    def keep(self) -> None:
        """Take the live files as pristine ones."""
        shutil.rmtree(self.pristine, ignore_errors=True)
        shutil.copytree(self.live, self.pristine, symlinks=True)  # times of files are copied too

    def restore(self) -> None:
        """Make the live files what the pristine ones are; what did not change since is left, what
        is beside them goes."""
        for name in self.strange():
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        here, there = _states(self.live), _states(self.pristine)
        for name in sorted(here.keys() - there.keys(), reverse=True):
            path = self.live / name
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
        for name in sorted(there):
            if here.get(name) == there[name]:
                continue
            path, source = self.live / name, self.pristine / name
            if name in here and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif name in here:
                path.unlink()
            if source.is_dir() and not source.is_symlink():
                path.mkdir()
            else:
                shutil.copy2(source, path, follow_symlinks=False)


def _states(folder: Path) -> dict[str, tuple[int, ...]]:
    """Kind, and of files size and time of change, of everything below ``folder``."""
    found: dict[str, tuple[int, ...]] = {}
    for path in folder.rglob("*"):
        state = path.lstat()
        kind = stat.S_IFMT(state.st_mode)
        found[str(path.relative_to(folder))] = (
            (kind, state.st_size, state.st_mtime_ns) if stat.S_ISREG(kind) else (kind,)
        )
    return found


class Running:
    """A started run."""

    def __init__(self, slot: Slot, words: Sequence[str]) -> None:
        self._slot, self._started, self._watched = slot, time.monotonic(), 0.0
        self._limit: str | None = None
        self._peak_bytes = 0
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _child(slot, list(words))

    def outcome(self) -> Outcome | None:
        """How it ended; None while it runs. Ends it where it goes over a limit."""
        pid, status, usage = os.wait4(self._pid, os.WNOHANG)
        if pid == 0:
            self._watch()
            return None
        self.end()  # what it started
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            self._limit = f"{CPU_S:.0f} s of a core"
        return Outcome(
            status=code,
            limit=self._limit,
            stdout=_text(self._slot.root / "stdout"),
            stderr=_text(self._slot.root / "stderr"),
            cpu_s=usage.ru_utime + usage.ru_stime,
            wall_s=time.monotonic() - self._started,
            peak_bytes=self._peak_bytes,
        )

    def end(self) -> None:
        """Kill it and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)

    def wait(self) -> Outcome:
        """How it ended, once it has."""
        while (outcome := self.outcome()) is None:
            time.sleep(POLL_S)
        return outcome

    def _watch(self) -> None:
        now = time.monotonic()
        if now - self._watched < WATCH_S:
            return
        self._watched = now
        with contextlib.suppress(OSError, IndexError):  # it ended
            pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
            self._peak_bytes = max(self._peak_bytes, pages * PAGE_BYTES)
        if self._peak_bytes > MEMORY_BYTES:
            self._limit = f"{MEMORY_BYTES / 2**30:.0f} GiB of memory"
        elif now - self._started > WALL_S:
            self._limit = f"{WALL_S:.0f} s"
        if self._limit is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


def prepare() -> None:
    """Import what commands need."""
    from GraphExtractor.attention import register_attention
    from GraphExtractor.graph import Attention
    from phaze_common.compiled_code import find_place

    find_place()
    for name in HEAVY:
        with contextlib.suppress(ModuleNotFoundError):  # optional, or gone
            import_module(name)
    register_attention(Attention.FLASH)  # which imports what models are made of
    sys.modules["pyarrow"].set_cpu_count(1)


def warm(slot: Slot, commands: Sequence[str]) -> None:
    """Run commands in this process, so that forks find compiled code loaded; none of them may start
    a thread.

    Raises:
        RuntimeError: one of them did, or failed.
    """
    before, home = Path.cwd(), os.environ.get("HOME", "")
    os.chdir(slot.work)
    try:
        for command in commands:
            with contextlib.redirect_stdout(io.StringIO()):
                status = main_of([*command.split(), "--quiet"])()
            if status:
                raise RuntimeError(f"{command} ended with {status}")
    finally:
        os.chdir(before)
        os.environ["HOME"] = home
    tasks = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    lost = len([task for task in tasks if task not in FORKS_WELL]) - 1
    if lost:
        raise RuntimeError(
            f"{lost} threads run after {', '.join(commands)}, which a fork would not have"
        )
    gc.collect()
    gc.freeze()


def main_of(words: list[str]) -> Callable[[], int]:
    """What ``words`` run: phaze, or the module of a bridge."""
    if words[0].startswith("third_party."):
        main: Callable[[list[str]], int] = import_module(words[0]).main
        return lambda: main(words[1:])
    from phaze import main as phaze

    return lambda: phaze(words)


def _child(slot: Slot, words: list[str]) -> None:
    """The forked process: runs ``words`` and ends; never returns."""
    status = 1
    try:
        os.setsid()
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(
                each, signal.SIG_DFL if each == signal.SIGTERM else signal.default_int_handler
            )
        _redirect(slot)
        os.chdir(slot.work)
        os.environ |= {"HOME": str(slot.live / "home"), "COLUMNS": "200"}
        sys.argv = ["phaze", *words]
        _limit(words[0])
        _write_below(slot.work)
        warnings.filterwarnings(
            "default", category=RuntimeWarning
        )  # also those that were shown before the fork
        status = main_of(words)()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 - the outermost frame, as of the interpreter
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


def _redirect(slot: Slot) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(slot.root / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        stream = io.TextIOWrapper(
            io.FileIO(descriptor, "w", closefd=False), encoding="utf-8", write_through=True
        )
        setattr(sys, name, stream)


def _limit(mode: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(CPU_S), int(CPU_S) + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_BYTES, LARGEST_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if mode not in RESERVES_ADDRESSES:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))


def _write_below(folder: Path) -> None:
    """Runs without an output write into the current folder, as where phaze is installed without its
    sources."""
    from phaze.settings import folders

    folders.REPOSITORY = folder


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
