"""Searches and prices draw nothing by chance: what random numbers there are have a fixed seed."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
ROOMS = ("GraphExtractor", "Estimator", "Solver")


def drawn_by_chance(source: str) -> list[str]:
    """Expressions of ``source`` whose value differs from run to run."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name.split(".")[0] in {"random", "secrets"}]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith("default_rng"):
                found += (
                    []
                    if node.args and isinstance(node.args[0], ast.Constant)
                    else [ast.unparse(node)]
                )
            elif called.rpartition(".")[0] in {"np.random", "numpy.random"}:
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_random_numbers_have_a_fixed_seed(room: str) -> None:
    paths = sorted((REPOSITORY / room).rglob("*.py"))
    assert paths
    found = {str(path): drawn_by_chance(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_chance_is_found() -> None:
    assert drawn_by_chance("import random")
    assert drawn_by_chance("np.random.default_rng()") and drawn_by_chance(
        "np.random.default_rng(seed)"
    )
    assert drawn_by_chance("np.random.permutation(3)")
    assert not drawn_by_chance("np.random.default_rng(0).permutation(3)")
