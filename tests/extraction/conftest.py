"""Extracted graphs, traced once per test session."""

from collections.abc import Callable

import pytest

from GraphExtractor import GraphKey, ModelGraph, find_model
from GraphExtractor.graph import Attention

Extract = Callable[..., ModelGraph]


@pytest.fixture(scope="session")
def extracted() -> Extract:
    """``extracted(model, micro_batch_size=1, sequence_length=None, tp=1, attention=FLASH, sequence_parallel=False, cp=1)``."""
    from GraphExtractor import extract_graph

    graphs: dict[GraphKey, ModelGraph] = {}

    def extract(
        model: str,
        micro_batch_size: int = 1,
        sequence_length: int | None = None,
        tp: int = 1,
        attention: Attention = Attention.FLASH,
        sequence_parallel: bool = False,
        cp: int = 1,
    ) -> ModelGraph:
        length = sequence_length or find_model(model).sequence_length
        key = GraphKey(model, micro_batch_size, length, tp, attention, sequence_parallel, cp=cp)
        if key not in graphs:
            graphs[key] = extract_graph(key)
        return graphs[key]

    return extract
