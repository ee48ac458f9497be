"""Files that runs keep for each other: found by content, bounded, never needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phaze_common.errors import ArtefactError
from phaze_common.user_cache import SETTING, Kept, bring, keep, load_or_bring, user_cache

KIND = Kept("things", 3000, 2)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(SETTING)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "phaze"


def file_of(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_what_one_run_keeps_another_brings_and_nothing_else(tmp_path: Path) -> None:
    keep(file_of(tmp_path / "made", b"content"), KIND, "ab12")
    brought = tmp_path / "other run" / "made"
    assert not bring(KIND, "ab13", brought) and not bring(Kept("others", 1), "ab12", brought)
    assert bring(KIND, "ab12", brought)
    assert brought.read_bytes() == b"content"


def test_what_was_longest_of_no_use_gives_way(tmp_path: Path, own_cache: Path) -> None:
    large = file_of(tmp_path / "made", bytes(KIND.most_bytes // 3))
    for age, name in enumerate(("ab0", "ab1", "ab2")):
        keep(large, KIND, name)
        (kept,) = own_cache.rglob(name[2:])
        os.utime(kept, (1e9 + age, 1e9 + age))
    brought = tmp_path / "brought"
    assert bring(KIND, "ab0", brought)  # of use again
    keep(large, KIND, "ab3")
    assert [bring(KIND, f"ab{number}", brought) for number in range(4)] == [True, False, True, True]


def test_the_folder_may_be_another_or_none(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, str(tmp_path / "another"))
    keep(file_of(tmp_path / "made", b"content"), KIND, "ab12")
    assert bring(KIND, "ab12", tmp_path / "brought") and not own_cache.exists()
    monkeypatch.setenv(SETTING, "")
    assert not bring(KIND, "ab12", tmp_path / "brought")


def test_a_place_that_cannot_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(file_of(tmp_path / "no folder", b"")))
    keep(file_of(tmp_path / "made", b"content"), KIND, "ab12")
    assert not bring(KIND, "ab12", tmp_path / "brought")


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", no_home)
    assert user_cache() is None


def test_a_relative_folder_is_not_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert user_cache() == tmp_path / ".cache" / "phaze"


def test_what_is_damaged_is_kept_no_longer(
    tmp_path: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def load(path: Path) -> bytes:
        if path.read_bytes() != b"content":
            raise ArtefactError(f"{path} is damaged")
        return path.read_bytes()

    keep(file_of(tmp_path / "made", b"half"), KIND, "ab12")
    asked = tmp_path / "other run" / "made"
    assert load_or_bring(asked, KIND, "ab12", load) is None
    assert not caplog.records and not [*own_cache.rglob("12*"), *asked.parent.iterdir()]
    keep(file_of(tmp_path / "made", b"content"), KIND, "ab12")
    assert load_or_bring(asked, KIND, "ab12", load) == b"content"
