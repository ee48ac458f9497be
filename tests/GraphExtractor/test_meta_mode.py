"""Tensors without memory give the graphs that fake tensors of a CPU give."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from GraphExtractor import extract
from GraphExtractor.extract import extract_graph
from GraphExtractor.fake_mode import FakeMode
from GraphExtractor.graph import GraphKey
from GraphExtractor.meta_mode import MetaMode
from GraphExtractor.models.registry import listed_models
from GraphExtractor.torch_internals import DataDependentOutputException
from tests.GraphExtractor.test_size_laws import every_division

aten = torch.ops.aten


def cases() -> list[GraphKey]:
    """One division of every listed model, another one of each."""
    keys = []
    for number, model in enumerate(listed_models()):
        divisions = every_division(model)
        keys.append(divisions[number % len(divisions)])
    return keys


@pytest.mark.some(6)
@pytest.mark.parametrize("key", cases(), ids=str)
def test_a_graph_is_that_of_fake_tensors(key: GraphKey, monkeypatch: pytest.MonkeyPatch) -> None:
    key = replace(key, sequence_length=min(key.sequence_length, 256))
    found = extract_graph(key)
    monkeypatch.setattr(extract, "MetaMode", FakeMode)
    assert extract_graph(key) == found


def test_what_an_operator_gives_depends_on_all_that_it_is_given() -> None:
    mode = MetaMode()
    with mode:
        wide, turned = torch.empty(4, 8), torch.empty(8, 4).t()
        half = torch.empty(4, 8, dtype=torch.float16)
    for given in ((wide, 1), (wide, 1.0), (wide, True), (half, 1), (turned, 1), (half, 1.0)):
        made, own = mode.run(aten.add.Tensor, given, {}), aten.add.Tensor(*given)
        assert (made.shape, made.stride(), made.dtype) == (own.shape, own.stride(), own.dtype)
    whole = torch.empty(4, 8, dtype=torch.int64, device="meta")
    assert [mode.run(aten.add.Tensor, (whole, each), {}).dtype for each in (1, 1.0)] == [
        torch.int64,
        torch.float32,
    ]


def test_views_and_writes_are_torchs_own() -> None:
    mode = MetaMode()
    with mode:
        whole = torch.empty(4, 8)
    part = mode.run(aten.select.int, (whole, 0, 1), {})
    assert part._base is whole
    assert mode.run(aten.add_.Tensor, (whole, 1), {}) is whole


def test_gradients_that_nobody_asks_for_are_none() -> None:
    mode = MetaMode()
    with mode:
        hidden, statistic = torch.empty(4, 8), torch.empty(4, 1)
    asked = hidden, hidden, [8], statistic, statistic, None, None, [True, False, False]
    found = mode.run(aten.native_layer_norm_backward.default, asked, {})
    assert found[0].shape == (4, 8) and found[1:] == (None, None)


def test_a_value_of_a_tensor_is_refused() -> None:
    mode = MetaMode()
    with mode:
        number = torch.empty(())
    with pytest.raises(DataDependentOutputException):
        mode.run(aten._local_scalar_dense.default, (number,), {})
