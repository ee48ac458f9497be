"""Design-point groups: resuming, storing, pruning, memory sizes that share results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phaze_common.choices import Objective
from Solver.designs import model_shapes as searched_shapes
from Solver.designs.costs import ModelShapes
from Solver.designs.model_shapes import model_shapes
from Solver.designs.point_store import PointStore
from Solver.designs.points import PointGroup, PointStatus
from Solver.designs.search_criteria import USUAL, SearchCriteria
from Solver.pareto import better_is_larger, nondominated
from tests.builders.random_searches import OBJECTIVES, Case, random_case

SEEDS = range(500, 506)


@pytest.fixture(autouse=True)
def graphs_of_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph is made by the case that is tested."""
    monkeypatch.setattr(
        searched_shapes,
        "load_or_extract_all",
        lambda keys, *_: {key: CASES[key.model].graph(key) for key in keys},
    )


CASES: dict[str, Case] = {}


def priced(seed: int, configurations: int = 40) -> tuple[Case, ModelShapes]:
    """A random model on configurations that trade speed, area and energy, with many near ties."""
    case = random_case(seed, configurations=configurations, most_layers=4)
    CASES["model0"] = case
    return case, model_shapes(case.run(), case.problem.models[0])[0]


def group_of(
    case: Case,
    shapes: ModelShapes,
    folder: Path | None = None,
    memory: float = 1e9,
    larger_memory=None,
) -> PointGroup:  # type: ignore[no-untyped-def]
    return PointGroup(shapes, int(memory), case.hardware.metrics, PointStore(folder), larger_memory)


def explored(group: PointGroup) -> PointGroup:
    group.explore(lambda count: None)
    return group


def everything(group: PointGroup) -> PointGroup:
    """The same group with every point evaluated."""
    group.evaluate(np.arange(len(group.status)))
    return group


def front_values(group: PointGroup) -> set[tuple[float, ...]]:
    points = np.flatnonzero(group.status == PointStatus.EVALUATED)
    values = better_is_larger(
        group.throughput_bound[points], group.area_mm2[points], group.energy_j[points]
    )
    return {tuple(value) for value in values[nondominated(values)]}


@pytest.mark.parametrize("seed", SEEDS)
def test_pruning_keeps_the_optimum_of_every_objective_and_the_front(seed: int) -> None:
    case, shapes = priced(seed)
    searched, brute = explored(group_of(case, shapes)), everything(group_of(case, shapes))
    closed = np.isin(searched.status, (PointStatus.PRUNED, PointStatus.DOMINATED))
    assert np.any(closed), "nothing was closed, so this test shows nothing"
    assert np.all(searched.throughput_bound >= brute.throughput_bound * (1 - 1e-12))
    assert np.array_equal(
        searched.status == PointStatus.INFEASIBLE,
        (brute.status == PointStatus.INFEASIBLE) & ~closed,
    )
    for objective in OBJECTIVES:
        assert searched.objective(objective).max() == brute.objective(objective).max()
    assert front_values(searched) == front_values(brute)
    assert not np.any(searched.status == PointStatus.OPEN)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_more_memory_found_holds_in_less_where_it_fits(seed: int) -> None:
    case, shapes = priced(seed, configurations=12)
    ample = everything(group_of(case, shapes))
    held = ample.memory_bytes[ample.status == PointStatus.EVALUATED]
    for memory in (held.max(), np.median(held) * 0.9, held.min() * 0.5):
        shared = explored(
            group_of(case, shapes, memory=memory, larger_memory=explored(group_of(case, shapes)))
        )
        alone = explored(group_of(case, shapes, memory=memory))
        for objective in OBJECTIVES:
            assert shared.objective(objective).max() == pytest.approx(
                alone.objective(objective).max(), rel=1e-12
            )
        known = shared.status == PointStatus.EVALUATED
        assert np.all(shared.memory_bytes[known] <= memory * (1 + 1e-12))
        both = known & (alone.status == PointStatus.EVALUATED)
        assert shared.iteration_s[both] == pytest.approx(alone.iteration_s[both], rel=1e-12)


def test_a_group_goes_on_where_a_killed_run_stopped(tmp_path: Path) -> None:
    case, shapes = priced(501)
    undisturbed = explored(group_of(case, shapes, tmp_path / "undisturbed"))
    group_of(case, shapes, tmp_path / "store").evaluate(np.arange(10))
    resumed = group_of(case, shapes, tmp_path / "store")
    assert (
        np.count_nonzero(np.isin(resumed.status, (PointStatus.EVALUATED, PointStatus.INFEASIBLE)))
        == 10
    )
    assert front_values(explored(resumed)) == front_values(undisturbed)


def test_a_finished_group_given_again_has_the_same_counts(tmp_path: Path) -> None:
    case, shapes = priced(502)
    first, again = (explored(group_of(case, shapes, tmp_path)) for _ in range(2))
    assert np.array_equal(first.status, again.status)
    assert np.array_equal(first.iteration_s, again.iteration_s)


def test_no_stored_point_or_bound_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, shapes = priced(503, configurations=10)
    everything(group_of(case, shapes, tmp_path))

    def refused(*_arguments: object) -> None:
        raise AssertionError("a stored point was computed again")

    monkeypatch.setattr("Solver.designs.point_plans.ConfigurationPlans", refused)
    monkeypatch.setattr("Solver.designs.point_plans.RowLoads.of", refused)
    again = everything(group_of(case, shapes, tmp_path))
    assert not np.any(again.status == PointStatus.OPEN)


def test_what_is_stored_for_one_front_serves_another(tmp_path: Path) -> None:
    case, shapes = priced(502)
    alone, metrics = SearchCriteria(Objective.THROUGHPUT), case.hardware.metrics

    def group(criteria: SearchCriteria) -> PointGroup:
        return explored(
            PointGroup(shapes, int(1e9), metrics, PointStore(tmp_path), criteria=criteria)
        )

    undisturbed = explored(group_of(case, shapes))
    fastest = group(alone).objective(Objective.THROUGHPUT).max()
    assert front_values(group(USUAL)) == front_values(undisturbed)
    assert (
        group(alone).objective(Objective.THROUGHPUT).max()
        == fastest
        == undisturbed.objective(Objective.THROUGHPUT).max()
    )
    assert len(list(tmp_path.glob("bounds-*.npz"))) == 2


def test_a_damaged_batch_is_set_aside_and_its_points_are_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case, shapes = priced(504, configurations=10)
    whole = everything(group_of(case, shapes, tmp_path))
    damaged = sorted(tmp_path.glob("points-*.npz"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    again = group_of(case, shapes, tmp_path)
    assert np.any(again.status == PointStatus.OPEN)
    assert damaged.name in caplog.text
    assert np.array_equal(everything(again).iteration_s, whole.iteration_s)


def test_nothing_fits_in_no_memory() -> None:
    case, shapes = priced(500)
    group = explored(group_of(case, shapes, memory=1.0))
    assert set(group.status) <= {PointStatus.INFEASIBLE, PointStatus.DOMINATED}
    assert not group.throughput_bound.any()
    assert group.best(Objective.THROUGHPUT) is None


def test_what_cannot_be_as_good_is_not_evaluated() -> None:
    case, shapes = priced(505, configurations=60)
    group = explored(group_of(case, shapes))
    evaluated = np.count_nonzero(group.status == PointStatus.EVALUATED)
    group.best(Objective.THROUGHPUT)
    assert np.count_nonzero(group.status == PointStatus.EVALUATED) < evaluated + 10
