"""Damaged files and wrong flags: each command answers in range or refuses in a sentence, and loses
nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from phaze.cli.arguments import mode_parsers
from phaze.cli.modes import MODES
from tests.fuzzing.base import Base, base_in, contents, write_base_files
from tests.fuzzing.damage import damaged
from tests.fuzzing.flags import command_lines
from tests.fuzzing.judge import problems
from tests.fuzzing.server import Outcome
from tests.fuzzing.targets import BUILD, TARGETS


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    with base_in(tmp_path_factory.mktemp("fuzzing")) as found:
        yield found


def check(
    base: Base, command: str, words: tuple[str, ...], file: str = "", content: bytes = b""
) -> None:
    """Run a command, and judge how it ends."""
    outcome = base.tried((*command.split(), *words), file, content)
    note(f"{command} {shlex.join(words)}\nstdout: {outcome.stdout[:3000]}")
    note(f"stderr: {outcome.stderr[-6000:]}\nstatus {outcome.status}")
    assert problems(outcome, command.split()[0]) == []


# of every mode, in which form the answer is wanted
FORMS = st.sampled_from((("--format", "json", "--quiet"), ("--quiet",), ("--format", "json"), ()))


@pytest.mark.some(6)
@pytest.mark.parametrize("pattern", TARGETS)
@settings(max_examples=3)
@given(data=st.data())
def test_damaged_files_are_refused_or_answered(
    base: Base, pattern: str, data: st.DataObject
) -> None:
    file = data.draw(st.sampled_from(base.files(pattern)), "file")
    command = data.draw(st.sampled_from(TARGETS[pattern]), "command")
    form = () if command.startswith("third_party") else data.draw(FORMS, "form")
    content = data.draw(damaged(file, base.content(file)), "content")
    check(base, command, form, file, content)


@pytest.mark.some(5)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=3)
@given(data=st.data())
def test_wrong_flags_are_refused_or_answered(base: Base, mode: str, data: st.DataObject) -> None:
    words = data.draw(command_lines(mode, mode_parsers()[mode]), "words")
    check(base, mode, (*words[1:], *data.draw(FORMS, "form")))


@pytest.mark.parametrize(
    "ended",
    [
        Outcome(0, stdout='{"throughput_samples_per_s": 12.5, "bias": -0.1}'),
        Outcome(2, "phaze: tp is 'x', but must be a whole number from 1 to 4096\n"),
        Outcome(
            2,
            "some note. Another one. A third. A fourth.\nphaze: unknown mode 'a. B. C. D. E'; did "
            "you mean 'sweep'?\n",
        ),
        Outcome(2, "phaze: 3 settings of study.yaml cannot be used:\n" + "  - One. Two.\n" * 5),
        Outcome(3, "phaze: no plan fits; give more memory\n"),
        Outcome(3, stdout='{"status": "infeasible"}'),
        Outcome(
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
            Outcome(
                1,
                "phaze: unexpected KeyError: 'pp'; run again with --verbose to see where it came "
                "from\n",
            ),
            "exit status 1",
        ),
        (
            Outcome(1, "Traceback (most recent call last):\nValueError: x\n"),
            "exit status 1: ValueError: x",
        ),
        (Outcome(-11), "exit status -11"),
        (Outcome(-9, limit="4 GiB of memory"), "more than 4 GiB of memory"),
        (
            Outcome(0, "/lib/numpy/core.py:7: RuntimeWarning: overflow encountered in multiply\n"),
            "words of other software",
        ),
        (
            Outcome(2, "phaze: 'NoneType' object is not iterable: NoneType\n"),
            "words of other software",
        ),
        (
            Outcome(2, "phaze: One is wrong. Two is wrong. Three is wrong. Four is wrong.\n"),
            "more than 3 sentences",
        ),
        (Outcome(2, f"phaze: unknown mode {'a' * 9000}; give another\n"), "more than 2000 letters"),
        (Outcome(2), "refused without a word"),
        (Outcome(0, stdout='{"plan": [{"time_per_batch_s": NaN}]}'), "time_per_batch_s is nan"),
        (Outcome(0, stdout='{"area_mm2": -1}'), "area_mm2 is negative"),
        (Outcome(0, stdout='{"energy_j": 1e200}'), "energy_j is above"),
        (Outcome(0, stdout="samples/s   inf   3 GiB\n"), "inf in"),
    ],
)
def test_whatever_else_a_run_ends_with_is_a_problem(ended: Outcome, what: str) -> None:
    assert any(what in problem for problem in problems(ended, "run_solver"))


def test_a_source_may_be_called_what_is_no_number() -> None:
    assert problems(Outcome(0, stdout="  source    runs\n  -inf         1\n"), "validate") == []


@pytest.mark.parametrize(
    ("cells", "known"), [("3   nan       1.5", True), ("3   small     nan", False)]
)
def test_a_model_may_be_called_what_is_no_number_and_a_time_may_not(
    cells: str, known: bool
) -> None:
    table = f"  line   model   time s\n ──────────────────────\n     {cells}\n"
    assert (problems(Outcome(0, stdout=table), "validate") == []) is known


def test_a_file_that_changed_is_seen_and_what_commands_write_is_not(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_base_files(work)
    before = contents(tmp_path)
    for name in ("out/best.json", "run/points/point.json"):
        (work / name).parent.mkdir(parents=True)
        (work / name).write_text("{}")
    assert contents(tmp_path) == before
    (work / "study.yaml").write_text("")
    assert contents(tmp_path) != before


@pytest.mark.thorough
def test_base_files_of_every_target_are_there_or_made_by_a_base_command(tmp_path: Path) -> None:
    write_base_files(tmp_path)
    made = ("page.html", "cores.json", "trace.json", "fitted.yaml", *BUILD)
    commands = [*BUILD.values(), *(each for several in TARGETS.values() for each in several)]
    words = {word for command in commands for word in command.split() if "." in word}
    files = {word for word in words if not word.startswith(("third_party", *made))}
    missing = [name for name in files if not (tmp_path / name).is_file()]
    missing += [
        pattern
        for pattern in TARGETS
        if not pattern.startswith(made) and not any(tmp_path.glob(pattern))
    ]
    assert missing == []
