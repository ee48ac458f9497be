"""Measure what users wait for, and compare it with another version and the last recorded release.

Usage: python scripts/benchmark.py [ROW ...] [--before REF] [--times N] [--record]

Rows are those of scripts/benchmark_rows.py whose names begin with the words that are given; without
any, all. Every run is a process of its own in an empty folder with empty caches, and the best of N
is printed, also as a multiple of what ``import torch`` takes beside it, so that machines can be
compared. With --before the rows of that version take turns with those of this one. --record adds a
line to scripts/benchmark_history.jsonl, which is done for every release.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if str(REPOSITORY) not in sys.path:  # started as a program, its own folder is what Python looks in
    sys.path.insert(0, str(REPOSITORY))

from phaze_common.run_files import BEST  # noqa: E402
from phaze_common.version import VERSION  # noqa: E402
from scripts.benchmark_rows import ROWS, Figure, Row  # noqa: E402

HISTORY = REPOSITORY / "scripts" / "benchmark_history.jsonl"
PROGRAM = REPOSITORY / "scripts" / "benchmark_figures.py"
POLL_S = 0.02
IMPORT = Row("import torch", "import torch")
IMPORT_WALL = Row("import torch", "import torch", Figure.WALL)


@dataclass(frozen=True)
class Result:
    """A figure of a row, and seconds of ``import torch`` measured beside it: of the clock where
    those of the row are."""

    value: float
    import_s: float

    def multiple(self, row: Row) -> str:
        """Of a time, how many times ``import torch`` it is."""
        return f"{self.value / self.import_s:.2f}" if row.is_time else ""


def measure(row: Row, tree: Path) -> float:
    """Run a row once in the version of ``tree``.

    Raises:
        RuntimeError: a command failed; says how.
    """
    with tempfile.TemporaryDirectory() as folder:
        if row.prepared is not None:
            run(["phaze.py", *row.prepared.format(folder=folder).split()], tree, folder)
        if row in (IMPORT, IMPORT_WALL):
            words = ["-c", row.asked]
        else:
            asked = row.asked.format(folder=folder).split()
            words = [str(PROGRAM) if row.program else "phaze.py", *asked]
        return run(words, tree, folder, row.figure)


def run(words: Sequence[str], tree: Path, folder: str, figure: Figure = Figure.CPU) -> float:
    """Run Python in ``tree`` with its caches in ``folder``, and take a figure of it."""
    cache = {"XDG_CACHE_HOME": f"{folder}/cache", "PHAZE_CACHE": f"{folder}/cache/phaze"}
    own = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **cache, **own}
    printed, errors, answered_s = Path(folder, "printed"), Path(folder, "errors"), None
    watched = printed if figure is Figure.PRINTED else None
    with printed.open("wb") as out, errors.open("wb") as err:
        start = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *words], cwd=tree, env=environment, stdout=out, stderr=err
        )
        while figure in (Figure.PRINTED, Figure.ANSWERED) and answered_s is None:
            found = [watched] if watched is not None else list(Path(folder).rglob(BEST))
            if any(each.stat().st_size for each in found):
                answered_s = time.perf_counter() - start
            elif os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            else:
                time.sleep(POLL_S)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        last = errors.read_text(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"exit status {child.returncode}: {' '.join(last)}")
    match figure:
        case Figure.CPU:
            return used.ru_utime + used.ru_stime
        case Figure.PEAK:  # ru_maxrss is in bytes on macOS and in KiB on Linux
            return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30
        case Figure.STATED:
            return float(printed.read_text().split()[-1])
        case _:
            return wall_s if answered_s is None else answered_s


def results(row: Row, trees: Sequence[Path], times: int) -> list[Result | None]:
    """The best of so many runs in each version, which take turns; None where it fails."""
    values: list[list[Result]] = [[] for _ in trees]
    beside = IMPORT_WALL if row.unit.startswith(Figure.WALL) else IMPORT
    for tree, mine in [each for _ in range(times) for each in zip(trees, values, strict=True)]:
        try:
            mine.append(Result(measure(row, tree), measure(beside, tree)))
        except RuntimeError as error:
            print(f"{row.name}: {error}", file=sys.stderr)
    best = max if row.unit.endswith("/s") else min
    return [best(mine, key=lambda each: each.value) if mine else None for mine in values]


@contextmanager
def version(reference: str | None) -> Iterator[list[Path]]:
    """The folders of the versions to measure: that of ``reference``, where one is given, and this
    one."""
    if reference is None:
        yield [REPOSITORY]
        return
    git = ["git", "-C", str(REPOSITORY), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "before")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), reference], check=True)
        try:
            yield [tree, REPOSITORY]
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def last_recorded() -> tuple[str, dict[str, Result]]:
    """The last recorded version and its results by row; empty before the first one."""
    lines = HISTORY.read_text(encoding="utf-8").splitlines() if HISTORY.exists() else []
    if not lines:
        return "recorded", {}
    last = json.loads(lines[-1])
    return last["version"], {name: Result(**found) for name, found in last["rows"].items()}


def record(found: dict[str, Result]) -> None:
    """Add a line to the history."""
    git = ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    rows = {
        name: {"value": float(f"{each.value:.4g}"), "import_s": round(each.import_s, 3)}
        for name, each in found.items()
    }
    now = datetime.now(UTC).date().isoformat()
    about = {"date": now, "version": VERSION, "commit": commit, "machine": machine()}
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps({**about, 'rows': rows})}\n")


def machine() -> str:
    """Processor, cores, memory and Python."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    size = f"{os.cpu_count()} cores, {memory_bytes / 2**30:.0f} GiB"
    return f"{next(named, platform.machine())}, {size}, Python {platform.python_version()}"


def main() -> None:
    """Measure the rows that are asked for, print and record them."""
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="what names of rows begin with")
    parser.add_argument("--before", metavar="REF", help="a commit to compare with")
    parser.add_argument("--times", type=int, default=2, help="runs of each (default 2)")
    parser.add_argument("--record", action="store_true", help="add a line to the history")
    given = parser.parse_args()
    rows = [row for row in ROWS if not given.rows or row.name.startswith(tuple(given.rows))]
    if not rows:
        parser.error(f"no row begins so; rows: {', '.join(row.name for row in ROWS)}")
    release, recorded = last_recorded()
    print(f"{machine()}; best of {given.times}\n")
    heads = "before", "now", "now/before", "x import torch", f"x of {release}"
    print(f"{'':34s}{''.join(f'{head:>16s}' for head in heads)}", flush=True)
    measured = dict[str, Result]()
    with version(given.before) as trees:
        for row in rows:
            *earlier, now = results(row, trees, given.times)
            before, old = earlier[0] if earlier else None, recorded.get(row.name)
            if now is not None:
                measured[row.name] = now
            cells = (
                f"{before.value:,.4g}" if before else "",
                f"{now.value:,.4g}" if now else "failed",
                f"{now.value / before.value:.2f}" if now and before else "",
                now.multiple(row) if now else "",
                old.multiple(row) if old else "",
            )
            line = "".join(f"{cell:>16s}" for cell in cells)
            print(f"{row.name:34s}{line}  {row.unit}", flush=True)
    if given.record:
        record(measured)


if __name__ == "__main__":
    main()
