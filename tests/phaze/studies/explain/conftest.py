"""Runs that are explained: a small search of accelerators and a small search of plans, each made
once."""

from pathlib import Path

import pytest

from phaze.runs.finished_run import FinishedRun, open_run
from phaze.settings.resolve import resolve
from tests.Solver.designs.small_study import small_study, solved

PLANS = {
    "model": "gpt:layers=6,hidden=256,heads=4",
    "sequence_length": 128,
    "device": "a100_80gb",
    "devices": 8,
    "global_batch_size": 32,
    "micro_batch_size": [1, 2],
    "tp": [1, 2],
    "recompute": ["none", "full"],
    "interleave": [1],
    "zero_stage": [0, 1],
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """BERT-base on sixteen devices of a few dozen accelerators."""
    return open_run(
        Path(solved(small_study(tmp_path_factory.mktemp("explained")), limits=True).run_directory)
    )


@pytest.fixture(scope="session")
def finished_plans(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A small model on eight A100."""
    folder = tmp_path_factory.mktemp("explained-plans")
    return open_run(
        Path(solved(resolve(PLANS, {"output": str(folder / "out")}), limits=True).run_directory)
    )
