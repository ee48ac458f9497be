"""``python -m third_party.aceso``: what it prints, and one sentence with status 2 for what it
cannot use."""

import json
from pathlib import Path

import pytest
from aceso_databases import write_database

from third_party.aceso.command_line import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_database(tmp_path, 11, "gpt")
    return tmp_path


def words(folder: Path, **changes: str) -> list[str]:
    given = {
        "database": str(folder),
        "model": "gpt",
        "size": "tiny",
        "layers": "1",
        "gpus": "2",
        "global-batch-size": "8",
        "memory-limit-mb": "600",
    } | {key.replace("_", "-"): value for key, value in changes.items()}
    return [word for key, value in given.items() for word in (f"--{key}", value)]


def test_a_plan_that_was_found_is_priced_again_from_its_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", *words(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "optimal" and found["bound_s"] <= found["iteration_s"]
    path = folder / "plan.json"
    path.write_text(json.dumps(found["plan"]))
    assert main(["evaluate", str(path), "--database", str(folder)]) == 0
    priced = json.loads(capsys.readouterr().out)
    assert priced["iteration_s"] == found["iteration_s"]
    assert len(priced["stages"]) == found["plan"]["num_stages"]
    assert max(stage["memory_mb"] for stage in priced["stages"]) <= 600
    assert max(stage["seconds"] for stage in priced["stages"]) == priced["iteration_s"]
    assert main(["evaluate", str(path), "--database", str(folder), "--corrected"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert {key: both[key] for key in priced} == priced
    assert priced["iteration_s"] + sum(
        change["seconds"] for change in both["changes"]
    ) == pytest.approx(both["corrected"]["iteration_s"])
    assert len(both["corrected"]["stages"]) == len(priced["stages"])
    assert main(["baselines", *words(folder)]) == 0
    simpler = json.loads(capsys.readouterr().out)
    assert set(simpler) == {"megatron_grid", "uniform", "layer_stages"}
    assert all(each["iteration_s"] >= found["iteration_s"] for each in simpler.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": "1_3B"}, "holds no measurements of gpt_1_3B"),
        ({"model": "bert"}, "not one that Aceso profiles"),
        ({"model": "t5"}, "holds no measurements of t5_tiny"),
        ({"database": "/nowhere/at/all"}, "not a folder"),
        ({"gpus": "4096"}, "give 1 to 1024"),
        ({"global_batch_size": "1", "max_stages": "999"}, "give 1 to 256"),
    ],
)
def test_questions_that_cannot_be_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], message: str
) -> None:
    assert main(["search", *words(folder, **changes)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"memory_limit_mb": "-5"},
        {"memory_limit_mb": "much"},
        {"gpus": "0"},
        {"gap": "1"},
        {"time_limit": "nan"},
    ],
)
def test_numbers_that_are_none(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["search", *words(folder, **changes)])
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


def test_a_batch_that_no_micro_batch_divides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_database(tmp_path, 1, "gpt", batches=(2, 4))
    assert main(["search", *words(tmp_path, global_batch_size="7")]) == 2
    assert "not a whole number of any profiled micro-batch (2, 4)" in capsys.readouterr().err


def test_what_was_not_measured_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *words(folder)]) == 0
    assert capsys.readouterr().err == ""
    sorted(folder.glob("*_mbs2_tp1_algo0.csv"))[0].unlink()
    assert main(["search", *words(folder)]) == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert (
        said.startswith("warning: ")
        and "micro-batch 2 at width 1, algorithm 0: no plan here uses that" in said
    )


def test_memory_that_nothing_fits_is_told_apart_from_bad_input(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", *words(folder, memory_limit_mb="1")]) == 3
    out, err = capsys.readouterr()
    assert (
        out == ""
        and "there is no plan of up to 16 stages within 1 MB" in err
        and len(err.splitlines()) == 1
    )


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"model_name": "gpt", "model_size": "tiny", "num_layers": 1}']
)
def test_files_that_are_no_plans(
    folder: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = folder / "plan.json"
    path.write_text(content)
    assert main(["evaluate", str(path), "--database", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
