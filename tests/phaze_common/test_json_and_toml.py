"""Numbers that are not finite and keys given twice, in every kind of file: refused with the key and
the line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.devices.device import Calibration
from phaze_common import files, json_text
from phaze_common.errors import ArtefactError, InputError
from phaze_common.files import artefact_bytes, parse_json, read_packed
from phaze_common.records import from_json, to_record
from phaze_common.toml_text import parse_toml
from phaze_common.yaml_files import parse_yaml

NOT_FINITE = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("NUMBER", "it", 1),
        ('{"a": NUMBER}', "a", 1),
        ('{"a": 1,\n "b": {"c": [1,\n {"d": NUMBER}]}}', "b.c.1.d", 3),
        ('[{"a": "NaN"}, 3,\n\n[NUMBER]]', "2.0", 3),
        ('{"a\\"": {"b": []}, "c": "x: NaN", "d"\n:\nNUMBER}', "d", 3),
    ],
)
def test_numbers_of_json_that_are_not_finite_are_refused_with_key_and_line(
    text: str, key: str, line: int, number: str
) -> None:
    with pytest.raises(InputError, match="which is not finite") as refused:
        parse_json(text.replace("NUMBER", number), "file.json")
    assert f"file.json is not valid JSON: {key} is {number} in line {line}, " in str(refused.value)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ('{"a": 1, "a": 1}', "a", 1),
        ('{"a": {"a": 1},\n"b": [{"c": 1,\n"d": 1, "c": 2}]}', "b.0.c", 3),
    ],
)
def test_keys_of_json_that_are_given_twice_are_refused(text: str, key: str, line: int) -> None:
    with pytest.raises(InputError, match=f"key '{key}' is given twice, again in line {line}"):
        parse_json(text, "file.json")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 0, 2]))
def test_whatever_is_json_is_read(document: object, indent: int | None) -> None:
    assert parse_json(json.dumps(document, indent=indent), "file.json") == document


@given(JSON)
def test_one_number_that_is_not_finite_is_found_wherever_it_stands(document: object) -> None:
    with pytest.raises(InputError, match=r"b\.1 is NaN in line"):
        parse_json(
            json.dumps({"a": document, "b": [document, float("nan")]}, indent=1), "file.json"
        )


@pytest.mark.parametrize("number", [".nan", ".inf", "-.INF", "1e999", "!!float nan"])
def test_numbers_of_yaml_that_are_not_finite_are_refused_with_key_and_line(number: str) -> None:
    with pytest.raises(
        InputError,
        match=r"file.yaml is not valid YAML at line 3: b\.1\.c is .*, which is not finite",
    ):
        parse_yaml(f"a: 1\nb: [2,\n {{c: {number}}}]\n", "file.yaml")


def test_numbers_of_toml_that_are_not_finite_are_refused_with_key_and_line() -> None:
    assert parse_toml('a = 1\nb = "inf"\n', "file.toml") == {"a": 1, "b": "inf"}
    with pytest.raises(
        InputError, match=r"file.toml: t\.lr is nan, which is not finite; correct it \(line 3\)"
    ):
        parse_toml("a = 1\n[t]\nlr = nan\n", "file.toml")
    with pytest.raises(InputError, match="not valid TOML"):
        parse_toml("a = 1\na = 2\n", "file.toml")


def test_records_take_no_number_that_is_not_finite() -> None:
    stated = {"table": "a", "rows": 1, "mape": float("nan"), "bias": 0.0}
    with pytest.raises(InputError, match="device: mape is nan, which is not finite"):
        to_record(Calibration, stated, "device")
    with pytest.raises(InputError, match="mape is NaN in line 1"):
        from_json(Calibration, json.dumps(stated), "device")


def test_what_unpacks_to_more_than_its_bound_is_refused_before_it_is_unpacked(
    tmp_path: Path,
) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(InputError, match="unpacks to more than 1 MiB"):
        read_packed(tmp_path / "bomb.gz", "a trace", 2**20)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"{}")[:-3])
    with pytest.raises(InputError, match="no file that was zipped, or is cut off"):
        read_packed(tmp_path / "cut.gz", "a trace")
    for read in (
        lambda path: read_packed(path, "a trace", 2**20),
        lambda path: files.read_bytes(path, "a trace", 2**20),
    ):
        with pytest.raises(InputError, match="more than 1 MiB"):
            read(Path("/dev/zero"))
    with pytest.raises(ArtefactError):
        artefact_bytes(Path("/dev/zero"), 2**20)


def test_a_document_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MOST_VALUES", 100)
    with pytest.raises(InputError, match="more than 100 values"):
        parse_json("[" + "[]," * 200 + "[]]", "file.json")
    assert len(parse_json('"' + "," * 50 + '"', "file.json")) == 50


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty, which is not valid JSON; give one that has content"),
        (" \n", "is empty"),
        (
            '{"a": 1,\n"b": [1, 2',
            "it stops in line 2 before it is complete, as a file that was cut off; correct it",
        ),
        ('{"a": "b', "it stops in line 1 before it is complete"),
        ('{"a": 1,, "b"}', "Expecting property name"),
    ],
)
def test_a_file_that_stops_is_told_from_one_with_a_slip(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_json(text, "file.json")
    assert said in str(refused.value) and str(refused.value).startswith("file.json is ")
