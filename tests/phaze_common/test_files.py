"""Atomic writes, content keys, damaged artefacts."""

import errno
import os
from pathlib import Path

import pytest

from phaze_common.errors import ArtefactError, InputError, PhazeError
from phaze_common.files import (
    content_key,
    load_or_set_aside,
    pack,
    package_version,
    unpack,
    write_atomically,
)


def test_a_write_replaces_the_whole_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new folder" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_written_file_is_as_readable_as_any_other(tmp_path):
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_where_nothing_can_be_written_it_is_not_a_matter_of_room(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "below", Path("/proc/nowhere/file")):
        with pytest.raises(InputError, match="choose another place") as caught:
            write_atomically(path, b"new")
        assert "room" not in str(caught.value)


def test_a_full_disk_keeps_the_old_file_and_says_what_to_do(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PhazeError, match=r"No space left on device.*make room"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_kill_before_the_rename_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def killed(_descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_packed_content_is_deterministic_and_truncation_is_noticed(tmp_path):
    assert pack(b"text" * 100) == pack(b"text" * 100)
    path = tmp_path / "file.gz"
    path.write_bytes(pack(b"text" * 100))
    assert unpack(path) == b"text" * 100
    path.write_bytes(pack(b"text" * 100)[:-9])
    with pytest.raises(ArtefactError, match="damaged"):
        unpack(path)


def test_damaged_artefacts_are_set_aside_and_named(tmp_path, caplog):
    path = tmp_path / "file.gz"
    assert load_or_set_aside(path, unpack) is None
    path.write_bytes(b"not gzip")
    assert load_or_set_aside(path, unpack) is None
    assert not path.exists()
    assert (tmp_path / "file.gz.damaged").read_bytes() == b"not gzip"
    assert "file.gz" in caplog.text


def test_content_keys_depend_on_content_alone():
    assert content_key({"a": 1, "b": [2]}) == content_key({"b": [2], "a": 1})
    assert content_key("1") != content_key(1)


def test_code_version_changes_with_any_source_file(tmp_path):
    (tmp_path / "module.py").write_text("x = 1\n")
    (tmp_path / "notes.txt").write_text("ignored\n")
    before = package_version.__wrapped__(tmp_path)
    (tmp_path / "notes.txt").write_text("other\n")
    assert package_version.__wrapped__(tmp_path) == before
    (tmp_path / "output" / "run").mkdir(parents=True)
    (tmp_path / "output" / "run" / "study.yaml").write_text("model: bertlarge\n")
    assert package_version.__wrapped__(tmp_path) == before, "a run makes its own caches stale"
    (tmp_path / "data.yaml").write_text("a: 1\n")
    assert package_version.__wrapped__(tmp_path) != before


def test_a_damaged_artefact_that_another_run_sets_aside_first_is_no_error(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"broken")

    def load(path):
        path.unlink()
        raise ArtefactError(f"{path} is damaged")

    assert load_or_set_aside(path, load) is None
