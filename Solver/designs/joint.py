"""The configuration that is best for several models together, each with its own best micro-batch
size and plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.best_first import ROUNDING, Once, best_first
from Solver.combination import Combination
from Solver.designs.points import PointGroup, PointStatus
from Solver.problem import Objective, SearchProblem

CANDIDATES_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class Choice:
    """One model's best point on an accelerator."""

    group: PointGroup
    point: int


@dataclass(frozen=True, eq=False)
class JointOptimum:
    """The best configuration of a memory size; ``best_open_bound`` is what the best one not
    evaluated or proven could reach.

    ``proven`` says that no cut of any plan was left out; ``omitted`` names plans that were not
    considered."""

    row: int
    value: float
    choices: dict[str, Choice]
    best_open_bound: float | None
    proven: bool
    omitted: str


def joint_optimum(
    groups: Mapping[str, Sequence[PointGroup]], combination: Combination, objective: Objective
) -> JointOptimum | None:
    """Best-first over configurations by what the models' bounds combine to, an evaluated point's
    being its value.

    ``groups`` are the point groups of each model for one memory size. None where some model is
    feasible on none. Of equally good ones that of the smallest area, least energy and lowest index
    wins. All that might be as good are evaluated first, so that the answer does not depend on which
    points are evaluated already, by a run that was killed for instance."""
    level = _Configurations(groups, combination, objective)
    every = [group for mine in groups.values() for group in mine]
    area_mm2 = every[0].area_mm2[: every[0].configurations]
    while True:
        best_first(np.arange(len(area_mm2)), [level], level.incumbent, at_once=CANDIDATES_AT_ONCE)
        upper = level.upper
        if not np.isfinite(upper.max()):
            return None
        rivals = np.flatnonzero(upper >= upper.max() * (1.0 - ROUNDING))
        if sum(best.evaluate_rivals(rivals) for best in level.bests.values()):
            continue
        energy_j = combination.mean({model: best.energy_j for model, best in level.bests.items()})
        # Of several, what differs so little is how it was combined.
        better = -upper[rivals] if level.alone else np.zeros(len(rivals))
        row = int(rivals[np.lexsort((energy_j[rivals], area_mm2[rivals], better))[0]])
        smaller = level.incumbent(), float(area_mm2[row]), float(energy_j[row])
        if not level.alone or not any(
            group.evaluate_smaller(objective, *smaller) for group in every
        ):
            return level.optimum(row)


class _Configurations:
    """Configurations by what the best points of all models on them combine to, as far as these are
    not evaluated: a ``Level`` of ``best_first``.

    ``upper`` is what none exceeds, the values of evaluated points being theirs; ``evaluated`` are
    those whose points are: shape (configurations,)."""

    deferred = False

    def __init__(
        self,
        groups: Mapping[str, Sequence[PointGroup]],
        combination: Combination,
        objective: Objective,
    ) -> None:
        self._groups, self._combination, self._objective = groups, combination, objective
        self.alone = len(groups) == 1
        self.bests: dict[str, _BestPoints] = {}

    def bound(self, candidates: IntArray) -> FloatArray:
        for model, mine in self._groups.items():
            self.bests[model] = _best_points(mine, self._objective, alone=self.alone)
        self.upper = self._combination.of({model: each.bound for model, each in self.bests.items()})
        self.evaluated = np.logical_and.reduce([each.evaluated for each in self.bests.values()])
        return np.where(self.evaluated, -np.inf, self.upper)[candidates]

    def incumbent(self) -> float:
        """What a configuration reaches that might be as good as the best one evaluated."""
        return float(self.upper[self.evaluated].max(initial=-np.inf)) * (1.0 - ROUNDING)

    def refine(self, candidates: IntArray) -> int:
        for best in self.bests.values():
            best.evaluate(candidates)
        return len(candidates)

    def optimum(self, row: int) -> JointOptimum:
        """The configuration ``row`` as the optimum."""
        objective, alone, groups = self._objective, self.alone, self._groups.items()
        each = {model: _ceiling(mine, objective, alone=alone) for model, mine in groups}
        ceiling = self._combination.of(each)
        unknown = ceiling[~self.evaluated | (ceiling * (1.0 - ROUNDING) > self.upper)]
        open_bound = float(unknown.max()) if len(unknown) and np.isfinite(unknown.max()) else None
        values = self._combination.of({model: best.value for model, best in self.bests.items()})
        every = [group for mine in self._groups.values() for group in mine]
        return JointOptimum(
            row=row,
            value=float(values[row]),
            choices={model: best.choice(row) for model, best in self.bests.items()},
            best_open_bound=open_bound,
            proven=bool(values[row] >= ceiling.max() * (1.0 - ROUNDING)),
            omitted=next((group.omitted for group in every if group.omitted), ""),
        )


def best_for_all_models(
    problem: SearchProblem, groups: Sequence[PointGroup], memory_bytes: int
) -> JointOptimum | None:
    """The joint optimum of the models for one memory size, out of all its point groups."""
    by_model = {
        model.name: _groups_of(model.name, groups, memory_bytes) for model in problem.models
    }
    # No plan of some model exists, or fits
    if not all(by_model.values()) or (len(by_model) > 1 and not problem.own_best):
        return None
    return joint_optimum(by_model, problem.combination, problem.objective)


def best_of_all_sizes(
    problem: SearchProblem, groups: Sequence[PointGroup]
) -> dict[int, JointOptimum | None]:
    """The optimum of the only model, by memory size: of those that might have the best of all, the
    others are not looked at.

    Points that are still open are pruned by it."""
    sizes, objective = problem.memory_bytes, problem.objective
    found, best = dict[int, JointOptimum | None](), 0.0
    upper = np.full(len(sizes), -np.inf)
    for group in groups:
        place = sizes.index(int(group.key.memory_bytes))
        upper[place] = max(upper[place], float(group.objective_bound(objective).max()))

    def evaluate(places: IntArray) -> None:
        nonlocal best
        size = sizes[int(places[0])]
        found[size] = optimum = best_for_all_models(problem, groups, size)
        best = max(best, 0.0 if optimum is None else optimum.value)

    level = Once(upper, evaluate)
    best_first(np.arange(len(sizes)), [level], lambda: best * (1.0 - ROUNDING))
    for group in groups:
        group.prune_below(objective, best)
    return {size: found[size] for size in sizes if size in found}


def own_bests(problem: SearchProblem, groups: Sequence[PointGroup]) -> dict[str, float]:
    """The value that each of several models reaches alone; empty where one fits nowhere."""
    found: dict[str, float] = {}
    for model in problem.models if len(problem.models) > 1 else ():
        by_size = (_groups_of(model.name, groups, size) for size in problem.memory_bytes)
        asked = problem.combination, problem.objective
        optima = [joint_optimum({model.name: mine}, *asked) for mine in by_size if mine]
        most = max((optimum.value for optimum in optima if optimum is not None), default=None)
        if most is None:
            return {}
        found[model.name] = most
    return found


def _groups_of(model: str, groups: Sequence[PointGroup], memory_bytes: int) -> list[PointGroup]:
    wanted = model, memory_bytes
    return [each for each in groups if (each.key.model, each.key.memory_bytes) == wanted]


@dataclass(frozen=True, eq=False)
class _BestPoints:
    """Per configuration a model's point with the best bound, of equals that of the least energy."""

    groups: Sequence[PointGroup]
    objective: Objective
    alone: bool
    group: IntArray
    point: IntArray
    bound: FloatArray
    energy_j: FloatArray
    evaluated: BoolArray

    @property
    def value(self) -> FloatArray:
        values = np.full(len(self.bound), -np.inf)
        for index, group in enumerate(self.groups):
            mine = self.group == index
            values[mine] = group.objective(self.objective)[self.point[mine]]
        return values

    def choice(self, row: int) -> Choice:
        return Choice(self.groups[int(self.group[row])], int(self.point[row]))

    def evaluate(self, rows: IntArray) -> None:
        for index, group in enumerate(self.groups):
            mine = rows[(self.group[rows] == index) & np.isfinite(self.bound[rows])]
            group.evaluate(self.point[mine])

    def evaluate_rivals(self, rows: IntArray) -> int:
        """Evaluate what might equal the best points of ``rows``; how many there were."""
        found = 0
        for group in self.groups:
            bound = _bounds(group, self.objective, alone=self.alone).reshape(
                -1, group.configurations
            )
            near = np.zeros(bound.shape, dtype=np.bool_)
            near[:, rows] = bound[:, rows] >= self.bound[rows] * (1.0 - ROUNDING)
            unknown = (group.status != PointStatus.EVALUATED) & (
                group.status != PointStatus.INFEASIBLE
            )
            rivals = np.flatnonzero(near.ravel() & unknown)
            group.evaluate(rivals)
            found += len(rivals)
        return found


def _limits(group: PointGroup, objective: Objective, *, alone: bool) -> FloatArray:
    """Bounds of points; what is dominated cannot be the best of a model that decides alone."""
    return group.undominated_bound(objective) if alone else group.objective_bound(objective)


def _bounds(group: PointGroup, objective: Objective, *, alone: bool) -> FloatArray:
    limits = _limits(group, objective, alone=alone)
    return np.where(group.status == PointStatus.EVALUATED, group.objective(objective), limits)


def _ceiling(groups: Sequence[PointGroup], objective: Objective, *, alone: bool) -> FloatArray:
    """What no plan of a model exceeds on each configuration, shape (configurations,)."""
    limits = [
        _limits(group, objective, alone=alone).reshape(-1, group.configurations).max(axis=0)
        for group in groups
    ]
    highest: FloatArray = np.max(limits, axis=0)
    return highest


def _best_points(groups: Sequence[PointGroup], objective: Objective, *, alone: bool) -> _BestPoints:
    """Ties go to evaluated points, then to less energy, then to the earlier group and shape."""
    count = groups[0].configurations
    bound, energy_j = np.full(count, -np.inf), np.full(count, np.inf)
    evaluated = np.zeros(count, dtype=np.bool_)
    group_of, point_of = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for index, group in enumerate(groups):
        values = _bounds(group, objective, alone=alone).reshape(-1, count)
        energies_j = group.energy_j.reshape(-1, count)
        known = (group.status == PointStatus.EVALUATED).reshape(-1, count)
        for shape in range(len(values)):
            as_known = known[shape] == evaluated
            preferred = (known[shape] & ~evaluated) | (as_known & (energies_j[shape] < energy_j))
            better = (values[shape] > bound) | ((values[shape] == bound) & preferred)
            bound[better], evaluated[better] = values[shape][better], known[shape][better]
            energy_j[better] = energies_j[shape][better]
            group_of[better], point_of[better] = index, shape * count + np.flatnonzero(better)
    return _BestPoints(groups, objective, alone, group_of, point_of, bound, energy_j, evaluated)
