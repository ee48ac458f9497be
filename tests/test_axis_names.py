"""The name of an axis of plans stands in the list of axes, in physics and in exports: what tables,
pages, readers and sentences say of it follows from the list."""

import ast
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from Estimator.plans.axes import PLAN_AXES

REPOSITORY = Path(__file__).resolve().parents[1]
# What computes with axes, and what is written for other programs or read from them.
PHYSICS = ("Estimator", "GraphExtractor", "Solver", "phaze/runtime")
OTHERS = (
    "phaze/exports",
    "phaze/validation",
    "third_party",
    "scripts",
    "docs",
    "notebooks",
    "tests",
)
MOST = 6  # files elsewhere
# Axes that every count of devices and samples is made of, and words that mean something else too
# (a schedule of operators, attention in a profile): files that have them today, which only get less.
MORE = {
    "layout": 9,
    "tp": 25,
    "cp": 10,
    "ep": 8,
    "sequence_parallel": 9,
    "pp": 30,
    "micro_batch_size": 36,
    "dp": 24,
    "recompute": 27,
    "zero_stage": 7,
    "global_batch_size": 16,
    "precision": 9,
    "attention": 9,
    "optimizer": 11,
    "schedule": 9,
    "interleave": 10,
    "group_order": 8,
}


@cache
def files_by_axis() -> dict[str, list[str]]:
    """Modules outside physics and exports with the name of each axis, as an attribute, an argument
    or a text."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    keys = {each.key for each in PLAN_AXES}
    found = defaultdict[str, list[str]](list)
    for file in listed:
        if not file.startswith(tuple(f"{folder}/" for folder in (*PHYSICS, *OTHERS))):
            for key in sorted(keys & names_in((REPOSITORY / file).read_text())):
                found[key].append(file)
    return found


def names_in(source: str) -> set[str]:
    """Attributes, names of arguments and texts of a module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Attribute(attr=name)
                | ast.keyword(arg=str(name))
                | ast.Constant(value=str(name))
            ):
                found.add(name)
    return found


def test_names_are_read_from_the_code() -> None:
    assert names_in("f(a.tp, cp=1, **{'ep': 2})  # pp") == {"tp", "cp", "ep"}


@pytest.mark.parametrize("key", [each.key for each in PLAN_AXES])
def test_an_axis_is_named_in_few_files(key: str) -> None:
    files = files_by_axis()[key]
    assert len(files) <= MORE.get(key, MOST), files


def test_exceptions_only_get_less() -> None:
    assert {key: len(files_by_axis()[key]) for key in MORE} == MORE
