"""The answer of a search is on disk as soon as it is found, and no moment after that can lose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_study import small_study, solved

from phaze.runs import run_directory
from phaze.runs.finished_run import open_run
from phaze_common.run_files import BEST

STUDY = {"micro_batch_size": 1, "hbm_size": 16}


class Killed(BaseException):
    """What no code expects."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    solved(small_study(folder, **STUDY), limits=True)
    return folder


def test_what_limits_it_is_looked_for_once_the_answer_is_written(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    study = small_study(whole, **STUDY).with_settings(output=tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("phaze.studies.search_run.limits_of", killed)
        solved(study, limits=True)
    found, complete = open_run(tmp_path / "out").result, open_run(whole / "out").result
    assert found.best is not None and complete.best is not None
    assert (found.best.value, found.best.models) == (complete.best.value, complete.best.models)
    assert not found.best.limits and not found.best.axes
    assert complete.best.limits and complete.best.axes
    assert solved(study, limits=True).best == complete.best


def test_no_moment_of_adding_to_it_leaves_a_run_that_cannot_be_read(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(whole, **STUDY).with_settings(output=tmp_path / "out")
    write, moments = run_directory.write_atomically, 0
    for last in range(20):
        written: list[str] = []

        def counted(
            path: Path, *content: Any, last: int = last, written: list[str] = written, **how: Any
        ) -> None:
            if BEST in written and len(written) - written.index(BEST) > last:
                raise Killed
            write(path, *content, **how)
            written.append(path.name)

        with monkeypatch.context() as patch:
            patch.setattr(run_directory, "write_atomically", counted)
            try:
                complete = solved(study, limits=True)
            except Killed:
                moments += 1
                assert open_run(tmp_path / "out").result.best is not None
            else:
                assert open_run(tmp_path / "out").result.best == complete.best
                break
    assert moments == 2  # its manifest and best.json again


def test_a_complete_answer_is_not_given_up_for_one_that_is_not(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    study = small_study(whole, **STUDY).with_settings(output=tmp_path / "out")
    complete = solved(study, limits=True)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("phaze.studies.search_run.limits_of", killed)
        solved(study, limits=True)
    assert open_run(tmp_path / "out").result.best == complete.best
