"""What stages save of a micro-batch, against sets: every tensor that a layer of the stage keeps,
once."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from Estimator.plans.layer_costs import layer_sizes
from Estimator.plans.many import evaluate_many
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.check import check_structure
from GraphExtractor.graph import GraphKey, ModelGraph, Recompute
from Solver.paths.layer_graph import edges_between
from Solver.paths.stage_graph import stage_graph
from tests.builders.random_searches import MODES, RandomModel, every_cut, random_case, random_model

SEEDS = range(40)


def graph_of(seed: int, layers: int) -> ModelGraph:
    random = np.random.default_rng(seed)
    model: RandomModel = random_model(random, layers, branching=bool(seed % 3 == 0), experts=False)
    return model.graph(GraphKey("model", 1, 8, 1))


def counted(graph: ModelGraph, layers: Collection[int], recompute: Recompute) -> int:
    """Sizes of the union of what ``layers`` keep; the ends of the model keep everything."""
    ends = {0, len(graph.sequence) - 1} if len(graph.sequence) > 1 else set()
    held: dict[tuple[str, int], int] = {}
    for layer in layers:
        mode = Recompute.NONE if layer in ends else recompute
        shared = {
            ("shared", at): each.bytes
            for at, each in enumerate(graph.shared)
            if layer in each.kept_by(mode)
        }
        own = graph.layers[graph.sequence[layer]].saved.under(mode) - sum(shared.values())
        held |= {**shared, ("own", layer): own}
    return sum(held.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_stages_a_search_can_choose_save_every_tensor_once(seed: int) -> None:
    graph = graph_of(seed, 2 + seed % 5)
    assert check_structure(graph) == []
    for mode in MODES:
        stages = stage_graph(graph, layer_sizes(graph, mode), np.zeros((1, 3, 2)))
        members = (
            stages.lattice.members[stages.stages.whole]
            & ~stages.lattice.members[stages.stages.part]
        )
        expected = [counted(graph, np.flatnonzero(each).tolist(), mode) for each in members]
        assert stages.sizes.saved_bytes[stages.stages.kind].tolist() == expected
        assert layer_sizes(graph, mode).all_saved_bytes == counted(
            graph, range(len(graph.sequence)), mode
        )


def test_random_models_share_what_cuts_part() -> None:
    """Else the recount would say nothing: stages together save more than one device does."""
    parted = 0
    for seed in SEEDS:
        graph = graph_of(seed, 2 + seed % 5)
        alone = sum(counted(graph, [layer], Recompute.NONE) for layer in range(len(graph.sequence)))
        parted += alone > layer_sizes(graph, Recompute.NONE).all_saved_bytes
    assert parted > len(SEEDS) / 2


@pytest.mark.parametrize("seed", range(20))
def test_stages_of_every_cut_of_a_plan_save_every_tensor_once(seed: int) -> None:
    case = random_case(800 + seed, most_layers=5)
    graph = case.graph(GraphKey(case.problem.models[0].name, 1, 8, 1))
    layers, edges = len(graph.sequence), edges_between(graph.tensors)
    for mode in MODES:
        costs = case.hardware.costs(graph, mode, LayerGroups())
        for pp in range(1, min(layers, 4) + 1):
            for plan in every_cut(
                UniformPlan(global_batch_size=12, pp=pp, recompute=mode), layers, edges
            ):
                priced = PricedPlan(plan, costs, case.hardware.machine(0, 1e9))
                assert priced.sizes.saved_bytes.tolist() == [
                    counted(graph, chunk, mode) for chunk in priced.chunks
                ]


@pytest.mark.parametrize("seed", range(10))
def test_chunks_of_one_device_save_what_each_of_them_was_sent(seed: int) -> None:
    """A tensor comes to each chunk from the one before, so that a device with several chunks has as
    many copies."""
    hardware = random_case(900 + seed).hardware
    graph = random_model(np.random.default_rng(seed), 8, branching=False, experts=False).graph(
        GraphKey("model", 1, 8, 1)
    )
    kinds = [(2, 1), (3, 1), (6, 1), (2, 3), (3, 2)]
    for mode in MODES:
        shape = UniformPlan(global_batch_size=12, recompute=mode)
        costs, machine = hardware.costs(graph, mode, LayerGroups()), hardware.machine(0, 1e9)
        pp, chunks = np.array(kinds).T
        one, none = np.ones(len(kinds), np.int64), np.zeros(len(kinds), np.int64)
        plans = UniformPlans(shape, pp, one, none, chunks, 12 * one, none > 0, none > 0)
        many = evaluate_many(plans, costs, machine)
        for row in range(len(kinds)):
            priced = PricedPlan(plans.plan(row), costs, machine)
            assert len(priced.chunks) == kinds[row][0] * kinds[row][1]
            assert priced.sizes.saved_bytes.tolist() == [
                counted(graph, chunk, mode) for chunk in priced.chunks
            ]
            assert many.memory_bytes[row] == pytest.approx(
                priced.memory_bytes.sum(axis=0).max(), rel=1e-12
            )
