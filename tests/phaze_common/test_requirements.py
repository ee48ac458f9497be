"""What phaze needs, read from lines as pip takes them, and refused where it is too old."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement as PipRequirement
from packaging.version import Version

from phaze_common.errors import PhazeError
from phaze_common.requirements import Requirement, check_versions, release, requirements

REPOSITORY = Path(__file__).resolve().parent.parent.parent
VERSIONS = (
    "0.9",
    "1",
    "1.0.0",
    "1.26",
    "2.9.1",
    "2.10.0",
    "2.13",
    "2.13.0+cpu",
    "2.14.1",
    "2.15.0",
    "3",
    "10.0",
)


@pytest.mark.parametrize(
    "line", ["numpy>=1.26", "torch>=2.10,<2.15", "torch==2.13.0", "x", 'a[b]>=1 , <3; extra == "c"']
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_will_do_where_pip_says_so(line: str, version: str) -> None:
    need = Requirement.of(line)
    assert (not need.is_older(version) and not need.is_newer(version)) == PipRequirement(
        line
    ).specifier.contains(version)
    assert not (need.is_older(version) and need.is_newer(version))
    assert release(version) == release(str(Version(version).base_version))


def test_names_extras_and_bounds_are_read() -> None:
    assert Requirement.of("ray>=2.40; extra == 'ray'") == Requirement(
        "ray", least="2.40", extra="ray"
    )
    assert Requirement.of("phaze[report]") == Requirement("phaze")
    assert Requirement.of("torch<2.15,>=2.10").text == "torch>=2.10,<2.15"
    with pytest.raises(PhazeError, match="is no requirement"):
        Requirement.of("==")


def test_the_source_tree_and_the_installed_package_say_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = requirements()
    assert [need.name for need in ours if not need.extra] == [
        PipRequirement(line).name for line in project["dependencies"]
    ]
    lines = [f"{need.text}; extra == '{need.extra}'" if need.extra else need.text for need in ours]
    monkeypatch.setattr("pathlib.Path.exists", lambda path: False)
    monkeypatch.setattr("importlib.metadata.requires", lambda name: lines)
    assert requirements.__wrapped__() == ours


@pytest.mark.parametrize(
    ("version", "refused"), [("2.9.1", True), ("0.1", True), ("2.13.0+cpu", False), ("99.0", False)]
)
def test_what_is_older_than_tested_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str, refused: bool
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    check = check_versions.__wrapped__
    if not refused:
        check("torch")
        return
    with pytest.raises(
        PhazeError,
        match=rf"torch {version} is older than .*\(torch>=2.*python -m pip install 'torch>=",
    ):
        check("torch")
