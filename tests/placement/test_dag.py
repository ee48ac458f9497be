"""Branching layer graphs against brute force over ordered partitions, and against the chain solver on chains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from placement_instances import adam, batch_of, flat_cluster, random_case
from Solver.placement import (
    evaluate_plan,
    lattice,
    lower_bounds_s,
    place,
    place_batch,
    place_chain,
    relaxed_bounds_s,
    stage_memory,
    what_is_lost,
)
from Solver.placement.layer_graph import branches, edges_between, in_order, runs
from Solver.placement.problem import LayerTimes, Placement, PlacementProblem, PlanVariant
from Solver.placement.set_arrays import prepare_sets

from Common.errors import InputError
from GraphExtractor.graph import LayerTensor, Recompute
from Plans.results import Status

CLOSE = 1 + 1e-9


def branching(problem: PlacementProblem, random: np.random.Generator, density: float) -> PlacementProblem:
    """The problem with tensors from every layer to some later ones, of other sizes in each variant."""
    layers = len(problem.variants[0].parameter_count)
    ends = [tuple(end for end in range(start + 1, layers) if random.random() < density) for start in range(layers)]

    def tensors() -> tuple[LayerTensor, ...]:
        sizes = random.integers(0, 3, (layers, 2)).tolist()
        return tuple(LayerTensor(start, end, *sizes[start]) for start, end in enumerate(ends) if end)

    return joined(problem, [tensors() for _ in problem.variants])


def joined(problem: PlacementProblem, tensors: Sequence[tuple[LayerTensor, ...]]) -> PlacementProblem:
    """The problem with these tensors in its variants, and the cuts that they make in execution order."""
    variants = []
    for plan, each in zip(problem.variants, tensors, strict=True):
        cuts = np.zeros((2, len(plan.parameter_count)))
        for tensor in each:
            cuts[:, tensor.source + 1 : max(tensor.destinations) + 1] += [[tensor.bytes], [tensor.gradient_bytes]]
        variants.append(replace(plan, cut_bytes=cuts[0], cut_gradient_bytes=cuts[1], tensors=each))
    return replace(problem, variants=tuple(variants))


def random_dag(seed: int, density: float, most_layers: int) -> tuple[PlacementProblem, LayerTimes]:
    """Variants with memory from tight to ample, one or two tiers, every ZeRO stage."""
    problem, times = random_case(seed, tiers=1 + seed % 2, most_layers=most_layers)
    return branching(problem, np.random.default_rng(seed), density), times


def all_plans(problem: PlacementProblem, times: LayerTimes) -> Iterator[Placement]:
    """Every feasible plan: all assignments of layers to stages in which no tensor leads backwards."""
    layers = len(problem.variants[0].parameter_count)
    edges = edges_between(problem.variants[0].tensors or ())
    for stage in itertools.product(range(layers), repeat=layers):
        pp = max(stage) + 1
        if len(set(stage)) < pp or any(stage[start] > stage[end] for start, end in edges):
            continue
        order = sorted(range(layers), key=lambda layer: (stage[layer], layer))
        cuts = [k for k in range(1, layers) if stage[order[k]] != stage[order[k - 1]]]
        chain, chain_times = in_order(problem, times, order)
        for index, variant in enumerate(problem.variants):
            for dp in range(1, min(problem.micro_batches, problem.cluster.num_devices // (variant.tp * pp)) + 1):
                plan = evaluate_plan(chain, chain_times, index, dp, cuts)
                if plan.status is Status.FEASIBLE:
                    yield plan


def brute_force_s(problem: PlacementProblem, times: LayerTimes) -> float:
    return min((plan.iteration_s for plan in all_plans(problem, times)), default=np.inf)


@contextmanager
def at_most(stages: int) -> Iterator[None]:
    """Lattices of so many stages at most."""
    before = lattice.MOST_STAGES
    try:
        for limit in (stages, before):
            lattice.MOST_STAGES = limit
            lattice.lattice_of.cache_clear()
            prepare_sets.cache_clear()
            if limit == stages:
                yield
    finally:
        lattice.MOST_STAGES = before


def check_plan(problem: PlacementProblem, times: LayerTimes, placement: Placement) -> None:
    """The plan runs every layer once, after what it needs, and costs and holds what it says."""
    layers = len(problem.variants[0].parameter_count)
    place_of = {layer: position for position, layer in enumerate(placement.order)}
    assert sorted(place_of) == list(range(layers))
    for tensor in problem.variants[0].tensors or ():
        assert all(place_of[tensor.source] < place_of[end] for end in tensor.destinations)
    assert [stage.last_layer + 1 for stage in placement.stages[:-1]] == [stage.first_layer for stage in placement.stages[1:]]
    chain, chain_times = in_order(problem, times, placement.order)
    variant = next(
        index for index, plan in enumerate(problem.variants) if (plan.tp, plan.recompute) == (placement.tp, placement.recompute)
    )
    again = evaluate_plan(
        chain, chain_times, variant, placement.dp, [stage.first_layer for stage in placement.stages[1:]], placement.group_order
    )
    assert again.status is Status.FEASIBLE
    assert again.iteration_s == placement.iteration_s
    memory = [each.total_bytes for each in stage_memory(problem, placement)]
    assert memory == pytest.approx([stage.memory_bytes for stage in placement.stages])
    assert max(memory) <= problem.hbm_bytes * CLOSE


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.0, 0.9))
def test_equals_brute_force(seed: int, density: float) -> None:
    problem, times = random_dag(seed, density, 4)
    least = brute_force_s(problem, times)
    answer = place(problem, times)
    batch, bound = place_batch(problem, batch_of(times), np.array([0])), lower_bounds_s(problem, batch_of(times))
    if np.isinf(least):
        assert answer.status is Status.INFEASIBLE
        assert answer.order == ()
        assert np.isinf(batch.iteration_s[0])
        assert np.isinf(bound[0])
    else:
        assert answer.status is Status.OPTIMAL
        assert answer.bound_s == answer.iteration_s == pytest.approx(least, rel=1e-9)
        assert batch.iteration_s[0] == pytest.approx(least, rel=1e-9)
        assert problem.variants[batch.variant[0]].tp * batch.dp[0] * batch.pp[0] <= problem.cluster.num_devices
        assert bound[0] <= least * CLOSE
        check_plan(problem, times, answer)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.0, 0.5), st.integers(1, 60))
@example(seed=0, density=0.3, stages=1)
def test_few_sets_give_a_plan_and_a_bound_around_the_optimum(seed: int, density: float, stages: int) -> None:
    problem, times = random_dag(seed, density, 9)
    with at_most(10**6):
        exact = place(problem, times)
    with at_most(stages):
        some, lost = place(problem, times), what_is_lost(problem)
        batch, bound = place_batch(problem, batch_of(times), np.array([0])), lower_bounds_s(problem, batch_of(times))
    if not lost:
        assert some.iteration_s == exact.iteration_s
        assert some.status in {Status.OPTIMAL, Status.INFEASIBLE}
        return
    relaxed = relaxed_bounds_s(problem, batch_of(times))
    assert relaxed[0] <= exact.iteration_s * CLOSE
    assert exact.iteration_s <= some.iteration_s * CLOSE
    assert bound[0] <= some.iteration_s * CLOSE
    if some.status is Status.INFEASIBLE:
        assert lost in some.reason
        assert np.isinf(batch.iteration_s[0])
    else:
        assert some.status is Status.FEASIBLE
        assert some.bound_s == pytest.approx(relaxed[0])
        assert batch.iteration_s[0] == pytest.approx(some.iteration_s, rel=1e-9)
        check_plan(problem, times, some)


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_is_placed_as_a_chain(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the lattice of a chain too, which ``place`` never asks for."""
    problem, times = random_case(seed, tiers=1 + seed % 2, most_layers=12)
    random = np.random.default_rng(seed)
    layers = len(problem.variants[0].parameter_count)
    sizes = random.integers(0, 3, (len(problem.variants), layers, 2)).tolist()
    chain = joined(problem, [tuple(LayerTensor(k, (k + 1,), *each[k]) for k in range(layers - 1)) for each in sizes])
    assert branches(chain) is None
    expected = place_chain(chain, times)
    monkeypatch.setattr("Solver.placement.layer_graph.is_chain", lambda *_: False)
    answer = place(chain, times)
    assert answer.status is expected.status
    assert answer.iteration_s == pytest.approx(expected.iteration_s, rel=1e-9)
    assert answer.order == expected.order


def test_a_skip_connection_leaves_a_chain_and_costs_every_cut_that_it_crosses() -> None:
    problem, times = random_case(3, most_layers=6)
    layers = len(problem.variants[0].parameter_count)
    skipping = tuple(LayerTensor(k, (k + 1, layers - 1) if k < layers - 2 else (k + 1,), 1, 1) for k in range(layers - 1))
    chain = joined(problem, [skipping for _ in problem.variants])
    assert branches(chain) is None
    assert what_is_lost(chain) == ""
    same, _ = in_order(chain, times, range(layers))
    assert same.variants[0].cut_bytes.tolist() == chain.variants[0].cut_bytes.tolist() == [0, *range(1, layers)]


def towers(*lengths: int, joint: bool = False) -> tuple[tuple[int, int], ...]:
    """Chains beside each other, one after another in execution order, with a last layer that needs them all if ``joint``."""
    starts = np.cumsum([0, *lengths]).tolist()
    edges = [(k, k + 1) for start, end in itertools.pairwise(starts) for k in range(start, end - 1)]
    return tuple(sorted(edges + [(end - 1, starts[-1]) for end in starts[1:] if joint]))


def tower_problem(edges: tuple[tuple[int, int], ...], layers: int, devices: int) -> tuple[PlacementProblem, LayerTimes]:
    ones = np.ones(layers)
    tensors = tuple(LayerTensor(a, (b,), 0, 0) for a, b in edges)
    variant = PlanVariant(1, Recompute.NONE, ones, ones, ones, 0 * ones, 0 * ones, 0.0, tensors)
    problem = PlacementProblem((variant,), flat_cluster(devices, 1.0), 1e3, 1e9, 100, adam())
    return problem, LayerTimes(ones[None], 2 * ones[None], 0 * ones[None])


def test_parallel_towers_share_stages() -> None:
    """Two equal towers of three layers on three devices: each stage takes one layer of both, or the balance would be worse."""
    assert len(lattice.lattice_of(6, towers(3, 3)).members) == 16
    problem, times = tower_problem(towers(3, 3), 6, 3)
    assert [stage.load_s for stage in place(replace(problem, hbm_bytes=60.0), times).stages] == pytest.approx([6.0, 6.0, 6.0])


def test_branches_too_long_are_cut_between_runs() -> None:
    edges = towers(30, 30, joint=True)
    some = lattice.lattice_of(61, edges)
    assert len(some.part) <= lattice.MOST_STAGES
    assert some.lost == (
        "the 61 layers branch into more than 60,000 possible stages; considered were those that cut the execution order "
        "anywhere or the branches between runs of 2 layers"
    )
    problem, times = tower_problem(edges, 61, 8)
    answer = place(problem, times)
    assert answer.status is Status.FEASIBLE
    assert answer.bound_s <= answer.iteration_s <= 1.05 * answer.bound_s
    assert what_is_lost(problem) == some.lost


def test_branches_too_many_are_taken_one_after_another() -> None:
    some = lattice.lattice_of(61, towers(*[3] * 20, joint=True))
    assert some.lost.endswith("considered were those that cut the execution order anywhere")
    assert len(some.members) == 62
    long = lattice.lattice_of(400, ())
    assert long.lost.endswith("considered were those that cut the execution order after every 2 layers")
    assert long.members.sum(axis=1).tolist() == list(range(0, 401, 2))


def test_stages_are_all_pairs_of_sets_within_each_other() -> None:
    found = lattice.lattice_of(5, ((0, 2), (1, 2), (2, 4)))
    pairs = {(int(whole), int(part)) for whole, part in zip(found.whole, found.part, strict=True)}
    expected = {
        (whole, part)
        for whole, part in itertools.permutations(range(len(found.members)), 2)
        if np.all(found.members[part] <= found.members[whole])
    }
    assert pairs == expected
    assert all(part < whole for whole, part in pairs)


def test_runs_end_where_layers_branch_or_meet_and_skips_do_not_count() -> None:
    assert runs(7, ((0, 1), (0, 3), (1, 2), (2, 5), (3, 4), (4, 5), (5, 6))) == [[0], [1, 2], [3, 4], [5, 6]]
    assert runs(3, ((0, 1), (1, 2), (0, 2))) == [[0, 1, 2]]
    assert runs(3, ()) == [[0], [1], [2]]


def test_shared_parameters_count_once_in_one_stage_and_in_every_layer_of_several() -> None:
    problem, times = tower_problem(towers(2, 2, joint=True), 5, 4)
    tied = replace(problem, variants=(replace(problem.variants[0], tied_parameter_count=2.0),))
    alone = place(replace(tied, cluster=flat_cluster(1, 1.0)), times)
    assert stage_memory(tied, alone)[0].parameter_state_bytes == pytest.approx(16 * 3)
    tight = replace(tied, hbm_bytes=50.0, micro_batches=1)
    several = place(tight, times)
    assert several.pp > 1
    assert sum(each.parameter_state_bytes for each in stage_memory(tight, several)) == pytest.approx(16 * 5)
    assert several.breakdown is not None
    assert several.breakdown.gradient_sync_s == pytest.approx(2 * 2)  # no replicas: only what is shared, two bytes each


def test_wrong_graphs_are_refused() -> None:
    problem, times = tower_problem(towers(2, 2), 4, 2)
    plan = problem.variants[0]
    backwards = replace(problem, variants=(replace(plan, tensors=(LayerTensor(2, (1,), 0, 0),)),))
    with pytest.raises(InputError, match="lead forwards in execution order"):
        place(backwards, times)
    other = replace(plan, recompute=Recompute.FULL, tensors=())
    with pytest.raises(InputError, match="join different layers"):
        branches(replace(problem, variants=(plan, other)))
    chain, _ = random_case(3)
    with pytest.raises(InputError, match="form a chain"):
        relaxed_bounds_s(chain, batch_of(random_case(3)[1]))
