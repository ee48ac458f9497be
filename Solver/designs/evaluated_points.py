"""What is known of the points of a model, and what may be found still, for whoever asks for the
best on some configurations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.combination import Combination
from Solver.designs.dominance import dominators
from Solver.designs.joint import Choice
from Solver.designs.points import PointGroup, PointStatus
from Solver.designs.search_criteria import SearchCriteria
from Solver.designs.shape_dominance import deciding_columns, plan_columns
from Solver.problem import Objective


class ModelPoints:
    """What the points of one model could reach and are known to reach: arrays of shape (shapes,
    configurations).

    ``upper`` is what no plan of a point exceeds, ``found`` what its best plan reaches (-inf: not
    known); ``level`` is 0 where the bound is that of what dominates the point, 1 where it is its
    own, 2 where the point is evaluated or nothing fits. Under an objective of energy nothing is
    known to be reached with unproven schedules (``uncertain``): the shortest may use more."""

    def __init__(self, groups: Sequence[PointGroup], objective: Objective) -> None:
        self._groups, self._objective, self.name = groups, objective, groups[0].key.model
        self.count = groups[0].configurations
        columns = [
            (group.objective_bound(objective), group.objective(objective), group.status)
            for group in groups
        ]
        self.upper, self.found, status = (
            np.concatenate(each).reshape(-1, self.count) for each in zip(*columns, strict=True)
        )
        excess = [shape.excess for group in groups for shape in group.shapes]
        self.uncertain = (np.stack(excess) > 1.0) & SearchCriteria(objective).of_energy
        self.found[self.uncertain] = -np.inf
        self.level = np.where(status == PointStatus.DOMINATED, 0, 1)
        self.level[(status == PointStatus.EVALUATED) | (status == PointStatus.INFEASIBLE)] = 2
        self._fitting = np.flatnonzero((status != PointStatus.INFEASIBLE).any(axis=1))
        counts = [len(group.shapes) for group in groups]
        self._first = np.cumsum([0, *counts])
        self._size_of = np.repeat([group.key.memory_bytes for group in groups], counts)
        self.omitted = any(group.omitted for group in groups)

    @property
    def sizes(self) -> list[int]:
        """Bytes of memory that the groups are about."""
        return list(dict.fromkeys(group.key.memory_bytes for group in self._groups))

    def fitting_in(self, memory_bytes: int) -> list[int]:
        """Shapes that fit on some configuration with so much memory."""
        fitting: list[int] = self._fitting[self._size_of[self._fitting] == memory_bytes].tolist()
        return fitting

    def exceeding(self, value: float, rows: IntArray) -> list[UniformPlan]:
        """Shapes whose plans might exceed ``value`` on one of ``rows``."""
        places = np.flatnonzero((self.upper[:, rows] > value).any(axis=1))
        choices = (self.choice(place, 0) for place in places.tolist())
        shapes = (choice.group.locate(choice.point)[1].plan for choice in choices)
        return list(dict.fromkeys(shapes))

    def held(self, memory_bytes: int) -> BoolArray:
        """Which configurations have so much memory, shape (configurations,)."""
        return next(group.held for group in self._groups if group.key.memory_bytes == memory_bytes)

    def choice(self, shape: int, row: int) -> Choice:
        """A point as its group knows it."""
        place = int(np.searchsorted(self._first, shape, side="right")) - 1
        return Choice(self._groups[place], (shape - int(self._first[place])) * self.count + row)

    def seconds(self, shape: int, rows: IntArray) -> FloatArray:
        """``plan_columns`` of ``rows`` under one shape, shape (rows, columns)."""
        choice = self.choice(shape, 0)
        return plan_columns(choice.group.locate(choice.point)[1], choice.group.chips, rows)

    def columns(self, shape: int, rows: IntArray, *, least: bool) -> FloatArray:
        """What decides the objective of ``rows`` under one shape, shape (rows, criteria)."""
        choice = self.choice(shape, 0)
        _, plans = choice.group.locate(choice.point)
        return deciding_columns(plans, choice.group.chips, self._objective, rows, least=least)

    def bound(self, shape: int, row: int, slower: IntArray) -> None:
        """Bound a point by itself, and with it the configurations ``slower`` in all plans take."""
        choice = self.choice(shape, row)
        least_s = choice.group.least_seconds(np.array([choice.point])).item()
        for rows in (np.array([row]), slower):
            upper = self._values(choice, choice.point - row + rows, least_s, choice.group.least_j)
            self.upper[shape, rows] = np.minimum(self.upper[shape, rows], upper)
        self.level[shape, row] = 1

    def evaluate(self, shape: int, row: int) -> None:
        """Find the best plan of a point."""
        choice = self.choice(shape, row)
        group, here = choice.group, np.array([choice.point])
        (best,) = group.evaluated(here)
        counted_s = group.counted_s(choice.point, best)
        if not self.uncertain[shape, row]:
            self.found[shape, row] = self._values(choice, here, counted_s, group.energy_j)[0]
        upper = self._values(choice, here, best.least_s, group.least_j)[0]
        self.upper[shape, row] = min(self.upper[shape, row], upper)
        self.level[shape, row] = 2

    def _values(
        self, choice: Choice, points: IntArray, seconds: float, joules: FloatArray
    ) -> FloatArray:
        group, each_s = choice.group, np.full(len(points), seconds)
        samples, tokens = group.batch_samples, group.sample_tokens
        metrics = group.metrics.some(points)
        return metrics.reached(self._objective, each_s, joules[points], samples, tokens)


class PointsOfRows:
    """What is known of one model's points on the configurations ``rows``, of those that ``mask``
    (shapes, rows) leaves.

    Arrays of shape (rows,), of the best shape each: what no plan exceeds (``upper``), what the best
    plan found reaches, and what might be found still (``potential``)."""

    def __init__(self, points: ModelPoints, rows: IntArray, mask: BoolArray) -> None:
        self.points, self.rows, self.mask = points, rows, mask
        self.upper, self.found, self.potential = self._largest(np.arange(len(rows)))
        # By shape: of which places, and those
        self._seconds: dict[int, tuple[IntArray, FloatArray]] = {}

    def _largest(self, places: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        points, rows, mask = self.points, self.rows[places], self.mask[:, places]
        upper, found = (
            np.where(mask, each[:, rows], -np.inf) for each in (points.upper, points.found)
        )
        potential = np.where(points.level[:, rows] < 2, upper, found)
        return upper.max(axis=0), found.max(axis=0), potential.max(axis=0)

    def refine(self, place: int) -> int:
        """Know more of the most promising point of a configuration; how many plans that took."""
        row, points = int(self.rows[place]), self.points
        might = np.where(points.level[:, row] < 2, points.upper[:, row], points.found[:, row])
        shape = int(np.where(self.mask[:, place], might, -np.inf).argmax())
        if points.level[shape, row] == 2:
            return 0
        changed, bounded = np.array([place]), points.level[shape, row] == 1
        if bounded:
            points.evaluate(shape, row)
        else:
            changed = np.append(changed, self._slower(shape, place))
            points.bound(shape, row, self.rows[changed[1:]])
        known = self.upper, self.found, self.potential
        for mine, now in zip(known, self._largest(changed), strict=True):
            mine[changed] = now
        return int(bounded)

    def _slower(self, shape: int, place: int) -> IntArray:
        """Places of configurations that are no faster in any layer or plan under ``shape``."""
        if shape not in self._seconds:
            mine = np.flatnonzero(self.mask[shape])
            self._seconds[shape] = mine, self.points.seconds(shape, self.rows[mine])
        places, seconds = self._seconds[shape]
        no_faster = (seconds >= seconds[np.searchsorted(places, place)]).all(axis=1)
        slower: IntArray = places[no_faster & (places != place)]
        return slower

    def best(self, place: int) -> Choice:
        """The best point found of one configuration."""
        row = int(self.rows[place])
        found = np.where(self.mask[:, place], self.points.found[:, row], -np.inf)
        return self.points.choice(int(found.argmax()), row)


class PointsOfModels:
    """What is known of the points of all models on some configurations, together: a ``Level`` of
    ``best_first``, whose candidates are places of configurations.

    ``rows`` are the configurations; arrays have shape (rows,), as those of ``PointsOfRows``."""

    deferred = False

    def __init__(
        self,
        models: Sequence[ModelPoints],
        rows: IntArray,
        masks: Sequence[BoolArray],
        combination: Combination,
    ) -> None:
        self.rows, self._combination = rows, combination
        self._points = {
            model.name: PointsOfRows(model, rows, mask)
            for model, mask in zip(models, masks, strict=True)
        }

    @property
    def upper(self) -> FloatArray:
        """What no design exceeds."""
        return self._combination.of({name: each.upper for name, each in self._points.items()})

    @property
    def found(self) -> FloatArray:
        """What the best design found reaches."""
        return self._combination.of({name: each.found for name, each in self._points.items()})

    def bound(self, candidates: IntArray) -> FloatArray:
        """What might be found still."""
        potential = {name: each.potential for name, each in self._points.items()}
        return self._combination.of(potential)[candidates]

    def refine(self, candidates: IntArray) -> int:
        """Know more of the best points of one configuration; how many plans were looked for."""
        return sum(each.refine(int(candidates[0])) for each in self._points.values())

    def choices(self, place: int) -> list[Choice]:
        """The best point found of each model on one configuration."""
        return [each.best(place) for each in self._points.values()]

    def energy_j(self, places: IntArray) -> FloatArray:
        """Joules per sample of the best points found, the mean of the models; shape (places,)."""
        joules = {
            name: np.array(
                [best.group.energy_j[best.point] for best in map(each.best, places.tolist())]
            )
            for name, each in self._points.items()
        }
        return self._combination.mean(joules)


def undominated_rows(points: Sequence[tuple[ModelPoints, int]], rows: IntArray) -> BoolArray:
    """Which of ``rows`` none dominates in all of ``points`` (models and shapes): shape (rows,)."""
    found, least = (
        np.concatenate([model.columns(shape, rows, least=each) for model, shape in points], axis=1)
        for each in (False, True)
    )
    for model, shape in points:
        found[model.uncertain[shape, rows]] = np.inf
    alive: BoolArray = dominators(found, least) < 0
    return alive
