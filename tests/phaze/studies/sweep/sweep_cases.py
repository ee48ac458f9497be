"""Sweeps that take little: BERT-base at 64 tokens on the small design space of the stress
script."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from GraphExtractor.permission import EVERY_FILE
from phaze.studies.sweep.axes import Sweep, read_sweep
from phaze.studies.sweep.executors import Executor, InProcessExecutor
from phaze.studies.sweep.run import SweptPoint, run_sweep
from phaze_common.progress import SilentProgress
from scripts.stress_sweep import CLUSTER, SPACE
from tests.Solver.designs.small_study import without_limits

SMALL: dict[str, Any] = {
    "model": "bertbase",
    "sequence_length": 64,
    "global_batch_size": 64,
    "design_space": "space.yaml",
    "cluster": "cluster.yaml",
}


def write(folder: Path, asked: Mapping[str, Any]) -> Path:
    """A sweep file with the hardware it names beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(dict(asked), sort_keys=False))
    return path


def small_sweep(folder: Path, output: Path | None = None, **asked: Any) -> Sweep:
    """A sweep of ``SMALL`` changed as asked; everything goes into ``output``, or beside the
    file."""
    return read_sweep(
        write(folder, SMALL | asked), {}, str(output or folder / "out"), run_code=EVERY_FILE
    )


def run(
    sweep: Sweep, executor: Executor | None = None, *, limits: bool = False
) -> list[SweptPoint]:
    """Run a sweep without a word; points of this process without what limits them, which no table
    holds, unless asked for."""
    with nullcontext() if limits else without_limits():
        return run_sweep(
            sweep, executor or InProcessExecutor(), SilentProgress(), lambda point: None
        )


def with_graphs_of(earlier: Path, output: Path) -> Path:
    """A new output folder that has the graphs and estimates of an earlier one."""
    for room in ("GraphExtractor", "Estimator"):
        shutil.copytree(earlier / room, output / room)
    return output


def keys(points: Sequence[SweptPoint]) -> list[str]:
    """Content keys in the order of the points."""
    return [point.key for point in points]


# a model of one's own that kills the process it is built in, as long as there is a file ``marker``
DYING = """
import os, signal, torch


def build():
    if os.path.exists({marker!r}):
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.nn.Linear(64, 64)


def example_inputs(micro_batch_size, sequence_length=64):
    return torch.zeros(micro_batch_size, sequence_length, 64)


def loss(output):
    return output.sum()
"""
