"""Runs that are reported on, each made once: chips for one and for two models, plans on given
devices, and what does not fit."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from GraphExtractor.permission import EVERY_FILE
from phaze.runs.finished_run import FinishedRun, open_run
from phaze.settings.resolve import resolve
from phaze.studies.sweep.axes import Sweep, read_sweep
from phaze.studies.sweep.executors import InProcessExecutor
from phaze.studies.sweep.run import run_sweep
from phaze.studies.sweep.table import write_table
from phaze_common.progress import SilentProgress
from tests.Solver.designs.small_study import small_study, solved, write_hardware

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
    """A small search on the slow network of the default cluster, which asks for a pipeline of
    several stages."""
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
    return searched(
        tmp_path_factory.mktemp("reported-pair"),
        model=["bertbase", "bertlarge"],
        micro_batch_size=1,
        hbm_size=16,
    )


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


def swept(folder: Path, **asked: Any) -> Sweep:
    """A sweep that ran to its end, with its table."""
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(asked, sort_keys=False))
    sweep = read_sweep(path, {}, str(folder / "out"), run_code=EVERY_FILE)
    write_table(sweep, run_sweep(sweep, InProcessExecutor(), SilentProgress(), lambda point: None))
    return sweep


@pytest.fixture(scope="session")
def swept_plans(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Plans on 2, 4 and 8 devices for two batches; one memory is too small, and three devices
    cannot share four heads."""
    return swept(
        tmp_path_factory.mktemp("swept-plans"),
        model="gpt:layers=6,hidden=256,heads=4",
        sequence_length=128,
        device="a100_80gb",
        devices=[2, 4, 8],
        global_batch_size=[16, 32],
        tp=[1, 3],
        memory_size=[0.05, 40],
    )


@pytest.fixture(scope="session")
def swept_chips(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Chips for two models at two micro-batch sizes each."""
    folder = tmp_path_factory.mktemp("swept-chips")
    hardware = write_hardware(folder)
    return swept(
        folder,
        model=["bertbase", "gpt:layers=6,hidden=256,heads=4"],
        micro_batch_size=[1, 2],
        sequence_length=64,
        global_batch_size=64,
        hbm_size=16,
        **hardware,
    )
