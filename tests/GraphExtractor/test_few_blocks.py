"""Blocks that are traced stand for all blocks of a described model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from GraphExtractor import extract
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.models.registry import find_model
from GraphExtractor.replication import Representatives, representatives
from GraphExtractor.widths import check_key
from phaze_common.errors import InputError
from tests.GraphExtractor.test_size_laws import CHANGES

SIZES = "layers=6,hidden=64,heads=4,vocabulary=512"
FAMILIES = ("gpt", "llama", "opt", "bloom", "mpt", "bert", "megatronbert", "qwen3")
EXPERTS = ("mixtral", "qwen3moe")


def cases() -> list[GraphKey]:
    """A model of six blocks of every family in every kind of division that it has."""
    names = [f"{name}:{SIZES}" for name in FAMILIES]
    names += [f"{name}:{SIZES},experts=4,chosen=2" for name in EXPERTS]
    found = []
    for model in names:
        for change in CHANGES:
            key = replace(GraphKey(model, 2, 32, 1), **change)  # type: ignore[arg-type]
            try:
                check_key(key, find_model(model))
            except InputError:
                continue
            found.append(key)
    return found


@pytest.mark.some(8)
@pytest.mark.parametrize("key", cases(), ids=str)
def test_few_blocks_stand_for_all(key: GraphKey, monkeypatch: pytest.MonkeyPatch) -> None:
    short = extract_graph(key)
    monkeypatch.setattr(extract, "_blocks_are_alike", lambda *_: False)  # all are built
    monkeypatch.setattr(extract.BuiltModel, "representatives", lambda built, ahead: {})
    assert extract_graph(key) == short


def traced_blocks(model: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks each trace of a model has."""
    counts: list[int] = []

    def chosen(blocks: object, ahead: int = 2, left_out: int = 0) -> Representatives:
        found = representatives(blocks, ahead, left_out)
        counts.append(len(found.chosen))
        return found

    monkeypatch.setattr(extract, "representatives", chosen)
    found: ModelGraph = extract_graph(GraphKey(model, 2, 32, 1))
    assert len(found.sequence) >= 6
    return counts


def test_first_and_last_do_where_blocks_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert traced_blocks(f"llama:{SIZES}", monkeypatch) == [2]


def test_blocks_that_feed_two_stacks_are_traced_further(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 not in traced_blocks("t5-small", monkeypatch)
