"""Runs of other machines and of other people: what is derived from one goes beside it, whatever its
study says of folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import phaze
from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.repeat import place_of
from tests.builders.forged_runs import forged


@pytest.fixture
def moved(finished_plans: FinishedRun, tmp_path: Path) -> Iterator[Path]:
    """The folder of a run without its graphs, whose study names a place of somebody else."""
    folder, elsewhere = tmp_path / "here" / "run", tmp_path / "elsewhere"
    shutil.copytree(
        finished_plans.folder,
        folder,
        ignore=shutil.ignore_patterns("GraphExtractor", "Estimator", "points"),
    )
    study = yaml.safe_load((folder / "study.yaml").read_text()) | {"output": str(elsewhere)}
    forged(folder, "study.yaml", yaml.safe_dump(study).encode())
    yield folder
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "RUN"],
        ["explain", "RUN", "--instead", "pp=1"],
        ["explain", "RUN", "--what-if", "devices=4"],
        ["report", "RUN"],
        ["trace", "RUN"],
        ["export", "RUN", "--to", "megatron_lm", "--output", "OUT", "--nearest"],
    ],
)
def test_what_is_derived_from_a_run_goes_beside_it(
    words: list[str], moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    given = [{"RUN": str(moved), "OUT": str(working / "out")}.get(each, each) for each in words]
    assert phaze.main([*given, "--quiet"]) in {0, 3}
    if words[0] != "export":  # whose plan is priced anew, as the user's own
        assert not any(working.iterdir())


def test_a_link_in_a_run_leads_nothing_out_of_it(
    moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "victim").mkdir()
    (moved / "GraphExtractor").mkdir()
    (moved / "GraphExtractor" / "out").symlink_to(tmp_path / "victim")
    assert phaze.main(["explain", str(moved), "--instead", "pp=1", "--quiet"]) in {0, 3}
    assert not any((tmp_path / "victim").iterdir()) and any(
        (tmp_path / "cache" / "phaze" / "runs").rglob("*.gz")
    )


def test_the_place_follows_from_where_a_run_lies(tmp_path: Path) -> None:
    for run, place in (
        ("Solver/output/a", ""),
        ("a/points/b", "a"),
        ("Solver/output/s/parts/b", ""),
        ("alone", "alone"),
    ):
        home = tmp_path / run.replace("/", "-")
        (home / run).mkdir(parents=True)
        (home / place / "GraphExtractor" / "out").mkdir(parents=True)
        assert place_of(home / run) == home / place


@pytest.mark.parametrize("key", ["cluster", "device", "model"])
def test_a_file_of_another_machine_that_is_missing_is_named(
    key: str, moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = yaml.safe_load((moved / "study.yaml").read_text()) | {
        key: f"/of/another/machine/{key}.yaml"
    }
    forged(moved, "study.yaml", yaml.safe_dump(study).encode())
    assert phaze.main(["explain", str(moved), "--instead", "pp=1", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert (
        f"/of/another/machine/{key}.yaml" in said
        and "cannot be repeated" in said
        and said.count("\n") == 1
    )
