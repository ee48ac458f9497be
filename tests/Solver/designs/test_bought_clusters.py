"""Searches of chips, numbers of devices and plans within an amount of money, against enumeration of
all three."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import cycle, pairwise, product

import numpy as np
import pytest

from Estimator.plans.results import Status
from phaze_common.choices import Objective
from phaze_common.errors import InputError
from Solver.designs.axis_values import Designs
from Solver.designs.points import PointGroup, PointStatus
from Solver.designs.search import Searched
from Solver.problem import ModelProblem
from Solver.purchase import Purchase
from tests.builders.random_searches import Case, random_case, together
from tests.builders.samples import sampled

SHARES = {
    1: 0.0,
    2: 0.0,
    5: 35.0,
    16: 80.0,
}  # USD of switches for each device of clusters of up to so many
AMOUNTS = (
    250.0,
    420.0,
    900.0,
    1500.0,
    1e5,
)  # USD; devices cost 100, 200 or 300 by themselves, and there are 16
Searching = Callable[[Case], Searched]


@lru_cache(maxsize=2)
def unlimited(seed: int, models: int) -> Case:
    return random_case(seed, configurations=4, memories=2, most_layers=3, sold=True, models=models)


def bought(seed: int, usd: float, objective: Objective, models: int = 1) -> Case:
    """A case whose enumerated cuts are shared with those of other amounts and objectives."""
    case = unlimited(seed, models)
    hardware = replace(case.hardware, purchase=Purchase(usd, tuple(SHARES), tuple(SHARES.values())))
    return replace(case, hardware=hardware, problem=replace(case.problem, objective=objective))


def share_usd(devices: int) -> float:
    return next(share for most, share in SHARES.items() if devices <= most)


def worth(
    case: Case, row: int, devices: int, seconds: float, joules: float, samples: int, tokens: int
) -> float:
    """The objective of one plan, which owns the devices that it uses; -inf where they cost too
    much."""
    metrics, objective = case.hardware.metrics, case.problem.objective
    assert case.hardware.purchase is not None and metrics.use is not None
    device_usd = float(metrics.owning_usd[row]) + share_usd(devices)
    if devices * device_usd > case.hardware.purchase.usd or np.isinf(seconds):
        return -np.inf
    sample_s, drawn_w = seconds / samples, devices * float(metrics.static_w[row])
    if objective is Objective.THROUGHPUT:
        return 1.0 / sample_s
    if objective is Objective.THROUGHPUT_PER_AREA:
        return 1.0 / sample_s / float(metrics.area_mm2[row])
    all_j = joules + drawn_w * sample_s
    if objective is Objective.THROUGHPUT_PER_JOULE:
        return 1.0 / all_j
    carbon = objective is Objective.CARBON_PER_TOKEN
    owned, per_j = (
        (float(metrics.embodied_kg[row]), metrics.use.kg_per_j)
        if carbon
        else (device_usd, metrics.use.usd_per_j)
    )
    hosts_j = metrics.use.host_w * devices * sample_s
    paid = devices * owned * sample_s / metrics.use.service_s + per_j * (all_j + hosts_j)
    return (1 if objective is Objective.THROUGHPUT_PER_DOLLAR else tokens) / paid


def enumerated(case: Case, group: PointGroup) -> np.ndarray:
    """The objective of every point of ``group``, the best over its plans: shape (points,)."""
    values = np.full(len(group.status), -np.inf)
    model = next(each for each in case.problem.models if each.name == group.key.model)
    for point in range(len(values)):
        row, shape = group.locate(point)
        if not group.held[row]:
            continue
        for each in case.every_plan(model, shape.plan, row, float(group.key.memory_bytes)):
            joules = float(group.energy_j[point])
            value = worth(
                case,
                row,
                each.plan.devices,
                each.iteration_s,
                joules,
                group.batch_samples,
                group.sample_tokens,
            )
            values[point] = max(values[point], value)
    return values


def check_group(case: Case, group: PointGroup, true: np.ndarray) -> None:
    """Every point is closed as it may be, and what is said of it is so."""
    objective = case.problem.objective
    evaluated = group.status == PointStatus.EVALUATED
    assert not np.any(group.status == PointStatus.OPEN)
    assert group.objective(objective)[evaluated] == pytest.approx(true[evaluated], rel=1e-9)
    assert np.all(np.isneginf(true[group.status == PointStatus.INFEASIBLE]))
    assert np.all(group.objective_bound(objective) >= true - 1e-9 * np.abs(true))
    found = group.batch_samples / group.iteration_s[evaluated]
    assert np.all(group.fastest_bound[evaluated] >= found * (1 - 1e-9))
    devices = [group.plan(int(point)).devices for point in np.flatnonzero(evaluated)]
    assert group.metrics.caps is not None
    assert np.all(np.array(devices, np.int64) <= group.metrics.caps[evaluated])


def check_answer(case: Case, found: Searched) -> float:
    """The whole answer to ``case`` against enumeration; the value of the best, -inf where there is
    none."""
    counts, best = found.result.counts, dict[int, list[np.ndarray]]()
    assert counts.complete and counts.space == sum(
        len(group.status) - group.absent.sum() for group in found.groups
    )
    rows = {(row.model, row.hbm_bytes, row.micro_batch_size): row for row in found.result.rows}
    for size in case.problem.memory_bytes:
        for model in case.problem.models:
            tables = []
            for group in found.groups:
                if (group.key.model, group.key.memory_bytes) != (model.name, size):
                    continue
                true = enumerated(case, group)
                check_group(case, group, true)
                row = rows[group.key.model, size, group.key.micro_batch_size]
                assert (row.status is Status.INFEASIBLE) == np.isneginf(true.max())
                if np.isfinite(true.max()):
                    assert row.status is Status.OPTIMAL and row.value == pytest.approx(
                        true.max(), rel=1e-9
                    )
                tables.append(true.reshape(-1, group.configurations))
            best.setdefault(size, []).append(np.max(np.concatenate(tables), axis=0))
    own = [max(float(each.max()) for each in values) for values in zip(*best.values(), strict=True)]
    weights, points = (
        [model.weight for model in case.problem.models],
        {each.hbm_bytes: each for each in found.result.per_hbm},
    )
    for size, values in best.items():
        values_together = together(case.problem.combine, values, weights, own)
        if np.isinf(values_together.max()):
            assert size not in points
            continue
        point = points[size]
        assert point.optimal and point.value == pytest.approx(values_together.max(), rel=1e-9)
        row = next(one.row for one in found.scored if one.point is point)
        assert values_together[row] == pytest.approx(values_together.max(), rel=1e-9)
    if found.result.best is None:
        assert (
            not points
            and "of the" in found.result.reason
            and "max_cluster_cost" in found.result.reason
        )
        return -np.inf
    return found.result.best.value


def least_devices(model: ModelProblem) -> int:
    return min(
        shape.inner_devices * shape.ep // np.gcd(shape.ep, shape.cp)
        for shape in model.space.shapes()
    )


ALL = list(product(range(700, 706), AMOUNTS, Objective))
SOME = list(zip(cycle(range(700, 706)), cycle(AMOUNTS), Objective, strict=False))


@pytest.mark.some(3)
@pytest.mark.parametrize(("seed", "usd", "objective"), sampled(ALL, SOME))
def test_chip_devices_and_plan_are_those_of_enumeration(
    seed: int, usd: float, objective: Objective, searched: Searching
) -> None:
    case = bought(seed, usd, objective)
    try:
        found = searched(case)
    except InputError as error:
        assert "max_cluster_cost buys at most" in str(error)
        most = case.hardware.metrics.most_devices
        assert most is not None and most < max(
            least_devices(model) for model in case.problem.models
        )
        return
    check_answer(case, found)


@pytest.mark.parametrize(
    ("seed", "usd", "objective"),
    sampled(
        product(range(720, 724), AMOUNTS[1:], Objective),
        list(zip(range(720, 724), AMOUNTS[1:], Objective, strict=False)),
    ),
)
def test_two_models_on_one_chip_are_those_of_enumeration(
    seed: int, usd: float, objective: Objective, searched: Searching
) -> None:
    case = bought(seed, usd, objective, models=2)
    try:
        found = searched(case)
    except InputError as error:
        assert "max_cluster_cost buys at most" in str(error)
        return
    check_answer(case, found)


@pytest.mark.parametrize(
    ("seed", "usd"),
    sampled(product(range(700, 706), AMOUNTS[:4]), [(700, 420.0), (703, 900.0), (705, 420.0)]),
)
@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.COST_PER_TOKEN])
def test_the_best_of_some_configurations_is_that_of_enumeration(
    seed: int, usd: float, objective: Objective, searched: Searching
) -> None:
    """What the search dominates may be the best of others: dominance is asked again in what the
    objective depends on."""
    case = bought(seed, usd, objective)
    try:
        found = searched(case)
    except InputError:
        return
    best = np.max(
        [
            enumerated(case, each).reshape(-1, each.configurations).max(axis=0)
            for each in found.groups
        ],
        axis=0,
    )
    designs = Designs.of(found.context, found.groups)
    for count, first in product((1, 2, 3), range(case.hardware.count)):
        rows = np.sort((first + np.arange(count)) % case.hardware.count)
        value, true = designs.best("some", rows), float(best[rows].max())
        assert value.reached == pytest.approx(true if np.isfinite(true) else 0.0, rel=1e-9)
        assert value.status is (Status.OPTIMAL if np.isfinite(true) else Status.INFEASIBLE)


@pytest.mark.parametrize(
    ("seed", "objective"),
    sampled(product(range(740, 744), Objective), list(product((741,), Objective))),
)
def test_more_money_is_never_worse(seed: int, objective: Objective, searched: Searching) -> None:
    reached = []
    for usd in (100.0, *AMOUNTS):
        try:
            best = searched(bought(seed, usd, objective)).result.best
        except InputError:
            best = None
        reached.append(0.0 if best is None else best.value)
    assert reached[-1] > 0.0
    assert all(more >= less * (1 - 1e-12) for less, more in pairwise(reached))
