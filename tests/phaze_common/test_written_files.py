"""What phaze did not write stays as it is; what it wrote is replaced, unless somebody edited it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from phaze_common.errors import InputError
from phaze_common.written_files import MARKS, RECORD, write_output, write_outputs

OURS = {"README.md": b"# ours\n", "run.sh": b"exec ours\n", "traces/0.et": b"\0\1"}


def test_our_own_files_are_replaced_and_gain_a_record(tmp_path: Path) -> None:
    write_outputs(tmp_path, OURS)
    write_outputs(tmp_path, {name: content + b"2" for name, content in OURS.items()})
    assert (tmp_path / "traces" / "0.et").read_bytes() == b"\0\1\x32"
    assert (tmp_path / RECORD).is_file()


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("how", ["before", "edited", "link", "broken link", "folder"])
def test_files_of_others_stay_and_nothing_is_written_beside_them(
    name: str, how: str, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    if how == "edited":
        write_outputs(folder, OURS)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "elsewhere").write_bytes(b"mine")
    match how:
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case "broken link":
            path.symlink_to(tmp_path / "nowhere")
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes(b"mine")
    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    with pytest.raises(InputError, match="--force"):
        write_outputs(folder, {each: content + b"2" for each, content in OURS.items()})
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before
    if how != "folder":
        write_outputs(folder, OURS, force=True)
        assert path.read_bytes() == OURS[name] and (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_the_same_content_is_no_replacement(tmp_path: Path) -> None:
    (tmp_path / "cores.json").write_bytes(b"[]")
    write_output(tmp_path / "cores.json", b"[]")
    (tmp_path / RECORD).write_bytes(b"damaged")
    write_output(tmp_path / "cores.json", b"[]")
    with pytest.raises(InputError, match="is there, and is not as phaze wrote it"):
        write_output(tmp_path / "cores.json.2", b"[1]") or write_output(tmp_path / RECORD, b"{}")


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("packed", [False, True])
def test_pages_and_timelines_are_known_by_their_mark_alone(
    mark: bytes, packed: bool, tmp_path: Path
) -> None:
    content = gzip.compress(mark + b"rest" * 10_000) if packed else mark + b"rest"
    (tmp_path / "moved.html").write_bytes(content)
    write_output(tmp_path / "moved.html", content + (b"" if packed else b"2"))
    assert not (tmp_path / RECORD).exists()


def test_a_record_of_another_file_says_nothing_of_this_one(tmp_path: Path) -> None:
    write_output(tmp_path / "a", b"one")
    (tmp_path / "b").write_bytes(b"one")
    with pytest.raises(InputError):
        write_output(tmp_path / "b", b"two")
