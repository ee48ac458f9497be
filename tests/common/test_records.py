"""Records from YAML and JSON: every refusal names the source and the key."""

from dataclasses import dataclass
from enum import StrEnum

import pytest

from Common.errors import InputError
from Common.records import from_json, parse_yaml, read_yaml, to_json, to_record


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...]
    colour: Colour


@dataclass(frozen=True)
class Outer:
    name: str
    weight: float
    inner: Inner


ITSELF: list[object] = []
ITSELF.append(ITSELF)
GOOD = {"name": "x", "weight": 1, "inner": {"sizes": [1, 2], "colour": "red"}}


def test_plain_data_becomes_records_and_back():
    record = to_record(Outer, GOOD, "file")
    assert record == Outer("x", 1.0, Inner((1, 2), Colour.RED))
    assert from_json(Outer, to_json(record), "file") == record


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": None}, ["name", "string"]),
        ({"weight": "heavy"}, ["weight", "number", "heavy"]),
        ({"weight": True}, ["weight"]),
        ({"inner": {"sizes": [1, "2"], "colour": "red"}}, ["inner.sizes.1", "integer"]),
        ({"inner": {"sizes": [], "colour": "blue"}}, ["inner.colour", "red", "blue"]),
        ({"inner": {"sizes": []}}, ["inner.colour", "missing"]),
        ({"weight": float("nan")}, ["not finite"]),
        ({"weight": float("inf")}, ["not finite"]),
        ({"inner": ITSELF}, ["contains itself"]),
        ({"extra": 1}, ["extra", "not a known key"]),
    ],
)
def test_refusals_name_file_key_and_value(change, words):
    with pytest.raises(InputError) as refusal:
        to_record(Outer, {**GOOD, **change}, "my/file.yaml")
    message = str(refusal.value)
    assert message.startswith("my/file.yaml: ")
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: 2001-99-99", "month"), ("a: !!int x", "invalid literal"), ("a: " + "[" * 3000, "too deeply"), ("a: [", "at line 1")],
)
def test_yaml_that_cannot_be_what_it_says_is_refused(text, words):
    with pytest.raises(InputError, match=words) as refusal:
        parse_yaml(text, "the text")
    assert str(refusal.value).startswith("the text is ")


def test_unreadable_files_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"missing\.yaml: No such file"):
        read_yaml(tmp_path / "missing.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1, 2\nb: }")
    with pytest.raises(InputError, match=r"bad\.yaml is not valid YAML at line \d"):
        read_yaml(tmp_path / "bad.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="cannot read"):
        read_yaml(tmp_path / "binary.yaml")
    with pytest.raises(InputError, match="cannot read"):
        read_yaml(tmp_path)


@pytest.mark.parametrize(("text", "number"), [("160e9", 160e9), ("1.5E3", 1500.0), ("-2e-6", -2e-6), ("160.0e+9", 160e9)])
def test_numbers_with_exponents_are_numbers(text, number):
    assert parse_yaml(f"x: {text}", "text") == {"x": number}


@pytest.mark.parametrize("text", ["e9", "1e", "12ab", "1e5x", "0x1e5z"])
def test_what_only_looks_like_a_number_stays_a_text(text):
    assert parse_yaml(f"x: {text}", "text") == {"x": text}
