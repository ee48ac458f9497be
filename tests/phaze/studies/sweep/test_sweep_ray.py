"""The same sweep on a local Ray cluster of two workers."""

import pytest
from sweep_cases import SMALL, run, with_graphs_of, write

from phaze.studies.sweep import ray_executor
from phaze.studies.sweep.axes import read_sweep
from phaze.studies.sweep.executors import executor_named
from phaze.studies.sweep.table import write_table
from phaze_common.errors import InputError
from scripts.stress_sweep import command
from scripts.stress_sweep import run as run_command


@pytest.mark.thorough
@pytest.mark.ray
@pytest.mark.cluster
def test_ray_gives_the_same_table_bytes_and_no_chatter(warm, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    path = write(tmp_path, SMALL | {"hbm_size": [0.001, 1, 2, 16], "tp": [1, 5]})
    here = read_sweep(path, {}, str(with_graphs_of(warm, tmp_path / "here")))
    write_table(here, run(here))
    ran = run_command(command(path, with_graphs_of(warm, tmp_path / "ray"), "ray"))
    assert ran.status == 2, ran.stderr  # tp 5 is not possible
    assert (tmp_path / "ray" / "table.parquet").read_bytes() == (
        here.folder / "table.parquet"
    ).read_bytes()
    told = [
        line
        for line in ran.stderr.splitlines()
        if not line.startswith(("[", "warning: [", "points of ", "table: "))
    ]
    assert told == ["warning: 4 of 8 points are impossible; give other values in their place"]


def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"\.venv/bin/python -m pip install ray"):
        executor_named("ray", None, None)
