"""The doctor's checks against made-up installations."""

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import phaze
from FrontDoor import doctor
from FrontDoor.doctor import COMFORTABLE_DISK_BYTES, Finding, Verdict, examine
from Studies.folders import Folders, folders_of


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return folders_of(tmp_path / "not yet" / "there")


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {finding.what: finding.verdict for finding in findings}


def test_this_installation_is_fine_and_nothing_is_left_behind(folders: Folders, tmp_path: Path) -> None:
    found = verdicts(examine(folders))
    assert Verdict.MISSING not in found.values()
    assert {
        "python",
        "torch",
        "transformers",
        "solver native",
        "solver gurobi",
        "solver highs",
        "processor cores",
        "disk",
    } <= set(found)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_or_absent_package_is_missing(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torch==1.0", "no-such-package>=1", "numpy>=1.26", 'pytest>=8; extra == "dev"']
    monkeypatch.setattr("importlib.metadata.requires", lambda name: wanted)
    found = {finding.what: finding for finding in examine(folders)}
    assert found["torch"].verdict is Verdict.MISSING
    assert "1.0 is needed; run ./setup.sh" in found["torch"].found
    assert found["no-such-package"].verdict is Verdict.MISSING
    assert found["numpy"].verdict is Verdict.OK
    assert "pytest" not in found


def test_an_extra_that_is_absent_is_a_note_with_the_line_that_installs_it(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ['no-such-plots>=1; extra == "report"', 'numpy>=1; extra == "report"', "numpy>=1; extra == 'ray'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: wanted)
    found = {finding.what: finding for finding in examine(folders)}
    assert found["extra report"].verdict is Verdict.NOTE
    assert found["extra report"].found.endswith(": .venv/bin/python -m pip install no-such-plots")
    assert found["extra ray"].verdict is Verdict.OK
    assert found["extra ray"].found.startswith("numpy ")
    assert "numpy" not in found


def test_without_an_installation_the_project_file_tells_what_is_needed(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", not_installed)
    assert {"torch", "numpy", "extra report", "extra ray"} <= {finding.what for finding in examine(folders)}


def test_a_folder_that_cannot_be_written_is_missing(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**settings: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    finding = next(finding for finding in examine(folders) if finding.what.startswith("folder"))
    assert finding.verdict is Verdict.MISSING
    assert "Permission denied" in finding.found


def test_a_small_disk_is_noted(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Usage:
        free: int = COMFORTABLE_DISK_BYTES - 1

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage())
    assert verdicts(examine(folders))["disk"] is Verdict.NOTE


def test_the_command_fails_only_when_something_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for verdict, status in ((Verdict.NOTE, 0), (Verdict.MISSING, 1)):
        finding = Finding("a thing", verdict, "as it is")
        monkeypatch.setattr(doctor, "examine", lambda folders, finding=finding: [finding])
        assert phaze.main(["doctor", "--format", "json"]) == status
        assert json.loads(capsys.readouterr().out) == [{"what": "a thing", "verdict": verdict.value, "found": "as it is"}]
