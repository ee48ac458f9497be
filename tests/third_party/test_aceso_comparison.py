"""Methods beside each other: kept answers, tables and figures, and what is refused."""

import csv
import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from aceso_databases import write_database

from third_party.aceso import comparison
from third_party.aceso.command_line import main
from third_party.aceso.compared_cases import read_cases
from third_party.aceso.comparison import ANSWERS, BASELINES, MARKDOWN, SEARCH, TABLE
from third_party.aceso.database import read_database
from third_party.aceso.models import find_model
from third_party.aceso.plans import plan_document
from third_party.aceso.questions import Question
from third_party.aceso.search import search

REPOSITORY = Path(__file__).resolve().parents[2]
STUDIES = REPOSITORY / "scripts" / "studies"
ROWS = (
    "encoder-embedding",
    "enc-1st-layernorm",
    "enc-attention-qkv",
    "enc-attention-score",
    "enc-post-MLP-dropout",
    "gpt-post-process",
)
CASES = {
    "gpus_per_node": 4,
    "memory_limit_mb": 2000,
    "cases": [
        {"model": "gpt", "size": "tiny", "layers": layers, "gpus": 2, "global_batch_size": 4}
        for layers in (1, 3)
    ],
}


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """A comparison on a small database, as arguments."""
    (tmp_path / "database").mkdir()
    write_database(tmp_path / "database", 3, "gpt", rows=ROWS)
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(CASES))
    words = (
        "compare",
        tmp_path / "cases.yaml",
        "--database",
        tmp_path / "database",
        "--output",
        tmp_path / "out",
    )
    return list(map(str, words))


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / TABLE).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_no_method_is_below_the_bound_or_better_than_the_search(
    asked: list[str], tmp_path: Path
) -> None:
    assert main(asked) == 0
    rows = table(tmp_path / "out")
    assert [(row["layers"], row["method"]) for row in rows] == [
        (layers, name) for layers in "13" for name in (*BASELINES, SEARCH)
    ]
    for layers in "13":
        of_case = {row["method"]: row for row in rows if row["layers"] == layers}
        found = of_case.pop(SEARCH)
        assert (
            float(found["bound_s"]) <= float(found["iteration_s"]) and found["status"] == "optimal"
        )
        seconds = {method: float(row["iteration_s"]) for method, row in of_case.items()}
        assert all(each >= float(found["bound_s"]) * (1 - 1e-12) for each in seconds.values())
        assert seconds["uniform"] <= seconds["Megatron-LM grid"] * (
            1 + 1e-12
        )  # every even split is a split
        assert all(int(row["candidates"]) > 0 for row in [found, *of_case.values()])
    assert (tmp_path / "out" / MARKDOWN).read_text().count("\n") == 2 + len(rows) + 1 + 2 + 2


def test_rankings_say_what_the_corrections_turn_round() -> None:
    def answer(method: str, iteration_s: float, corrected_s: float | None) -> comparison.Answer:
        times = (iteration_s, None, "found", 1.0, 1.0, 1, corrected_s)
        return comparison.Answer("gpt", "1_3B", None, 4, 8, method, *times, key=method)

    first, second, third = BASELINES
    (row,) = comparison.rankings(
        [answer(second, 2.0, 1.0), answer(first, 1.0, 3.0), answer(third, 2.0, 3.0)]
    )[2:]
    assert (
        row == f"| gpt 1_3B | 4 | {first} < {second} = {third} | {second} < {first} = {third} | "
        "changed |"
    )
    (row,) = comparison.rankings([answer(first, 1.0, 3.0), answer(second, 2.0, None)])[2:]
    assert row == f"| gpt 1_3B | 4 | {first} | {first} | same |"


def test_an_interrupted_comparison_goes_on_where_it_was(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = comparison._find
    asked_for = []

    def interrupted(question: Question, method: str) -> comparison._Found:
        asked_for.append(method)
        if len(asked_for) == 3:
            raise KeyboardInterrupt
        return whole(question, method)

    monkeypatch.setattr(comparison, "_find", interrupted)
    monkeypatch.setattr(comparison, "COMPILED_S", 1e9)  # each method once
    with pytest.raises(KeyboardInterrupt):
        main(asked)
    kept = (tmp_path / "out" / ANSWERS).read_text()
    assert len(table(tmp_path / "out")) == len(kept.splitlines()) == 2
    (tmp_path / "out" / ANSWERS).write_text(kept + kept[:40])  # as a killed process leaves it
    assert main(asked) == 0
    assert len(table(tmp_path / "out")) == len(asked_for) - 1 == 2 * (len(BASELINES) + 1)
    assert (tmp_path / "out" / ANSWERS).read_text().startswith(kept)
    before = len(asked_for)
    assert main(asked) == 0 and len(asked_for) == before
    assert main([*asked, "--gap", "0.5"]) == 0
    assert asked_for[before:] == [SEARCH] * 2  # only what a gap changes


def test_stored_plans_stand_beside_the_others(asked: list[str], tmp_path: Path) -> None:
    database = read_database(tmp_path / "database", find_model("gpt", "tiny", 3))
    found = search(Question(database, 2, 4, 2000.0, devices_per_node=4))
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "a.json").write_text(json.dumps(plan_document(found.plan)))
    (tmp_path / "plans" / "b.json").write_text("[]")
    assert main(asked) == 0
    (stored,) = [row for row in table(tmp_path / "out") if row["method"] == comparison.PUBLISHED]
    assert (stored["layers"], float(stored["iteration_s"]), stored["cpu_s"]) == (
        "3",
        pytest.approx(found.iteration_s),
        "",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cases": []}, "is no comparison"),
        ({"cases": [{"model": "gpt"}]}, "case 1 is no case"),
        ({"memory_limit_mb": 0}, "memory_limit_mb is 0"),
        ({"cases": [CASES["cases"][0] | {"size": "350M", "layers": None}]}, "350M"),  # type: ignore[index]
    ],
)
def test_bad_cases_are_one_sentence(
    asked: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    words: str,
) -> None:
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(CASES | change))
    assert main(asked) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_figures_are_drawn_from_the_table(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from scripts.aceso_figures import FIGURES
    from scripts.aceso_figures import main as draw

    assert draw([str(tmp_path)]) == 2
    assert main(asked) == 0 and draw([str(tmp_path / "out")]) == 0
    names = {name for drawn in FIGURES.values() for name, _ in drawn}
    assert {path.stem for path in (tmp_path / "out").glob("*.png")} == names
    svg = (tmp_path / "out" / "throughput.svg").read_text()
    assert all(method in svg for method in (*BASELINES, SEARCH))
    assert draw([str(tmp_path / "out"), "other"]) == 2
    (tmp_path / TABLE).write_text("a,b\n1,2\n")
    assert draw([str(tmp_path)]) == 2
    assert "is no table" in capsys.readouterr().err


def test_the_studies_are_whole_and_say_how_they_are_used() -> None:
    files = sorted((STUDIES / "aceso").glob("*.yaml"))
    for path in files:
        for case in read_cases(path):
            assert asdict(find_model(case.model, case.size, case.layers))["size"] == case.size
    scripts = sorted(STUDIES.glob("aceso_*.sh"))
    assert len(files) == len(scripts) == 3
    for script in scripts:
        assert os.access(script, os.X_OK)
        ended = subprocess.run(
            ["bash", str(script)], capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 2 and ended.stderr.startswith(
            f"usage: {script.name} DATABASE OUTPUT"
        )


@pytest.mark.thorough
def test_the_uniform_plan_of_a_published_case_is_not_behind_the_grid(
    tmp_path: Path, shared_data: Path
) -> None:
    shown = shared_data / "aceso" / "v100_nvlink_4x8"
    case = {
        "model": "gpt",
        "size": "scale-layer",
        "layers": 8,
        "gpus": 8,
        "global_batch_size": 1024,
    }
    (tmp_path / "cases.yaml").write_text(
        yaml.safe_dump({"gpus_per_node": 8, "memory_limit_mb": 28000, "cases": [case]})
    )
    words = (
        "compare",
        tmp_path / "cases.yaml",
        "--database",
        shown,
        "--output",
        tmp_path / "out",
        "--gap",
        "0.001",
    )
    assert main(list(map(str, words))) == 0
    seconds = {row["method"]: float(row["iteration_s"]) for row in table(tmp_path / "out")}
    assert seconds[SEARCH] < seconds["uniform"] < seconds["Megatron-LM grid"]
