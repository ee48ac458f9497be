"""The answer of a search is on disk as soon as it is found, and no moment after that can lose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from small_study import SPACE, small_study, solved

from phaze.library import explain, run_solver
from phaze.runs import run_directory
from phaze.runs.finished_run import open_run
from phaze.studies.added_limits import add_limits
from phaze.studies.sweep.points import REPOSITORY, ROOMS
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
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
        patch.setattr("phaze.studies.written_answer.limits_of", killed)
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
        patch.setattr("phaze.studies.search_run.answer_there", lambda *_: None)
        patch.setattr("phaze.studies.written_answer.limits_of", killed)
        run_solver(study, limits=True)
    assert open_run(tmp_path / "out").result.best == complete.best


def test_what_limits_a_chip_is_searched_when_it_is_asked_for_and_kept(
    whole: Path, tmp_path: Path
) -> None:
    study = small_study(whole, **STUDY).with_settings(output=tmp_path / "out")
    found = solved(study)
    run, complete = open_run(tmp_path / "out"), open_run(whole / "out").result
    assert found.best is not None and run.result.best == found.best
    assert not found.best.limits and not found.best.axes
    (told,) = explain(run).limits_in_words
    assert "explain" in told and "--limits" in told
    others = {path: path.read_bytes() for path in sorted((tmp_path / "out").glob("[dps]*.*"))}
    explained = explain(run, limits=True)
    kept = open_run(tmp_path / "out")
    assert kept.result.best == complete.best
    assert explained == explain(kept)
    assert explained.limits_in_words == tuple(limit.words for limit in explained.limits)
    assert others == {path: path.read_bytes() for path in others}
    # nothing is searched where they are there, and the same study again keeps them
    assert add_limits(kept, SilentProgress()) is kept
    assert run_solver(study).best == complete.best


def test_what_limits_an_answer_that_is_not_found_again_is_not_kept_with_it(
    whole: Path, tmp_path: Path
) -> None:
    study = small_study(whole, **STUDY).with_settings(output=tmp_path / "out")
    solved(study)
    path = tmp_path / "out" / "study.yaml"
    path.write_text(path.read_text().replace("global_batch_size: 64", "global_batch_size: 32"))
    run = open_run(tmp_path / "out")
    with pytest.raises(InputError, match="has another answer now than when it was run"):
        add_limits(run, SilentProgress())
    assert open_run(tmp_path / "out").result == run.result


def test_the_same_question_again_is_answered_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise Killed

    study = small_study(tmp_path / "graphs", **STUDY).with_settings(output=tmp_path / "out")
    found = solved(study)
    with monkeypatch.context() as patch:
        patch.setattr("Solver.designs.search.search", refused)
        assert run_solver(study) == found
        for other in ({"force_reextract_model": True}, {"csv": True}):
            with pytest.raises(Killed):
                run_solver(study.with_settings(**other))
        with pytest.raises(Killed):  # it does not say what limits it
            run_solver(study, limits=True)
    complete = solved(study, limits=True)
    with monkeypatch.context() as patch:
        patch.setattr("Solver.designs.search.search", refused)
        assert run_solver(study, limits=True) == run_solver(study) == complete
        monkeypatch.setattr("phaze.studies.sweep.points._code", lambda: "another version")
        with pytest.raises(Killed):
            run_solver(study)


def test_an_answer_to_files_that_were_changed_meanwhile_is_not_given_back(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(whole, **STUDY).with_settings(output=tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("phaze.studies.written_answer.key_of", lambda _: "of other files")
        solved(study)
    assert not open_run(tmp_path / "out").manifest.question
    solved(study)
    assert open_run(tmp_path / "out").manifest.question


def test_limits_under_other_files_are_not_those_of_the_question(tmp_path: Path) -> None:
    study = small_study(tmp_path, **STUDY)
    best = solved(study).best
    assert best is not None and best.accelerator is not None
    axes = SPACE["axes"] | {"num_tc": [best.accelerator.num_tc]}  # the best stays the best
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SPACE | {"axes": axes}))
    add_limits(open_run(study.folders.run), SilentProgress())
    run = open_run(study.folders.run)
    assert run.result.best is not None and run.result.best.limits
    assert not run.manifest.question


@pytest.mark.parametrize("name", [BEST, "designs.parquet", "manifest.json", "study.yaml"])
def test_an_answer_of_which_a_file_is_damaged_is_searched_again(
    whole: Path, tmp_path: Path, name: str
) -> None:
    study = small_study(whole, **STUDY).with_settings(output=tmp_path / "out")
    found, file = solved(study), tmp_path / "out" / name
    content = file.read_bytes()
    file.write_bytes(content.replace(content[20:24], b"oops", 1))
    if name == "study.yaml":
        file.write_bytes(content + b"# edited\n")
    elif name == "manifest.json":
        file.write_bytes(content.replace(b'"python"', b'"Python"', 1))
    assert run_solver(study) == found
    assert file.read_bytes() == content or name == "manifest.json"
    assert open_run(tmp_path / "out").result == found


def test_what_decides_how_sure_an_answer_is_decides_its_question() -> None:
    rooms = [REPOSITORY / room for room in ROOMS]
    for part in ("phaze/validation/residuals.yaml", "phaze_common/numbers.py"):
        assert (REPOSITORY / part).is_file()
        assert any((REPOSITORY / part).is_relative_to(room) for room in rooms)
    assert all(room.is_dir() for room in rooms)
