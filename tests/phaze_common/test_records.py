"""Records from YAML and JSON: every refusal names the source and the key."""

import pickle
from dataclasses import dataclass
from enum import StrEnum

import pytest

from phaze_common.errors import InputError
from phaze_common.records import from_json, parse_yaml, read_yaml, to_json, to_record
from phaze_common.refusals import SeveralProblemsError


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
        ({"name": None}, ["name is null, but must be a text"]),
        ({"weight": "heavy"}, ["weight is 'heavy', but must be a number"]),
        ({"weight": True}, ["weight"]),
        (
            {"inner": {"sizes": [1, "2"], "colour": "red"}},
            ["inner.sizes.1 is '2', but must be a whole number"],
        ),
        (
            {"inner": {"sizes": [], "colour": "blue"}},
            ["inner.colour is 'blue', but must be one of 'red'"],
        ),
        ({"inner": {"sizes": []}}, ["inner.colour", "missing"]),
        ({"weight": float("nan")}, ["not finite"]),
        ({"weight": float("inf")}, ["not finite"]),
        ({"inner": ITSELF}, ["contains itself"]),
        ({"extra": 1}, ["extra", "not a known key"]),
        ({"wieght": 1}, ["wieght is not a known key; did you mean 'weight'?"]),
        ({"inner": 3}, ["inner is 3, but must be a mapping of keys such as sizes, colour"]),
        ({"name": ["x" * 200]}, ["name is ['xxx", "xxx..., but must be a text"]),
    ],
)
def test_refusals_name_file_key_and_value(change, words):
    with pytest.raises(InputError) as refusal:
        to_record(Outer, {**GOOD, **change}, "my/file.yaml")
    message = str(refusal.value)
    assert message.startswith("my/file.yaml: ")
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_all_problems_are_said_at_once_each_with_its_key():
    bad = {"nam": "x", "weight": "heavy", "inner": {"sizes": ["1", 2.5, 3], "color": "red"}}
    with pytest.raises(SeveralProblemsError) as refusal:
        to_record(Outer, bad, "my/file.yaml")
    assert set(refusal.value.problems) == {
        "my/file.yaml: name is missing; add it",
        "my/file.yaml: weight is 'heavy', but must be a number",
        "my/file.yaml: inner.sizes.0 is '1', but must be a whole number",
        "my/file.yaml: inner.sizes.1 is 2.5, but must be a whole number",
        "my/file.yaml: inner.colour is missing; add it",
        "my/file.yaml: inner.color is not a known key; did you mean 'colour'?",
        "my/file.yaml: nam is not a known key; did you mean 'name'?",
    }
    assert "\n" not in str(refusal.value) and str(refusal.value).startswith("7 problems: (1) ")
    assert pickle.loads(pickle.dumps(refusal.value)).problems == refusal.value.problems


def test_what_is_wrong_everywhere_is_said_in_a_bounded_list():
    with pytest.raises(SeveralProblemsError) as refusal:
        to_record(Outer, GOOD | {f"key{number}": 1 for number in range(200)}, "file")
    assert len(refusal.value.problems) == 200 and refusal.value.listed[-1] == "and 150 more"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 2001-99-99", "month"),
        ("a: !!int x", "invalid literal"),
        ("a: " + "[" * 3000, "too deeply"),
        ("a: [", "at line 1"),
    ],
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


@pytest.mark.parametrize(
    ("text", "number"), [("160e9", 160e9), ("1.5E3", 1500.0), ("-2e-6", -2e-6), ("160.0e+9", 160e9)]
)
def test_numbers_with_exponents_are_numbers(text, number):
    assert parse_yaml(f"x: {text}", "text") == {"x": number}


@pytest.mark.parametrize("text", ["e9", "1e", "12ab", "1e5x", "0x1e5z"])
def test_what_only_looks_like_a_number_stays_a_text(text):
    assert parse_yaml(f"x: {text}", "text") == {"x": text}
