"""The doctor's checks against made-up installations."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import phaze
from phaze.cli import doctor, installed
from phaze.cli.doctor import COMFORTABLE_DISK_BYTES, examine
from phaze.cli.installed import Finding, Verdict
from phaze.settings.folders import Folders, folders_of
from phaze_common.requirements import Requirement, requirements


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return folders_of(tmp_path / "not yet" / "there")


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {finding.what: finding.verdict for finding in findings}


def test_this_installation_is_fine_and_nothing_is_left_behind(
    folders: Folders, tmp_path: Path
) -> None:
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


def wanting(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Let phaze need these packages."""
    monkeypatch.setattr(doctor, "requirements", lambda: tuple(map(Requirement.of, lines)))


def test_a_wrong_or_absent_package_is_missing(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanting(
        monkeypatch,
        "torch==1.0",
        "transformers>=900,<901",
        "no-such-package>=1",
        "numpy>=1.26",
        'pytest>=8; extra == "dev"',
    )
    found = {finding.what: finding for finding in examine(folders)}
    assert found["torch"].verdict is Verdict.MISSING
    assert "1.0 is needed; run ./setup.sh" in found["torch"].found
    assert found["transformers"].verdict is Verdict.MISSING
    assert "900 or newer is needed; run ./setup.sh" in found["transformers"].found
    assert found["no-such-package"].verdict is Verdict.MISSING
    assert found["numpy"].verdict is Verdict.OK
    assert "pytest" not in found


def test_a_version_newer_than_those_tested_is_noted(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanting(monkeypatch, "torch>=1,<2", "transformers>=1,<900")
    found = {finding.what: finding for finding in examine(folders)}
    assert found["torch"].verdict is Verdict.NOTE
    assert "newer than phaze was tested with (torch>=1,<2)" in found["torch"].found
    assert found["transformers"].verdict is Verdict.OK


def test_without_the_source_tree_pip_is_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installed, "HOME", tmp_path)
    (finding,) = installed.packages([Requirement.of("no-such-package>=1,<3")])
    assert finding.found == "not installed; run: python -m pip install 'no-such-package>=1,<3'"


def test_an_extra_that_is_absent_is_a_note_with_the_line_that_installs_it(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanting(
        monkeypatch,
        'no-such-plots>=1; extra == "report"',
        'numpy>=1; extra == "report"',
        "numpy>=1; extra == 'ray'",
    )
    found = {finding.what: finding for finding in examine(folders)}
    assert found["extra report"].verdict is Verdict.NOTE
    assert found["extra report"].found.endswith(": python -m pip install no-such-plots")
    assert found["extra ray"].verdict is Verdict.OK
    assert found["extra ray"].found.startswith("numpy ")
    assert "numpy" not in found


def test_every_extra_for_users_is_told(folders: Folders) -> None:
    named = {need.extra for need in requirements() if need.extra} - {"dev", "docs"}
    assert {f"extra {name}" for name in named} == {
        each.what for each in examine(folders) if each.what.startswith("extra ")
    }


@pytest.mark.parametrize(
    ("files", "owners", "verdict", "said"),
    [
        (
            ("home/phaze_common/__init__.py",),
            {"phaze_common": ["phaze"]},
            Verdict.OK,
            "no other package uses",
        ),
        (
            ("home/phaze_common/__init__.py",),
            {"phaze_common": ["phaze", "commons"]},
            Verdict.NOTE,
            "commons too has files in phaze_common",
        ),
        (
            ("other/phaze_common/__init__.py", "home/phaze_common/__init__.py"),
            {},
            Verdict.MISSING,
            "phaze_common is found in {}/other instead of",
        ),
        (
            ("other/phaze_common.py", "home/phaze_common/__init__.py"),
            {},
            Verdict.MISSING,
            "phaze_common is found in {}/other instead of",
        ),
    ],
)
def test_packages_of_the_same_name_are_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[str, ...],
    owners: dict[str, list[str]],
    verdict: Verdict,
    said: str,
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(installed, "HOME", tmp_path / "home")
    (finding,) = installed.own_names(
        ["phaze_common"], owners, [str(tmp_path / "other"), str(tmp_path / "home")]
    )
    assert finding.verdict is verdict
    assert said.format(tmp_path) in finding.found


def test_a_folder_that_cannot_be_written_is_missing(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert json.loads(capsys.readouterr().out) == [
            {"what": "a thing", "verdict": verdict.value, "found": "as it is"}
        ]
