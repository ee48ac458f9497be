"""The store of graphs that tests share."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.bert import Bert
from GraphExtractor.models.registry import find_model
from phaze_common.errors import InputError
from tests.builders.traces import TraceStore

KEY = GraphKey("bertbase", 1, 128, 1)


@dataclass(frozen=True, kw_only=True)
class OwnBert(Bert):
    """A family of this file, whose code no store knows."""


@pytest.fixture
def asked() -> list[GraphKey]:
    """The keys of all traces that were made."""
    return []


@pytest.fixture
def counted(
    extracted: Callable[..., ModelGraph], asked: list[GraphKey]
) -> Callable[..., ModelGraph]:
    graph = extracted("bertbase", sequence_length=128)

    def trace(key: GraphKey, family: ModelFamily | None = None) -> ModelGraph:
        asked.append(key)
        if key.tp > 1:
            raise InputError("too wide")
        return replace(graph, key=key)

    return trace


def test_a_graph_is_traced_once_by_all_names_of_its_model(tmp_path: Path, counted, asked) -> None:
    first, second = TraceStore(tmp_path, counted), TraceStore(tmp_path, counted)
    long = GraphKey("gpt2-xl", 1, 128, 1)
    assert first.graph(long) == first.graph(replace(long, model="gpt2")) == second.graph(long)
    assert first.graph(long).key.model == "gpt2"
    assert asked == [replace(long, model="gpt2")]


def test_everything_that_is_asked_tells_graphs_apart(tmp_path: Path, counted, asked) -> None:
    store = TraceStore(tmp_path, counted)
    keys = [
        KEY,
        replace(KEY, micro_batch_size=2),
        replace(KEY, sequence_length=64),
        replace(KEY, model="bertlarge"),
    ]
    assert [store.graph(key).key for key in keys] == keys
    store.graph(KEY, replace(find_model("bertbase"), layers=3))
    assert len(asked) == 5


def test_workers_that_ask_at_once_wait_for_the_first(tmp_path: Path, counted, asked) -> None:
    ready = threading.Barrier(4)

    def ask(_: int) -> ModelGraph:
        ready.wait()
        return TraceStore(tmp_path, counted).graph(KEY)

    with ThreadPoolExecutor(4) as pool:
        graphs = list(pool.map(ask, range(4)))
    assert len(asked) == 1 and all(graph == graphs[0] for graph in graphs)


def test_errors_and_models_of_others_are_not_kept(tmp_path: Path, counted, asked) -> None:
    store, own = TraceStore(tmp_path, counted), OwnBert(**vars(find_model("bertbase")))
    for _ in range(2):
        with pytest.raises(InputError, match="too wide"):
            store.graph(replace(KEY, tp=2))
        store.graph(KEY, own)
    assert len(asked) == 4
    assert not list(tmp_path.rglob("*.gz"))


def test_the_code_under_test_gets_the_shared_graphs(traces: TraceStore) -> None:
    import GraphExtractor.extract

    assert GraphExtractor.extract.extract_graph == traces.graph
