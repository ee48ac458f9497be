"""The batch solver against the single one, and its bounds against the optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from placement_instances import batch_of, random_case
from Solver.placement import lower_bounds_s, place_batch, place_chain
from Solver.placement.batch import NOT_BETTER, NOTHING_FITS
from Solver.placement.problem import BatchTimes, LayerTimes, PlacementProblem

from Common.errors import InputError
from Plans.results import Status


def accelerators(seed: int, count: int) -> tuple[PlacementProblem, BatchTimes]:
    """Random layers, every accelerator scaling each distinct layer in its own way; the middle layers are one block repeated."""
    problem, times = random_case(seed, tiers=1 + seed % 2, most_layers=9)
    layers = times.forward_s.shape[1]
    sequence = tuple(min(layer, 1) if layer < layers - 1 else min(layers - 1, 2) for layer in range(layers))
    scale = np.random.default_rng(seed).uniform(0.1, 2.0, (count, 1, max(sequence) + 1))
    distinct = list(range(max(sequence) + 1))
    forward_s, backward_s, recompute_s = (
        part[None][:, :, distinct] * scale for part in (times.forward_s, times.backward_s, times.recompute_s)
    )
    return problem, BatchTimes(forward_s, backward_s, recompute_s, sequence)


def row_times(times: BatchTimes, row: int) -> LayerTimes:
    chosen = list(times.sequence)
    return LayerTimes(times.forward_s[row][:, chosen], times.backward_s[row][:, chosen], times.recompute_s[row][:, chosen])


@pytest.mark.parametrize("seed", range(40))
def test_batch_equals_single_and_bounds_hold(seed: int) -> None:
    problem, times = accelerators(seed, 5)
    rows = np.array([4, 0, 2])
    batch, bounds = place_batch(problem, times, rows), lower_bounds_s(problem, times)
    assert bounds.shape == (5,)
    for place, row in enumerate(rows.tolist()):
        single = place_chain(problem, row_times(times, row))
        if single.status is Status.INFEASIBLE:
            assert np.isinf(batch.iteration_s[place])
            assert np.isinf(bounds[row])
            assert (batch.variant[place], batch.dp[place], batch.pp[place]) == (NOTHING_FITS, 0, 0)
        else:
            assert batch.iteration_s[place] == pytest.approx(single.iteration_s, rel=1e-9)
            assert bounds[row] <= single.iteration_s * (1 + 1e-9)
            assert problem.variants[batch.variant[place]].tp * batch.dp[place] * batch.pp[place] <= problem.cluster.num_devices


def test_bounds_are_tight_on_a_transformer() -> None:
    problem, times = accelerators(3, 50)
    exact = place_batch(problem, times, np.arange(50)).iteration_s
    assert np.all(np.isfinite(exact))
    assert np.median(exact / lower_bounds_s(problem, times)) < 1.1


@pytest.mark.parametrize("seed", [0, 3, 6])
def test_incumbent_stops_rows_that_cannot_beat_it(seed: int) -> None:
    problem, times = accelerators(seed, 6)
    free = place_batch(problem, times, np.arange(6))
    incumbent = float(np.median(free.iteration_s))
    assert np.isfinite(incumbent)
    held = place_batch(problem, times, np.arange(6), incumbent)
    better = free.iteration_s < incumbent
    assert np.array_equal(held.iteration_s[better], free.iteration_s[better])
    assert np.all(np.isinf(held.iteration_s[~better]))
    assert np.all(held.variant[~better] == NOT_BETTER)


def test_rows_do_not_depend_on_each_other() -> None:
    problem, times = accelerators(7, 1200)
    together = place_batch(problem, times, np.arange(1200))
    alone = place_batch(problem, times, np.array([700]))
    assert together.iteration_s[700] == alone.iteration_s[0]
    assert together.dp[700] == alone.dp[0]


def test_wrong_batches_are_refused() -> None:
    problem, times = random_case(2)
    batch = batch_of(times)
    with pytest.raises(InputError, match="sequence of"):
        place_batch(problem, replace(batch, sequence=(0,) * 40), np.array([0]))
    with pytest.raises(InputError, match="latency table"):
        lower_bounds_s(problem, replace(batch, forward_s=np.full_like(batch.forward_s, np.nan)))
