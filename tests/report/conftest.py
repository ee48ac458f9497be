"""Runs that are reported on, each made once: chips for one and for two models, plans on given devices, and what does not fit."""

from pathlib import Path

import pytest

from Studies.finished_run import FinishedRun, open_run
from Studies.resolve import resolve
from tests.search.small_study import small_study, solved

PLANS = {
    "model": "gpt:layers=6,hidden=256,heads=4",
    "sequence_length": 128,
    "device": "a100_80gb",
    "devices": 8,
    "global_batch_size": 8,
    "micro_batch_size": [2],
    "tp": [1],
    "recompute": ["none", "full"],
    "interleave": [1, 3],
    "zero_stage": [0, 1],
}


def searched(folder: Path, **changes: object) -> FinishedRun:
    """A small search on the slow network of the default cluster, which asks for a pipeline of several stages."""
    study = small_study(folder, **({"cluster": "phaze_icml24"} | changes))
    solved(study, limits=True)
    return open_run(study.folders.run)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """BERT-large, for which there is an expert's plan."""
    return searched(tmp_path_factory.mktemp("reported"), model="bertlarge", global_batch_size=1024)


@pytest.fixture(scope="session")
def finished_pair(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """One chip for two models."""
    return searched(tmp_path_factory.mktemp("reported-pair"), model=["bertbase", "bertlarge"], micro_batch_size=1, hbm_size=16)


@pytest.fixture(scope="session")
def nothing_fits(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return searched(tmp_path_factory.mktemp("reported-nothing"), micro_batch_size=4, hbm_size=0.01)


@pytest.fixture(scope="session")
def finished_plans(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A small model on eight A100, whose batch is too small for data parallelism alone."""
    folder = tmp_path_factory.mktemp("reported-plans")
    study = resolve(PLANS, {"output": str(folder / "out")})
    solved(study)
    return open_run(study.folders.run)
