"""The whole search of random small problems against enumeration of every plan, every cut and every
configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import cycle, product

import numpy as np
import pytest
from exact_values import criteria_of, objective_of, true_seconds

from Estimator.plans.results import Status
from phaze_common.choices import FrontAxis, Objective
from phaze_common.errors import InputError
from Solver.designs.points import PointGroup, PointStatus
from Solver.designs.search import Searched
from Solver.pareto import better_is_larger, nondominated
from Solver.plans import best_plan
from tests.builders.random_searches import OBJECTIVES, Case, random_case, together
from tests.builders.samples import sampled

Searching = Callable[[Case], Searched]


def check_group(group: PointGroup, true_s: np.ndarray) -> None:
    """Bounds hold at every point, what is evaluated or infeasible is exactly so, and the front that
    was asked for is whole."""
    evaluated = group.status == PointStatus.EVALUATED
    assert group.iteration_s[evaluated] == pytest.approx(true_s[evaluated], rel=1e-9)
    assert group.least_s[evaluated] == pytest.approx(true_s[evaluated], rel=1e-9)
    assert np.all(np.isinf(true_s[group.status == PointStatus.INFEASIBLE]))
    assert not np.any(group.status == PointStatus.OPEN)
    true = group.batch_samples / true_s
    assert np.all(group.throughput_bound >= true * (1 - 1e-9))
    if not group.criteria.front:
        return
    possible, found, axes = (
        np.flatnonzero(np.isfinite(true_s)),
        np.flatnonzero(evaluated),
        group.criteria.front,
    )
    every, front = (
        better_is_larger(*criteria_of(group, true_s, rows, axes)) for rows in (possible, found)
    )
    every[:, 0], front[:, 0] = (np.round(values, 9) for values in (every[:, 0], front[:, 0]))
    assert {tuple(each) for each in every[nondominated(every)]} == {
        tuple(each) for each in front[nondominated(front)]
    }


def check_answer(case: Case, found: Searched) -> None:
    """Everything that a search says of ``case``, against enumeration."""
    counts = found.result.counts
    assert counts.complete and counts.space == sum(
        len(group.status) - group.absent.sum() for group in found.groups
    )
    true = {id(group): true_seconds(case, group) for group in found.groups}
    weights = [model.weight for model in case.problem.models]
    rows = {(row.model, row.hbm_bytes, row.micro_batch_size): row for row in found.result.rows}
    for group in found.groups:
        check_group(group, true[id(group)])
        least = objective_of(case.problem.objective, true[id(group)], group).max()
        row = rows[group.key.model, group.key.memory_bytes, group.key.micro_batch_size]
        assert (row.status is Status.INFEASIBLE) == np.isinf(least)
        if np.isfinite(least):
            assert row.status is Status.OPTIMAL and row.value == pytest.approx(least, rel=1e-9)
    points = {point.hbm_bytes: point for point in found.result.per_hbm}
    best: dict[int, list[np.ndarray]] = {}
    for size in case.problem.memory_bytes:
        for model in case.problem.models:
            mine = [
                each
                for each in found.groups
                if each.key.model == model.name and each.key.memory_bytes == size
            ]
            values = [
                (each, objective_of(case.problem.objective, true[id(each)], each)) for each in mine
            ]
            tables = [table.reshape(-1, each.configurations) for each, table in values]
            best.setdefault(size, []).append(np.max(np.concatenate(tables), axis=0))
    own = [max(float(each.max()) for each in values) for values in zip(*best.values(), strict=True)]
    for size, values in best.items():
        mean = together(case.problem.combine, values, weights, own)
        if np.isinf(mean.max()):
            assert size not in points
            continue
        point = points[size]
        assert point.value == pytest.approx(mean.max(), rel=1e-9)
        assert point.optimal and point.status is Status.OPTIMAL
        row = next(one.row for one in found.scored if one.point is point)
        assert mean[row] == pytest.approx(mean.max(), rel=1e-9)
        assert point.certificate is not None
        bound = point.certificate.best_open_bound
        assert bound is None or bound <= point.value * (1 + 1e-9)
        for plan in point.models.values():
            assert plan.time_per_batch_bound_s == pytest.approx(plan.time_per_batch_s, rel=1e-9)
    if not points:
        assert (
            found.result.best is None
            and found.result.status is Status.INFEASIBLE
            and found.result.reason
        )
    else:
        assert found.result.best is not None
        assert found.result.best.value == max(point.value for point in points.values())


@pytest.mark.parametrize("seed", sampled(range(900, 908), (900, 903, 905)))
def test_answers_for_tables_with_sparse_gradients_are_those_of_enumeration(
    seed: int, searched: Searching
) -> None:
    case = random_case(seed, configurations=1 + seed % 2 * 2, most_layers=3, tables=True)
    check_answer(case, searched(case))


@pytest.mark.parametrize("seed", sampled(range(30), range(1, 30, 5)))
def test_the_best_plan_on_a_device_is_that_of_enumeration(seed: int, searched: Searching) -> None:
    case = random_case(seed, memories=2, most_layers=4)
    check_answer(case, searched(case))


@lru_cache(maxsize=1)
def several_configurations(seed: int) -> Case:
    return random_case(seed, configurations=5, memories=2, most_layers=3)


@pytest.mark.parametrize(
    ("seed", "objective"),
    sampled(
        product(range(100, 108), OBJECTIVES),
        list(zip(range(101, 105), cycle(OBJECTIVES), strict=False)),
    ),
)
def test_the_best_of_several_configurations_is_that_of_enumeration(
    seed: int, objective: Objective, searched: Searching
) -> None:
    case = several_configurations(seed)
    case = replace(case, problem=replace(case.problem, objective=objective))
    check_answer(case, searched(case))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("seed", "objective"),
    sampled(
        product(range(700, 706), Objective), list(zip(range(700, 706), Objective, strict=False))
    ),
)
def test_the_best_of_chips_with_memory_as_it_is_sold_is_that_of_enumeration(
    seed: int, objective: Objective, searched: Searching
) -> None:
    """Each has a memory, a bandwidth, power that it draws all the time, a price and carbon of its
    own."""
    case = random_case(
        seed,
        configurations=4,
        memories=2,
        most_layers=3,
        objective=objective,
        sold=True,
        models=1 + seed % 2,
    )
    check_answer(case, searched(case))


def some_front(seed: int) -> tuple[FrontAxis, ...]:
    """Throughput with any others."""
    others = [axis for axis in FrontAxis if axis not in (FrontAxis.THROUGHPUT, FrontAxis.NONE)]
    kept = np.random.default_rng(seed).random(len(others)) < 0.4
    return (
        FrontAxis.THROUGHPUT,
        *(axis for axis, chosen in zip(others, kept, strict=True) if chosen),
    )


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("seed", "objective"),
    sampled(
        product(range(710, 716), Objective), list(zip(range(710, 716), Objective, strict=False))
    ),
)
def test_any_front_and_none_are_those_of_enumeration_whatever_the_objective(
    seed: int, objective: Objective, searched: Searching
) -> None:
    case = random_case(
        seed,
        configurations=6,
        memories=1 + seed % 2,
        most_layers=2,
        sold=True,
        models=1 + seed % 3 // 2,
    )
    for front in ((), some_front(seed), some_front(seed + 100)):
        asked = replace(case, problem=replace(case.problem, objective=objective, front=front))
        check_answer(asked, searched(asked))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("seed", "objective"),
    sampled(
        product(range(740, 752), Objective), list(zip(range(740, 746), Objective, strict=False))
    ),
)
def test_the_best_of_chips_with_links_of_their_own_is_that_of_enumeration(
    seed: int, objective: Objective, searched: Searching
) -> None:
    """Each has a network as fast as its links; layers take equally long on many of them, so that
    links often decide."""
    case = random_case(
        seed,
        configurations=4,
        memories=2,
        most_layers=3,
        objective=objective,
        sold=True,
        linked=True,
        alike=seed % 2 == 0,
    )
    check_answer(case, searched(case))


@pytest.mark.parametrize("seed", sampled(range(200, 212), (202, 203, 204, 207)))
def test_the_best_for_two_models_is_that_of_enumeration(seed: int, searched: Searching) -> None:
    case = random_case(
        seed, configurations=4, models=2, most_layers=3, objective=OBJECTIVES[seed % 3]
    )
    check_answer(case, searched(case))


@pytest.mark.parametrize("seed", sampled(range(300, 312), range(301, 312, 5)))
def test_without_proofs_of_schedules_bounds_are_on_the_safe_side(
    seed: int, searched: Searching
) -> None:
    """Times are too long by up to 1.5: nothing that might be best is called optimal, or closed by
    what might be worse."""
    case = random_case(seed, configurations=5, most_layers=3, excess=1.5)
    found = searched(case)
    for group in found.groups:
        given_s = true_seconds(case, group)
        possible_s = true_seconds(case, group, least=True)
        assert np.all(group.throughput_bound >= group.batch_samples / possible_s * (1 - 1e-9))
        best = group.batch_samples / given_s.min()
        row = next(
            each
            for each in found.result.rows
            if each.micro_batch_size == group.key.micro_batch_size
        )
        assert row.throughput_samples_per_s == pytest.approx(
            best if np.isfinite(given_s.min()) else 0.0, rel=1e-9
        )
    assert found.result.counts.complete
    if found.result.best is not None:
        values = [group.batch_samples / true_seconds(case, group).min() for group in found.groups]
        assert found.result.best.value == pytest.approx(max(values), rel=1e-9)
        assert found.result.best.optimal <= bool((case.hardware.excess_of == 1.0).all())


@pytest.mark.parametrize("seed", sampled(range(400, 406), (400, 401, 403)))
def test_a_search_of_cuts_that_is_cut_off_has_a_bound_and_claims_nothing(
    seed: int, searched: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, configurations=1 + seed % 2 * 2, most_layers=4)
    monkeypatch.setattr(best_plan, "FIRST_STEPS", 3)
    monkeypatch.setattr(best_plan, "MOST_STEPS", 3)
    found = searched(case)
    for group in found.groups:
        true_s = true_seconds(case, group)
        known = group.status == PointStatus.EVALUATED
        assert np.all(group.throughput_bound >= group.batch_samples / true_s * (1 - 1e-9))
        assert np.all(group.iteration_s[known] >= true_s[known] * (1 - 1e-9))
        assert np.all(group.least_s[known] <= true_s[known] * (1 + 1e-9))
    best = found.result.best
    if best is not None:
        least_s = [true_seconds(case, group).min() for group in found.groups]
        truly = max(
            group.batch_samples / seconds
            for group, seconds in zip(found.groups, least_s, strict=True)
        )
        if best.optimal:
            assert best.value == pytest.approx(truly, rel=1e-9)
        else:
            assert best.certificate is not None and best.certificate.best_open_bound is not None
            assert best.certificate.best_open_bound >= truly * (1 - 1e-9)


def test_a_space_without_plans_is_refused(searched: Searching) -> None:
    case = random_case(1)
    (model,) = case.problem.models
    space = replace(model.space, devices=7, use_all_devices=True, tp_widths=(2,))
    with pytest.raises(InputError, match="tp x cp x pp x dp must be exactly 7 devices"):
        searched(
            replace(case, problem=replace(case.problem, models=(replace(model, space=space),)))
        )
