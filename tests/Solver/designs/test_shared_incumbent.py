"""What parts of a space tell each other: the most that any has told, whatever else is in the
folder."""

from pathlib import Path

from phaze_common.sealed import sealed
from Solver.designs.shared_incumbent import SharedIncumbent


def test_the_most_that_any_part_has_told(tmp_path: Path) -> None:
    folder = tmp_path / "known"
    first, second = SharedIncumbent(folder, "1-of-2"), SharedIncumbent(folder, "2-of-2")
    assert first.value() == 0.0  # nobody has told anything, and there is no folder
    first.tell(3.5)
    assert (first.value(), second.value()) == (3.5, 3.5)
    second.tell(2.0)
    assert first.value() == 3.5
    second.tell(0.1 + 0.2 + 4.0)
    assert first.value() == 0.1 + 0.2 + 4.0  # to the last bit


def test_a_part_that_begins_anew_takes_nothing_back(tmp_path: Path) -> None:
    SharedIncumbent(tmp_path, "1-of-1").tell(3.0)
    SharedIncumbent(tmp_path, "1-of-1").tell(1.0)
    assert SharedIncumbent(tmp_path, "1-of-1").value() == 3.0


def test_damaged_files_and_others_say_nothing(tmp_path: Path) -> None:
    known = SharedIncumbent(tmp_path, "1-of-9")
    known.tell(3.0)
    whole = (tmp_path / "1-of-9.value").read_bytes()
    (tmp_path / "2-of-9.value").write_bytes(whole.replace(b"3.0", b"9.0"))
    (tmp_path / "3-of-9.value").write_bytes(b"")
    (tmp_path / "4-of-9.value").write_bytes(whole[:-3])
    for place, content in enumerate((b"Infinity", b"NaN", b'"12"', b"[9.0]", b"true")):
        (tmp_path / f"odd-{place}.value").write_bytes(sealed(content))
    (tmp_path / "5-of-9.value").mkdir()
    (tmp_path / ".6-of-9.value.abc.tmp").write_bytes(sealed(b"9.0"))
    assert known.value() == 3.0


def test_without_a_folder_nothing_is_told_or_heard(tmp_path: Path) -> None:
    nobody = SharedIncumbent()
    nobody.tell(3.0)
    assert nobody.value() == 0.0
    (tmp_path / "file").touch()
    out_of_reach = SharedIncumbent(tmp_path / "file", "1-of-1")  # where no folder can be
    out_of_reach.tell(3.0)
    assert out_of_reach.value() == 0.0
