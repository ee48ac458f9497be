"""A sweep that is killed, out of disk and damaged ends with the table of an undisturbed one (the
long version: ``python scripts/stress_sweep.py``)."""

import random
import shutil

import pytest
from sweep_cases import run, with_graphs_of

from phaze.studies.sweep.axes import read_sweep
from phaze.studies.sweep.table import write_table
from scripts.stress_sweep import command, disturb, small_disk, write_sweep

pytestmark = [pytest.mark.kill, pytest.mark.cluster]

KILLS, POINTS = 3, 12
MANY_KILLS, MANY_POINTS = 12, 96


@pytest.mark.thorough
def test_a_disturbed_sweep_ends_with_the_table_of_an_undisturbed_one(warm, tmp_path, pytestconfig):
    kills, points = (
        (MANY_KILLS, MANY_POINTS) if pytestconfig.getoption("--thorough") else (KILLS, POINTS)
    )
    path = write_sweep(tmp_path, points)
    calm = read_sweep(path, {}, str(with_graphs_of(warm, tmp_path / "calm")))
    write_table(calm, run(calm))
    with small_disk(tmp_path / "disk") as mounted:
        output = with_graphs_of(warm, tmp_path / "disk" / "out")
        words = command(path, output)
        what = disturb(words, output, points, kills, random.Random(1), mounted=mounted)
        assert (output / "table.parquet").read_bytes() == (
            calm.folder / "table.parquet"
        ).read_bytes()
        shutil.rmtree(output)
    assert what.failed_on_full_disk > 0, "the disk was never full while something was to be written"
    assert (what.kills, what.damaged) == (kills, 3)
    assert what.computed_again == ()
