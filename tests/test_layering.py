"""Imports run one way through the rooms: read from the code, imports inside functions and for type
checkers alone included."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# From the door to what stands under everything; a room imports from later lines only, rooms of one
# line not from each other.
ORDER = (
    ("phaze",),
    ("FrontDoor",),
    ("Reporter",),
    ("Studies",),
    ("Solver", "Validation", "Runtime"),
    ("Plans",),
    ("Estimator",),
    ("GraphExtractor",),
    ("Common",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
BRIDGES, SCRIPTS = "third_party", "scripts"
EVERY_ROOM = (*LEVEL, BRIDGES, SCRIPTS)
KNOW_TORCH = {"GraphExtractor", "Runtime"}
OF_TORCH = {"torch", "torchvision", "transformers"}
LOADERS = {"import_module", "__import__"}

# The one import that runs the other way: names of ``Studies.library`` are also those of
# ``Solver.search``, loaded on first use.
ALLOWED = {"Solver/search/__init__.py": {"Studies"}}


@dataclass(frozen=True)
class Import:
    """A package that a module imports, and whether that happens as soon as the module itself is
    imported."""

    package: str
    at_once: bool


def imports_of(source: str, package: str = "") -> set[Import]:
    """Outermost packages that ``source``, a module directly in the dotted ``package``, imports
    anywhere in it.

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
        texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        found |= {Import(text.partition(".")[0], False) for text in texts if _names_a_module(text)}
    return found


def _imported(node: ast.AST, package: str) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {
            (package if node.level else str(node.module)).partition(".")[0]
        }  # relative ones stay in their room
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
    return text.partition(".")[0] in {*EVERY_ROOM, *OF_TORCH} and all(
        part.isidentifier() for part in text.split(".")
    )


def may_import(room: str, other: str) -> bool:
    """Whether a module of ``room`` may import one of ``other``, both rooms of ours."""
    if room in (other, SCRIPTS):
        return True
    if other == BRIDGES:
        return (
            room in LEVEL and LEVEL[room] <= LEVEL["Solver"]
        )  # whoever writes or reads other people's files, inside functions
    if other == SCRIPTS or other not in LEVEL:
        return False
    return LEVEL[other] > (LEVEL["Reporter"] if room == BRIDGES else LEVEL[room])


def modules(room: str) -> list[Path]:
    files = (
        [REPOSITORY / f"{room}.py"]
        if (REPOSITORY / f"{room}.py").exists()
        else sorted((REPOSITORY / room).rglob("*.py"))
    )
    return [path.relative_to(REPOSITORY) for path in files]


@cache
def read(path: Path) -> set[Import]:
    return imports_of((REPOSITORY / path).read_text(encoding="utf-8"), ".".join(path.parts[:-1]))


def wrong_way() -> dict[str, set[str]]:
    """Every import against the order: file -> rooms."""
    found: dict[str, set[str]] = {}
    for room in EVERY_ROOM:
        for path in modules(room):
            ours = {each.package for each in read(path)} & set(EVERY_ROOM)
            if wrong := {other for other in ours if not may_import(room, other)}:
                found[path.as_posix()] = wrong
    return found


def test_imports_run_one_way() -> None:
    new = {path: rooms - ALLOWED.get(path, set()) for path, rooms in wrong_way().items()}
    assert {path: rooms for path, rooms in new.items() if rooms} == {}


def test_what_was_put_right_is_taken_off_the_list() -> None:
    found = wrong_way()
    mended = {path: rooms - found.get(path, set()) for path, rooms in ALLOWED.items()}
    assert {path: rooms for path, rooms in mended.items() if rooms} == {}


def test_only_those_who_trace_and_run_models_know_torch() -> None:
    rooms = (room for room in EVERY_ROOM if room not in KNOW_TORCH)
    knowing = {
        str(path): found
        for room in rooms
        for path in modules(room)
        if (found := {e.package for e in read(path)} & OF_TORCH)
    }
    assert knowing == {}
    assert any(
        OF_TORCH & {each.package for each in read(path)} for path in modules("GraphExtractor")
    )


def test_bridges_are_only_imported_when_they_are_used() -> None:
    others = (path for room in LEVEL for path in modules(room))
    assert [str(path) for path in others if Import(BRIDGES, at_once=True) in read(path)] == []


def test_every_room_is_in_the_order() -> None:
    assert {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} <= {*EVERY_ROOM}
    assert all(modules(room) for room in EVERY_ROOM if room != "Runtime")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import Solver.results as results, json", {Import("Solver", True), Import("json", True)}),
        ("from Plans.plan import Plan", {Import("Plans", True)}),
        ("if TYPE_CHECKING:\n    from Studies import study", {Import("Studies", False)}),
        ("if typing.TYPE_CHECKING:\n    import Studies", {Import("Studies", False)}),
        ("def f():\n    class A:\n        import torch", {Import("torch", False)}),
        ("class A:\n    import torch", {Import("torch", True)}),
        ("try:\n    import torch\nexcept ImportError:\n    pass", {Import("torch", True)}),
        ("async def f():\n    import torch", {Import("torch", False)}),
        (
            "from importlib import import_module\nimport_module('Solver.results')",
            {Import("importlib", True), Import("Solver", False)},
        ),
        (
            "HOMES = {'a': 'Studies.library'}\ndef f(n):\n    return "
            "importlib.import_module(HOMES[n])",
            {Import("Studies", False)},
        ),
        ("HOMES = {'a': 'Studies.library'}", set()),
        ("__import__('torch')", {Import("torch", False)}),
        ("load('torch')", set()),
        ("import_module('Solver. And more')", set()),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, found: set[Import]) -> None:
    assert imports_of(source) == found


def test_imports_from_beside_and_above_are_of_the_own_room() -> None:
    assert imports_of("from . import a\nfrom .b import c\nfrom ..d import e", "Solver.search") == {
        Import("Solver", True)
    }


@pytest.mark.parametrize(
    ("room", "other", "allowed"),
    [
        ("phaze", "FrontDoor", True),
        ("FrontDoor", "Common", True),
        ("Studies", "Solver", True),
        ("Studies", "Reporter", False),
        ("Solver", "Validation", False),
        ("Validation", "Plans", True),
        ("Plans", "Solver", False),
        ("Common", "GraphExtractor", False),
        ("third_party", "Studies", True),
        ("third_party", "Reporter", False),
        ("Studies", "third_party", True),
        ("Estimator", "third_party", False),
        ("scripts", "Reporter", True),
        ("Studies", "scripts", False),
        ("third_party", "scripts", False),
    ],
)
def test_the_order_is_what_it_says(room: str, other: str, allowed: bool) -> None:
    assert may_import(room, other) == allowed
