"""The manual prints what the program prints: commands of its console blocks are run, and all others
at least understood."""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phaze
from phaze.cli.arguments import parse
from scripts.console_blocks import (
    LEFT_OUT,
    Command,
    GivenFile,
    Output,
    PageError,
    Run,
    difference,
    forget_modules_in,
    refreshed,
    rewritten,
    run_page,
    steps_of,
)

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
WITH_COMMANDS = [page for page in PAGES if "```console" in (DOCS / page).read_text()]
BLOCKS = re.compile(r"^ *```(?:console|bash|)\n(?P<inside>.*?)^ *```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?phaze (?P<words>.*)$")
SPOKEN = re.compile(
    r"[|\[\]]|\.\.\.|\$\(| [A-Z_]+$"
)  # of commands in words, not to be typed as they are


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place for a page whose path is short, as that of a reader's."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(place).resolve()
        forget_modules_in(Path(place).resolve())


@pytest.mark.some(2)
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_a_page_prints_what_its_commands_print(page: str, folder: Path) -> None:
    wrong = []
    for run in run_page(steps_of((DOCS / page).read_text(), page), folder, phaze.main):
        assert not run.failed, "\n".join(
            [f"status {run.status} of {run.command.line}", *run.output.lines]
        )
        wrong += [] if run.apart is None else [f"$ {run.command.line}", run.apart]
    assert not wrong, "\n".join(
        [*wrong, f"if that is right: .venv/bin/python scripts/manual.py docs/{page}"]
    )


def typed(page: str) -> list[str]:
    """Command lines of ``phaze`` in a page's blocks, of whatever language."""
    text = "\n".join(
        found["inside"] for found in BLOCKS.finditer((DOCS / page).read_text())
    ).replace("\\\n", " ")
    lines = (PROGRAM.match(line.strip()) for line in text.splitlines())
    return [
        found["words"] for found in lines if found is not None and not SPOKEN.search(found["words"])
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if typed(page)])
def test_modes_and_flags_are_there(page: str) -> None:
    for line in typed(page):
        words = shlex.split(line, comments=True)
        if words[-1] == "&":
            words.pop()
        with suppress(SystemExit):  # --help
            parse(words)


def test_pages_with_commands_are_found() -> None:
    assert len(WITH_COMMANDS) > 10
    assert all(steps_of((DOCS / page).read_text(), page) for page in WITH_COMMANDS)


PAGE = """# A page

```yaml title="a/b.yaml"
x: 1
```

1. In a list:

    ```console
    $ cat a/b.yaml
    x: 1
    $ phaze list \\
        clusters
    one
    ...
    three
    ```

```bash
rm -rf /
```
"""


def test_a_page_is_read_in_order() -> None:
    file, first, second = steps_of(PAGE)
    assert file == GivenFile("a/b.yaml", "x: 1\n")
    assert isinstance(first, Command) and isinstance(second, Command)
    assert (first.words, first.expected) == (["cat", "a/b.yaml"], ("x: 1",))
    assert (second.words, second.expected) == (
        ["phaze", "list", "clusters"],
        ("one", LEFT_OUT, "three"),
    )


def test_a_page_is_rewritten_where_it_is_wrong_and_nowhere_else() -> None:
    commands = [step for step in steps_of(PAGE) if isinstance(step, Command)]
    first, second = commands
    counted = Run(second, Output(("one", "two", "three")), 0)
    assert rewritten(PAGE, [Run(first, Output(("x: 1",)), 0), counted]) == PAGE
    assert rewritten(PAGE, [Run(first, Output(("x: 2",)), 0), counted]) == PAGE.replace(
        "    x: 1\n", "    x: 2\n"
    )


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```console\n$ git push\n```\n", "page:2: 'git push' is not run"),
        ("```console\n$ phaze list\n", "page:1: this block does not end"),
        ("```console\nhello\n$ phaze list\n```\n", "page:1: a console block begins with a command"),
        ('```yaml title="../a.yaml"\n```\n', "page:1: '../a.yaml' is no file"),
    ],
)
def test_pages_that_could_not_be_run_are_refused(page: str, said: str) -> None:
    with pytest.raises(PageError, match=re.escape(said)):
        steps_of(page)


def test_commands_run_in_the_folder_of_the_page_and_refusals_are_shown(folder: Path) -> None:
    def front_door(words: object) -> int:
        print("in", Path.cwd(), Path("a/b.yaml").read_text())
        return 0

    outputs = [run.output.lines for run in run_page(steps_of(PAGE), folder, front_door)]
    assert outputs == [("x: 1",), ("in /home/you x: 1", "")]
    page = "```console\n$ phaze run_solver --model nothing-like-it\n```\n"
    (run,) = run_page(steps_of(page), folder, phaze.main)
    assert run.status == 2 and run.failed and run.output.lines[0].startswith("phaze: unknown model")
    assert run.apart is not None


LINES = st.lists(
    st.text("ab 12.─", min_size=1, max_size=6).filter(lambda line: line.strip(" ─.") != ""),
    min_size=1,
    max_size=8,
)


@given(LINES, st.data())
def test_lines_may_be_left_out_and_what_is_left_must_be_there(
    printed: list[str], data: st.DataObject
) -> None:
    assert difference(printed, printed) is None
    first = data.draw(st.integers(0, len(printed)))
    last = data.draw(st.integers(first, len(printed)))
    cut = [*printed[:first], LEFT_OUT, *printed[last:]]
    assert difference(cut, printed) is None
    assert refreshed(cut, Output(tuple(printed))) == cut
    place = data.draw(st.integers(0, len(printed) - 1))
    assert (
        difference([*printed[:place], printed[place] + "9", *printed[place + 1 :]], printed)
        is not None
    )
    assert difference([*printed, "and more"], printed) is not None
    assert difference(printed[:-1], printed) is not None
    assert difference(printed, [*printed, "and more"]) is not None
    assert refreshed(printed[:-1], Output(tuple(printed))) == printed


def test_numbers_that_moved_are_renewed_and_what_was_left_out_stays_so() -> None:
    assert refreshed(["a 1", LEFT_OUT, "c 3"], Output(("a 2", "b", "c 4"))) == [
        "a 2",
        LEFT_OUT,
        "c 4",
    ]
    assert refreshed([LEFT_OUT, "gone"], Output(("a 2", "b"))) == ["a 2", "b"]
    assert difference(["files: /home/you/x-0123abcd"], ["files: /tmp/a/b/x-deadbeef"]) is None
    assert difference(["a long line of words"], ["a long line", "  of words"]) is None


def test_notes_may_be_left_out_but_warnings_may_not(folder: Path) -> None:
    def front_door(words: object) -> int:
        for line in ("graphs: 2 of 2 in 4.6 s", "a note 1", "warning: beware"):
            print(line, file=sys.stderr)
        print("the answer")
        return 0

    for shown, right in (
        (["warning: beware", "the answer"], True),
        (["a note 1", "warning: beware", "the answer"], True),
        (["a note 2", "warning: beware", "the answer"], False),
        (["the answer"], False),
    ):
        page = "\n".join(["```console", "$ phaze list", *shown, "```", ""])
        (run,) = run_page(steps_of(page), folder, front_door)
        assert run.output.lines == ("a note 1", "warning: beware", "the answer")
        assert (run.apart is None) == right
    assert refreshed(["a note 2", LEFT_OUT], run.output) == ["a note 1", LEFT_OUT]
    assert refreshed([], run.output) == ["warning: beware", "the answer"]
