"""Run directories that are not whole: one sentence each, whatever is wrong with them."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from small_study import small_study, solved

import phaze
from phaze.runs.finished_run import open_run
from phaze.runs.plan_files import read_plan
from phaze.runs.run_directory import RUN_FILES
from phaze.runtime.training.plan_file import read_plan_to_train
from phaze.settings.folders import check_output
from phaze.settings.resolve import resolve
from phaze.studies.exported_plan import launch_of
from phaze_common.errors import InputError
from phaze_common.files import output_file, pack, unpack
from phaze_common.sealed import KEY, digest_of
from tests.builders.forged_runs import forged, forged_answer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(
        solved(
            small_study(tmp_path_factory.mktemp("run"), micro_batch_size=[1], hbm_size=[16]),
            limits=True,
        ).run_directory
    )


@pytest.mark.parametrize("name", [name for name in RUN_FILES if not name.endswith(".csv")])
@pytest.mark.parametrize("damage", ["empty", "half", "other", "gone", "folder"])
def test_a_damaged_file_is_named_in_one_sentence(
    run: Path, tmp_path: Path, name: str, damage: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        run, copy, ignore=shutil.ignore_patterns("points", "GraphExtractor", "Estimator")
    )
    path = copy / name
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(
            {"empty": b"", "half": content[: len(content) // 2], "other": b'{"something": "else"}'}[
                damage
            ]
        )
    with pytest.raises(InputError) as caught:
        open_run(copy)
    message = str(caught.value)
    assert name in message and "run" in message and "\n" not in message
    assert "Errno" not in message and message.count(str(copy)) <= 1 + (name == "best.json")


DAMAGED = {
    "empty": b"",
    "of blanks": b" \n",
    "half": None,
    "a list": b"[1, 2]",
    "a word": b'"plan"',
    "nothing": b"null",
    "no text": b"\x00\xff" * 40,
    "a number that is none": b'{"optimal": NaN}',
}
DOORS: dict[str, Callable[[Path], Any]] = {
    "explain": open_run,
    "evaluate": lambda folder: read_plan(folder / "best.json", None),
    "export": lambda folder: launch_of(folder, {}),
    "train": lambda folder: read_plan_to_train(folder / "best.json", None),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_one_damaged_answer_is_told_alike_at_every_door(
    run: Path, tmp_path: Path, content: bytes | None
) -> None:
    best = copied(run, tmp_path) / "best.json"
    best.write_bytes(best.read_bytes()[:900] if content is None else content)
    said = set[str]()
    for door in DOORS.values():
        with pytest.raises(InputError) as refused:
            door(best.parent)
        said.add(str(refused.value))
    (only,) = said
    assert only.startswith(f"{best} cannot be read (it ") and only.endswith(
        "run the study again to make it anew"
    )


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_run_without_its_manifest_is_run_again_elsewhere(
    run: Path, content: bytes | None, tmp_path: Path
) -> None:
    manifest = copied(run, tmp_path) / "manifest.json"
    manifest.unlink()
    if content is not None:
        manifest.write_bytes(content)
    with pytest.raises(InputError, match=r"run the study again with another --output$"):
        open_run(manifest.parent)


CONTRADICTIONS = {
    "no model": lambda best: best.update(models={}),
    "no stage": lambda best: next(iter(best["models"].values())).update(stages=[]),
    "another depth": lambda best: next(iter(best["models"].values())).update(pp=99),
    "a chip that cannot be": lambda best: best["accelerator"].update(num_tc=-4),
}


@pytest.mark.parametrize("contradict", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_best_json_that_contradicts_itself_is_refused(
    run: Path, tmp_path: Path, contradict: Callable[[Any], None]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        run, copy, ignore=shutil.ignore_patterns("points", "GraphExtractor", "Estimator")
    )
    forged_answer(copy, contradict)
    with pytest.raises(InputError, match=r"best\.json cannot be read \(it is damaged, or"):
        open_run(copy)


def copied(run: Path, folder: Path) -> Path:
    return Path(
        shutil.copytree(
            run,
            folder / "copy",
            ignore=shutil.ignore_patterns("points", "GraphExtractor", "Estimator"),
        )
    )


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_run_says_which_of_its_files_were_edited(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = copied(run, tmp_path)
    open_run(copy)
    assert not caplog.text
    with (copy / "study.yaml").open("a") as study:
        study.write("# moved\n")
    assert open_run(copy).study_edited
    assert (
        caplog.text.count("was edited since the run wrote it") == 1 and "study.yaml" in caplog.text
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda best: best.update(value=2 * best["value"]),
        lambda best: best["accelerator"].update(area_mm2=1.0),
        lambda best: next(iter(best["models"].values())).update(throughput_samples_per_s=1.0),
        lambda best: best.pop(KEY),
    ],
)
def test_an_answer_that_was_changed_is_not_told_as_the_run_s(
    run: Path, tmp_path: Path, change: Callable[[Any], None]
) -> None:
    copy = copied(run, tmp_path)
    edit_json(copy / "best.json", change)
    with pytest.raises(
        InputError, match=r"best\.json was changed since the run wrote it.*evaluate --plan"
    ):
        open_run(copy)


def test_a_manifest_that_was_changed_vouches_for_nothing(run: Path, tmp_path: Path) -> None:
    copy = copied(run, tmp_path)
    edit_json(copy / "best.json", lambda best: best.update(value=2 * best["value"]))
    changed = digest_of((copy / "best.json").read_bytes())
    edit_json(
        copy / "manifest.json", lambda manifest: manifest["files"].update({"best.json": changed})
    )
    with pytest.raises(
        InputError, match=r"manifest\.json cannot be read \(it does not hold what the run wrote\)"
    ):
        open_run(copy)


@pytest.mark.parametrize("name", ["designs.parquet", "plans.parquet", "schedules.json.gz"])
def test_a_table_that_the_run_did_not_write_is_refused(
    run: Path, tmp_path: Path, name: str
) -> None:
    copy = copied(run, tmp_path)
    path = copy / name
    if name.endswith(".parquet"):
        pd.read_parquet(path).iloc[::-1].to_parquet(path, index=False)
    else:
        path.write_bytes(pack(unpack(path) + b" "))
    with pytest.raises(
        InputError, match=rf"{name} cannot be read \(it does not hold what the run wrote\)"
    ):
        open_run(copy)


@pytest.mark.parametrize("name", ["designs.parquet", "plans.parquet"])
def test_a_table_without_what_its_readers_need_is_refused(
    run: Path, tmp_path: Path, name: str
) -> None:
    copy = copied(run, tmp_path)
    whole = pd.read_parquet(copy / name)
    changes: dict[str, pd.DataFrame] = {
        "has no column status": whole.drop(columns="status"),
        "column hbm_bytes does not hold numbers": whole.assign(hbm_bytes="many"),
        "column status does not hold texts": whole.assign(status=1),
        "is about other models": whole.assign(model="gpt2"),
        "column 'status' is of type list": whole.assign(status=[[1]] * len(whole)),
    }
    for words, table in changes.items():
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        forged(copy, name, buffer.getvalue())
        with pytest.raises(InputError, match=rf"{name} cannot be read.*{words}"):
            open_run(copy)
    buffer = io.BytesIO()
    whole.to_parquet(buffer, index=False)
    forged(copy, name, buffer.getvalue())
    open_run(copy)


def test_relative_paths_of_a_study_are_those_from_its_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(run, tmp_path)
    monkeypatch.chdir(tmp_path)
    study = yaml.safe_load((copy / "study.yaml").read_text())
    (copy / "study.yaml").write_text(
        yaml.safe_dump(study | {"cluster": "../mine.yaml", "model": ["../m.py=2"]})
    )
    settings = open_run(Path("copy")).settings
    assert settings["cluster"] == str(copy / "../mine.yaml") and settings["model"] == [
        str(copy / "../m.py=2")
    ]


@pytest.mark.parametrize(
    "line", ["x: !!set {a, b}", "true: 1", "pp: !!set {1}", "bogus: 2001-01-01"]
)
def test_a_study_with_what_no_study_has_is_refused(run: Path, tmp_path: Path, line: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        run, copy, ignore=shutil.ignore_patterns("points", "GraphExtractor", "Estimator")
    )
    kept = [
        each
        for each in (copy / "study.yaml").read_text().splitlines()
        if each.split(":")[0] != line.split(":")[0]
    ]
    (copy / "study.yaml").write_text("\n".join([*kept, line]))
    with pytest.raises(InputError, match=r"study\.yaml cannot be read"):
        open_run(copy)


@pytest.mark.some(1)
@pytest.mark.parametrize("value", ["gone", None, 1e40, {"a": 1}], ids=str)
def test_whatever_a_study_is_edited_to_it_is_explained_or_refused(
    run: Path, tmp_path: Path, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied(run, tmp_path)
    study = yaml.safe_load((copy / "study.yaml").read_text())
    for key in [*study, "device"]:
        edited = {name: it for name, it in study.items() if name != key} | (
            {} if value == "gone" else {key: value}
        )
        (copy / "study.yaml").write_text(yaml.safe_dump(edited))
        assert phaze.main(["explain", str(copy), "--quiet"]) in {0, 2}, (
            key,
            capsys.readouterr().err,
        )


def test_the_manifest_tells_the_content_of_the_files_that_the_study_names(
    run: Path, tmp_path: Path
) -> None:
    contents = open_run(run).manifest.contents
    assert set(contents) == {"cluster", "design_space"}
    study = small_study(tmp_path, micro_batch_size=[1], hbm_size=[16])
    Path(study.hardware.cluster).write_text(
        Path(study.hardware.cluster).read_text().replace("20000000000.0", "20000000001.0")
    )
    again = resolve(
        study.as_mapping(), {"output": str(tmp_path / "other")}
    )  # files are read when a request is resolved
    other = open_run(Path(solved(again).run_directory)).manifest.contents
    assert other["design_space"] == contents["design_space"]
    assert other["cluster"] != contents["cluster"]


ON_A_DEVICE = {
    "model": "bert:layers=2,hidden=128,heads=2,vocabulary=1000",
    "sequence_length": 64,
    "device": "a100_80gb",
    "devices": 2,
    "global_batch_size": 8,
    "tp": 1,
    "micro_batch_size": 1,
    "recompute": "none",
}


@pytest.mark.parametrize("asked", [{"design_space": "small"}, ON_A_DEVICE], ids=["chips", "device"])
def test_tables_of_an_earlier_run_are_not_left_beside_those_of_a_later_one(
    tmp_path: Path, asked: dict[str, object]
) -> None:
    settings = (
        asked
        if "device" in asked
        else small_study(tmp_path, micro_batch_size=[1], hbm_size=[16]).as_mapping()
    )
    request = resolve({}, settings | {"output": str(tmp_path / "out"), "csv": True})
    solved(request)
    assert {path.name for path in (tmp_path / "out").glob("*.csv")} == {"designs.csv", "plans.csv"}
    solved(resolve({}, settings | {"output": str(tmp_path / "out")}))
    assert list((tmp_path / "out").glob("*.csv")) == []
    finished = open_run(tmp_path / "out")
    assert finished.on_device == ("device" in asked) and len(finished.plans) > 0
    assert {*finished.settings} == {
        *request.as_mapping()
    } and None not in finished.settings.values()


def test_a_folder_with_the_run_of_another_study_is_refused_and_of_the_same_is_answered_again(
    run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(run, folder)
    (folder / "report.html").write_text("of the first")
    settings = open_run(run).settings
    solved(resolve({}, settings | {"output": str(folder), "csv": True}))
    assert (folder / "report.html").exists()
    kept = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    told = (
        f"{folder} holds the run of another study, which differs in pp, global_batch_size and "
        "which this one would replace; "
    )
    with pytest.raises(
        InputError, match=re.escape(told + "give another output, or move the folder")
    ):
        solved(resolve({}, settings | {"output": str(folder), "global_batch_size": 32, "pp": 1}))
    assert kept == {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_two_names_in_one_folder_are_two_runs_of_which_the_second_is_refused(
    run: Path, tmp_path: Path
) -> None:
    settings = open_run(run).settings | {"output": str(tmp_path / "out")}
    solved(resolve({}, settings | {"name": "a"}))
    solved(resolve({}, settings | {"name": "a"}))
    with pytest.raises(
        InputError, match="holds the run of another study, which differs in name and"
    ):
        solved(resolve({}, settings | {"name": "b"}))


def test_a_run_that_an_earlier_phaze_wrote_without_a_setting_of_today_is_the_same_study(
    run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "out")
    study = tmp_path / "out" / "study.yaml"
    lines = study.read_text().splitlines(keepends=True)
    study.write_text("".join(line for line in lines if not line.startswith("whole_micro_batches")))
    assert study.read_text() != "".join(lines)
    solved(resolve({}, open_run(run).settings | {"output": str(tmp_path / "out")}))


def test_a_link_to_nothing_cannot_be_a_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "stale").symlink_to("gone")
    for name in ("loop", "stale", "loop/below"):
        with pytest.raises(InputError, match="is a link to nothing"):
            check_output(tmp_path / name)
    check_output(tmp_path / "new" / "folder")


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert output_file(str(tmp_path / "file")) == tmp_path / "file"
    assert output_file(str(tmp_path / "new" / "file")) == tmp_path / "new" / "file"
    for text, words in (
        ("/dev/null", "device"),
        (str(tmp_path), "folder"),
        (str(tmp_path / "file" / "x"), "not a folder"),
    ):
        with pytest.raises(InputError, match=words):
            output_file(text)


@pytest.mark.parametrize("mode", ["run_solver", "training-time"])
@pytest.mark.parametrize("name", ["study.yaml", "best.json", "manifest.json", "designs.csv"])
def test_a_file_that_no_run_wrote_is_not_replaced(
    mode: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (
        "--model bertbase --sequence-length 64 --device a100_80gb --devices 8 "
        f"--global-batch-size 8 --output {tmp_path}"
    )
    (tmp_path / name).write_text("mine: true\n")
    more = ["--tokens", "1e6"] if mode == "training-time" else []
    assert phaze.main([mode, *words.split(), *more]) == 2
    assert (
        f"{name} was written by no run of phaze, and this one would replace it; give another "
        "--output" in capsys.readouterr().err
    )
    assert (tmp_path / name).read_text() == "mine: true\n"
    assert [each.name for each in tmp_path.iterdir()] == [name]
