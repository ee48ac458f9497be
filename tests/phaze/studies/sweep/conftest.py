"""Fixtures of the sweeps."""

from pathlib import Path

import pytest
from sweep_cases import run, small_sweep


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder with the graphs and estimates of the small sweeps, and one finished
    point."""
    folder = tmp_path_factory.mktemp("warm")
    (point,) = run(small_sweep(folder), limits=True)
    assert point.point is not None, point.problem
    return folder / "out"
