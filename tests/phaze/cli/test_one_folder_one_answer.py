"""A folder keeps the answer that it has: whatever else is asked into it is refused before a file of
it changes."""

from pathlib import Path

import pytest

import phaze
from phaze.runs.run_directory import Holds, refuse_other_kind
from phaze_common.errors import InputError

MODEL = "gpt:layers=2,hidden=64,heads=2,vocabulary=256"
PLAN = ["--tp", "1", "--pp", "1", "--dp", "2"]
ASKED = [
    "--model",
    MODEL,
    "--device",
    "a100_80gb",
    "--devices",
    "2",
    "--global-batch-size",
    "8",
    "--sequence-length",
    "64",
]
SWEEP = (
    f"model: '{MODEL}'\ndevice: a100_80gb\ndevices: 2\nglobal_batch_size: [8, "
    "16]\nsequence_length: 64\ntp: 1\n"
)
SEARCH = ["run_solver", *ASKED, "--tp", "1", "--micro-batch-size", "1"]
TRAINING = ["training-time", *ASKED, *PLAN, "--tokens", "1e6"]


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    study = tmp_path / "sweep.yaml"
    study.write_text(SWEEP)
    sweep = ["sweep", str(study), "--workers", "1"]
    return {
        "search A": [*SEARCH, "--name", "A"],
        "search B": [*SEARCH, "--name", "B"],
        "sweep A": [*sweep, "--set", "name=A"],
        "sweep B": [*sweep, "--set", "name=B"],
        "training": TRAINING,
    }


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("first", "others"),
    [
        ("search A", ("search B", "sweep A", "training")),
        ("sweep A", ("sweep B", "search A")),
        ("training", ("search A", "sweep A")),
    ],
)
def test_another_answer_in_the_same_folder_is_refused(
    first: str,
    others: tuple[str, ...],
    commands: dict[str, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "out"
    assert phaze.main([*commands[first], "--output", str(folder), "--quiet"]) == 0
    kept = files_of(folder)
    for other in others:
        capsys.readouterr()
        assert phaze.main([*commands[other], "--output", str(folder), "--quiet"]) == 2
        said = capsys.readouterr().err
        assert str(folder) in said and "would replace" in said and "--output" in said
        assert files_of(folder) == kept, other
        elsewhere = tmp_path / f"other {other}"  # the remedy
        assert phaze.main([*commands[other], "--output", str(elsewhere), "--quiet"]) == 0
    assert phaze.main([*commands[first], "--output", str(folder), "--quiet"]) == 0


def test_what_lies_in_a_folder_is_told_by_its_marks(tmp_path: Path) -> None:
    for kind in Holds:
        refuse_other_kind(tmp_path, kind, "--output")  # an empty folder is anybody's
    for mark, owner in (("training_time.json", Holds.TRAINING), ("best.json", Holds.SEARCH)):
        (tmp_path / mark).write_text("{}")  # the training of a search lies beside it
        for kind in Holds:
            if kind is owner:
                refuse_other_kind(tmp_path, kind, "--output")
            else:
                with pytest.raises(InputError, match=f"holds {owner}"):
                    refuse_other_kind(tmp_path, kind, "--output")
