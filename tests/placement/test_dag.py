"""Branching layer graphs against brute force over ordered partitions, and against the chain solver on chains."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from placement_instances import adam, flat_cluster, random_case

from Common.errors import InputError
from GraphExtractor.graph import LayerTensor, Recompute
from Solver.placement import evaluate_plan, place_chain, place_dag
from Solver.placement.dag import in_order
from Solver.placement.lattice import lattice_of
from Solver.placement.problem import LayerTimes, PlacementProblem, PlanVariant
from Solver.results import Status

Tensors = list[tuple[LayerTensor, ...]]


def random_tensors(problem: PlacementProblem, random: np.random.Generator, density: float) -> Tensors:
    """Tensors from every layer to some later ones, of other sizes in each variant."""
    layers = len(problem.variants[0].parameter_count)
    ends = [tuple(end for end in range(start + 1, layers) if random.random() < density) for start in range(layers)]
    return [
        tuple(
            LayerTensor(start, end, int(random.integers(0, 3)), int(random.integers(0, 3)))
            for start, end in enumerate(ends)
            if end
        )
        for _ in problem.variants
    ]


def brute_force_s(problem: PlacementProblem, times: LayerTimes, tensors: Tensors) -> float:
    """Least iteration time over every assignment of layers to stages in which no tensor flows backwards."""
    layers = len(problem.variants[0].parameter_count)
    edges = [(tensor.source, end) for tensor in tensors[0] for end in tensor.destinations]
    best = np.inf
    for stage in itertools.product(range(layers), repeat=layers):
        pp = max(stage) + 1
        if len(set(stage)) < pp or any(stage[start] > stage[end] for start, end in edges):
            continue
        order = sorted(range(layers), key=lambda layer: (stage[layer], layer))
        cuts = [k for k in range(1, layers) if stage[order[k]] != stage[order[k - 1]]]
        chain, chain_times = in_order(problem, times, tensors, order)
        for index, variant in enumerate(problem.variants):
            for dp in range(1, min(problem.micro_batches, problem.cluster.num_devices // (variant.tp * pp)) + 1):
                plan = evaluate_plan(chain, chain_times, index, dp, cuts)
                if plan.status is Status.FEASIBLE:
                    best = min(best, plan.iteration_s)
    return best


@pytest.mark.parametrize("seed", range(30))
def test_equals_brute_force(seed: int) -> None:
    problem, times = random_case(seed, tiers=1 + seed % 2, most_layers=4)
    tensors = random_tensors(problem, np.random.default_rng(seed), 0.5)
    least = brute_force_s(problem, times, tensors)
    answer = place_dag(problem, times, tensors)
    if np.isinf(least):
        assert answer.placement.status is Status.INFEASIBLE
        assert answer.order == ()
    else:
        assert answer.placement.iteration_s == pytest.approx(least, rel=1e-9)
        place = {layer: position for position, layer in enumerate(answer.order)}
        assert all(place[tensor.source] < place[end] for tensor in tensors[0] for end in tensor.destinations)


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_is_placed_as_a_chain(seed: int) -> None:
    problem, times = random_case(seed, tiers=1 + seed % 2, most_layers=12)
    random = np.random.default_rng(seed)
    layers = len(problem.variants[0].parameter_count)
    tensors = [
        tuple(LayerTensor(k, (k + 1,), int(random.integers(1, 3)), int(random.integers(0, 3))) for k in range(layers - 1))
        for _ in problem.variants
    ]
    answer = place_dag(problem, times, tensors)
    chain = place_chain(*in_order(problem, times, tensors, range(layers)))
    assert answer.placement.status is chain.status
    assert answer.placement.iteration_s == pytest.approx(chain.iteration_s, rel=1e-9)


def test_parallel_towers_share_stages() -> None:
    """Two equal towers of three layers on three devices: each stage takes one layer of both, or the balance would be worse."""
    tower = [(0, 1), (1, 2), (3, 4), (4, 5)]
    assert len(lattice_of(6, tower).members) == 16
    ones = np.ones(6)
    variant = PlanVariant(1, Recompute.NONE, ones, ones, ones, 0 * ones, 0 * ones, 0.0)
    problem = PlacementProblem((variant,), flat_cluster(3, 1.0), 60.0, 1e9, 100, adam())
    times = LayerTimes(ones[None], 2 * ones[None], 0 * ones[None])
    answer = place_dag(problem, times, [tuple(LayerTensor(a, (b,), 0, 0) for a, b in tower)])
    assert [stage.load_s for stage in answer.placement.stages] == pytest.approx([6.0, 6.0, 6.0])


def test_too_many_sets_and_cycles_are_refused() -> None:
    with pytest.raises(InputError, match="more than 20000 sets"):
        lattice_of(40, [])
    with pytest.raises(InputError, match="cycle"):
        lattice_of(3, [(0, 1), (1, 2), (2, 0)])
