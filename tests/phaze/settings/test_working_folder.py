"""Where a run leaves what it makes: in the repository when started inside it, else below the folder
it was started in."""

from pathlib import Path

import pytest

import phaze
from phaze.settings.folders import REPOSITORY, folders_of, working_root
from phaze.settings.resolve import resolve


@pytest.mark.parametrize(
    "inside", [REPOSITORY, REPOSITORY / "scripts", REPOSITORY / "Solver" / "schedule"]
)
def test_inside_the_repository_it_is_the_repository(inside: Path) -> None:
    assert working_root(inside) == REPOSITORY


def test_elsewhere_it_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = resolve({}, {"model": "bertbase"}).folders
    assert {run.graphs, run.estimates, run.arch_configs} == {
        tmp_path / "GraphExtractor" / "out",
        tmp_path / "Estimator" / "estimates",
        tmp_path / "Estimator" / "arch_configs",
    }
    assert run.run.parent == tmp_path / "Solver" / "output"
    assert not list(tmp_path.iterdir())  # nothing is made by asking


def test_a_link_to_the_repository_is_the_repository(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(REPOSITORY)
    assert working_root(link / "scripts") == REPOSITORY


def test_an_output_that_is_given_is_taken_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folders_of(tmp_path / "mine", "x").run == tmp_path / "mine"


@pytest.mark.parametrize("given", [True, False])
def test_a_run_is_not_written_where_it_could_not_be_read_again(
    given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = tmp_path / "a\x1b[31m\rb"
    strange.mkdir()
    if not given:
        monkeypatch.chdir(strange)
    assert (
        phaze.main(
            [
                "run_solver",
                "--model",
                "bertbase",
                *(["--output", str(strange / "run")] if given else []),
            ]
        )
        == 2
    )
    assert "whose path holds control characters; give another --output" in capsys.readouterr().err
    assert not list(strange.iterdir())


@pytest.mark.parametrize(
    "words", ["accelerators", "run_solver --model bertbase --dry-run", "doctor"]
)
def test_started_anywhere_in_the_repository_every_mode_writes_where_runs_do(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "scripts").mkdir()
    monkeypatch.setattr("phaze.settings.folders.REPOSITORY", tmp_path)
    monkeypatch.chdir(tmp_path / "scripts")
    assert phaze.main([*words.split(), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert not list((tmp_path / "scripts").iterdir()) and str(tmp_path / "scripts") not in out
    if words == "accelerators":
        assert (tmp_path / "Estimator" / "arch_configs" / "cores.json").is_file()


def test_what_is_written_elsewhere_is_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert phaze.main(["accelerators", "--quiet"]) == 0
    assert str(tmp_path / "Estimator" / "arch_configs" / "cores.json") in capsys.readouterr().out
    assert [path.name for path in tmp_path.rglob("*.json")] == ["cores.json"]


GPT = "gpt:layers=1,hidden=64,heads=1,vocabulary=100,sequence_length=32"
ON_TWO = ["--model", GPT, "--device", "h100_sxm", "--devices", "2"]
DEEPSPEED = (
    '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "bf16": '
    '{"enabled": true}}'
)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and a launch file."""
    folder = tmp_path_factory.mktemp("elsewhere")
    assert (
        phaze.main(
            ["run_solver", *ON_TWO, "--micro-batch-size", "1", "--output", str(folder / "run")]
        )
        == 0
    )
    (folder / "ds.json").write_text(DEEPSPEED)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", *ON_TWO],
        ["evaluate", "--from", "ELSEWHERE/ds.json", *ON_TWO],
        ["evaluate", "--plan", "ELSEWHERE/run/best.json", "--micro-batch-size", "2"],
        ["export", "ELSEWHERE/run", "--to", "megatron_lm", "--micro-batch-size", "2"],
        ["training-time", *ON_TWO, "--tokens", "1e6"],
        ["explain", "ELSEWHERE/run", "--instead", "micro_batch_size=4"],
        ["trace", "ELSEWHERE/run", "--output", "FILE.json"],
        ["report", "ELSEWHERE/run", "--output", "FILE.html"],
        ["extract_graph", "--model", GPT],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_is_derived_goes_to_the_output_or_beside_the_run_and_not_here(
    words: list[str], elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    named = [
        word.replace("ELSEWHERE", str(elsewhere)).replace("FILE", str(tmp_path / "file"))
        for word in words
    ]
    named += [] if {"--output", "explain"} & {*words} else ["--output", str(tmp_path / "output")]
    assert phaze.main(named) == 0
    assert not list(here.rglob("*"))
