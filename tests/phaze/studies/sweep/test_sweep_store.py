"""The store of finished points: nothing half, nothing damaged, nothing twice."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep_cases import run, small_sweep

from phaze.runs.finished_run import open_run
from phaze.studies.sweep.run import resolved_points
from phaze.studies.sweep.store import Store
from phaze_common.errors import PhazeError

REPOSITORY = Path(__file__).resolve().parents[4]
FILES = [
    "best.json",
    "designs.parquet",
    "manifest.json",
    "plans.parquet",
    "schedules.json.gz",
    "study.yaml",
    "point.json",
]


@pytest.fixture
def store(warm, tmp_path):
    shutil.copytree(warm / "points", tmp_path / "points")
    return Store(tmp_path / "points")


@pytest.fixture
def key(warm):
    (record,) = warm.glob("points/*/point.json")
    return record.parent.name


def test_a_finished_point_is_a_whole_run_without_what_only_an_unfinished_one_needs(store, key):
    finished = open_run(store.folder(key))
    assert finished.result.best is not None and len(finished.designs) > 0
    assert sorted(
        path.name for path in store.folder(key).iterdir() if not path.name.startswith(".")
    ) == sorted(FILES)
    assert finished.result.best.value == store.load(key).result.value


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["truncated", "changed", "emptied", "gone"])
def test_a_damaged_file_is_named_and_its_point_is_not_there(store, key, name, harm, caplog):
    path = store.folder(key) / name
    content = path.read_bytes()
    harmed = {
        "truncated": content[:-1],
        "changed": content[:-2] + bytes([content[-2] ^ 1]) + content[-1:],
        "emptied": b"",
    }
    path.unlink() if harm == "gone" else path.write_bytes(harmed[harm])
    assert store.load(key) is None
    assert (name in caplog.text) or (name == "point.json" and harm == "gone")
    assert store.load(key) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_changed_bit_of_a_record_goes_unnoticed(store, key, place, bit):
    record = store.folder(key) / "point.json"
    whole = record.read_bytes()
    before = store.load(key)
    changed = bytearray(whole)
    changed[place % len(whole)] ^= 1 << bit
    record.write_bytes(bytes(changed))
    try:
        assert store.load(key) in (None, before)
    finally:
        record.write_bytes(whole)


def test_a_record_of_another_point_is_none_of_this_one(store, key):
    shutil.copytree(store.folder(key), store.folder("0" * 20))
    assert store.load("0" * 20) is None


def test_what_a_kill_left_behind_is_removed_and_what_others_added_is_kept(store, key):
    (store.folder(key) / "points" / "part").mkdir(parents=True)
    (store.folder(key) / "report.html").write_text("a report")
    assert store.load(key) is not None
    assert not (store.folder(key) / "points").exists()
    assert (store.folder(key) / "report.html").exists()


def test_a_point_computed_elsewhere_is_stored_as_it_was(store, key, tmp_path):
    point = store.load(key)
    there = Store(tmp_path / "there")
    there.receive(point, store.contents(point))
    assert there.load(key) == point
    assert open_run(there.folder(key)).result == open_run(store.folder(key)).result


def test_a_folder_knows_its_own_name_only(store, tmp_path):
    other = Store(tmp_path / "other")
    assert not other.is_called(store.identity())
    assert other.identity() == other.identity() != store.identity()
    assert other.is_called(other.identity())


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(
            PhazeError, match=r"cannot write .*file.*: Not a directory; choose another --output"
        ),
        Store(tmp_path / "file").locked("key", wait=False),
    ):
        pass


def test_a_lock_keeps_other_processes_away_and_goes_with_its_own(tmp_path):
    hold = (
        "import sys, time; from pathlib import Path; from phaze.studies.sweep.store import Store\n"
        "with Store(Path(sys.argv[1])).locked('key', wait=False) as held:\n    print(held, "
        "flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "True\n"
        with Store(tmp_path).locked("key", wait=False) as held:
            assert not held
    finally:
        holder.kill()
        holder.communicate()
    with Store(tmp_path).locked("key", wait=True) as held:
        assert held


@pytest.mark.thorough
def test_two_sweeps_share_a_store_and_the_second_waits_for_what_the_first_computes(warm, tmp_path):
    (there,) = run(small_sweep(tmp_path, warm))
    assert there.found
    busy = small_sweep(tmp_path, warm, hbm_size=7)
    (asked,) = resolved_points(busy)
    holding = (
        "import sys, time; from pathlib import Path; from phaze.studies.sweep.store import Store\n"
        "with Store(Path(sys.argv[1])).locked(sys.argv[2], wait=False):\n    print('up', "
        "flush=True); time.sleep(1.5)"
    )
    words = [sys.executable, "-c", holding, str(busy.store), asked.point.key]
    holder = subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "up\n"
    start = time.monotonic()
    (waited,) = run(busy)
    assert time.monotonic() - start > 1.0
    holder.communicate(timeout=10)
    assert waited.point is not None and waited.point.key == asked.point.key
    assert (busy.store / asked.point.key / "point.json").exists()
