"""Versions of files: older ones are migrated step by step where that is known, all others are
refused in one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phaze_common.errors import InputError
from phaze_common.file_formats import FileFormat, FormatError


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    return {"size_bytes" if key == "size" else key: value for key, value in document.items()}


def in_bytes(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"size": document["size"] * 1024}


KIND = FileFormat("a box", "box.yaml", "pack it again", 4, {2: in_bytes, 3: renamed})


def test_each_step_is_taken_and_none_twice() -> None:
    assert KIND.current({"schema_version": 2, "size": 3}, "old") == {"size_bytes": 3072}
    assert KIND.current({"schema_version": 3, "size": 3}, "old") == {"size_bytes": 3}
    assert KIND.current({"schema_version": 4, "size_bytes": 3}, "now") == {"size_bytes": 3}


def test_what_is_written_is_read() -> None:
    assert list(KIND.stamped({"size_bytes": 3})) == ["schema_version", "size_bytes"]
    assert KIND.current(KIND.stamped({"size_bytes": 3}), "now") == {"size_bytes": 3}
    assert json.loads(KIND.current_json(KIND.stamped_json(b'{"size_bytes":3}'), "now")) == {
        "size_bytes": 3
    }


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"schema_version": 5},
            "old.yaml is a box of version 5, this phaze reads versions 2 to 4; use a newer phaze, "
            "or pack it again",
        ),
        (
            {"schema_version": 1},
            "old.yaml is a box of version 1, this phaze reads versions 2 to 4; pack it again",
        ),
        (
            {"size": 3},
            "old.yaml is a box of version 1, this phaze reads versions 2 to 4; pack it again",
        ),
        (
            {"schema_version": "4"},
            "old.yaml: schema_version is '4', but must be a whole number; correct it, or pack it "
            "again",
        ),
        (
            {"schema_version": True},
            "old.yaml: schema_version is true, but must be a whole number; correct it, or pack it "
            "again",
        ),
        (
            {"schema_version": None},
            "old.yaml: schema_version is null, but must be a whole number; correct it, or pack it "
            "again",
        ),
    ],
)
def test_every_other_version_is_refused_in_one_sentence(
    document: dict[str, Any], said: str
) -> None:
    with pytest.raises(FormatError) as refusal:
        KIND.current(document, "old.yaml")
    assert (
        str(refusal.value) == said
        and isinstance(refusal.value, InputError)
        and refusal.value.exit_status == 2
    )


def test_a_kind_without_versions_so_far_reads_files_without_one() -> None:
    first = FileFormat("a box", "box.yaml", "pack it again")
    assert (
        first.current({"size": 3}, "a")
        == first.current({"schema_version": 1, "size": 3}, "a")
        == {"size": 3}
    )
    with pytest.raises(FormatError, match="version 0, this phaze reads version 1; pack it again"):
        first.current({"schema_version": 0}, "a")


@pytest.mark.parametrize("document", [None, [1, 2], "text"])
def test_what_is_no_mapping_is_for_others_to_refuse(document: object) -> None:
    assert KIND.current(document, "a") is document
    assert KIND.current_json(b"no JSON", "a") == b"no JSON"
