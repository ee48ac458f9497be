"""Equally good accelerators and plans: which one wins does not depend on what had been evaluated before."""

import dataclasses
import itertools

import numpy as np
import pytest
from Solver.placement.problem import BatchTimes
from test_points import random_group

from Common.choices import Objective
from Solver.search.joint import joint_optimum
from Solver.search.point_store import PointStore
from Solver.search.points import PointGroup, PointStatus

ACCELERATORS = 60


def tied_group(seed, folder, model="some"):
    """A group of few distinct speeds, areas and energies, whose two plan variants are equally fast on half of them."""
    like = random_group(0, folder / "like", model=model, accelerators=ACCELERATORS)
    random = np.random.default_rng(seed)
    speed = random.choice([1.0, 2.0, 2.0], ACCELERATORS)
    forward_s = np.ones((ACCELERATORS, 2, 3)) * 1e-2 / speed[:, None, None]
    recompute_s = np.zeros_like(forward_s)
    recompute_s[:, 1] = np.where(random.random(ACCELERATORS) < 0.5, 1e-3, 0.0)[:, None]
    area_mm2 = random.choice([1.0, 2.0], ACCELERATORS)
    energy_j = random.choice([1.0, 2.0], (ACCELERATORS, 2))
    alike = dataclasses.replace(like.problem.variants[0], recompute=like.problem.variants[1].recompute)
    problem = dataclasses.replace(like.problem, variants=(like.problem.variants[0], alike))
    times = BatchTimes(forward_s, 2 * forward_s, recompute_s, like.times.sequence)
    return PointGroup(like.key, problem, times, area_mm2, energy_j, 64, PointStore(folder / "store"))


def disturbed(group, seed):
    """The group after a search in which an earlier run had evaluated some points."""
    random = np.random.default_rng(seed)
    group.evaluate(random.permutation(len(group.status))[: random.integers(0, 40)])
    group.explore(lambda count: None)
    return group


def first_of_the_best(values, area_mm2, energy_j):
    return min(range(len(values)), key=lambda index: (-values[index], area_mm2[index], energy_j[index], index))


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(6))
def test_the_best_point_of_a_group_is_the_same_whatever_was_evaluated(seed, objective, tmp_path):
    whole = tied_group(seed, tmp_path / "whole")
    whole.evaluate(np.arange(len(whole.status)))
    expected = first_of_the_best(whole.objective(objective), whole.area_mm2, whole.energy_j)
    for history in range(8):
        group = disturbed(tied_group(seed, tmp_path / str(history)), history)
        assert group.best(objective) == expected


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(4))
def test_the_joint_optimum_is_the_same_whatever_was_evaluated(seed, objective, tmp_path):
    weights = {"one": 1.0, "other": 1.0}

    def groups(folder):
        seeds = {"one": (seed, seed + 50), "other": (seed + 100,)}
        return {model: [tied_group(each, folder / f"{model}-{each}", model) for each in seeds[model]] for model in seeds}

    whole = groups(tmp_path / "whole")
    best, energy_j = [], []
    for model_groups in whole.values():
        for group in model_groups:
            group.evaluate(np.arange(len(group.status)))
        values = np.concatenate([group.objective(objective).reshape(2, -1) for group in model_groups])
        energies = np.concatenate([group.energy_j.reshape(2, -1) for group in model_groups])
        best.append(values.max(axis=0))
        energy_j.append(np.where(values == values.max(axis=0), energies, np.inf).min(axis=0))
    area_mm2 = whole["one"][0].area_mm2[:ACCELERATORS]
    row = first_of_the_best(np.mean(best, axis=0), area_mm2, np.mean(energy_j, axis=0))
    found = []
    for history in range(6):
        tried = groups(tmp_path / str(history))
        for group in itertools.chain(*tried.values()):
            disturbed(group, history)
        optimum = joint_optimum(tried, weights, objective)
        choices = {model: (tried[model].index(choice.group), choice.point) for model, choice in optimum.choices.items()}
        found.append((optimum.row, optimum.value, choices))
        assert optimum.best_open_bound is None or optimum.best_open_bound <= optimum.value * (1 + 1e-12)
    assert found[0][0] == row
    assert all(each == found[0] for each in found)


def test_what_cannot_be_as_good_is_not_evaluated(tmp_path):
    group = random_group(1, tmp_path)
    group.explore(lambda count: None)
    evaluated = np.count_nonzero(group.status == PointStatus.EVALUATED)
    group.best(Objective.THROUGHPUT)
    assert np.count_nonzero(group.status == PointStatus.EVALUATED) < evaluated + 10
