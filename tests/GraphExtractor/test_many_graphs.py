"""Many graphs at once: made in processes of their own, the same as one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from GraphExtractor import many
from GraphExtractor.graph import GraphKey
from GraphExtractor.many import load_or_extract_all
from GraphExtractor.permission import CodePermission
from GraphExtractor.storage import load_or_extract
from phaze_common.errors import InputError

KEYS = [
    GraphKey("gpt:layers=3,hidden=64,heads=2,vocabulary=512", size, 32, 1) for size in (1, 2, 4)
]


@pytest.mark.thorough
def test_graphs_made_in_processes_are_those_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_or_extract(KEYS[0], tmp_path)  # is read
    monkeypatch.setattr(many, "MANY", 2)
    monkeypatch.setattr(many, "LONG_S", 0.0)
    advanced: list[int] = []
    graphs = load_or_extract_all(KEYS, tmp_path, False, CodePermission(), advanced.append)
    assert list(graphs) != [] and set(graphs) == set(KEYS) and sum(advanced) == len(KEYS)
    for key in KEYS[1:]:
        assert graphs[key] == load_or_extract(key, tmp_path / "alone")


def test_few_graphs_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "MANY", 2)
    monkeypatch.setattr(many, "in_processes", None)
    assert set(
        load_or_extract_all(KEYS[:1], tmp_path, False, CodePermission(), lambda _: None)
    ) == set(KEYS[:1])


def test_processes_start_where_graphs_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart: list[GraphKey] = []

    def here(made: Callable[[GraphKey], GraphKey], keys: list[GraphKey], _: int) -> object:
        apart.extend(keys)
        return map(made, keys)

    monkeypatch.setattr(many, "MANY", 2)
    monkeypatch.setattr(many, "in_processes", here)
    monkeypatch.setattr(logging, "disable", lambda: None)
    spent_s = iter((0.0, 1.0, many.LONG_S))
    clock = SimpleNamespace(process_time=lambda: next(spent_s))
    monkeypatch.setattr(many, "time", clock)
    graphs = load_or_extract_all(KEYS, tmp_path, False, CodePermission(), lambda _: None)
    assert len(apart) == len(KEYS) - 1 and len(graphs) == len(KEYS)


def test_what_cannot_be_extracted_is_told_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "MANY", 1)
    monkeypatch.setattr(many, "LONG_S", 0.0)
    monkeypatch.setattr(many, "in_processes", lambda function, keys, _: map(function, keys))
    wrong = GraphKey("gpt:layers=3,hidden=64,heads=2,vocabulary=512", 1, 32, 3)
    with pytest.raises(InputError, match="3"):
        load_or_extract_all([KEYS[0], wrong], tmp_path, False, CodePermission(), lambda _: None)
