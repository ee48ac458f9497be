"""Where compiled code goes when the checkout cannot be written."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from FrontDoor import compiled


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(compiled.SETTING, "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield


def test_a_writable_checkout_or_home_is_left_to_the_compiler(tmp_path: Path) -> None:
    compiled.find_place(tmp_path)
    compiled.find_place(tmp_path / "absent")
    assert not os.environ[compiled.SETTING]


def test_without_either_a_private_folder_serves_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    compiled.find_place(tmp_path / "absent")
    folder = Path(os.environ[compiled.SETTING])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    compiled.find_place(tmp_path / "absent")
    assert os.environ[compiled.SETTING] == str(folder)


def test_a_place_the_user_chose_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.SETTING, "/chosen")
    compiled.find_place(tmp_path / "absent")
    assert os.environ[compiled.SETTING] == "/chosen"
