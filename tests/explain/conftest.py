"""Runs that are explained: a small search of accelerators and a small search of plans, each made once."""

from pathlib import Path

import pytest
from Solver.plan_search.run import run_plan_search
from Studies.adapters import plan_search

from Common.progress import SilentProgress
from Studies.finished_run import FinishedPlanSearch, FinishedSearch, open_run
from Studies.resolve import resolve
from tests.search.small_study import small_study, solved

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
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedSearch:
    """BERT-base on sixteen devices of a few dozen accelerators."""
    run = open_run(Path(solved(small_study(tmp_path_factory.mktemp("explained"))).run_directory))
    assert isinstance(run, FinishedSearch)
    return run


@pytest.fixture(scope="session")
def finished_plans(tmp_path_factory: pytest.TempPathFactory) -> FinishedPlanSearch:
    """A small model on eight A100."""
    folder = tmp_path_factory.mktemp("explained-plans")
    request = plan_search(resolve(PLANS, {"output": str(folder / "out")}))
    run_plan_search(request, SilentProgress())
    run = open_run(folder / "out")
    assert isinstance(run, FinishedPlanSearch)
    return run
