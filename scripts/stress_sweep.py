"""Disturb a sweep in every way a night can: kills without warning, a full disk, damaged files. Then
compare its table.

Usage: python scripts/stress_sweep.py [--points N] [--kills N] [--seed N] [--folder DIR]
                                      [--overhead] [--ray]

  default       an undisturbed sweep and a disturbed one, which has a small disk of its own where
                one can be mounted; says whether the tables are equal byte by byte, and that no
                stored point was computed again
  --overhead    a sweep over the whole design space instead: what the framework takes besides the
                points themselves
  --ray         with Ray besides joblib; two workers either way
"""

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
WORKERS = 2
DISK_BYTES = 512 * 2**20
ROOM_BYTES = 256 * 2**10
SMALL_FILE_BYTES = 4096
DEADLINE_S = 3600.0
POLL_S = 0.02

say = partial(print, flush=True)
SPACE: dict[str, Any] = {
    "name": "small",
    "technology": "phaze_22nm",
    "platform": "phaze_hbm2",
    "vector_functions": "phaze",
    "axes": {
        "num_tc": [1, 4, 16],
        "num_vc": [1, 16, 64],
        "width": [32, 128],
        "depth": [64],
        "width_vc": None,
        "glb_mib": [4, 32],
    },
    "budget": {"area_mm2": 200.0},
    "keep": {"minimum_area_fraction": 0.0, "any_single_tc": True, "any_single_vc": True},
}
CLUSTER: dict[str, Any] = {
    "name": "sixteen",
    "num_devices": 16,
    "tiers": [
        {"name": "link", "group_size": 16, "bandwidth_bytes_per_s": 2.0e10, "latency_s": 1.0e-6}
    ],
}


@dataclass(frozen=True)
class Ran:
    """A sweep that ended: exit status, seconds, what it said on standard error."""

    status: int
    seconds: float
    stderr: str


@dataclass(frozen=True)
class Disturbed:
    """What happened to a disturbed sweep, and the stored points that were computed again although
    they were whole."""

    kills: int
    failed_on_full_disk: int
    damaged: int
    computed_again: tuple[str, ...]
    seconds: float


def write_sweep(folder: Path, points: int, *, small: bool = True) -> Path:
    """A sweep file of about ``points`` points of BERT-base, on a small design space or on the whole
    one."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = [64 * step for step in range(1, -(-points // 12) + 1)]
    settings: dict[str, Any] = {
        "model": "bertbase",
        "sequence_length": 64,
        "micro_batch_size": [1, [1, 2]],
        "hbm_size": [0.5, 2, 16],
        "optimizer": ["adam", "sgd"],
        "global_batch_size": batches,
    }
    if small:
        (folder / "space.yaml").write_text(yaml.safe_dump(SPACE), encoding="utf-8")
        (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER), encoding="utf-8")
        settings |= {"design_space": "space.yaml", "cluster": "cluster.yaml"}
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


def command(sweep: Path, output: Path, executor: str = "joblib") -> list[str]:
    """The sweep as a command line."""
    words = [
        sys.executable,
        str(REPOSITORY / "phaze.py"),
        "sweep",
        str(sweep),
        "--output",
        str(output),
    ]
    return [*words, "--executor", executor, "--workers", str(WORKERS), "--format", "json"]


def run(words: Sequence[str], largest_file_bytes: int | None = None) -> Ran:
    """Run a sweep to its end, with files of at most so many bytes if given."""

    def limit() -> None:
        if largest_file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, resource.RLIM_INFINITY))

    start = time.perf_counter()
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=DEADLINE_S, check=False, preexec_fn=limit
    )
    return Ran(done.returncode, time.perf_counter() - start, done.stderr)


def kill(
    words: Sequence[str], output: Path, new_points: int, delay_s: float, *, whole_group: bool
) -> int:
    """Start a sweep; kill it, or it and its workers, so long after so many new points. 1 if it was
    still running, else 0."""
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    enough, deadline = len(stored(output)) + new_points, time.monotonic() + DEADLINE_S
    while process.poll() is None and len(stored(output)) < enough and time.monotonic() < deadline:
        time.sleep(POLL_S)
    try:
        process.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        return 1
    return 0


def stored(output: Path) -> dict[str, int]:
    """Finished points and when their record was written."""
    return {
        path.parent.name: path.stat().st_mtime_ns for path in output.glob("points/*/point.json")
    }


def damage(path: Path, chance: random.Random) -> None:
    """Truncate a file, or change a byte of it."""
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    if chance.random() < 0.5:
        del content[place:]
    else:
        content[place] ^= 1 + chance.randrange(255)
    path.write_bytes(bytes(content))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of ``DISK_BYTES`` at ``folder``; gives whether one could be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def on_full_disk(words: Sequence[str], output: Path, *, mounted: bool) -> Ran:
    """Run the sweep to its end where only ``ROOM_BYTES`` can be written, or where that cannot be
    had, small files alone."""
    if not mounted:
        return run(words, largest_file_bytes=SMALL_FILE_BYTES)
    ballast = output / "ballast"
    with ballast.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"\0" * ROOM_BYTES)
    os.truncate(ballast, max(ballast.stat().st_size - ROOM_BYTES, 0))
    try:
        return run(words)
    finally:
        ballast.unlink()


def disturb(
    words: Sequence[str],
    output: Path,
    points: int,
    kills: int,
    chance: random.Random,
    *,
    mounted: bool,
) -> Disturbed:
    """Kill the sweep of so many points ``kills`` times along its way, fill its disk and damage
    files once, let it end."""
    start = time.perf_counter()
    # a spoilt point stays so until a run comes to read it
    repeated, spoilt = (set[str](), set[str]())
    killed = failed = damaged = 0
    for turn in range(kills):
        before = stored(output)
        if turn == kills // 3:
            failed = on_full_disk(words, output, mounted=mounted).stderr.count("failed: ")
        if turn == (2 * kills) // 3:
            spoilt = spoil(output, chance)
            damaged = len(spoilt) + 1
            before = stored(output)  # which has the damage, not what came before it
        share = max((points - len(before)) // (kills - turn), 1)
        # 0: while it starts
        new_points = 0 if turn and chance.random() < 0.2 else chance.randint(1, share)
        killed += kill(
            words, output, new_points, chance.uniform(0.0, 1.0), whole_group=chance.random() < 0.5
        )
        written = written_again(output, before)
        repeated |= written - spoilt
        spoilt = (spoilt - written) & stored(output).keys()
    before = stored(output)
    ended = run(words)
    if ended.status != 0:
        raise SystemExit(f"the last run of the disturbed sweep failed:\n{ended.stderr}")
    repeated |= written_again(output, before) - spoilt
    return Disturbed(killed, failed, damaged, tuple(sorted(repeated)), time.perf_counter() - start)


def written_again(output: Path, before: dict[str, int]) -> set[str]:
    """Points that were stored, and whose record was written again or is gone."""
    after = stored(output)
    return {name for name, written in before.items() if after.get(name) != written}


def spoil(output: Path, chance: random.Random) -> set[str]:
    """Damage the record of one finished point, a table of another, and arrays that all share; gives
    the points."""
    finished = sorted(stored(output))
    chosen = chance.sample(finished, min(2, len(finished)))
    for name, file in zip(chosen, ("point.json", "designs.parquet"), strict=False):
        damage(output / "points" / name / file, chance)
    damage(chance.choice(sorted(output.glob("Estimator/**/*.npz"))), chance)
    return set(chosen)


def overhead(ran: Ran, output: Path) -> str:
    """What the framework took beside the points, in words."""
    timings = pd.read_parquet(output / "timings.parquet").drop_duplicates("key")
    inside_s = float(timings["seconds"].sum())
    share = (ran.seconds * WORKERS - inside_s) / inside_s
    return (
        f"{ran.seconds:.1f} s on {WORKERS} workers, {inside_s:.1f} s inside {len(timings)} "
        f"points: overhead {share:.1%}"
    )


def measure_overhead(folder: Path, points: int, executors: Sequence[str]) -> None:
    """Sweep the whole design space; graphs and layer times are there already, so that points are as
    short as they get."""
    sweep = write_sweep(folder, points, small=False)
    few = [
        *command(sweep, folder / "warm"),
        "--set",
        "hbm_size=1",
        "--set",
        "optimizer=adam",
        "--set",
        "global_batch_size=64",
    ]
    run(few)
    for executor in executors:
        output = folder / executor
        output.mkdir()
        for room in ("GraphExtractor", "Estimator"):
            shutil.copytree(folder / "warm" / room, output / room)
        ran = run(command(sweep, output, executor))
        equal = (output / "table.parquet").read_bytes() == (
            folder / executors[0] / "table.parquet"
        ).read_bytes()
        say(f"{executor}: {overhead(ran, output)}; table {'equal' if equal else 'DIFFERENT'}")


def stress(folder: Path, points: int, kills: int, seed: int, executors: Sequence[str]) -> bool:
    """Whether the disturbed sweep and those of all executors end with the table of the undisturbed
    one."""
    sweep = write_sweep(folder, points)
    calm = run(command(sweep, folder / "calm"))
    table = (folder / "calm" / "table.parquet").read_bytes()
    points = len(stored(folder / "calm"))
    say(f"undisturbed: {points} points; {overhead(calm, folder / 'calm')}")
    with small_disk(folder / "disturbed") as mounted:
        output = folder / "disturbed" / "out"
        output.mkdir()
        what = disturb(
            command(sweep, output), output, points, kills, random.Random(seed), mounted=mounted
        )
        equal = (output / "table.parquet").read_bytes() == table
    disk = "a small disk of its own" if mounted else "a limit on the size of files"
    outcome = "equal" if equal else "DIFFERENT"
    say(
        f"disturbed: {what.kills} kills, {what.failed_on_full_disk} points failed on a full disk "
        f"({disk}), {what.damaged} damaged files, {what.seconds:.1f} s; {len(what.computed_again)} "
        f"stored points computed again; table {outcome}"
    )
    good = equal and not what.computed_again
    for executor in executors[1:]:
        ran = run(command(sweep, folder / executor, executor))
        if ran.status != 0:
            raise SystemExit(f"the sweep with {executor} failed:\n{ran.stderr}")
        same = (folder / executor / "table.parquet").read_bytes() == table
        say(
            f"{executor}: {overhead(ran, folder / executor)}; table "
            f"{'equal' if same else 'DIFFERENT'}"
        )
        good &= same
    return good


def main() -> int:
    """Run what is asked and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    executors = ["joblib", *(["ray"] if options.ray else [])]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.overhead:
            measure_overhead(Path(name), options.points, executors)
            return 0
        return (
            0 if stress(Path(name), options.points, options.kills, options.seed, executors) else 1
        )


if __name__ == "__main__":
    sys.exit(main())
