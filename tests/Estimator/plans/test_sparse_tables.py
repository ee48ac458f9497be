"""Tables with sparse gradients: a device holds, exchanges and updates the rows that were read, and
weights and states whole."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from Estimator.hardware_files import load_cluster
from Estimator.network.collectives import collective_s
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.many import evaluate_many
from Estimator.plans.policy import policy_under
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Iteration
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import CollectiveKind, GraphKey, ModelGraph, SparseTable
from tests.builders.training_cases import device_model, graph_for, iteration_of, plan_of

RECOMMENDER = """
import torch
from torch import nn
class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Linear(16, 32)
        self.days = nn.Embedding(7, 32, sparse=True)
        self.users = nn.Embedding(100_000, 32, sparse=True)
        self.words = nn.EmbeddingBag(500, 32, mode="sum", sparse=True)
        self.top = nn.Linear(4 * 32, 1)
    def forward(self, numbers, day, user, words):
        return self.top(torch.cat([self.bottom(numbers), self.days(day), self.users(user), self.words(words)], 1))
def build(): return Recommender()
def example_inputs(n):
    one = torch.zeros(n, dtype=torch.long)
    return torch.zeros(n, 16), one, one, torch.zeros(n, 3, dtype=torch.long)
def loss(output): return output.float().mean()
"""
WIDTH, SAMPLES = 32, 8
LOOKUPS = {7: SAMPLES, 100_000: SAMPLES, 500: 3 * SAMPLES}  # of a micro-batch, by rows of the table
TABLES = sum(LOOKUPS) * WIDTH
DENSE = 16 * 32 + 32 + 4 * 32 + 1
INDEX_BYTES = 8
MODEL, CLUSTER = device_model(host_issue_s=0.0), load_cluster("dgx_a100")
STATE = policy_under(MODEL.software, plan_of(eager=False)).state
GRADIENT_BYTES = STATE.gradient


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> ModelGraph:
    path: Path = tmp_path_factory.mktemp("models") / "recommender.py"
    path.write_text(RECOMMENDER)
    return extract_graph(GraphKey(str(path), SAMPLES, 1, 1, dtype="float16"))


def plan_with(dp: int, micro_batches: int, **given: object) -> UniformPlan:
    batch = SAMPLES * dp * micro_batches
    settings = {
        "micro_batch_size": SAMPLES,
        "dp": dp,
        "global_batch_size": batch,
        "overlap_gradients": False,
    }
    return plan_of(eager=False, **(settings | given))


def priced(graph: ModelGraph, plan: UniformPlan) -> Iteration:
    return iteration_of(graph, plan, MODEL, CLUSTER)


def without_tables(graph: ModelGraph) -> ModelGraph:
    """The same operators with gradients of whole tables."""
    return replace(graph, layers=tuple(replace(layer, sparse_tables=()) for layer in graph.layers))


def rows_read(micro_batches: int) -> int:
    return sum(min(rows, lookups * micro_batches) for rows, lookups in LOOKUPS.items())


def test_tables_are_told_by_their_rows_and_what_is_read_of_them(recommender: ModelGraph) -> None:
    tables = [
        table for index in recommender.sequence for table in recommender.layers[index].sparse_tables
    ]
    assert {(table.rows, table.width, table.rows_read) for table in tables} == {
        (rows, WIDTH, min(rows, lookups)) for rows, lookups in LOOKUPS.items()
    }
    assert (
        sum(recommender.layers[index].parameter_count for index in recommender.sequence)
        == TABLES + DENSE
    )


@pytest.mark.parametrize(
    "micro_batches", [1, 5, 40]
)  # read whole on one replica: one table, one, two
@pytest.mark.parametrize("dp", [1, 2, 8])
def test_memory_synchronisation_and_step_are_those_of_the_rows_that_were_read(
    recommender: ModelGraph, dp: int, micro_batches: int
) -> None:
    (stage,) = priced(recommender, plan_with(dp, micro_batches)).stages
    step_s = priced(recommender, plan_with(dp, micro_batches)).breakdown.optimizer_s
    own, every = rows_read(micro_batches), rows_read(micro_batches * dp)
    whole = (STATE.weight + STATE.optimizer) * (DENSE + TABLES)
    row_bytes = WIDTH * GRADIENT_BYTES + INDEX_BYTES
    assert stage.parameters == DENSE + TABLES
    assert stage.parameter_state_bytes == pytest.approx(
        whole + GRADIENT_BYTES * DENSE + every * row_bytes, rel=1e-12
    )
    reduced_s = collective_s(CollectiveKind.ALL_REDUCE, DENSE * GRADIENT_BYTES, dp, 1, CLUSTER)
    gathered_s = collective_s(CollectiveKind.ALL_GATHER, dp * own * row_bytes, dp, 1, CLUSTER)
    assert stage.after_s == pytest.approx(reduced_s + gathered_s, rel=1e-12)
    assert (stage.after_s > 0.0) == (dp > 1)
    updated = DENSE + every * WIDTH
    assert step_s == pytest.approx(updated * STATE.step / MODEL.stream_bytes_per_s, rel=1e-12)


def test_where_every_row_is_read_only_indices_are_added_and_gradients_gathered(
    recommender: ModelGraph,
) -> None:
    plan = plan_with(8, 12_500)
    sparse, dense = priced(recommender, plan), priced(without_tables(recommender), plan)
    (mine,), (theirs,) = sparse.stages, dense.stages
    assert rows_read(12_500) * WIDTH == TABLES
    assert mine.parameter_state_bytes - theirs.parameter_state_bytes == INDEX_BYTES * sum(LOOKUPS)
    assert sparse.breakdown.optimizer_s == pytest.approx(dense.breakdown.optimizer_s, rel=1e-12)
    assert (
        mine.after_s > theirs.after_s
    )  # 8 whole tables and their indices come in, instead of twice one


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_zero_shards_whole_gradients(recommender: ModelGraph, zero: int) -> None:
    plan = plan_with(4, 2, zero_stage=zero)
    (mine,), (theirs,) = (
        priced(graph, plan).stages for graph in (recommender, without_tables(recommender))
    )
    assert (mine.parameter_state_bytes, mine.after_s) == (
        theirs.parameter_state_bytes,
        theirs.after_s,
    )
    assert mine.after_s > 0.0 or zero == 3


def test_every_stage_has_the_rows_of_its_own_tables(recommender: ModelGraph) -> None:
    layers = [recommender.layers[index] for index in recommender.sequence]
    for first in range(1, len(layers)):
        sizes = (first, len(layers) - first)
        stages = priced(recommender, plan_with(2, 3, pp=2, stage_layers=sizes)).stages
        for stage, held in zip(stages, (layers[:first], layers[first:]), strict=True):
            tables = [table for layer in held for table in layer.sparse_tables]
            parameters = sum(layer.parameter_count for layer in held)
            dense = parameters - sum(table.parameter_count for table in tables)
            rows = sum(min(table.rows, 2 * 3 * table.rows_read) for table in tables)
            wanted = (STATE.weight + STATE.optimizer) * parameters + GRADIENT_BYTES * dense
            assert stage.parameter_state_bytes == pytest.approx(
                wanted + rows * (WIDTH * GRADIENT_BYTES + INDEX_BYTES), rel=1e-12
            )


@lru_cache
def blocks_with_tables(shape: UniformPlan) -> ModelGraph:
    """Blocks alike but for how much a batch reads of their tables, most of it in the middle;
    nothing at the ends."""
    graph = graph_for(shape, 12)
    layers = []
    for place, index in enumerate(graph.sequence):
        tables = (SparseTable(30_000, 64, 6 + 54 * place % 300), SparseTable(90, 64, 2))
        block = 0 < place < len(graph.sequence) - 1
        empty = replace(graph.layers[index], parameter_count=0, tied_count=0)
        layers.append(replace(graph.layers[index], sparse_tables=tables) if block else empty)
    return replace(graph, layers=tuple(layers), sequence=tuple(range(len(layers))))


@pytest.mark.some(2)
@pytest.mark.parametrize("cluster", ["dgx_a100", "phaze_icml24"])
@pytest.mark.parametrize("cp", [1, 2])
def test_many_plans_at_once_cost_what_each_costs_alone(cluster: str, cp: int) -> None:
    shape, network = plan_of(eager=False, cp=cp), load_cluster(cluster)
    graph = replace(blocks_with_tables(plan_of(eager=False)), key=shape.graph_key("small", 256))
    costs, machine = (
        DeviceCosts(MODEL, network).layer_costs(
            graph, shape.recompute, layer_groups(shape, network)
        ),
        device_machine(MODEL, network, 2e8),
    )
    axes = itertools.product(
        (1, 2, 3, 6), (1, 2, 8), range(4), (1, 2), (48, 96), (False, True), (False, True)
    )
    rows = [row for row in axes if row[3] == 1 or (row[0] > 1 and row[4] // row[1] % row[0] == 0)]
    plans = UniformPlans(shape, *(np.array(column) for column in zip(*rows, strict=True)))
    found, dense = evaluate_many(plans, costs, machine), 0
    same = DeviceCosts(MODEL, network).layer_costs(
        without_tables(graph), shape.recompute, layer_groups(shape, network)
    )
    for index in range(0, len(rows), 5):
        alone = price_iteration(plans.plan(index), costs, machine)
        assert found.iteration_s[index] == pytest.approx(alone.iteration_s, rel=1e-9), rows[index]
        assert found.memory_bytes[index] == pytest.approx(alone.memory_bytes, rel=1e-9), rows[index]
        assert found.step_s[index] == pytest.approx(alone.breakdown.optimizer_s, rel=1e-9), rows[
            index
        ]
        dense += (
            found.memory_bytes[index]
            >= price_iteration(plans.plan(index), same, machine).memory_bytes
        )
    assert dense < len(rows) / 5, (
        "no plan holds less than with dense gradients, so this test shows nothing"
    )
