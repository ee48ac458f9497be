"""The course: answers of its solutions pass, others do not, every exercise is asked on a page and
solved on another."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from docs.course.checks import EXERCISES, REFUSED, RIGHT, WRONG, exercise, main, number
from docs.course.references import SCHEDULE, Folders
from Solver.schedule.registry import SOLVERS

COURSE = Path(__file__).resolve().parents[2] / "docs" / "course"
ASKED = re.compile(r"^\.venv/bin/python -m docs\.course\.checks (.+)$", re.MULTILINE)
SEARCHES = "search.certificate"  # half a minute of a core


def solved() -> dict[str, list[str]]:
    """The answers of the solutions by exercise."""
    lines = (
        shlex.split(line)
        for line in ASKED.findall((COURSE / "solutions.md").read_text(encoding="utf-8"))
    )
    return {name: answer for name, *answer in lines}


ANSWERS = solved()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    folder = tmp_path_factory.mktemp("course")
    return Folders(folder / "GraphExtractor" / "out", folder)


each_answer = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough) if name == SEARCHES else name
        for name in ANSWERS
    ],
)


@each_answer
def test_answers_of_the_solutions_are_right(
    name: str, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, *ANSWERS[name]], folders) == RIGHT
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
@each_answer
def test_other_numbers_are_not(
    name: str, factor: float, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in ("schedule.own", "search.front"):
        pytest.skip("its answer is no number")
    assert main([name, str(factor * number(" ".join(ANSWERS[name])))], folders) == WRONG
    said = capsys.readouterr().out
    assert said.startswith("not yet: ") and exercise(name).solution(folders).split(" ")[
        0
    ] not in said.split(" ")


def test_counts_must_be_exact(folders: Folders) -> None:
    assert (
        main(["graphs.flops", "436,207,617"], folders)
        == main(["search.space", "58,721"], folders)
        == WRONG
    )


@pytest.mark.parametrize("letters", ["A", "ACD", "ACDEF", "BF", "ABCDEF"])
def test_other_fronts_are_not_right(letters: str, folders: Folders) -> None:
    assert main(["search.front", letters], folders) == WRONG


@pytest.mark.parametrize("letters", ["ECDA", "a,c,d,e"])
def test_letters_have_no_order(letters: str, folders: Folders) -> None:
    assert main(["search.front", letters], folders) == RIGHT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "0=single@0 1=single@0 2=single@4 3=single@7 4=all@10",
            "ends at 12; there are shorter ones",
        ),
        ("0=all@0 1=single@2 2=single@2 3=single@5 4=all@8", "operator 3 starts before 1 ends"),
        (
            "0=all@0 1=all@1 2=single@3 3=single@6 4=all@9",
            "operators 0 and 1 overlap though one takes all cores",
        ),
        ("0=single@0 1=single@0 2=single@4 3=single@5 4=all@8", "operators 2 and 3 share VC 0"),
        ("0=all@0", "not every operator is scheduled exactly once"),
    ],
)
def test_schedules_that_cannot_be_run_or_are_long_are_not_right(
    words: str, said: str, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule.own", *words.split()], folders) == WRONG
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", SOLVERS)
def test_optima_of_every_solver_are_right_answers(name: str, folders: Folders) -> None:
    solver = SOLVERS[name]
    if not (solver.is_available() and solver.license_status().ok):
        pytest.skip(f"{name} cannot be used here")
    words = [
        f"{each.operator}={each.mode}@{abs(each.start_s):.6f}"
        for each in solver.solve(SCHEDULE).assignments
    ]
    assert main(["schedule.own", *words], folders) == RIGHT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["graphs.flop", "3"], "there is no exercise 'graphs.flop'; they are graphs.parameters, "),
        (["graphs.flops"], "graphs.flops has no answer; give it behind the name"),
        (["graphs.flops", "many"], "'many' is no number; give one such as"),
        (["pipeline.bubble", "3/0"], "divides by 0"),
        (["search.front", "AX"], "names something else; give some of A, B, C, D, E, F"),
        (["schedule.own", "7=all@0"], "places no operator; give each of 0 to 4 once"),
        (["schedule.own", "0=all@0", "0=all@2"], "places no operator"),
    ],
)
def test_what_is_no_answer_is_refused_in_a_sentence(
    words: list[str], said: str, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words, folders) == REFUSED
    told = capsys.readouterr()
    assert said in told.err and told.out == "" and told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("436,207,616", 436207616),
        ("4.4e8", 4.4e8),
        ("3/11", 3 / 11),
        ("27.3%", 0.273),
        (".5", 0.5),
        ("-2", -2),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, value: float) -> None:
    assert number(text) == pytest.approx(value, rel=1e-12)


def test_every_exercise_is_on_its_page_and_solved(capsys: pytest.CaptureFixture[str]) -> None:
    names = [each.name for each in EXERCISES]
    assert sorted(ANSWERS) == sorted(names) and len({*names}) == len(names)
    on_pages = {
        name
        for page in COURSE.glob("*.md")
        for name in re.findall(
            r"^\| `([a-z]+\.[a-z-]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE
        )
        if page.stem == name.partition(".")[0]
    }
    assert on_pages == {*names}
    assert main([]) == RIGHT
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == names


def test_python_on_the_pages_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [
        block
        for page in sorted(COURSE.glob("*.md"))
        for block in re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    ]
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "a page of the course", "exec"), {})
        assert capsys.readouterr().out.strip()
