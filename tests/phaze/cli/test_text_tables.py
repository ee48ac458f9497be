"""Tables on terminals of any width, and in files."""

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import phaze
from phaze.cli.modes import MODES
from phaze.report.table import GAP, Table, plain_table
from phaze.report.terminal import print_lines, print_tables

COLUMNS = ("HBM GiB", "accelerator", "model", "plan", "samples/s", "proven")
CHIP = "32 TC 128x64, 256 VC 64, GLB 4 MiB"


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def chips() -> Table:
    rows = (
        ("32", CHIP, "bertlarge", "1 x 8 x 128", "45,528", "yes"),
        ("64", CHIP, "bertlarge", "1 x 10 x 100", "9,417.2", "no"),
    )
    words, spared = frozenset({"accelerator", "model"}), ("model", "proven", "plan")
    return Table("the best", COLUMNS, rows, words=words, spared=spared)


def printed(table: Table, stream: io.StringIO, *, wide: bool = False) -> str:
    print_tables([table], stream, wide=wide)
    return stream.getvalue()


def test_plain_values_are_shown_as_people_read_them() -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "count": 12345, "tera": 1234.56789, "on": True, "length": None},
        {"name": "b", "count": 1, "tera": 0.5, "on": False, "length": 8},
    ]
    table = plain_table("t", rows)
    assert table.rows == (("a", "12,345", "1,234.6", "yes", "-"), ("b", "1", "0.5", "no", "8"))
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
    row = {"model": "bertlarge", "forward gflops": "1.25", "saved bytes": "497,141,764"}
    table = Table.of("graphs", [row], words={"model"}, spared=("saved bytes",))
    wrapped = table.text(42)
    assert any("forward" in line and "gflops" not in line for line in wrapped)
    assert any("gflops" in line and "model" in line for line in wrapped)  # heads stand on the rule
    assert "497,141,764" in "\n".join(wrapped)
    numbers = Table("numbers", tuple("abcde"), (("123,456,789,012",) * 5,))
    assert "\n".join(numbers.text(40)).count("123,456,789,012") == 5


def test_words_are_wrapped_only_where_nothing_else_helps() -> None:
    reason = "the framework shards weights over replicas, which no plan of this model can do"
    table = Table.of("skipped", [{"line": "12", "reason": reason}], words={"reason"})
    lines = table.text(40)
    assert all(len(line) <= 40 for line in lines)
    said = " ".join(" ".join(lines).split())
    assert "shards weights over replicas, which no plan of this model can do" in said
    assert len(table.text()) < len(lines)


CELL = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.integers(40, 200), st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=4))
def test_any_table_fits_any_terminal_with_its_first_column_and_cells_as_they_are(
    width: int, rows: list[tuple[str, ...]]
) -> None:
    columns = ("first", "second", "third", "fourth")
    spared = ("fourth", "third")
    table = Table("[bold]title[/]", columns, tuple(rows), words=frozenset(columns), spared=spared)
    lines = table.text(width)
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    assert "[bold]title[/]" in " ".join(lines)
    shown = "".join("".join(lines).split())
    assert "first" in shown
    for row in rows:
        for letter in set(row[0]) - {" "}:
            assert letter in shown


def test_gaps_stay_where_they_were_when_columns_go() -> None:
    parts = [{"part": "arithmetic", "ms": "1.0", "share": "90%"}, GAP, {"part": "bubble"}]
    foot = [{"part": "iteration", "ms": "1.1", "share": "100%"}]
    table = Table.of("parts", parts, foot=foot, words={"part"}, spared=("share",))
    assert table.gaps == {1, 2}
    whole, narrow = table.text(), table.without("share").text()
    assert [bool(line) for line in whole] == [bool(line) for line in narrow]
    assert [bool(line) for line in whole[4:]].count(False) >= 2


def test_rows_that_differ_in_one_column_are_one_where_the_first_of_them_stands() -> None:
    rows = [{"HBM": "16", "plan": "a"}, {"HBM": "8", "plan": "b"}, {"HBM": "32", "plan": "a"}]
    assert Table.of("t", rows).merged("HBM").rows == (("16, 32", "a"), ("8", "b"))


def test_one_table_is_text_html_csv_and_json() -> None:
    rows = [{"part": "a <b>", "ms": "1,000"}, {"part": "c", "ms": ""}]
    table = Table.of(
        "t & u", rows, foot=[{"part": "all", "ms": "1"}], words={"part"}, links=["x", ""]
    )
    assert table.text()[0] == "t & u"
    html = table.html()
    assert "<caption>t &amp; u</caption>" in html and '<table class="sorts">' in html
    assert '<th scope="row"><a class="to-point" href="x">a &lt;b&gt;</a></th>' in html
    assert '<td class="number">1,000</td>' in html and html.index("<tfoot>") > html.index(">c<")
    assert list(csv.reader(io.StringIO(table.csv())))[1:] == [
        ["a <b>", "1,000"],
        ["c", ""],
        ["all", "1"],
    ]
    assert json.loads(table.json())[0] == {"part": "a <b>", "ms": "1,000"}


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
    assert table.rows == (("bertbase", "12,345"),)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_that_prints_tables_takes_the_flag(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main([mode, "--help"]) == 0
    assert ("--wide" in capsys.readouterr().out) is MODES[mode].tables


def test_the_flag_does_not_change_json(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for words in ([], ["--wide"]):
        assert phaze.main(["models", "bertbase", "--format", "json", *words]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
