"""Equally good configurations and plans: which one wins does not depend on what had been evaluated
before."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from phaze_common.choices import Combine, FrontAxis, Objective
from Solver.combination import Combination
from Solver.designs import model_shapes as searched_shapes
from Solver.designs.costs import ModelShapes
from Solver.designs.joint import joint_optimum
from Solver.designs.model_shapes import model_shapes
from Solver.designs.point_store import PointStore
from Solver.designs.points import PointGroup, PointStatus
from Solver.designs.search_criteria import USUAL, SearchCriteria
from tests.builders.random_searches import OBJECTIVES, Case, random_case, together

CONFIGURATIONS = 30


def tied(
    seed: int, monkeypatch: pytest.MonkeyPatch, models: int = 1
) -> tuple[Case, list[ModelShapes]]:
    """Configurations of few distinct speeds, areas and energies."""
    case = random_case(
        seed, configurations=CONFIGURATIONS, most_layers=3, models=models, alike=True
    )
    monkeypatch.setattr(
        searched_shapes,
        "load_or_extract_all",
        lambda keys, *_: {key: case.graph(key) for key in keys},
    )
    return case, [each for model in case.problem.models for each in model_shapes(case.run(), model)]


def group_of(case: Case, shapes: ModelShapes, criteria: SearchCriteria = USUAL) -> PointGroup:
    return PointGroup(shapes, 10**9, case.hardware.metrics, PointStore(None), criteria=criteria)


def disturbed(group: PointGroup, seed: int) -> PointGroup:
    """The group after a search in which an earlier run had evaluated some points."""
    random = np.random.default_rng(seed)
    group.evaluate(random.permutation(len(group.status))[: random.integers(0, 20)])
    group.explore(lambda count: None)
    return group


def order_of(group: PointGroup, objective: Objective, point: int) -> tuple[float, float, float]:
    return (
        float(-group.objective(objective)[point]),
        float(group.area_mm2[point]),
        float(group.energy_j[point]),
    )


@pytest.mark.some(5)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(600, 606))
def test_the_best_point_of_a_group_is_the_same_whatever_was_evaluated(
    seed: int, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, shapes = tied(seed, monkeypatch)
    whole = group_of(case, shapes[0])
    whole.evaluate(np.arange(len(whole.status)))
    least = min(order_of(whole, objective, point) for point in range(len(whole.status)))
    alike = [
        point for point in range(len(whole.status)) if order_of(whole, objective, point) == least
    ]
    kept = [point for point in alike if whole.dominator[point] < 0]
    assert kept, "all of the best are closed"
    found = set()
    for history in range(8):
        group = disturbed(group_of(case, shapes[0]), history)
        found.add(group.best(objective))
    assert len(found) == 1 and found <= set(alike)


@pytest.mark.some(5)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(600, 606))
def test_the_smallest_of_equals_is_found_whatever_front_is_asked_for(
    seed: int, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dominance asks for what is pursued alone, which may close the smaller of two that are as
    good."""
    case, shapes = tied(seed, monkeypatch)
    whole = group_of(case, shapes[0])
    whole.evaluate(np.arange(len(whole.status)))
    least = min(order_of(whole, objective, point) for point in range(len(whole.status)))
    mine = {"model0": [whole]}
    combination = Combination(Combine.MEAN, {"model0": 1.0}, {})
    for pursued, front in product(
        OBJECTIVES, ((), (FrontAxis.THROUGHPUT,), (FrontAxis.THROUGHPUT, FrontAxis.AREA))
    ):
        group = disturbed(group_of(case, shapes[0], SearchCriteria(pursued, front)), seed)
        best = group.best(objective)
        assert best is not None and order_of(group, objective, best) == least
        group = disturbed(group_of(case, shapes[0], SearchCriteria(pursued, front)), seed)
        optimum, expected = (
            joint_optimum(each, combination, objective) for each in ({"model0": [group]}, mine)
        )
        assert optimum is not None and expected is not None
        assert (optimum.value, optimum.proven) == (expected.value, True)
        (choice,) = optimum.choices.values()
        assert order_of(choice.group, objective, choice.point) == least


@pytest.mark.some(4)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("how", list(Combine))
@pytest.mark.parametrize("seed", range(620, 624))
def test_the_joint_optimum_is_the_same_whatever_was_evaluated(
    seed: int, how: Combine, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, shapes = tied(seed, monkeypatch, models=2)
    weights = {model.name: model.weight for model in case.problem.models}

    def groups() -> dict[str, list[PointGroup]]:
        return {
            name: [group_of(case, each) for each in shapes if each.model.name == name]
            for name in weights
        }

    bests, energies = [], []
    for name, mine in groups().items():
        for group in mine:
            group.evaluate(np.arange(len(group.status)))
        values = np.concatenate(
            [group.objective(objective).reshape(-1, CONFIGURATIONS) for group in mine]
        )
        joules = np.concatenate([group.energy_j.reshape(-1, CONFIGURATIONS) for group in mine])
        share = weights[name] / sum(weights.values())
        bests.append(values.max(axis=0))
        energies.append(share * np.where(values == values.max(axis=0), joules, np.inf).min(axis=0))
    mean = together(how, bests, list(weights.values()), [each.max() for each in bests])
    energy_j, area_mm2 = np.sum(energies, axis=0), case.hardware.metrics.area_mm2
    best = np.flatnonzero(mean >= mean.max() * (1 - 1e-12))
    combination = Combination(
        how, weights, {name: float(each.max()) for name, each in zip(weights, bests, strict=True)}
    )
    found = []
    for history in range(6):
        tried = groups()
        for mine in tried.values():
            for group in mine:
                disturbed(group, history)
        optimum = joint_optimum(tried, combination, objective)
        assert optimum is not None
        assert optimum.value == pytest.approx(mean.max(), rel=1e-12)
        assert all(
            choice.group.status[choice.point] == PointStatus.EVALUATED
            for choice in optimum.choices.values()
        )
        assert all(
            choice.group.locate(choice.point)[0] == optimum.row
            for choice in optimum.choices.values()
        )
        choices = {
            name: (tried[name].index(choice.group), choice.point)
            for name, choice in optimum.choices.items()
        }
        found.append((optimum.row, optimum.value, choices))
        assert optimum.best_open_bound is None or optimum.best_open_bound <= optimum.value * (
            1 + 1e-12
        )
    least = min((area_mm2[each], energy_j[each]) for each in best)
    assert found[0][0] in best and (area_mm2[found[0][0]], energy_j[found[0][0]]) == pytest.approx(
        least, rel=1e-12
    )
    assert all(each == found[0] for each in found)
