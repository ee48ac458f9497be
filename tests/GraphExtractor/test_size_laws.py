"""Graphs of other micro-batch sizes and degrees: what follows from two is what a trace gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from GraphExtractor import storage
from GraphExtractor.graph import (
    Attention,
    GraphKey,
    KeyExchange,
    ModelGraph,
    StageCuts,
    TensorLayout,
)
from GraphExtractor.graphs_beside import graphs_between
from GraphExtractor.many import load_or_extract_all
from GraphExtractor.models.registry import listed_models
from GraphExtractor.permission import CodePermission
from GraphExtractor.size_laws import SAMPLES, SizeLaw, with_size
from GraphExtractor.widths import check_key
from phaze_common.errors import InputError
from tests.builders.traces import TraceStore

TINY = "llama:layers=3,hidden=64,heads=8,vocabulary=512"
CROWD = """
import torch
from torch import nn


class Crowd(nn.Module):
    # every sample meets every other one

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        for block in self.blocks:
            y = block(x)
            x = x + torch.softmax(y @ y.T, -1) @ y
        return self.head(x)


def build():
    return Crowd()


def example_inputs(micro_batch_size):
    return torch.randn(micro_batch_size, 16)


def loss(output):
    return nn.functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.long))
"""

CHANGES: list[dict[str, object]] = [
    {},
    {"tp": 2},
    {"tp": 2, "sequence_parallel": True},
    {"cp": 2},
    {"ep": 2},
    {"attention": Attention.EAGER},
    {"layout": TensorLayout.TWO_D, "tp": 2, "tp2": 2},
    {"cuts": StageCuts.INSIDE},
]


def every_division(model: str) -> list[GraphKey]:
    """A key of the model in every kind of division that it has."""
    family, found = listed_models()[model], []
    plain = GraphKey(model, 2, family.sequence_length or 128, 1)
    for each in CHANGES:
        key = replace(plain, **each)  # type: ignore[arg-type]
        try:
            check_key(key, family)
        except InputError:
            continue
        found.append(key)
    return found


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "key", [key for model in listed_models() for key in every_division(model)], ids=str
)
def test_numbers_of_listed_models_are_affine_in_the_micro_batch_size(
    key: GraphKey, traces: TraceStore
) -> None:
    graphs = {size: traces.graph(replace(key, micro_batch_size=size)) for size in (2, 3, 8)}
    law = SizeLaw.through(SAMPLES, graphs[2], graphs[8])
    assert law is not None and law.holds_for(graphs[3])
    assert law.at(3) == graphs[3]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[GraphKey]:
    """The keys that are traced from now on."""
    import GraphExtractor.extract as extract

    traced: list[GraphKey] = []
    trace: Callable[[GraphKey], ModelGraph] = extract.extract_graph

    def told(key: GraphKey) -> ModelGraph:
        traced.append(key)
        return trace(key)

    monkeypatch.setattr(extract, "extract_graph", told)
    return traced


def check_as_if_traced(
    graphs: Mapping[GraphKey, ModelGraph], keys: Sequence[GraphKey], folder: Path
) -> None:
    """Compare ``graphs`` with traces of ``keys``, one by one into another folder."""
    for key in keys:
        assert graphs[key] == storage.load_or_extract(key, folder)


def keys_of(model: str, widths: tuple[int, ...] = (1, 2, 4)) -> list[GraphKey]:
    length = 1 if model.endswith(".py") else 32
    return [GraphKey(model, size, length, tp) for tp in widths for size in (1, 2, 3, 4, 8)]


def test_of_many_sizes_two_are_traced_and_one_checks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced, advanced = counted(monkeypatch), list[int]()
    keys = keys_of(TINY)
    graphs = load_or_extract_all(keys, tmp_path, False, CodePermission(), advanced.append)
    assert len(traced) == 3 + 2 + 2 and sum(advanced) == len(keys)
    sizes = [(graphs[key].key.micro_batch_size, graphs[key].key.tp) for key in keys]
    assert sizes == [(key.micro_batch_size, key.tp) for key in keys]
    check_as_if_traced(graphs, keys, tmp_path / "alone")
    before = len(traced)
    assert load_or_extract_all(keys, tmp_path, False, CodePermission(), advanced.append) == graphs
    assert len(traced) == before


DIVIDED: list[tuple[str, dict[str, object], tuple[int, ...], int, int]] = [
    ("cp", {"exchange": KeyExchange.GATHER}, (2, 4, 8, 16), 32, 3 + 2 + 1),
    ("cp", {"exchange": KeyExchange.RING, "tp": 2}, (2, 4, 8, 16), 32, 3 + 2 + 1),
    ("cp", {"exchange": KeyExchange.ULYSSES}, (2, 4, 8), 32, 3 + 2 + 1),
    ("tp2", {"layout": TensorLayout.TWO_D, "tp": 2}, (2, 4, 8), 32, 3 + 2 + 1),
    ("tp", {"sequence_parallel": True}, (2, 4, 8, 16), 32, 3 + 2 + 1),
    # the last have one head each, which other operators compute
    ("tp", {}, (2, 4, 8, 16), 16, 3 + 2 + 2 + 1),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("axis", "others", "values", "heads", "fewest"), DIVIDED)
def test_degrees_between_the_ends_follow_from_them(
    axis: str,
    others: dict[str, object],
    values: tuple[int, ...],
    heads: int,
    fewest: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = f"llama:layers=3,hidden=512,heads={heads},vocabulary=2048"
    plain = replace(GraphKey(model, 1, 128, 1), **others)  # type: ignore[arg-type]
    keys = [
        replace(with_size(plain, axis, value), micro_batch_size=size)
        for value in values
        for size in (1, 3, 4)
    ]
    traced = counted(monkeypatch)
    graphs = load_or_extract_all(keys, tmp_path, False, CodePermission(), lambda _: None)
    assert len(traced) == fewest
    check_as_if_traced(graphs, keys, tmp_path / "alone")


def test_a_vocabulary_that_is_padded_otherwise_follows_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # to words that 128 and the degree divide, which as many are for 4, 6 and 9 devices
    model = "gpt:layers=1,hidden=144,heads=72,vocabulary=50272"
    keys = [GraphKey(model, 1, 16, tp) for tp in (4, 6, 8, 9)]
    traced = counted(monkeypatch)
    graphs = load_or_extract_all(keys, tmp_path, False, CodePermission(), lambda _: None)
    assert 8 in {key.tp for key in traced}
    check_as_if_traced(graphs, keys, tmp_path / "alone")


def test_what_is_stored_helps_others_to_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, code = keys_of(TINY, (1,)), CodePermission()
    load_or_extract_all(keys[:4], tmp_path, False, code, lambda _: None)
    traced, advanced = counted(monkeypatch), list[int]()
    assert len(load_or_extract_all(keys, tmp_path, False, code, advanced.append)) == len(keys)
    assert [key.micro_batch_size for key in traced] == [8] and sum(advanced) == len(keys)


@pytest.mark.parametrize(
    ("model", "fewest"),
    [
        ("bert:layers=3,hidden=64,heads=2,vocabulary=512", 4),  # which broadcasts one sample
        ("crowd.py", 5),  # whose work grows with the square of the samples
    ],
)
def test_what_follows_no_law_is_traced(
    model: str, fewest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model.endswith(".py"):
        path = tmp_path / model
        path.write_text(CROWD)
        model = str(path)
    traced, keys = counted(monkeypatch), keys_of(model, (1,))
    graphs = load_or_extract_all(keys, tmp_path, False, CodePermission(), lambda _: None)
    assert len(traced) == fewest
    check_as_if_traced(graphs, keys, tmp_path / "alone")


@pytest.mark.some(1)
@pytest.mark.parametrize("family", ["gpt", "bert", "llama"])
def test_what_leaves_its_law_is_as_in_graphs_of_another_exchange(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = f"{family}:layers=3,hidden=64,heads=4,vocabulary=512"
    keys = [
        GraphKey(model, size, 32, tp, cp=2, exchange=exchange)
        for exchange in (KeyExchange.RING, KeyExchange.GATHER)
        for tp in (2, 4)
        for size in (1, 2, 3, 4, 8)
    ]
    traced = counted(monkeypatch)
    graphs = load_or_extract_all(keys, tmp_path, False, CodePermission(), lambda _: None)
    around = [key for key in traced if key.exchange is KeyExchange.RING]
    assert len(around) == 3 + 2 and len(traced) - len(around) == (
        3 + 2 if family == "llama" else 4 + 3
    )
    check_as_if_traced(graphs, keys, tmp_path / "alone")


def test_other_layers_than_those_beside_follow_no_law_of_theirs(traces: TraceStore) -> None:
    model = "gpt:layers=3,hidden=64,heads=4,vocabulary=512"
    graphs = [traces.graph(GraphKey(model, size, 32, 1, cp=2)) for size in (1, 2, 4)]
    keys = [graph.key for graph in graphs]
    low, between, high = graphs
    assert graphs_between(keys, (low, high), graphs) == [between]
    embedding, *others = high.layers
    larger = replace(embedding, parameter_count=embedding.parameter_count + 1)
    other = replace(high, layers=(larger, *others))
    assert graphs_between(keys, (low, other), graphs) is None
    fewer = replace(high, layers=high.layers[:1])
    assert graphs_between(keys, (low, fewer), graphs) is None


def test_rows_that_are_padded_are_found_between_sizes_that_need_no_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "padding.py"
    rows = "nn.functional.pad(block(x), (0, 0, 0, -len(x) % 8))"
    path.write_text(CROWD.replace("y = block(x)", f"y = {rows}").replace("x = x + ", "x = "))
    keys = [GraphKey(str(path), size, 1, 1) for size in (8, 16, 20, 24)]
    traced = counted(monkeypatch)
    graphs = load_or_extract_all(keys, tmp_path, False, CodePermission(), lambda _: None)
    assert len(traced) == 4
    assert graphs[keys[2]] == storage.load_or_extract(keys[2], tmp_path / "alone")
