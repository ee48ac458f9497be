"""Arrays on disk: what was written comes back, anything else is refused."""

from dataclasses import dataclass

import numpy as np
import pytest

from phaze_common.arrays import load_arrays, read_arrays, store_arrays
from phaze_common.errors import ArtefactError


@dataclass(frozen=True, eq=False)
class Pair:
    seconds: np.ndarray
    count: np.ndarray


@dataclass(frozen=True, eq=False)
class Other:
    seconds: np.ndarray


@pytest.fixture
def path(tmp_path):
    store_arrays(tmp_path / "pair.npz", Pair(np.array([[1.5, np.inf]]), np.array([3])))
    return tmp_path / "pair.npz"


def test_what_is_stored_is_loaded(path):
    pair = load_arrays(Pair, path)
    assert pair.seconds.tolist() == [[1.5, np.inf]]
    assert pair.count.tolist() == [3] and pair.count.dtype == np.int64


@pytest.mark.parametrize("cut", [0, 1, 60, -1])
def test_a_part_of_a_file_is_refused(path, cut):
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ArtefactError, match=r"pair\.npz is damaged"):
        read_arrays(path)


@pytest.mark.parametrize("content", [b"hello", b"\x80\x04N.", b"PK\x03\x04" + bytes(100)])
def test_garbage_is_refused_and_never_unpickled(path, content):
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match="damaged"):
        read_arrays(path)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": np.array([[1.5, np.nan]])},
        {"seconds": np.array([1.5])},
        {"seconds": np.array([["1.5", "inf"]])},
        {"count": np.array([3], dtype=np.int32)},
        {"digest": np.zeros(16, dtype=np.uint8)},
        {"more": np.zeros(1)},
    ],
)
def test_a_whole_file_of_other_numbers_is_refused(path, change):
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **(arrays | change))
    with pytest.raises(ArtefactError, match="does not hold what was written"):
        read_arrays(path)


def test_another_record_is_refused(path):
    with pytest.raises(ArtefactError, match="count, seconds, which is no Other"):
        load_arrays(Other, path)
