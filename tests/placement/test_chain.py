"""The chain solver against brute force over every plan, and against what physics says of changed inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from placement_instances import adam, brute_force_s, flat_cluster, random_case
from Solver.placement import place_chain
from Solver.placement.problem import LayerTimes, PlacementProblem, PlanVariant

from Common.errors import InputError
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import Recompute
from Plans.results import Status


@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("tiers", [1, 2])
def test_equals_brute_force(seed: int, tiers: int) -> None:
    problem, times = random_case(seed, tiers=tiers, most_layers=5)
    least = brute_force_s(problem, times)
    placement = place_chain(problem, times)
    if np.isinf(least):
        assert placement.status is Status.INFEASIBLE
        assert placement.stages == ()
    else:
        assert placement.status is Status.OPTIMAL
        assert placement.bound_s == placement.iteration_s == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_equals_brute_force_on_longer_chains(seed: int) -> None:
    problem, times = random_case(1000 + seed, most_layers=8, zero_stage=0)
    assert place_chain(problem, times).iteration_s == pytest.approx(brute_force_s(problem, times), rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_better_hardware_is_never_slower(seed: int) -> None:
    problem, times = random_case(seed, tiers=1 + seed % 2, most_layers=10)
    before = place_chain(problem, times).iteration_s * (1 + 1e-12)
    faster_links = tuple(replace(tier, bandwidth_bytes_per_s=2 * tier.bandwidth_bytes_per_s) for tier in problem.cluster.tiers)
    quicker = LayerTimes(0.9 * times.forward_s, times.backward_s, 0.5 * times.recompute_s)
    assert place_chain(replace(problem, hbm_bytes=1.5 * problem.hbm_bytes), times).iteration_s <= before
    assert place_chain(replace(problem, cluster=replace(problem.cluster, tiers=faster_links)), times).iteration_s <= before
    assert (
        place_chain(replace(problem, hbm_bandwidth_bytes_per_s=2 * problem.hbm_bandwidth_bytes_per_s), times).iteration_s
        <= before
    )
    assert place_chain(problem, quicker).iteration_s <= before
    if len(problem.cluster.tiers) == 1:
        more = flat_cluster(problem.cluster.num_devices + 3, problem.cluster.tiers[0].bandwidth_bytes_per_s, 0.0)
        assert place_chain(replace(problem, cluster=more), times).iteration_s <= before


def test_infeasible_says_how_much_memory_would_do() -> None:
    problem, times = random_case(5, most_layers=6)
    starved = place_chain(replace(problem, hbm_bytes=2.0**30 * 1e-9), times)
    assert starved.status is Status.INFEASIBLE
    assert "the leanest needs" in starved.reason


def test_the_stated_memory_really_does() -> None:
    layers = 12
    variant = PlanVariant(
        1,
        Recompute.NONE,
        np.full(layers, 1e9),
        np.linspace(1e9, 2e9, layers),
        np.full(layers, 5e8),
        np.append(0.0, np.full(layers - 1, 1e6)),
        np.append(0.0, np.full(layers - 1, 1e6)),
        0.0,
    )
    times = LayerTimes(np.ones((1, layers)), np.ones((1, layers)), np.zeros((1, layers)))
    problem = PlacementProblem((variant,), flat_cluster(6, 1e9), 1e9, 1e12, 16, adam())
    needed = float(place_chain(problem, times).reason.split("needs ")[1].split()[0]) * 2**30
    assert place_chain(replace(problem, hbm_bytes=1.001 * needed), times).status is Status.OPTIMAL
    assert place_chain(replace(problem, hbm_bytes=0.998 * needed), times).status is Status.INFEASIBLE


def test_too_wide_for_the_cluster() -> None:
    problem, times = random_case(1)
    wide = replace(problem, variants=tuple(replace(variant, tp=8) for variant in problem.variants))
    placement = place_chain(replace(wide, cluster=flat_cluster(4, 1.0)), times)
    assert placement.status is Status.INFEASIBLE
    assert "widths [8] need more than the cluster's 4 devices" in placement.reason


def test_a_long_chain_on_a_large_cluster_is_balanced() -> None:
    layers = 1026
    cut = np.append(0.0, np.full(layers - 1, 2.0**20))
    variant = PlanVariant(1, Recompute.NONE, np.full(layers, 1e7), np.full(layers, 1e7), np.zeros(layers), cut, cut, 0.0)
    times = LayerTimes(np.full((1, layers), 1e-3), np.full((1, layers), 2e-3), np.zeros((1, layers)))
    problem = PlacementProblem((variant,), flat_cluster(16_384, 2.0**32, 1e-6), 8 * 2.0**30, 1e12, 65_536, adam())
    placement = place_chain(problem, times)
    sizes = [stage.last_layer - stage.first_layer + 1 for stage in placement.stages]
    assert placement.pp * placement.dp <= 16_384
    assert max(sizes) - min(sizes) <= 1 or max(sizes) == -(-layers // placement.pp)


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_wrong_times_are_refused(value: float) -> None:
    problem, times = random_case(2)
    with pytest.raises(InputError, match="finite seconds"):
        place_chain(problem, replace(times, forward_s=np.full_like(times.forward_s, value)))


def test_contradictory_problems_are_refused() -> None:
    problem, times = random_case(2)
    with pytest.raises(InputError, match="at least one micro-batch"):
        place_chain(replace(problem, micro_batches=0), times)
    shorter = replace(problem.variants[0], saved_bytes=np.ones(1000))
    with pytest.raises(InputError, match="same number"):
        place_chain(replace(problem, variants=(shorter,)), times)
    with pytest.raises(InputError, match="grow outwards"):
        place_chain(replace(problem, cluster=Cluster("none", 4, ())), times)
