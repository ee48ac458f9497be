"""Operators as they run, recorded: what is taken apart, written in place, constant or of several
parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from GraphExtractor.fake_mode import FakeMode
from GraphExtractor.recording import Recorder


def recorded(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.fx.Graph:
    with FakeMode():
        x = torch.empty(4, 4)
        recorder = Recorder([x])
        with recorder:
            recorder.end([function(x)])
    return recorder.graph


def names(graph: torch.fx.Graph) -> list[str]:
    """Operators by torch's names, such as "mm" of "aten.mm.default"."""
    targets = (str(node.target) for node in graph.nodes if node.op == "call_function")
    return [target.split(".")[1] for target in targets if target.startswith("aten.")]


@pytest.mark.parametrize("frozen", [False, True])
def test_operators_are_taken_apart_whether_gradients_could_be_asked_or_not(frozen: bool) -> None:
    def product(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(frozen):
            return x @ x

    assert names(recorded(product)) == ["mm"]


def test_what_is_written_in_place_is_read_as_it_is_then() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.unsqueeze_(0)
        return y + 1.0

    calls = [node for node in recorded(written).nodes if node.op == "call_function"]
    clone, unsqueezed, added = calls
    assert added.args[0] is unsqueezed and unsqueezed.args[0] is clone
    assert [tuple(node.meta["val"].shape) for node in calls] == [(4, 4), (1, 4, 4), (1, 4, 4)]


def test_parts_have_nodes_of_their_own_and_constants_one() -> None:
    table = torch.ones(4)
    graph = recorded(lambda x: torch.split(x, 2)[1] * table + table)
    assert "split" in names(graph)
    assert sum(node.op == "get_attr" for node in graph.nodes) == 1
    (part,) = [node for node in graph.nodes if "getitem" in str(node.target) and node.users]
    assert part.args[1] == 1 and tuple(part.meta["val"].shape) == (2, 4)
