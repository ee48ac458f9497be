"""Embedding tables with sparse gradients: what is read and written are rows, not tables."""

import json

import pytest

import phaze
from GraphExtractor.check import check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, OperandRole, Yields

MODEL = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(1000, 16, sparse={sparse})
        self.tags = nn.EmbeddingBag(5, 16, mode="{mode}", sparse=True)
        self.words = nn.EmbeddingBag(400, 16, mode="{mode}", sparse=True)
        self.head = nn.Linear(48, 1)
    def forward(self, user, tags):
        offsets = torch.arange(0, 4 * tags.shape[0], 4)
        vectors = [self.users(user), self.tags(tags), self.words(tags.flatten(), offsets)]
        return self.head(torch.cat(vectors, 1))
def build(): return Model()
def example_inputs(n): return torch.zeros(n, dtype=torch.long), torch.zeros(n, 4, dtype=torch.long)
def loss(output): return output.float().mean()
"""
SAMPLES, WIDTH, BYTES = 8, 16, 2
OF_BAGS = 8 * (
    4 * SAMPLES + 2 * SAMPLES
)  # the bag of every lookup; of every bag its size and the lookup of a maximum


def traced(folder, **settings):
    path = folder / "tables.py"
    path.write_text(MODEL.format(**{"sparse": True, "mode": "sum", **settings}))
    return extract_graph(GraphKey(str(path), SAMPLES, 1, 1))


def named(graph, direction, part):
    layers = [graph.layers[index] for index in graph.sequence]
    return {
        layer.name: each
        for layer in layers
        for each in getattr(layer, direction).operators
        if part in each.name
    }


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_lookups_read_the_rows_and_bags_write_one_row_each(tmp_path, mode):
    graph = traced(tmp_path, mode=mode)
    lookups = named(graph, "forward", "embedding") | named(graph, "forward", "bag")
    read = {
        name: [o.shape for o in each.reads if o.role is OperandRole.PARAMETER]
        for name, each in lookups.items()
    }
    assert read == {
        "users": [(SAMPLES, WIDTH)],
        "tags": [(5, WIDTH)],
        "words": [(4 * SAMPLES, WIDTH)],
    }
    for each in named(graph, "forward", "bag").values():
        assert each.bytes_written == SAMPLES * WIDTH * BYTES + OF_BAGS
        assert sum(work.elements for work in each.vector) == 4 * SAMPLES * WIDTH
    assert check_structure(graph) == []


def test_gradients_are_those_of_as_many_rows_as_were_read_at_most(tmp_path):
    graph = traced(tmp_path)
    gradients = named(graph, "backward", "rows_gradient")
    rows = {
        "users": min(1000, SAMPLES),
        "tags": min(5, 4 * SAMPLES),
        "words": min(400, 4 * SAMPLES),
    }
    for name, each in gradients.items():
        assert each.yields is Yields.WEIGHT_GRADIENT
        assert each.bytes_written == rows[name] * WIDTH * BYTES
        assert sum(work.elements for work in each.vector) == SAMPLES * WIDTH * (
            1 if name == "users" else 4
        )
    assert gradients.keys() == rows.keys()


def test_tables_stay_whole_in_the_parameters_and_are_told_apart(tmp_path):
    graph = traced(tmp_path)
    layers = [graph.layers[index] for index in graph.sequence]
    tables = (1000 + 5 + 400) * WIDTH
    assert sum(layer.sparse_parameter_count for layer in layers) == tables
    assert sum(layer.parameter_count for layer in layers) >= tables
    read = {
        (table.rows, table.width): table.rows_read
        for layer in layers
        for table in layer.sparse_tables
    }
    assert read == {(1000, WIDTH): SAMPLES, (5, WIDTH): 5, (400, WIDTH): 4 * SAMPLES}


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_save_as_much_whether_their_gradients_are_sparse_or_not(tmp_path, mode):
    def saved(sparse):
        code = MODEL.replace("sparse=True", f"sparse={sparse}").format(sparse=False, mode=mode)
        path = tmp_path / f"tables_{sparse}.py"
        path.write_text(code)
        graph = extract_graph(GraphKey(str(path), SAMPLES, 1, 1))
        return sum(graph.layers[index].saved.none for index in graph.sequence)

    assert saved(True) == saved(False)


def test_a_table_without_the_setting_has_a_gradient_of_its_size(tmp_path):
    graph = traced(tmp_path, sparse=False)
    (whole,) = named(graph, "backward", "embedding_dense_backward").values()
    assert whole.bytes_written == 1000 * WIDTH * BYTES
    assert (
        sum(graph.layers[index].sparse_parameter_count for index in graph.sequence)
        == (5 + 400) * WIDTH
    )


def test_extraction_tells_the_parameters_of_such_tables(tmp_path, capsys):
    path = tmp_path / "tables.py"
    path.write_text(MODEL.format(sparse=True, mode="sum"))
    words = [
        "extract_graph",
        "--model",
        str(path),
        "--micro-batch-size",
        str(SAMPLES),
        "--sequence-length",
        "1",
    ]
    assert phaze.main([*words, "--output", str(tmp_path), "--format", "json", "--quiet"]) == 0
    (graph,) = json.loads(capsys.readouterr().out)
    assert graph["sparse_parameters"] == (1000 + 5 + 400) * WIDTH
    assert graph["parameters"] >= graph["sparse_parameters"]
