"""Imports run one way through the house: read from the code, imports inside functions and for type
checkers alone included."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# From the command line to what stands under everything; a package imports from later lines only,
# packages of one line not from each other. A longer name is a package of its own.
ORDER = (
    ("phaze.cli",),
    ("phaze.report",),
    ("phaze.python_words",),
    ("phaze.library",),
    ("phaze.studies",),
    ("phaze.report.sentences",),
    ("phaze.validation",),
    ("phaze.exports", "phaze.runtime"),
    ("phaze.runs",),
    ("phaze.settings",),
    ("Solver",),
    ("Estimator.plans",),
    ("Estimator",),
    ("GraphExtractor",),
    ("phaze_common",),
)
LEVEL = {package: level for level, packages in enumerate(ORDER) for package in packages}
BRIDGES, SCRIPTS = "third_party", "scripts"
FOLDERS = sorted({package.partition(".")[0] for package in LEVEL} | {BRIDGES, SCRIPTS})
ROOT = ("phaze", "phaze.__main__")  # load what they name when it is asked for
KNOW_TORCH = {"GraphExtractor", "phaze.runtime"}
OF_TORCH = {"torch", "torchvision", "transformers"}
LOADERS = {"import_module", "__import__"}

# Imports the other way: names from before 0.2, and the one registry of other tools' readers.
ALLOWED = {"Solver.search": {"phaze"}, "phaze.validation.bridges": {BRIDGES}}


@dataclass(frozen=True)
class Import:
    """A module or name that a module imports, and whether that happens as soon as the module itself
    is imported."""

    name: str
    at_once: bool


def imports_of(source: str, package: str = "") -> set[Import]:
    """Dotted names that ``source``, a module directly in the dotted ``package``, imports.

    In a module that imports what is only known when it runs, every text that could be the name of a
    module of ours counts.
    """
    tree = ast.parse(source)
    later = {
        inner
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or _is_for_type_checkers(outer)
        for inner in ast.walk(outer)
    }
    found = {
        Import(name, node not in later)
        for node in ast.walk(tree)
        for name in _imported(node, package)
    }
    if any(_is_loader(node) for node in ast.walk(tree)):
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        found |= {Import(t, False) for t in texts if isinstance(t, str) and _names_a_module(t)}
    return found


def _imported(node: ast.AST, package: str) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        home = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*home, *filter(None, [node.module])])
        return {f"{base}.{alias.name}" for alias in node.names}
    return set()


def _is_loader(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in LOADERS
    )


def _is_for_type_checkers(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and getattr(node.test, "id", getattr(node.test, "attr", "")) == "TYPE_CHECKING"
    )


def _names_a_module(text: str) -> bool:
    parts = text.split(".")
    return parts[0] in {*FOLDERS, *OF_TORCH} and all(part.isidentifier() for part in parts)


def package_of(name: str) -> str:
    """The longest package of ``ORDER`` that holds a dotted name, else its outermost package."""
    held = [each for each in LEVEL if name == each or name.startswith(f"{each}.")]
    return max(held, key=len, default=name.partition(".")[0])


def may_import(package: str, other: str) -> bool:
    """Whether a module of ``package`` may import one of ``other``, both packages of ours."""
    if package in (other, SCRIPTS):
        return True
    if other not in LEVEL:
        return False
    return LEVEL[other] > (LEVEL["phaze.report"] if package == BRIDGES else LEVEL[package])


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    files = (
        path.relative_to(REPOSITORY)
        for each in FOLDERS
        for path in Path(REPOSITORY, each).rglob("*.py")
    )
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files}


@cache
def read(module: str) -> set[Import]:
    path = modules()[module]
    return imports_of((REPOSITORY / path).read_text(encoding="utf-8"), ".".join(path.parts[:-1]))


@cache
def wrong_way() -> dict[str, set[str]]:
    """Every import against the order: module -> packages."""
    found: dict[str, set[str]] = {}
    for module in set(modules()) - set(ROOT):
        others = {package_of(each.name) for each in read(module)}
        ours = {each for each in others if each.partition(".")[0] in FOLDERS}
        if wrong := {each for each in ours if not may_import(package_of(module), each)}:
            found[module] = wrong
    return found


def test_imports_run_one_way() -> None:
    new = {module: found - ALLOWED.get(module, set()) for module, found in wrong_way().items()}
    assert {module: found for module, found in new.items() if found} == {}


def test_what_was_put_right_is_taken_off_the_list() -> None:
    assert {each: found for each, found in wrong_way().items() if each in ALLOWED} == ALLOWED


def test_no_module_needs_itself() -> None:
    known = modules()
    arrows = nx.DiGraph()
    for module in known:
        for each in read(module):
            other = each.name if each.name in known else each.name.rpartition(".")[0]
            if other in known and other != module:
                arrows.add_edge(module, other)
    circles = [sorted(each) for each in nx.strongly_connected_components(arrows) if len(each) > 1]
    assert circles == []


def test_only_those_who_trace_and_run_models_know_torch() -> None:
    knowing = {
        package_of(module)
        for module in modules()
        if OF_TORCH & {each.name.partition(".")[0] for each in read(module)}
    }
    assert knowing == KNOW_TORCH


def test_every_package_is_in_the_order() -> None:
    assert {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} <= {*FOLDERS}
    assert {package_of(module) for module in modules()} == {*LEVEL, "phaze", BRIDGES, SCRIPTS}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (
            "import Solver.results as results, json",
            {Import("Solver.results", True), Import("json", True)},
        ),
        ("from Estimator.plans.plan import Plan", {Import("Estimator.plans.plan.Plan", True)}),
        ("if TYPE_CHECKING:\n    from phaze import cli", {Import("phaze.cli", False)}),
        ("if typing.TYPE_CHECKING:\n    import phaze.cli", {Import("phaze.cli", False)}),
        ("def f():\n    class A:\n        import torch", {Import("torch", False)}),
        ("class A:\n    import torch", {Import("torch", True)}),
        ("try:\n    import torch\nexcept ImportError:\n    pass", {Import("torch", True)}),
        ("async def f():\n    import torch", {Import("torch", False)}),
        (
            "from importlib import import_module\nimport_module('Solver.results')",
            {Import("importlib.import_module", True), Import("Solver.results", False)},
        ),
        (
            "HOMES = {'a': 'phaze.library'}\ndef f(n):\n    return importlib.import_module(HOMES[n])",
            {Import("phaze.library", False)},
        ),
        ("HOMES = {'a': 'phaze.library'}", set()),
        ("__import__('torch')", {Import("torch", False)}),
        ("load('torch')", set()),
        ("import_module('Solver. And more')", set()),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, found: set[Import]) -> None:
    assert imports_of(source) == found


def test_imports_of_neighbours_are_told_by_their_whole_name() -> None:
    source = "from . import a\nfrom .b import c\nfrom ..d import e"
    names = {each.name for each in imports_of(source, "Solver.designs")}
    assert names == {"Solver.designs.a", "Solver.designs.b.c", "Solver.d.e"}


@pytest.mark.parametrize(
    ("package", "other", "allowed"),
    [
        ("phaze.cli", "phaze_common", True),
        ("phaze.studies", "Solver", True),
        ("phaze.studies", "phaze.report", False),
        ("phaze.exports", "phaze.runtime", False),
        ("phaze.validation", "phaze.exports", True),
        ("Solver", "phaze.settings", False),
        ("phaze.validation", "Estimator.plans", True),
        ("Estimator.plans", "Solver", False),
        ("Estimator", "Estimator.plans", False),
        ("phaze_common", "GraphExtractor", False),
        ("third_party", "phaze.studies", True),
        ("third_party", "phaze.report", False),
        ("phaze.studies", "third_party", False),
        ("scripts", "phaze.report", True),
        ("phaze.studies", "scripts", False),
        ("third_party", "scripts", False),
    ],
)
def test_the_order_is_what_it_says(package: str, other: str, allowed: bool) -> None:
    assert may_import(package, other) == allowed


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("Estimator.plans.plan.Plan", "Estimator.plans"),
        ("Estimator.plans", "Estimator.plans"),
        ("Estimator.planning", "Estimator"),
        ("phaze.cli.main.main", "phaze.cli"),
        ("phaze.study", "phaze"),
        ("json.tool", "json"),
    ],
)
def test_the_longest_package_holds_a_name(name: str, package: str) -> None:
    assert package_of(name) == package
