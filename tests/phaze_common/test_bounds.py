"""What is read of files that others wrote: bounds on size, depth, aliases, numbers and names."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import phaze
from phaze_common import files
from phaze_common.echo import LONGEST_NAME, clipped, shown, tidy
from phaze_common.errors import ArtefactError, InputError, PhazeError
from phaze_common.files import (
    artefact_bytes,
    check_writable,
    parse_json,
    read_packed,
    read_text,
    unpack,
    write_atomically,
)
from phaze_common.parquet import MAX_ROWS, read_parquet
from phaze_common.ranges import LEAST, LONGEST_TEXT, MOST, check_ranges
from phaze_common.sealed import (
    is_as_written,
    sealed,
    text_is_as_written,
    text_with_digest,
    unsealed,
    with_digest,
)
from phaze_common.yaml_files import DEEPEST, MAX_YAML_BYTES, MOST_NODES, parse_yaml, read_yaml

NINE = "".join(
    f"{inner}: &{inner} [{', '.join(['*' + outer] * 9)}]\n"
    for outer, inner in zip("abcdefgh", "bcdefghi", strict=True)
)
BOMBS = {
    "aliases": "a: &a [x, x, x, x, x, x, x, x, x]\n" + NINE,
    "merges": "a: &a {x: 1}\n" + NINE.replace("[", "{<<: [").replace("]", "]}"),
    "depth of lists": "[" * 100_000,
    "depth of blocks": "- " * 100_000,
    "depth of mappings": "{a: " * 100_000,
    "itself": "&a [*a]",
    "many values": f"[{'1,' * (2 * MOST_NODES)}1]",
    "size": "#" * (MAX_YAML_BYTES + 1),
    "digits": f"a: {'9' * 5000}",
    "digits in base 16": f"a: 0x{'f' * 5000}",
    "digits in base 60": f"a: {'1:' * 3000}1",
    "escape sequence": 'a: "\\e[31m"',
    "key that is a list": "? [a]\n: b",
    "python object": "!!python/object/apply:os.system ['true']",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_yaml_that_would_take_the_machine_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "the text")
    assert (
        "the text" in str(caught.value)
        and "\n" not in str(caught.value)
        and len(str(caught.value)) < 400
    )


def test_yaml_within_the_bounds_is_read() -> None:
    assert parse_yaml("[" * DEEPEST + "]" * DEEPEST, "the text") is not None
    assert parse_yaml("a: &a [1, 2]\nb: *a", "the text") == {"a": [1, 2], "b": [1, 2]}
    assert len(parse_yaml(f"[{'1, ' * (MOST_NODES // 2)}1]", "the text")) == MOST_NODES // 2 + 1
    assert parse_yaml("a: 160e9\nb: 0x10\nc: 'two\n\n  lines'", "the text") == {
        "a": 160e9,
        "b": 16,
        "c": "two\nlines",
    }


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, '{"a": ' * 100_000, "[1", "\ud800"])
def test_json_that_cannot_be_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="the text is not valid JSON"):
        parse_json(text, "the text")


def test_a_text_is_read_up_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_TEXT_BYTES", 2**20)
    (tmp_path / "large").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(InputError, match="more than 1 MiB"):
        read_text(tmp_path / "large", "a file")
    with pytest.raises(InputError, match="more than 1 MiB"):
        read_text(Path("/dev/zero"), "a file")
    (tmp_path / "terminal").write_bytes(b"name,\x1b]0;title\x07\n")
    with pytest.raises(InputError, match=r"control character .* line 1"):
        read_text(tmp_path / "terminal", "a file")
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read_text(tmp_path / "windows", "a file") == "one\ntwo\n"


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"latency_s": 1e308}, "latency_s is 1e+308, but must be at most 1e+09 s"),
        (
            {"tiers": [{"latency_s": {"value": 1e300, "source": "x"}}]},
            "tiers.0.latency_s.value is 1e+300",
        ),
        (
            {"l2_per_pe": {"value": 1e40, "unit": "bytes"}},
            "l2_per_pe.value is 1e+40, but must be at most 1e+18 bytes",
        ),
        ({"num_devices": 2**63}, "num_devices is 9.22337e+18"),
        ({"num_devices": -(10**39)}, "num_devices is -1e+39"),
        (
            {"bandwidth_bytes_per_s": 1e-300},
            "bandwidth_bytes_per_s is 1e-300, but must be 0 or at least 1e-30 bytes/s",
        ),
        ({"name": "x" * (LONGEST_TEXT + 1)}, "name is a text of 4,001 characters"),
        ({"title": "\x1b[2J"}, "title holds control characters"),
        ({"names": ["\u202egnp.exe"]}, "names.0 holds control characters"),
        ({"x" * 5000: 1}, "is a text of 5,000 characters"),
    ],
)
def test_numbers_and_texts_of_records_have_ranges(data: object, key: str) -> None:
    with pytest.raises(InputError) as caught:
        check_ranges(data, "the file")
    assert str(caught.value).startswith("the file: ") and key in str(caught.value)


@pytest.mark.parametrize("unit", MOST)
def test_the_ends_of_a_range_are_within_it(unit: str) -> None:
    check_ranges(
        {
            "x": [
                {"value": value, "unit": unit}
                for value in (0, LEAST, -LEAST, MOST[unit], -MOST[unit])
            ]
        },
        "the file",
    )
    with pytest.raises(InputError):
        check_ranges({"value": MOST[unit] * 1.01, "unit": unit}, "the file")


def table(columns: dict[str, object], **options: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


def test_a_table_is_read_as_it_was_written() -> None:
    frame = pd.DataFrame(
        {
            "model": pd.Categorical(["a", "b", "a"]),
            "text": ["x", "y", "x"],
            "number": [1.0, np.nan, 3.0],
            "count": [1, 2, 3],
            "switch": [True, False, True],
        }
    )
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, compression="zstd")
    pd.testing.assert_frame_equal(read_parquet(buffer.getvalue(), "the file"), frame)


def a_text_in_every_row() -> bytes:
    return table(
        {"a": pa.DictionaryArray.from_arrays(np.zeros(100_000, dtype=np.int32), ["x" * 100_000])}
    )


TABLES: dict[str, Callable[[], bytes]] = {
    "rows": lambda: table({"a": pa.array(np.zeros(MAX_ROWS + 1, dtype=np.int8))}),
    "texts": a_text_in_every_row,
    "lists": lambda: table({"a": [[1, 2]]}),
    "two columns of one name": lambda: renamed(table({"aa": [1], "bb": [2]}), b"bb", b"aa"),
    "half": lambda: table({"a": list(range(1000))})[:500],
    "noise": lambda: b"PAR1" + bytes(range(256)) * 4 + b"\x00\x01\x00\x00PAR1",
    "nothing": lambda: b"",
}


def renamed(content: bytes, old: bytes, new: bytes) -> bytes:
    return content.replace(old, new)


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_a_small_file_with_a_large_table_is_not_read(make: Callable[[], bytes]) -> None:
    content = make()
    assert len(content) < 2**22
    with pytest.raises(ArtefactError, match="the file"):
        read_parquet(content, "the file")


def test_names_of_others_are_short_and_steer_no_terminal() -> None:
    assert tidy(f"no device named {'x' * 5000!r}; known: a100").endswith("; known: a100")
    long_names = ("x" * 5000, "two words " * 500, "it's " * 500, "\x1b[31m" * 500)
    for name in long_names:
        message = str(InputError(f"no device named {name!r}; known: a100"))
        assert (
            len(message) < LONGEST_NAME + 60
            and message.endswith("; known: a100")
            and message.isprintable()
        )
    assert clipped("x" * 300) == "x" * (LONGEST_NAME - 1) + "…" and clipped("short") == "short"
    assert shown("a\x1b[31m\u202eb\udcff") == "a\\x1b[31m\\u202eb\\udcff"
    ordinary = (
        "the model's own layers are "
        + "many words " * 30
        + "of the user's file 'mine.py' and of others' files"
    )
    assert tidy(ordinary) == ordinary


def test_a_probe_touches_nothing_that_is_there(tmp_path: Path) -> None:
    """An old probe followed a link of the name ``.probe`` and emptied what it led to."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".probe").symlink_to(precious)
    before = sorted(folder.iterdir())
    check_writable(folder)
    assert precious.read_text() == "kept" and sorted(folder.iterdir()) == before
    (folder / "file").symlink_to(precious)
    write_atomically(folder / "file", b"new")
    assert precious.read_text() == "kept" and (folder / "file").read_bytes() == b"new"


def test_a_place_that_cannot_be_written_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (Path("/proc/nowhere"), tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match="cannot write"):
            check_writable(folder)
        with pytest.raises(InputError, match="cannot write"):
            write_atomically(folder / "file", b"")


def test_a_full_disk_is_no_wrong_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PhazeError) as caught:
        write_atomically(tmp_path / "file", b"")
    assert caught.value.exit_status == 1


def test_folders_of_private_files_are_their_owner_s(tmp_path: Path) -> None:
    write_atomically(tmp_path / "cache" / "file", b"", private=True)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_a_sealed_artefact_is_what_was_written() -> None:
    content = json.dumps({"sizes": [1, 2]}).encode()
    text = sealed(content)
    assert unsealed(text, "the file") == content and json.loads(text)["content"] == {
        "sizes": [1, 2]
    }
    for changed in (
        text.replace(b"2]", b"3]"),
        text[:-1],
        content,
        b"",
        text.replace(text[11:13], b"zz"),
    ):
        with pytest.raises(ArtefactError, match="the file"):
            unsealed(changed, "the file")


def test_an_answer_tells_whether_it_was_edited_however_it_is_laid_out() -> None:
    document = with_digest({"value": 0.1, "models": {"a": [1, 2.5e-7]}})
    again = json.loads(json.dumps(document, indent=8, sort_keys=True))
    assert is_as_written(again)
    again["models"]["a"][0] = 2
    assert not is_as_written(again)


def test_an_edited_yaml_file_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(text_with_digest("a: 1\n"))
    assert read_yaml(path) == {"a": 1} and not caplog.text
    path.write_text(path.read_text().replace("a: 1", "a: 2"))
    assert read_yaml(path) == {"a": 2} and f"{path} was edited" in caplog.text
    assert text_is_as_written("a: 1\n")  # nobody claims anything of it


WAYS_TO_READ = {
    "of people": lambda path: read_text(path, "a file"),
    "zipped": lambda path: read_packed(path, "a file"),
    "of a run": artefact_bytes,
    "packed": unpack,
}


@pytest.mark.parametrize("read", WAYS_TO_READ.values(), ids=WAYS_TO_READ)
def test_what_is_no_file_is_refused_without_waiting(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises((InputError, OSError, ArtefactError)) as refused:
            read(path)
        assert "named pipe" in str(refused.value) or "is a directory" in str(refused.value).lower()


def test_what_is_piped_in_is_read() -> None:
    code = (
        "import sys; from pathlib import Path; from phaze_common.files import read_text; "
        "print(read_text(Path(sys.argv[1]), 'it'))"
    )
    here = Path(files.__file__).parent.parent
    for shell in (
        f'"{sys.executable}" -c "{code}" <(sleep 0.1; echo found)',
        f'echo found | "{sys.executable}" -c "{code}" /dev/stdin',
    ):
        done = subprocess.run(
            ["bash", "-c", shell], capture_output=True, text=True, cwd=here, timeout=60, check=False
        )
        assert done.stdout.strip() == "found", done.stderr


DOORS_FOR_FILES = [
    "evaluate --from PIPE --model bertbase --device h100",
    "evaluate --plan PIPE",
    "evaluate --model PIPE.py --device h100",
    "evaluate --model PIPE.json --device h100",
    "evaluate --model bertbase --device PIPE.yaml",
    "evaluate --model bertbase --device h100 --cluster PIPE.yaml",
    "evaluate --model bertbase --device h100 --software PIPE.yaml",
    "evaluate --model bertbase --chip PIPE.yaml",
    "run_solver --config PIPE.yaml",
    "run_solver --model bertbase --design-space PIPE.yaml",
    "sweep PIPE.yaml",
    "compare PIPE.json --model bertbase --device h100",
    "validate --runs PIPE.csv",
    "calibrate --device h100 --table PIPE.csv --output OUT.yaml",
    "train --plan PIPE.json",
    "export PIPE --to megatron_lm",
    "explain PIPE",
    "report PIPE",
    "trace PIPE",
]


@pytest.mark.parametrize("words", DOORS_FOR_FILES)
def test_no_mode_waits_for_a_pipe_or_takes_a_folder(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("", ".py", ".json", ".yaml", ".csv"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
        (tmp_path / f"folder{suffix}").mkdir()
    for name in ("pipe", "folder"):
        named = [
            word.replace("PIPE", str(tmp_path / name)).replace("OUT", str(tmp_path / "out"))
            for word in words.split()
        ]
        assert phaze.main(named) == 2
        assert "unexpected" not in capsys.readouterr().err
