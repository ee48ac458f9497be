"""What is shipped: every room with its data and its types, under one version and licence."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import phaze
from phaze.cli.doctor import OLDEST_PYTHON
from phaze.cli.doctor import PACKAGES as NAMES

REPOSITORY = Path(__file__).resolve().parent.parent
NOT_SHIPPED = {"tests", "scripts", "notebooks", "docs", "third_party"}
ROOMS = sorted(
    path.name
    for path in REPOSITORY.iterdir()
    if path.is_dir()
    and not path.name.startswith(".")
    and path.name not in NOT_SHIPPED
    and any(path.glob("*.py"))
)


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_installed_checked_and_typed(project: dict[str, Any], room: str) -> None:
    assert f"{room}*" in project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert room in project["tool"]["mypy"]["files"]
    assert (REPOSITORY / room / "py.typed").read_bytes() == b""


@pytest.mark.parametrize("room", ROOMS)
def test_the_data_beside_the_code_is_installed_with_it(project: dict[str, Any], room: str) -> None:
    globs = project["tool"]["setuptools"]["package-data"]["*"]
    installed = {
        path for pattern in globs for path in (REPOSITORY / room).rglob(pattern.removeprefix("**/"))
    }
    made = {"__pycache__", "out", "estimates", "arch_configs", "output"}  # by running it
    beside = {
        path for path in (REPOSITORY / room).rglob("*") if path.is_file() and path.suffix != ".py"
    }
    assert {
        path for path in beside - installed if made.isdisjoint(path.relative_to(REPOSITORY).parts)
    } == set()


def test_version_and_licence_are_said_once(project: dict[str, Any]) -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    stated = project["project"]
    assert (citation["version"], citation["license"]) == (phaze.__version__, stated["license"])
    assert all(
        (REPOSITORY / name).exists() for name in (*stated["license-files"], stated["readme"])
    )
    assert citation["authors"] == stated["authors"]
    assert stated["authors"][0]["name"] in (REPOSITORY / "LICENSE").read_text(encoding="utf-8")


def test_hooks_fetch_nothing() -> None:
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {hook["id"] for hook in hooks} == {"ruff", "ruff-format", "mypy"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_what_contributors_are_sent_to_is_there(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    folders = "|".join([*ROOMS, *NOT_SHIPPED])
    places = set(re.findall(rf"`((?:{folders})/[\w./]*)`", text))
    links = set(re.findall(r"\]\(([\w./]+)[)#]", text))
    assert (
        places
        and [
            place
            for place in sorted(places | links)
            if not any(REPOSITORY.glob(place.replace("NAME", "*")))
        ]
        == []
    )
    headings = {
        re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings


def test_the_changelog_keeps_its_headings_and_tells_of_this_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = text.split("\n## ")[1]
    assert unreleased.startswith("[Unreleased]")
    released = text.split("\n## ")[2]
    assert released.startswith(f"[{phaze.__version__}]")
    assert f"\nversion: {phaze.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text(
        encoding="utf-8"
    )
    assert re.findall(r"^### (.*)", unreleased, re.MULTILINE) == [
        "Added",
        "Changed",
        "Results that changed",
        "Removed",
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built from a copy, for building leaves files."""
    pytest.importorskip("setuptools", reason="what builds wheels is not installed")
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    made = shutil.ignore_patterns(
        "__pycache__", "out", "estimates", "arch_configs", "output", "*.egg-info"
    )
    for name in (*ROOMS, *NOT_SHIPPED):
        shutil.copytree(REPOSITORY / name, source / name, ignore=made)
    for name in ("pyproject.toml", "phaze.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    build = f"from setuptools import build_meta; print(build_meta.build_wheel({str(place)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    return next(place.glob("phaze-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of the wheel, as pip lays it out."""
    place = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place


def test_a_wheel_has_our_packages_at_top_level_and_nothing_else(
    wheel: Path, installed: Path
) -> None:
    top = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {*ROOMS} == {*NAMES}
    parts = {part for path in installed.rglob("*") for part in path.relative_to(installed).parts}
    assert parts.isdisjoint({*NOT_SHIPPED, "out", "estimates", "output", "arch_configs"})
    points = ConfigParser()
    points.read(next(installed.glob("*.dist-info/entry_points.txt")))
    assert dict(points["console_scripts"]) == {"phaze": "phaze.__main__:main"}


def test_a_wheel_has_every_file_of_the_rooms(installed: Path) -> None:
    made = {"__pycache__", "out", "estimates", "arch_configs", "output"}
    for room in ROOMS:
        beside = {
            path.relative_to(REPOSITORY)
            for path in (REPOSITORY / room).rglob("*")
            if path.is_file()
        }
        wanted = {path for path in beside if made.isdisjoint(path.parts)}
        assert (
            wanted - {path.relative_to(installed) for path in (installed / room).rglob("*")}
            == set()
        )


def test_what_is_installed_works_in_an_empty_folder_and_writes_below_it(
    installed: Path, tmp_path: Path
) -> None:
    def ran(*words: str) -> str:
        environment = os.environ | {
            "PYTHONPATH": str(installed),
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [
            sys.executable,
            "-c",
            "import sys, phaze; print(phaze.__file__); sys.exit(phaze.main())",
            *words,
        ]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        place, _, printed = done.stdout.partition("\n")
        assert Path(place) == installed / "phaze" / "__init__.py"
        return printed

    before = {path for path in installed.rglob("*") if "__pycache__" not in path.parts}
    assert "a100_80gb" in ran("list", "devices")
    assert "bertbase" in ran("list", "models")
    ran(
        "extract_graph",
        "--model",
        "bertbase",
        "--micro-batch-size",
        "1",
        "--max-tp",
        "1",
        "--quiet",
    )
    assert list(tmp_path.glob("GraphExtractor/out/*/*_graph.json.gz"))
    ran("evaluate", "--model", "bertbase", "--device", "a100_80gb", "--quiet")
    assert {path for path in installed.rglob("*") if "__pycache__" not in path.parts} == before


def test_what_set_up_installs_is_in_the_ranges(project: dict[str, Any]) -> None:
    lines = [
        line
        for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line[0] != "#"
    ]
    exact = {
        Requirement(line).name: str(Requirement(line).specifier).removeprefix("==")
        for line in lines
    }
    ranges = {
        Requirement(line).name: Requirement(line).specifier
        for line in project["project"]["dependencies"]
    }
    assert set(exact) == {"torch", "transformers"}
    assert all(version in ranges[name] for name, version in exact.items())
    assert {bound.operator for name in exact for bound in ranges[name]} == {">=", "<"}


def test_the_matrix_takes_the_ends_of_the_ranges(project: dict[str, Any]) -> None:
    text = (REPOSITORY / "scripts" / "matrix.sh").read_text(encoding="utf-8")
    combinations = [
        line.split(":") for line in re.findall(r"^    (3\.\d+:[\d.]+:[\d.]+)$", text, re.MULTILINE)
    ]
    pythons = {python for python, _, _ in combinations}
    assert pythons == set(
        re.findall(r"Python :: (3\.\d+)", "\n".join(project["project"]["classifiers"]))
    )
    for column, name in ((1, "torch"), (2, "transformers")):
        need = next(
            Requirement(line)
            for line in project["project"]["dependencies"]
            if Requirement(line).name == name
        )
        tested = {each[column] for each in combinations}
        assert all(version in need.specifier for version in tested)
        oldest = next(bound.version for bound in need.specifier if bound.operator == ">=")
        newest = next(bound.version for bound in need.specifier if bound.operator == "<")
        minors = {version.rsplit(".", 1)[0] for version in tested}
        assert {
            ".".join(oldest.split(".")[:2]),
            f"{newest.split('.')[0]}.{int(newest.split('.')[1]) - 1}",
        } <= minors


def test_the_container_copies_what_is_there_and_installs_what_set_up_does(
    project: dict[str, Any],
) -> None:
    text = (REPOSITORY / "Containerfile").read_text(encoding="utf-8")
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--).*$", text, re.MULTILINE)]
    names = {name for names in copied for name in names}
    assert all((REPOSITORY / name).exists() for name in names)
    stated = project["project"]
    assert names == {
        *ROOMS,
        "pyproject.toml",
        "constraints.txt",
        stated["readme"],
        *stated["license-files"],
    }
    extras = set(re.findall(r"'\.\[([\w,]+)\]'", text)[0].split(","))
    assert extras <= set(stated["optional-dependencies"])
    pythons = set(re.findall(r"python:(\d+\.\d+)-slim", text))
    assert (
        len(pythons) == 1
        and f"Programming Language :: Python :: {pythons.pop()}" in stated["classifiers"]
    )


def test_the_oldest_python_is_said_once(project: dict[str, Any]) -> None:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    assert project["project"]["requires-python"] == f">={oldest}"
    assert f'oldest="{oldest}"' in (REPOSITORY / "setup.sh").read_text(encoding="utf-8")
    assert project["tool"]["mypy"]["python_version"] == oldest
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
