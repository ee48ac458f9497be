"""The studies that ship: each is a sweep of which every point is possible, and each is named in the
script's usage."""

import subprocess
from pathlib import Path

import pytest

from phaze.studies.sweep.axes import read_sweep
from phaze.studies.sweep.run import resolved_points

SCRIPTS = Path(__file__).resolve().parents[4] / "scripts"
STUDIES = sorted((SCRIPTS / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_point_is_possible(path: Path) -> None:
    sweep = read_sweep(path, {})
    assert sweep.name == path.stem
    assert [point.problem for point in resolved_points(sweep) if point.point is None] == []
    assert f"# {sweep.count} points" in path.read_text()


def test_the_script_lists_the_studies_there_are() -> None:
    for words in ([], ["no-such-study"]):
        ended = subprocess.run(
            [SCRIPTS / "study.sh", *words], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 2
        assert all(path.stem in ended.stderr for path in STUDIES)
    assert len(STUDIES) >= 5
