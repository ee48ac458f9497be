"""Where compiled code goes, of which version it is, and what happens when the checkout cannot be
written."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phaze_common import compiled_code
from phaze_common.files import package_version

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(compiled_code.SETTING, "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    yield


def sources(root: Path, text: str) -> Path:
    """A house whose rooms have compiled code."""
    for room in compiled_code.PACKAGES:
        (root / room).mkdir(parents=True, exist_ok=True)
        (root / room / "code.py").write_text(text)
    return root


def place(root: Path) -> Path:
    os.environ[compiled_code.SETTING] = ""
    package_version.cache_clear()  # as another process finds it
    compiled_code.find_place(root)
    return Path(os.environ[compiled_code.SETTING])


def test_what_one_version_compiled_is_never_found_by_another(tmp_path: Path) -> None:
    first = place(sources(tmp_path, "one = 1\n"))
    assert first.is_dir() and first.is_relative_to(tmp_path / compiled_code.PACKAGES[0])
    assert place(tmp_path) == first
    last = tmp_path / compiled_code.PACKAGES[-1] / "code.py"
    last.write_text("one = 2\n")
    assert place(tmp_path) != first
    last.write_text("one = 1\n")
    assert place(tmp_path) == first


def test_places_of_other_versions_go_once_no_run_can_be_using_them(tmp_path: Path) -> None:
    old, recent = (place(sources(tmp_path, f"one = {number}\n")) for number in (1, 2))
    long_ago = old.stat().st_mtime - 2 * compiled_code.IN_USE_S
    os.utime(old, (long_ago, long_ago))
    now = place(sources(tmp_path, "one = 3\n"))
    assert [folder.exists() for folder in (old, recent, now)] == [False, True, True]


def test_without_a_writable_checkout_the_user_s_cache_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place(tmp_path / "absent").is_relative_to(tmp_path / "home" / ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert place(tmp_path / "absent").is_relative_to(tmp_path / "cache")


def test_without_either_a_private_folder_serves_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    compiled_code.find_place(tmp_path / "absent")
    folder = Path(os.environ[compiled_code.SETTING])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    compiled_code.find_place(tmp_path / "absent")
    assert os.environ[compiled_code.SETTING] == str(folder)


def test_a_place_the_user_chose_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled_code.SETTING, "/chosen")
    compiled_code.find_place(tmp_path / "absent")
    assert os.environ[compiled_code.SETTING] == "/chosen"


def test_a_place_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv(compiled_code.SETTING, str(shared))
    compiled_code.find_place(tmp_path / "absent")
    assert (
        os.environ[compiled_code.SETTING] != str(shared)
        and "can be written by others" in caplog.text
    )
    inside = shared / "mine"
    inside.mkdir(mode=0o700)  # another could rename it, and make one of that name
    assert not compiled_code.is_own(inside)
    shared.chmod(0o1777)
    assert compiled_code.is_own(inside)
    (tmp_path / "link").symlink_to(inside)
    assert not compiled_code.is_own(tmp_path / "link")


def test_the_place_is_the_user_s_alone(tmp_path: Path) -> None:
    folder = place(sources(tmp_path, "one = 1\n"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)  # as an earlier version made it
    assert place(tmp_path) == folder and stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)  # anybody may have put anything into it
    assert place(tmp_path) != folder


def test_a_place_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place(sources(tmp_path, "one = 1\n"))
    assert compiled_code.is_own(folder)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert not compiled_code.is_own(folder)
    assert place(tmp_path) != folder


def test_a_compiler_that_is_loaded_already_is_told(tmp_path: Path) -> None:
    import numba

    folder = place(sources(tmp_path, ""))
    assert str(folder) == numba.config.CACHE_DIR


def test_a_function_that_calls_one_of_another_file_follows_it(tmp_path: Path) -> None:
    """Two files of compiled code, the called one changed between two processes: the answer of the
    caller changes with it."""
    shutil.copytree(
        REPOSITORY / "phaze_common",
        tmp_path / "phaze_common",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    caller = sources(tmp_path, "") / "Solver" / "caller.py"
    called = tmp_path / "Estimator" / "called.py"
    decorated = (
        "from phaze_common.kept_code import compiled\n{}\n@compiled()\ndef {}():\n    return {}\n"
    )
    caller.write_text(decorated.format("from Estimator.called import called", "caller", "called()"))
    code = (
        "from phaze_common.compiled_code import find_place; find_place(); from Solver.caller import "
        "caller; print(caller())"
    )
    words = [
        sys.executable,
        "-B",
        "-c",
        code,
    ]  # -B: bytecode does not tell apart what was written within one second
    for number in ("1", "2"):
        called.write_text(decorated.format("", "called", number))
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == f"{number}\n"


def test_every_room_with_compiled_code_counts() -> None:
    houses = [
        *(path for path in REPOSITORY.glob("[A-Z]*/") if path.is_dir()),
        REPOSITORY / "third_party",
    ]
    compiling = {
        house.name
        for house in houses
        for path in house.rglob("*.py")
        if any(
            line.startswith(("from phaze_common.kept_code", "from Estimator.compiled"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    }
    assert compiling == set(compiled_code.PACKAGES)


KEPT = """
from phaze_common.compiled_code import find_place
find_place()
from phaze_common.kept_code import compiled

@compiled()
def twice(number):
    return 2 * number

print(twice(21), sum(twice._cache_hits.values()))
"""


def spoilt(content: bytes, how: str) -> bytes:
    """A damaged file, or one that runs what somebody else put into it."""
    payload = b"cos\nsystem\n(S'touch was_run'\ntR."
    damaged = {
        "empty": b"",
        "half": content[: len(content) // 2],
        "noise": bytes(255 - each for each in content),
        "other": payload,
    }
    one_byte = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    return {**damaged, "one byte": one_byte, "payload": payload + content[len(payload) :]}[how]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("nbi", "half"),
        ("nbi", "noise"),
        ("nbi", "payload"),
        ("nbc", "empty"),
        ("nbc", "one byte"),
        ("nbc", "other"),
    ],
)
def test_damaged_code_is_compiled_again(kind: str, how: str, kept: Path) -> None:
    (file,) = kept.rglob(f"*.{kind}")
    file.write_bytes(spoilt(file.read_bytes(), how))
    done = run_program(kept)
    assert done.stdout == "42 0\n" and not (kept / "was_run").exists()
    assert (
        done.stderr.count("is damaged; what it held is compiled again") == 1
        and len(done.stderr.splitlines()) == 1
    )
    again = run_program(kept)
    assert (again.stdout, again.stderr) == ("42 1\n", "")


def run_program(house: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != compiled_code.SETTING}
    words = [sys.executable, "-B", "program.py"]
    return subprocess.run(
        words, cwd=house, env=environment, capture_output=True, text=True, check=True
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with one compiled function, which was run once."""
    house = sources(tmp_path_factory.mktemp("kept"), "")
    shutil.copytree(
        REPOSITORY / "phaze_common",
        house / "phaze_common",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (house / "program.py").write_text(KEPT)
    assert run_program(house).stdout == "42 0\n"
    return house
