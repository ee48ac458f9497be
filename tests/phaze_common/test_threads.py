"""How many threads a process may use."""

import os

import pytest

from phaze_common.threads import threads


@pytest.mark.parametrize(
    ("said", "expected"),
    [("1", 1), ("12", 12), ("0", 1), ("", os.cpu_count()), ("4,2", os.cpu_count())],
)
def test_threads_are_what_the_environment_allows_else_one_per_core(monkeypatch, said, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert threads() == expected
