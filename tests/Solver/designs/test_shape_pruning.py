"""Searches that list the plans of few shapes against those that list all, and against
enumeration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from Estimator.plans.results import Status
from GraphExtractor.graph import GraphKey
from phaze.settings.problem import hardware_report
from phaze.settings.resolve import resolve
from phaze_common.array_types import FloatArray
from phaze_common.choices import GroupOrder
from phaze_common.user_cache import SETTING
from Solver.designs import kept_shapes, shape_pruning
from Solver.designs import model_shapes as searched_shapes
from Solver.designs.costs import PricedShapes
from Solver.designs.plan_axes import plan_axes
from Solver.designs.search import Searched, search
from Solver.designs.search_context import Stores
from tests.builders.random_searches import Case, random_case
from tests.builders.samples import sampled

REPORT = hardware_report(resolve({}, {"model": "bertbase"}))
SEEDS = range(1100, 1130)
EVERY_SESSION = range(1101, 1130, 4)


@pytest.fixture
def pruning_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few shapes there are, they are pruned, and little is looked at for the values of
    axes."""
    monkeypatch.setattr(searched_shapes, "MANY_SHAPES", 0)
    monkeypatch.setattr(shape_pruning, "MOST_OF_VALUE", 2)
    monkeypatch.setattr(shape_pruning, "MOST_WITHOUT", 2)


def searched(case: Case, monkeypatch: pytest.MonkeyPatch) -> Searched:
    monkeypatch.setattr(
        searched_shapes,
        "load_or_extract_all",
        lambda keys, *_: {key: case.graph(key) for key in keys},
    )
    return search(case.run(), REPORT, "nowhere")


@pytest.mark.parametrize("seed", sampled(SEEDS, EVERY_SESSION))
def test_no_best_plan_is_lost_and_every_shape_is_accounted_for(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, memories=1 + seed % 2)
    whole = searched(case, monkeypatch)
    monkeypatch.setattr(searched_shapes, "MANY_SHAPES", 0)
    few = searched(case, monkeypatch)
    assert [(row.micro_batch_size, row.hbm_bytes, row.status) for row in few.result.rows] == [
        (row.micro_batch_size, row.hbm_bytes, row.status) for row in whole.result.rows
    ]
    for row, expected in zip(few.result.rows, whole.result.rows, strict=True):
        assert row.value == pytest.approx(expected.value, rel=1e-9)
    for point, other in zip(few.result.per_hbm, whole.result.per_hbm, strict=True):
        assert point.value == pytest.approx(other.value, rel=1e-9) and point.optimal
    assert few.result.counts.complete
    assert (
        few.result.counts.space >= whole.result.counts.space
    )  # a shape that is closed may hold no plan
    assert few.result.counts.plans <= whole.result.counts.plans


def test_bounds_of_shapes_are_stored_by_content(
    tmp_path: Path, pruning_all: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = next(each for each in SEEDS if has_bounds(random_case(each)))
    case = random_case(seed)
    monkeypatch.setenv(SETTING, str(tmp_path / "cache"))

    def least_s(case: Case, folder: str = "estimates") -> FloatArray:
        stores = Stores(tmp_path / "graphs", tmp_path / folder, None)
        graphs = {key: case.graph(key) for key in keys_of(case)}
        (model,) = case.problem.models
        context = replace(case.run(), stores=stores)
        priced = PricedShapes(context, model, graphs, list(model.space.shapes()))
        found = shape_pruning.least_seconds(priced)
        assert found is not None
        return found

    first = least_s(case)
    (model,) = case.problem.models
    base = replace(model.space.base, global_batch_size=2 * model.space.base.global_batch_size)
    larger = replace(model.space, base=base)
    other = replace(case, problem=replace(case.problem, models=(replace(model, space=larger),)))
    slower = least_s(other)
    assert (slower >= first).all() and (slower > first).any()
    monkeypatch.setattr(shape_pruning, "_least_seconds", None)  # nothing is computed again
    assert np.array_equal(least_s(random_case(seed)), first)
    assert np.array_equal(least_s(other), slower)
    assert np.array_equal(least_s(random_case(seed), "of another run"), first)
    monkeypatch.setenv(SETTING, "")
    with pytest.raises(TypeError):
        least_s(random_case(seed), "of a run by itself")


def keys_of(case: Case) -> list[GraphKey]:
    (model,) = case.problem.models
    return list(dict.fromkeys(model.graph_key(shape) for shape in model.space.shapes()))


def has_bounds(case: Case) -> bool:
    """Whether some shape of the case has a bound before its plans are listed."""
    (model,) = case.problem.models
    graphs = {key: case.graph(key) for key in keys_of(case)}
    found = shape_pruning.least_seconds(
        PricedShapes(case.run(), model, graphs, list(model.space.shapes()))
    )
    return found is not None and bool(found.any())


def test_where_nothing_is_known_of_where_groups_lie_nothing_is_closed(
    pruning_all: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0
    for seed in range(1100, 1400):
        case = random_case(seed, most_layers=3)
        (model,) = case.problem.models
        if model.space.ep_degrees == (1,):
            continue
        nested = tuple(order for order in model.space.group_orders if order is not GroupOrder.TIERS)
        space = replace(
            model.space,
            ep_degrees=(2,),
            cp_degrees=(1,),
            layouts=(),
            group_orders=nested,
            dp_degrees=None,
        )
        case = replace(
            case,
            problem=replace(case.problem, models=(replace(model, space=space),)),
            known={},
            plans={},
            cuts={},
        )
        if case.has_plans(case.problem.models[0]):
            few = searched(case, monkeypatch)
            assert few.result.counts.complete and few.result.counts.unlisted == 0
            tried += 1
        if tried == 3:
            return
    pytest.fail("no case with experts")


def test_of_some_problems_most_shapes_are_closed(
    pruning_all: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [random_case(seed) for seed in SEEDS]
    busy = [replace(case, hardware=replace(case.hardware, waits=False)) for case in cases]
    found = [searched(case, monkeypatch).result.counts for case in busy]
    assert sum(counts.unlisted for counts in found) > 0.2 * sum(counts.space for counts in found)


@pytest.mark.parametrize("seed", sampled(SEEDS, EVERY_SESSION))
def test_no_plan_of_a_shape_is_below_what_closed_it(
    seed: int, pruning_all: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed)
    (model,) = case.problem.models
    memory_bytes = float(max(case.problem.memory_bytes))
    for group in searched(case, monkeypatch).groups:
        best_s = group.iteration_s.min()
        for plan, least_s in zip(
            group.pruned_shapes.plans, group.pruned_shapes.least_s.tolist(), strict=True
        ):
            true_s = case.enumerated(model, plan, 0, memory_bytes).iteration_s
            assert least_s <= true_s * (1 + 1e-9)
            assert best_s <= least_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", sampled(SEEDS, EVERY_SESSION))
def test_what_values_of_axes_allow_is_said_as_far_as_it_is_known(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, most_layers=4)
    whole = searched(case, monkeypatch)
    if whole.result.best is None:
        return
    expected = plan_axes(case.run(), whole.groups, whole.result.best, 0)
    true = {(axis.axis, value.value): value for axis in expected for value in axis.values}
    monkeypatch.setattr(searched_shapes, "MANY_SHAPES", 0)
    monkeypatch.setattr(shape_pruning, "MOST_OF_VALUE", 1)
    few = searched(case, monkeypatch)
    assert few.result.best is not None
    axes = plan_axes(case.run(), few.groups, few.result.best, 0)
    assert all(axis.optimum.status is Status.OPTIMAL for axis in axes)
    for axis in axes:
        for value in axis.values:
            reached = true[axis.axis, value.value].reached
            if value.status is Status.FEASIBLE:
                assert value.reached <= reached * (1 + 1e-9) and reached <= value.bound * (1 + 1e-9)
            else:
                assert value.reached == pytest.approx(reached, rel=1e-9)


@pytest.mark.parametrize("seed", sampled(SEEDS, EVERY_SESSION))
def test_no_plan_of_any_shape_is_below_its_bound(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, most_layers=3)
    (model,) = case.problem.models
    found: list[tuple[PricedShapes, list[float]]] = []

    def kept(priced: PricedShapes) -> None:
        least_s = shape_pruning.least_seconds(priced)
        assert least_s is not None
        found.append((priced, least_s.tolist()))

    monkeypatch.setattr(searched_shapes, "MANY_SHAPES", 0)
    monkeypatch.setattr(kept_shapes, "remaining_shapes", kept)
    searched(case, monkeypatch)
    for priced, bounds_s in found:
        for plan, least_s in zip(priced.plans, bounds_s, strict=True):
            assert least_s <= case.enumerated(
                model, plan, 0, float(max(case.problem.memory_bytes))
            ).iteration_s * (1 + 1e-9)


def test_the_same_search_again_looks_at_the_same_shapes(
    pruning_all: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for seed in SEEDS:
        case = random_case(seed)
        (model,) = case.problem.models
        context, plans = case.run(), list(model.space.shapes())
        context = replace(context, stores=replace(context.stores, points=tmp_path / str(seed)))
        graphs = {key: case.graph(key) for key in map(model.graph_key, plans)}
        priced = PricedShapes(context, model, graphs, plans)
        found = kept_shapes.kept_shapes(priced)
        assert found is not None
        if found[0] and len(found[1]):
            break
    else:
        raise AssertionError("no case has shapes of both kinds")
    monkeypatch.setattr(kept_shapes, "remaining_shapes", None)  # not asked again
    again = kept_shapes.kept_shapes(priced)
    assert again is not None
    assert [shape.plan for shape in again[0]] == [shape.plan for shape in found[0]]
    assert again[1].plans == found[1].plans
    assert (again[1].least_s == found[1].least_s).all()
    other = replace(context.problem, memory_bytes=(min(context.problem.memory_bytes) // 2,))
    priced.context = replace(context, problem=other)
    with pytest.raises(TypeError):
        kept_shapes.kept_shapes(priced)
