"""Names of the files of a run stand in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from phaze_common import run_files

HOME = Path(run_files.__file__).parents[1]
ROOMS = ("phaze", "phaze_common", "GraphExtractor", "Estimator", "Solver")
FILE = re.compile(r"\w+\.[a-z.]+")
NAMES = {
    value: key
    for key, value in vars(run_files).items()
    if key.isupper() and FILE.fullmatch(str(value))
}


def literals(path: Path) -> list[str]:
    """Texts of a module that are the name of a file of a run, each with its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = [
        each for each in ast.walk(tree) if isinstance(each, ast.Constant) and each.value in NAMES
    ]
    return [f"{path}:{each.lineno}: run_files.{NAMES[str(each.value)]}" for each in constants]


@pytest.mark.parametrize("room", [*ROOMS, "phaze/exports"])
def test_files_of_a_run_are_called_by_their_names(room: str) -> None:
    modules = sorted((HOME / room).rglob("*.py"))
    assert modules
    assert [
        found for path in modules if path != Path(run_files.__file__) for found in literals(path)
    ] == []


def test_every_name_is_looked_for() -> None:
    assert {
        "best.json",
        "study.yaml",
        "manifest.json",
        "training_time.json",
        "sweep.yaml",
    } <= NAMES.keys()
    assert literals(Path(run_files.__file__))
