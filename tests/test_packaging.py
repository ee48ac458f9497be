"""What is shipped: every room with its data and its types, under one version and licence."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
NOT_SHIPPED = {"tests", "scripts", "notebooks", "docs"}
ROOMS = sorted(
    path.name
    for path in REPOSITORY.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name not in NOT_SHIPPED and any(path.glob("*.py"))
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
    installed = {path for pattern in globs for path in (REPOSITORY / room).rglob(pattern.removeprefix("**/"))}
    made = {"__pycache__", "out", "estimates", "arch_configs", "output"}  # by running it
    beside = {path for path in (REPOSITORY / room).rglob("*") if path.is_file() and path.suffix != ".py"}
    assert {path for path in beside - installed if made.isdisjoint(path.relative_to(REPOSITORY).parts)} == set()


def test_version_and_licence_are_said_once(project: dict[str, Any]) -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    stated = project["project"]
    assert (citation["version"], citation["license"]) == (stated["version"], stated["license"])
    assert all((REPOSITORY / name).exists() for name in (*stated["license-files"], stated["readme"]))
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
    places = set(re.findall(rf"`((?:{'|'.join([*ROOMS, 'tests', 'scripts'])})/[\w./]*)`", text))
    links = set(re.findall(r"\]\(([\w./]+)[)#]", text))
    assert places and [place for place in sorted(places | links) if not any(REPOSITORY.glob(place.replace("NAME", "*")))] == []
    headings = {
        re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-") for line in re.findall(r"^#+ (.*)", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings


def test_the_changelog_keeps_its_headings() -> None:
    unreleased = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert unreleased.startswith("[Unreleased]")
    assert re.findall(r"^### (.*)", unreleased, re.MULTILINE) == ["Added", "Changed", "Results that changed", "Removed"]
