"""Tables on terminals of any width, and in files."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import phaze
from phaze.cli.names import MODES, WITHOUT_TABLES
from phaze.report.tables.text_tables import (
    TextTable,
    fitted_lines,
    new_table,
    plain_table,
    print_lines,
    print_tables,
)

COLUMNS = ("HBM GiB", "accelerator", "model", "plan", "samples/s", "proven")
CHIP = "32 TC 128x64, 256 VC 64, GLB 4 MiB"


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def chips() -> TextTable:
    table = new_table(
        "the best", COLUMNS, words={"accelerator", "model"}, spared=("model", "proven", "plan")
    )
    table.add_row("32", CHIP, "bertlarge", "1 x 8 x 128", "45,528", "yes")
    table.add_row("64", CHIP, "bertlarge", "1 x 10 x 100", "9,417.2", "no")
    return table


def printed(table: TextTable, stream: io.StringIO, *, wide: bool = False) -> str:
    print_tables([table], stream, wide=wide)
    return stream.getvalue()


def test_plain_values_are_shown_as_people_read_them() -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "count": 12345, "tera": 1234.56789, "on": True, "length": None},
        {"name": "b", "count": 1, "tera": 0.5, "on": False, "length": 8},
    ]
    table = plain_table("t", rows)
    assert table.rows == [("a", "12,345", "1,234.6", "yes", "-"), ("b", "1", "0.5", "no", "8")]
    assert table.words == {"name"}


def test_a_file_gets_every_column_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = printed(chips(), io.StringIO())
    monkeypatch.setenv("COLUMNS", "50")
    assert printed(chips(), io.StringIO()) == whole
    assert all(column in whole for column in COLUMNS)
    assert "not shown" not in whole


def test_a_narrow_terminal_loses_what_matters_least_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "76")
    text = printed(chips(), Screen())
    assert all(len(line) <= 76 for line in text.splitlines())
    assert "not shown for lack of room: model, proven; --wide shows all columns" in text
    assert "bertlarge" not in text
    assert "1 x 10 x 100" in text
    assert "9,417.2" in text


def test_a_wide_terminal_and_the_flag_show_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = printed(chips(), io.StringIO())
    monkeypatch.setenv("COLUMNS", "200")
    assert printed(chips(), Screen()) == whole
    monkeypatch.setenv("COLUMNS", "60")
    assert printed(chips(), Screen(), wide=True) == whole


def test_heads_are_wrapped_before_anything_is_left_out_and_numbers_are_never_cut() -> None:
    table = new_table(
        "graphs",
        ("model", "forward gflops", "saved bytes"),
        words={"model"},
        spared=("saved bytes",),
    )
    table.add_row("bertlarge", "1.25", "497,141,764")
    wrapped = fitted_lines(table, 42)
    assert any("forward" in line and "gflops" not in line for line in wrapped)
    assert any("gflops" in line and "model" in line for line in wrapped)  # heads stand on the rule
    assert "497,141,764" in "\n".join(wrapped)
    numbers = new_table("numbers", tuple("abcde"), words=set())
    numbers.add_row(*["123,456,789,012"] * 5)
    assert "\n".join(fitted_lines(numbers, 40)).count("123,456,789,012") == 5


def test_words_are_wrapped_only_where_nothing_else_helps() -> None:
    table = new_table("skipped", ("line", "reason"), words={"reason"})
    table.add_row(
        "12", "the framework shards weights over replicas, which no plan of this model can do"
    )
    lines = fitted_lines(table, 40)
    assert all(len(line) <= 40 for line in lines)
    said = " ".join(" ".join(lines).split())
    assert "shards weights over replicas, which no plan of this model can do" in said
    assert len(fitted_lines(table, None)) < len(lines)


CELL = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.integers(40, 200), st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=4))
def test_any_table_fits_any_terminal_with_its_first_column_and_cells_as_they_are(
    width: int, rows: list[tuple[str, ...]]
) -> None:
    columns = ("first", "second", "third", "fourth")
    table = new_table("[bold]title[/]", columns, words=set(columns), spared=("fourth", "third"))
    for row in rows:
        table.add_row(*row)
    lines = fitted_lines(table, width)
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    assert "[bold]title[/]" in " ".join(lines)
    shown = "".join("".join(lines).split())
    assert "first" in shown
    for row in rows:
        for letter in set(row[0]) - {" "}:
            assert letter in shown


def test_sections_stay_where_they_were_when_columns_go() -> None:
    table = new_table("parts", ("part", "ms", "share"), words={"part"}, spared=("share",))
    table.add_row("arithmetic", "1.0", "90%")
    table.add_section()
    table.add_row("iteration", "1.1", "100%")
    whole, narrow = fitted_lines(table, None), fitted_lines(table.without("share"), None)
    assert [bool(line) for line in whole] == [bool(line) for line in narrow]


def test_sentences_wrap_between_words_on_a_terminal_and_stay_whole_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentence = f"files: {'word ' * 30}/a/path/that-is-longer-than-the-terminal-and-must-stay-whole"
    stream = io.StringIO()
    print_lines([sentence], stream)
    assert stream.getvalue() == sentence + "\n"
    monkeypatch.setenv("COLUMNS", "50")
    screen = Screen()
    print_lines([sentence, ""], screen)
    lines = screen.getvalue().splitlines()
    assert " ".join(screen.getvalue().split()) == sentence
    assert lines[-1] == ""
    assert all(len(line) <= 50 or "/" in line for line in lines)


def test_keys_are_spared_by_their_names() -> None:
    table = plain_table("graphs", [{"model": "bertbase", "saved_bytes": 12345}], ("saved_bytes",))
    assert table.spared == ("saved bytes",)
    assert table.rows == [("bertbase", "12,345")]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_that_prints_tables_takes_the_flag(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main([mode, "--help"]) == 0
    assert ("--wide" in capsys.readouterr().out) is (mode not in WITHOUT_TABLES)


def test_the_flag_does_not_change_json(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for words in ([], ["--wide"]):
        assert phaze.main(["models", "bertbase", "--format", "json", *words]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
