"""The fuzzer: what it calls wrong, that its inputs repeat, and a short run of it that finds
nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

from scripts.fuzzing import formats
from scripts.fuzzing.base_files import write_base_files
from scripts.fuzzing.flags import LEFT_OUT, flags, parsers
from scripts.fuzzing.inputs import input_of
from scripts.fuzzing.judge import contents, problems
from scripts.fuzzing.server import Outcome
from scripts.fuzzing.targets import BASES, BUILD, TARGETS
from tests.builders.processes import finished

REPOSITORY = Path(__file__).resolve().parents[2]
INPUTS, SEED, FIRST = 8, 4, 230  # of the cheaper stretches: none of them draws pictures
MANY_INPUTS = 1500
MOST_DRAWN = 100_000
MADE_BY_RUNS = ("out", "run")  # beginnings of the names of folders that base commands write


def outcome(status: int, stderr: str = "", stdout: str = "", limit: str | None = None) -> Outcome:
    return Outcome(status, limit, stdout, stderr, cpu_s=0.1, wall_s=0.1, peak_bytes=0)


@pytest.mark.parametrize(
    "ended",
    [
        outcome(0, stdout='{"throughput_samples_per_s": 12.5, "bias": -0.1}'),
        outcome(2, "phaze: tp is 'x', but must be a whole number from 1 to 4096\n"),
        outcome(
            2,
            "some note. Another one. A third. A fourth.\nphaze: unknown mode 'a. B. C. D. E'; did "
            "you mean 'sweep'?\n",
        ),
        outcome(2, "phaze: 3 settings of study.yaml cannot be used:\n" + "  - One. Two.\n" * 5),
        outcome(3, "phaze: no plan fits; give more memory\n"),
        outcome(3, stdout='{"status": "infeasible"}'),
        outcome(
            0,
            "warning: graph.json.gz is damaged; set aside and built again\n",
            "  Infinity War, nano, infiniband 1.5  hidden nan, nan layers",
        ),
    ],
)
def test_answers_in_range_and_refusals_in_a_sentence_are_right(ended: Outcome) -> None:
    assert problems(ended, "run_solver") == []


@pytest.mark.parametrize(
    ("ended", "what"),
    [
        (
            outcome(
                1,
                "phaze: unexpected KeyError: 'pp'; run again with --verbose to see where it came "
                "from\n",
            ),
            "exit status 1",
        ),
        (
            outcome(1, "Traceback (most recent call last):\nValueError: x\n"),
            "exit status 1: ValueError: x",
        ),
        (outcome(-11), "killed by signal 11"),
        (outcome(-9, limit="4 GiB of memory"), "more than 4 GiB of memory"),
        (
            outcome(0, "/lib/numpy/core.py:7: RuntimeWarning: overflow encountered in multiply\n"),
            "words of other software",
        ),
        (
            outcome(2, "phaze: 'NoneType' object is not iterable: NoneType\n"),
            "words of other software",
        ),
        (
            outcome(2, "phaze: One is wrong. Two is wrong. Three is wrong. Four is wrong.\n"),
            "more than 3 sentences",
        ),
        (outcome(2, f"phaze: unknown mode {'a' * 9000}; give another\n"), "more than 2000 letters"),
        (outcome(2), "refused without a word"),
        (outcome(0, stdout='{"plan": [{"time_per_batch_s": NaN}]}'), "time_per_batch_s is nan"),
        (outcome(0, stdout='{"area_mm2": -1}'), "area_mm2 is negative"),
        (outcome(0, stdout='{"energy_j": 1e200}'), "energy_j is above"),
        (outcome(0, stdout="samples/s   inf   3 GiB\n"), "inf in"),
    ],
)
def test_whatever_else_a_run_ends_with_is_a_problem(ended: Outcome, what: str) -> None:
    assert any(what in problem.family for problem in problems(ended, "run_solver"))


def test_a_source_may_be_called_what_is_no_number() -> None:
    assert problems(outcome(0, stdout="  source    runs\n  -inf         1\n"), "validate") == []


@pytest.mark.parametrize(
    ("cells", "known"), [("3   nan       1.5", True), ("3   small     nan", False)]
)
def test_a_model_may_be_called_what_is_no_number_and_a_time_may_not(
    cells: str, known: bool
) -> None:
    table = f"  line   model   time s\n ──────────────────────\n     {cells}\n"
    assert (problems(outcome(0, stdout=table), "validate") == []) is known


def test_problems_that_differ_in_names_and_numbers_alone_are_one_finding() -> None:
    first, second = (
        problems(outcome(1, f"phaze: unexpected KeyError: '{name}' at {number}\n"), "report")
        for name, number in (("pp", 3), ("tp", 17))
    )
    assert [each.family for each in first] == [each.family for each in second]


def test_a_file_that_changed_is_seen_and_what_runs_write_is_not(tmp_path: Path) -> None:
    write_base_files(tmp_path)
    before = contents(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "best.json").write_text("{}")
    (tmp_path / "run" / "points").mkdir(parents=True)
    (tmp_path / "run" / "points" / "point.json").write_text("{}")
    assert contents(tmp_path) == before
    (tmp_path / "study.yaml").write_text("")
    assert contents(tmp_path) != before


def test_every_base_file_can_be_mutated_in_every_way_of_its_format(tmp_path: Path) -> None:
    write_base_files(tmp_path)
    for path in sorted(tmp_path.rglob("*.*")):
        if not path.is_file() or path.name in {"empty.yaml", "binary.yaml"}:
            continue
        content, random = path.read_bytes(), Random(path.name)
        changed = [formats.mutated(path.name, content, random) for _ in range(60)]
        assert sum(new != content for new, _ in changed) > 40, path
        assert all(what for _, what in changed)


def test_base_files_of_every_target_are_there_or_made_by_a_base_command(tmp_path: Path) -> None:
    write_base_files(tmp_path)
    for target in TARGETS:
        assert target.files.startswith(MADE_BY_RUNS) or any(
            path.is_file() for path in tmp_path.glob(target.files)
        ), target
    commands = [
        *BUILD,
        *(command for target in TARGETS for command in target.commands),
        *(each for base in BASES.values() for each in base),
    ]
    named = {
        word
        for command in commands
        for word in command.split()
        if word.endswith((".yaml", ".json", ".csv", ".py"))
    }
    written = {"page.html", "cores.json", "trace.json", "fitted.yaml"}
    missing = [
        name
        for name in named - written
        if not name.startswith(MADE_BY_RUNS) and not (tmp_path / name).exists()
    ]
    assert missing == []


def test_inputs_repeat_by_seed_and_number_alone(tmp_path: Path) -> None:
    write_base_files(tmp_path)
    modes = parsers()

    def made(seed: int, number: int) -> tuple[tuple[str, ...], bytes] | None:
        try:
            found = input_of(seed, number, tmp_path, modes)
        except FileNotFoundError:  # of files that base commands make
            return None
        return found.words, found.content

    first = [made(SEED, number) for number in range(200)]
    assert first[::-1] == [made(SEED, number) for number in reversed(range(200))]
    assert first != [made(SEED + 1, number) for number in range(200)]
    assert len({each for each in first if each is not None}) > 100


def test_flags_of_every_mode_are_given_values() -> None:
    """Drawn until each was: how many it takes depends on how many flags there are."""
    modes, random = parsers(), Random(SEED)
    unseen = {
        (mode, action.dest): set(action.option_strings)
        for mode, parser in modes.items()
        for action in parser._actions
        if action.option_strings and not LEFT_OUT & set(action.option_strings)
    }
    for _ in range(MOST_DRAWN):
        if not unseen:
            return
        found = flags(random, modes)
        words = {word.partition("=")[0] for word in found.words}
        unseen = {
            what: names
            for what, names in unseen.items()
            if what[0] != found.base[0] or not names & words
        }
    pytest.fail(f"never given: {sorted(unseen)}")


@pytest.mark.thorough
def test_a_short_run_finds_nothing(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The same inputs every time; ``scripts/fuzz.py`` tries others and says how to repeat each."""
    inputs = MANY_INPUTS if pytestconfig.getoption("--thorough") else INPUTS
    options = f"--inputs {inputs} --seed {SEED} --first {FIRST} --jobs 1 --folder".split()
    ended = finished(
        [sys.executable, REPOSITORY / "scripts" / "fuzz.py", *options, tmp_path / "fuzz"]
    )
    assert f"{inputs} inputs of seed {SEED}" in ended.stdout.replace(",", ""), ended.stderr
    assert ended.returncode == 0, ended.stdout
