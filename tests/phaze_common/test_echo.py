"""Names that would steer a terminal: whatever prints them shows them, on the line or in the cell
where they belong."""

from __future__ import annotations

import io
import logging
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import phaze
from GraphExtractor.graph import ModelGraph
from phaze.cli.exit_status import guarded
from phaze.report.table import plain_table
from phaze.report.terminal import print_lines, print_tables
from phaze_common.echo import on_one_line, say
from phaze_common.errors import InputError
from phaze_common.logs import configure_logs
from phaze_common.progress import BarProgress, LoggedProgress
from phaze_common.refusals import SeveralProblemsError

REPOSITORY = Path(__file__).resolve().parent.parent.parent
STEERING = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\r",
    "\n",
    "\t",
    "\x08",
    "\x7f",
    "\x85",
    "\x9b31m",
    "\u202e",
    "\u2028",
    "\udcff",
    "\0",
]
letters = st.sampled_from([*STEERING, "a", "é", "[red]", "%s", "{}", " ", "'"]) | st.characters()
hostile = st.lists(letters, min_size=1, max_size=12).map("".join)
HARMLESS = "name"


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def steering(text: str) -> list[str]:
    """What a terminal would obey, line breaks apart: control and format characters, separators of
    lines, halves of letters."""
    return [
        each
        for each in text
        if each != "\n" and unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]


def table(name: str, stream: io.StringIO) -> None:
    print_tables([plain_table(name, [{name: name, "file": name}], (name,))], stream)


def lines(name: str, stream: io.StringIO) -> None:
    print_lines([f"files: {name}"], stream)


def log(name: str, stream: io.StringIO) -> None:
    logging.getLogger("phaze.studies").warning("%s is damaged", name)


def log_of_an_error(name: str, stream: io.StringIO) -> None:
    try:
        raise ValueError(name)
    except ValueError:
        logging.getLogger("phaze.studies").exception("this went wrong: %s", name)


def progress(name: str, stream: io.StringIO) -> None:
    with LoggedProgress().phase(name, 1) as advance:
        advance(1)


def ends(error: Callable[[str], BaseException]) -> Callable[[str, io.StringIO], None]:
    def end(name: str, stream: io.StringIO) -> None:
        def run() -> int:
            raise error(name)

        guarded(run, verbose=False)

    return end


PRINTERS = {
    "table": table,
    "lines": lines,
    "log": log,
    "log of an error": log_of_an_error,
    "progress": progress,
    "refusal": ends(lambda name: InputError(f"no file {name}")),
    "refusals": ends(lambda name: SeveralProblemsError([f"no {name}", f"not {name}"])),
    "error of the system": ends(lambda name: PermissionError(13, "Permission denied", name)),
    "something unexpected": ends(RuntimeError),
}


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str, str, type[io.StringIO]], str]]:
    """``printed(printer, name, kind)``: all that a printer writes about a name, on a stream of a
    kind."""

    def run(printer: str, name: str, kind: type[io.StringIO]) -> str:
        stream = kind()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            patch.setattr(
                logging.getLogger(), "handlers", []
            )  # what pytest's kept of half a letter, no worker could send
            configure_logs()
            PRINTERS[printer](name, stream)
        return stream.getvalue()

    yield run


@pytest.mark.parametrize("kind", [io.StringIO, Screen])
@pytest.mark.parametrize("printer", PRINTERS)
@given(name=hostile)
@example(name="".join(STEERING))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_nothing_that_is_printed_steers_a_terminal(
    printed: Callable[[str, str, type[io.StringIO]], str],
    printer: str,
    kind: type[io.StringIO],
    name: str,
) -> None:
    text = printed(printer, name, kind)
    assert steering(text) == []
    assert text.endswith("\n")
    if kind is io.StringIO and printer != "log of an error":  # a name makes no line of its own
        assert text.count("\n") == printed(printer, HARMLESS, kind).count("\n")


def test_the_name_of_a_bar_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    with BarProgress(screen).phase("[red]\x1b]0;title\x07\r", 1) as advance:
        advance(1)
    assert "[red]\\x1b]0;title\\x07\\r" in screen.getvalue() and "\x07" not in screen.getvalue()


@given(st.lists(hostile, max_size=4))
def test_a_line_stays_a_line(said: list[str]) -> None:
    stream = io.StringIO()
    say(stream, said)
    assert steering(stream.getvalue()) == [] and stream.getvalue().count("\n") == len(said)
    assert [on_one_line(each) for each in said] == stream.getvalue().split("\n")[:-1]


@pytest.mark.parametrize(
    "words",
    ["accelerators --output X/cores.json", "doctor --output X", "models X.json", "extract_graph"],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_no_mode_prints_a_hostile_folder_as_it_is(
    words: str,
    form: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    extracted: Callable[..., ModelGraph],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "a\x1b[2J\r\x85\u202e\tb\nwarning: c"
    (folder / "X.json").parent.mkdir()
    (folder / "config.json").write_text('{"model_type": "\\u001b[2J"}')
    if words == "extract_graph":
        graph = extracted("bertbase", 1, 128)
        strange = replace(graph, key=replace(graph.key, model=str(folder / "config.json")))
        monkeypatch.setattr("phaze.cli.study.graphs_of", lambda request, progress: [graph])
        monkeypatch.setattr(
            "phaze.cli.extract_graph._described",
            lambda each: {"model": strange.key.model} | dict.fromkeys(DESCRIBED, 1),
        )
        words += " --model bertbase --output X"
    for place in (str(folder / "X"), str(folder / "nowhere")):
        phaze.main([*(word.replace("X", place) for word in words.split()), "--format", form])
        out, err = capfd.readouterr()
        assert steering(out) == steering(err) == []
        assert (out + err).strip() and not re.search(r"(?m)^warning: c", out + err)


DESCRIBED = (
    "cp",
    "ep",
    "sequence_parallel",
    "sparse_parameters",
    "saved_bytes",
    "distinct_layers",
    "operators",
    "tp",
)


def test_one_place_alone_writes_to_a_terminal() -> None:
    writes = re.compile(
        r"(?m)\bsys\.std(out|err)\.write(lines)?\b|\bprint_exc\b|^\s*print\(|\bstream\.write(lines)?\("
    )
    rooms = {each.parent for each in REPOSITORY.glob("*/__init__.py")} - {
        REPOSITORY / "tests",
        REPOSITORY / "scripts",
    }
    found = {
        str(path.relative_to(REPOSITORY)): writes.findall(path.read_text())
        for room in rooms
        for path in room.rglob("*.py")
        if writes.search(path.read_text())
    }
    assert found.keys() == {
        "phaze_common/echo.py",
        "phaze_common/files.py",
        "phaze/__init__.py",
    }  # files; an example in a docstring
