"""Writes into parts of tensors, values that a trace knows, and dictionaries as inputs: modules of
one's own that use them."""

import pytest

from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.registry import find_model
from phaze_common.errors import InputError

MODULE = """import torch
from torch import nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        {body}
def build(): return M()
def example_inputs(micro_batch_size): return {inputs}
def loss(output): return output.float().square().mean()
"""
TENSOR = "torch.zeros(micro_batch_size, 4, 8)"


def graph_of(folder, body, inputs=TENSOR):
    path = folder / "mine.py"
    path.write_text(MODULE.format(body=body, inputs=inputs))
    return extract_graph(GraphKey(str(path), 2, find_model(str(path)).sequence_length, 1))


def flops(graph):
    layers = [graph.layers[index] for index in graph.sequence]
    return sum(layer.forward.flops for layer in layers), sum(
        layer.backward.flops for layer in layers
    )


@pytest.mark.parametrize(
    "write",
    [
        "y[:, :2] = self.a(x[:, :2]); y[:, 2:] = self.a(x[:, 2:])",
        "y[:, 0] = self.a(x[:, 0]); y[:, 1:] = self.a(x[:, 1:])",
        "y.transpose(0, 1)[:2].copy_(self.a(x[:, :2]).transpose(0, 1)); y[:, "
        "2:].copy_(self.a(x[:, 2:]))",
    ],
)
def test_a_tensor_filled_in_parts_depends_on_what_it_was_filled_with(tmp_path, write):
    filled = graph_of(tmp_path, f"y = torch.empty_like(x); {write}; return self.b(y * 2)")
    joined = graph_of(
        tmp_path, "y = torch.cat([self.a(x[:, :2]), self.a(x[:, 2:])], 1); return self.b(y * 2)"
    )
    assert flops(filled) == flops(joined)
    sources = {tensor.source for tensor in filled.tensors if tensor.gradient_bytes}
    assert sources == set(range(len(filled.sequence) - 1))  # every part has gone into the result


def test_a_tensor_filled_in_very_many_parts_is_refused(tmp_path):
    body = (
        "y = torch.empty_like(x)\n        for _ in range(70): y[:, 0] = self.a(x[:, 0])\n      "
        "  return self.b(y)"
    )
    with pytest.raises(InputError, match="writes into a part of a tensor in place"):
        graph_of(tmp_path, body)


def test_code_may_ask_for_values_that_depend_on_shapes_alone(tmp_path):
    body = (
        "steps = torch.arange(x.shape[1]); n = int((steps < 3).sum()); return "
        "self.b(self.a(x)[:, :n])"
    )
    kept = graph_of(tmp_path, body)
    assert flops(kept) == flops(graph_of(tmp_path, "return self.b(self.a(x)[:, :3])"))


def test_code_that_asks_for_values_of_activations_is_refused(tmp_path):
    with pytest.raises(InputError, match="asks for the value of a tensor"):
        graph_of(tmp_path, "return self.b(self.a(x)) if x.sum() > 0 else self.a(x)")


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (
            "return self.b(self.a(x['left']) + x['more']['right'])",
            "{'left': T, 'more': {'right': T}}",
        ),
        ("return self.b(self.a(x['left']) + x['right'][0])", "({'left': T, 'right': [T]},)"),
        ("return self.b(self.a(x['left']) + x['right'])", "{'x': {'left': T, 'right': T}}"),
    ],
)
def test_inputs_may_be_dictionaries(tmp_path, body, inputs):
    nested = graph_of(tmp_path, body, inputs.replace("T", TENSOR))
    assert flops(nested) == flops(graph_of(tmp_path, "return self.b(self.a(x) + x)"))
