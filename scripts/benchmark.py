"""Measure what users wait for: help, extraction of every model, whole searches cold and warm with
their phases.

Usage: python scripts/benchmark.py [--quick]     (--quick: bertlarge only) Everything runs through
phaze.py as a fresh process into a temporary folder; nothing is compared with a limit.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SEARCHES = {
    "bertlarge": "--micro-batch-size 1 2 4 --sequence-length 512 --hbm-size 32 64 80",
    "megatrongpt2-54": "--micro-batch-size 1 2 4 --hbm-size 32 64 80",
    "deepseek-v3": "--tp 8 --ep 1",
    "megatrongpt3": "--tp 4 8 --sequence-length 2048 --hbm-size 32 64 80",
}

say = partial(print, flush=True)
PLAN = (
    "--model megatron-22b --device a100_80gb --tp 8 --micro-batch-size 4 --recompute selective "
    "--sequence-parallel"
)
PLAN_SEARCH = "--model megatron-175b --device a100_80gb --devices 512 --global-batch-size 1536"


@dataclass(frozen=True)
class Measured:
    """One process: seconds on the clock, seconds of processor, peak resident bytes, exit status."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    status: int

    def __str__(self) -> str:
        failed = f"   exit status {self.status}" if self.status else ""
        return (
            f"{self.wall_s:8.2f} s wall {self.cpu_s:8.2f} s cpu {self.peak_bytes / 2**20:8.0f} "
            f"MiB{failed}"
        )


def measure(words: Sequence[str]) -> Measured:
    """Run a Python command of this environment in the repository and measure it."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *words],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    # ru_maxrss is in bytes there and in KiB on Linux
    unit = 1 if sys.platform == "darwin" else 1024
    return Measured(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * unit, child.returncode)


def machine() -> str:
    """Processor, cores, memory, system and Python."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = f"{platform.platform()}, Python {platform.python_version()}"
    return f"{processor()}, {os.cpu_count()} cores, {memory_bytes / 2**30:.0f} GiB, {system}"


def processor() -> str:
    """Name of the processor, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def extraction(models: Sequence[str], folder: Path) -> None:
    """Extract every model, and import alone for comparison."""
    say(f"  {'imports alone':24s} {measure(['-c', 'import torch, transformers'])}")
    for model in models:
        words = ["phaze.py", "extract_graph", "--model", model, "--output", str(folder / model)]
        say(f"  {model:24s} {measure(words)}")


def search(model: str, flags: str, folder: Path) -> None:
    """Search twice into one folder: with nothing there, and with everything there."""
    say(f"search: {model} {flags}")
    for label in ("cold", "warm"):
        words = ["phaze.py", "run_solver", "--model", model, *flags.split()]
        say(f"  {label:24s} {measure([*words, '--output', str(folder)])}")
        manifest = folder / "manifest.json"
        if not manifest.exists():
            return
        for phase in json.loads(manifest.read_text(encoding="utf-8"))["phases"]:
            say(
                f"    {phase['name']:22s} {phase['seconds']:8.2f} s "
                f"{phase['peak_bytes'] / 2**20:26.0f} MiB so far"
            )


def plans(folder: Path) -> None:
    """Plans on devices that exist: one evaluated, all searched, published runs predicted; cold and
    warm."""
    evaluate = ["evaluate", *PLAN.split(), "--output", str(folder)]
    searched = ["run_solver", *PLAN_SEARCH.split(), "--output", str(folder / "search")]
    for name, words in (
        ("evaluate", evaluate),
        ("run_solver --device", searched),
        ("validate", ["validate", "--output", str(folder)]),
    ):
        for label in ("cold", "warm"):
            say(f"  {f'{name}, {label}':24s} {measure(['phaze.py', *words])}")


def main() -> None:
    """Run the benchmarks and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="bertlarge only")
    quick = parser.parse_args().quick
    from GraphExtractor.models.registry import listed_models

    say(f"machine: {machine()}")
    say(f"help\n  {'--help':24s} {measure(['phaze.py', '--help'])}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("extraction of a model at its own sequence length, micro-batch 1, tp 1")
        extraction(["bertlarge"] if quick else list(listed_models()), folder / "graphs")
        say("estimates of all core configurations, micro-batch 1 (with extraction)")
        words = [
            "phaze.py",
            "prepopulate_estimates",
            "--model",
            "bertlarge",
            "--output",
            str(folder / "estimates"),
        ]
        say(f"  {'bertlarge':24s} {measure(words)}")
        say(
            f"plans on devices that exist: evaluate {PLAN}; run_solver {PLAN_SEARCH}; validate, "
            "the runs that ship"
        )
        plans(folder / "plans")
        say("inside a search, the graph held, processor time")
        subprocess.run([sys.executable, "scripts/benchmark_plans.py"], cwd=REPOSITORY, check=True)
        for model, flags in SEARCHES.items():
            if model == "bertlarge" or not quick:
                search(model, flags, folder / f"search-{model}")


if __name__ == "__main__":
    main()
