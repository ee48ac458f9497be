"""The best design and the fastest plan with every value of every axis, against enumeration of all
that have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import cycle, product
from types import SimpleNamespace

import numpy as np
import pytest
from exact_values import objective_of, true_seconds

from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.results import Status
from Estimator.plans.uniform_plans import ORDERS
from phaze.settings.problem import hardware_report
from phaze.settings.resolve import resolve
from phaze_common.choices import GroupOrder, Objective
from Solver.designs import axis_values
from Solver.designs import model_shapes as searched_shapes
from Solver.designs.axis_values import Designs
from Solver.designs.plan_axes import plan_axes
from Solver.designs.points import PointGroup
from Solver.designs.search import Searched, search
from Solver.hardware import PricedGraph
from Solver.problem import ModelProblem
from Solver.results import AxisValue, AxisValues
from tests.builders.random_searches import OBJECTIVES, Case, random_case, together
from tests.builders.samples import sampled

REPORT = hardware_report(resolve({}, {"model": "bertbase"}))
SPACE_OF = {  # what a space of plans calls the values of an axis
    "pp": "pp_degrees",
    "dp": "dp_degrees",
    "interleave": "interleave",
    "zero_stage": "zero_stages",
    "group_order": "group_orders",
    "overlap_gradients": "overlap_gradients",
}


def searched(case: Case, monkeypatch: pytest.MonkeyPatch) -> Searched:
    monkeypatch.setattr(
        searched_shapes,
        "load_or_extract_all",
        lambda keys, *_: {key: case.graph(key) for key in keys},
    )
    return search(case.run(), REPORT, "nowhere")


def true_values(case: Case, groups: list[PointGroup], *, least: bool = False) -> np.ndarray:
    """The objective of every configuration with its best plans by enumeration, -inf where some
    model fits with none."""
    every = []
    for model in case.problem.models:
        mine = [group for group in groups if group.key.model == model.name]
        if not case.hardware.memories:
            mine = [
                group for group in mine if group.key.memory_bytes == max(case.problem.memory_bytes)
            ]
        tables = [
            objective_of(case.problem.objective, true_seconds(case, group, least=least), group)
            for group in mine
        ]
        values = [
            table.reshape(-1, group.configurations)
            for table, group in zip(tables, mine, strict=True)
        ]
        every.append(np.max(np.concatenate(values), axis=0))
    own = [float(each.max()) for each in every]
    return together(
        case.problem.combine, every, [model.weight for model in case.problem.models], own
    )


def some_values(case: Case) -> list[np.ndarray]:
    """Rows with the values of axes that have two, three and as many values as there are
    configurations."""
    random, count = np.random.default_rng(case.hardware.seed), case.hardware.configurations
    axes = [random.integers(0, 2, count), random.integers(0, 3, count), np.arange(count)]
    return [np.flatnonzero(axis == value) for axis in axes for value in np.unique(axis)]


@lru_cache(maxsize=8)
def case_of_chips(seed: int) -> Case:
    """What is enumerated of it is the same for every objective."""
    return random_case(seed, configurations=7, memories=2, most_layers=3, alike=seed % 2 == 0)


@pytest.mark.parametrize(
    ("seed", "objective"),
    sampled(
        product(range(500, 508), OBJECTIVES),
        list(zip(range(500, 504), cycle(OBJECTIVES), strict=False)),
    ),
)
def test_the_best_design_of_every_value_is_that_of_enumeration(
    seed: int, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of_chips(seed)
    case = replace(case, problem=replace(case.problem, objective=objective))
    check_designs(case, searched(case, monkeypatch))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("seed", "objective"),
    sampled(
        product(range(540, 546), Objective), list(zip(range(540, 546), Objective, strict=False))
    ),
)
def test_the_best_design_of_every_value_with_memory_as_it_is_sold_is_that_of_enumeration(
    seed: int, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {
        "configurations": 5,
        "memories": 2,
        "most_layers": 3,
        "sold": True,
        "models": 1 + seed % 2,
    }
    case = random_case(seed, objective=objective, **many)
    check_designs(case, searched(case, monkeypatch))


@pytest.mark.parametrize("seed", sampled(range(520, 528), (521, 522, 526)))
def test_the_best_design_of_every_value_for_two_models_is_that_of_enumeration(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(
        seed, configurations=5, models=2, most_layers=3, objective=OBJECTIVES[seed % 3]
    )
    check_designs(case, searched(case, monkeypatch))


@pytest.mark.parametrize("seed", sampled(range(560, 572), (560, 561, 562, 569)))
def test_of_equal_designs_the_smallest_is_named(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(seed, configurations=24, most_layers=3, models=1 + seed % 2, alike=True)
    found = searched(case, monkeypatch)
    true, area_mm2 = true_values(case, list(found.groups)), case.hardware.metrics.area_mm2
    designs = Designs.of(found.context, found.groups)
    for rows in some_values(case):
        if np.isfinite(true[rows].max()):
            equal = rows[true[rows] >= true[rows].max() * (1 - 1e-12)]
            chip = designs.best("value", rows).accelerator
            assert chip is not None
            assert chip.area_mm2 == area_mm2[equal].min()


@pytest.mark.parametrize(
    "seed", sampled([561, 563, 564, 566, 567], (561, 567))
)  # which leave some value unproven
def test_more_effort_that_finds_nothing_better_names_no_other_design(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, configurations=24, most_layers=3, alike=True, excess=1.5)
    found = searched(case, monkeypatch)
    designs = Designs.of(found.context, found.groups)
    before = [(rows, designs.best("value", rows)) for rows in some_values(case)]
    open_ = [(rows, value) for rows, value in before if value.status is Status.FEASIBLE]
    assert open_
    hardware = type(case.hardware)
    monkeypatch.setattr(axis_values, "DesignedChips", hardware)
    monkeypatch.setattr(hardware, "some_as_priced", lambda self, rows: self, raising=False)
    for rows, value in open_:
        equal = SimpleNamespace(value=value.reached, proven=True)
        monkeypatch.setattr(
            axis_values,
            "priced",
            lambda *_, equal=equal, **__: SimpleNamespace(best_optimum=lambda: equal),
        )
        again = designs.best("value", rows)
        assert (again.accelerator, again.reached) == (value.accelerator, value.reached)
        assert again.bound <= value.bound


def check_designs(case: Case, found: Searched) -> None:
    before = [group.status.copy() for group in found.groups]
    true, designs = true_values(case, list(found.groups)), Designs.of(found.context, found.groups)
    for rows in some_values(case):
        value = designs.best("value", rows)
        if np.isinf(true[rows].max()):
            assert (value.status, value.reached, value.bound) == (Status.INFEASIBLE, 0.0, 0.0)
            continue
        assert value.status is Status.OPTIMAL
        assert value.reached == pytest.approx(true[rows].max(), rel=1e-9)
        assert value.bound == pytest.approx(value.reached, rel=1e-9)
        assert value.hbm_bytes in case.problem.memory_bytes
        assert set(value.plans) == {model.name for model in case.problem.models}
    for group, status in zip(found.groups, before, strict=True):
        assert np.array_equal(group.status, status)  # what the search says of its points stays true


@pytest.mark.parametrize("seed", sampled(range(540, 546), (540, 541, 543)))
def test_without_proofs_of_schedules_the_best_of_a_value_has_a_bound(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, configurations=6, most_layers=3, excess=1.5)
    found = searched(case, monkeypatch)
    groups = list(found.groups)
    given, possible = true_values(case, groups), true_values(case, groups, least=True)
    for rows in some_values(case):
        value = Designs.of(case.run(), groups).best("value", rows)
        if np.isfinite(given[rows].max()):
            assert value.reached == pytest.approx(given[rows].max(), rel=1e-9)
            assert value.bound >= possible[rows].max() * (1 - 1e-9)
            assert (value.status is Status.OPTIMAL) == (value.bound <= value.reached * (1 + 1e-9))


@pytest.mark.parametrize("seed", sampled(range(600, 625), range(602, 625, 5)))
def test_the_fastest_plan_of_every_value_is_that_of_enumeration(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, memories=2, most_layers=4, configurations=1 + 2 * (seed % 2))
    found = searched(case, monkeypatch)
    best = found.result.best
    if best is None:
        assert found.result.status is Status.INFEASIBLE
        return
    row = next(one.row for one in found.scored if one.point.hbm_bytes == best.hbm_bytes)
    check_plans(case, plan_axes(case.run(), found.groups, best, row), row)


@pytest.mark.parametrize("seed", sampled(range(640, 648), (640, 642, 643, 645)))
def test_plans_are_proven_by_more_effort_where_the_search_had_no_need_of_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search leaves schedules open; asked with the most effort they turn out as short as they
    can be."""
    case = random_case(seed, most_layers=4, excess=1.5)
    found = searched(case, monkeypatch)
    best = found.result.best
    if best is None:
        return
    row = next(one.row for one in found.scored if one.point.hbm_bytes == best.hbm_bytes)

    def refined(
        self: object,
        modes: object,
        graph: object,
        experts: object,
        rows: object,
        node_limit: object,
    ) -> PricedGraph:
        least = case.hardware.price(graph, modes, experts, None).least
        return PricedGraph(least, least)

    before = plan_axes(case.run(), found.groups, best, row)
    monkeypatch.setattr(type(case.hardware), "refined", refined)
    after = plan_axes(case.run(), found.groups, best, row)
    for axis in after if before != after else ():
        for value in axis.values:
            assert value.status in {Status.OPTIMAL, Status.INFEASIBLE}, (axis.axis, value)
    for value, true in enumerated_values(case, after if before != after else (), row, least=True):
        assert value.reached == pytest.approx(true, rel=1e-9), value


def check_plans(case: Case, axes: tuple[AxisValues, ...], row: int) -> None:
    for axis in axes:
        assert axis.chosen in {value.value for value in axis.values}
    for value, true in enumerated_values(case, axes, row):
        assert value.status is (Status.OPTIMAL if true else Status.INFEASIBLE), value
        assert value.reached == pytest.approx(true, rel=1e-9), value


def enumerated_values(
    case: Case, axes: tuple[AxisValues, ...], row: int, *, least: bool = False
) -> Iterator[tuple[AxisValue, float]]:
    """Every value of every axis with what its best plan reaches, by enumeration; 0 where none
    fits."""
    (model,) = case.problem.models
    memory_bytes = float(max(case.problem.memory_bytes))
    for axis in axes:
        for value in axis.values:
            seconds = [
                case.enumerated(narrow, shape, row, memory_bytes, least=least).iteration_s
                for narrow, shape in with_value(model, axis.axis, value.value)
            ]
            least_s = min(seconds, default=np.inf)
            yield value, 0.0 if np.isinf(least_s) else model.space.base.global_batch_size / least_s


def with_value(
    model: ModelProblem, axis: str, value: str
) -> Iterator[tuple[ModelProblem, UniformPlan]]:
    """Spaces and shapes of them whose plans together are those with a value."""
    space = model.space
    if axis not in SPACE_OF:
        yield from (
            (model, shape) for shape in space.shapes() if value_of_shape(axis, shape) == value
        )
    elif value != GroupOrder.TIERS:
        narrow = replace(model, space=replace(space, **{SPACE_OF[axis]: (typed(axis, value),)}))
        yield from ((narrow, shape) for shape in narrow.space.shapes())
    else:  # assigned otherwise than orders do, or plans that orders do not distinguish
        yield from (
            (model, shape) for shape in space.shapes() if isinstance(shape.group_order, Assignment)
        )
        for name in ("pp_degrees", "dp_degrees"):
            if getattr(space, name) is None or 1 in getattr(space, name):
                alike = replace(
                    model, space=replace(space, **{name: (1,)}, group_orders=ORDERS[:1])
                )
                yield from ((alike, shape) for shape in alike.space.shapes())


def typed(axis: str, value: str) -> object:
    if axis == "overlap_gradients":
        return value == "true"
    return GroupOrder(value) if axis == "group_order" else int(value)


def value_of_shape(axis: str, shape: UniformPlan) -> str:
    value = getattr(shape, "layout_name" if axis == "layout" else axis)
    return str(value).lower()
