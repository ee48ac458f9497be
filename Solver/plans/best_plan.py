"""The best plan of one shape on one configuration of hardware: best first under bounds, every plan
accounted for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.cuts import chunk_layers
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.layer_costs import LayerCosts
from phaze_common.array_types import FloatArray, IntArray
from Solver.paths.cut_bounds import (
    FIRST,
    FIXED_BYTES,
    KIND,
    PART,
    ROUNDING,
    SAVED_BYTES,
    Problem,
    bound_cut,
)
from Solver.paths.cut_search import cut_s, search_cuts
from Solver.paths.stage_tables import Priced
from Solver.plans.alike_plans import AlikePlans, Proof, Together
from Solver.plans.bounds import plan_bounds_s
from Solver.plans.cut_levels import CutSearch, Found, Hint, PlanStatus
from Solver.plans.row_loads import RowLoads
from Solver.plans.shape_plans import MOST_KEPT, CutTerms, DegreesKey, ShapePlans

MOST_STEPS = 4_000_000  # stages tried in one search through cuts: some tenths of a second
FIRST_STEPS = 20_000  # for a first incumbent
FEW_PLANS = 64  # that are bounded one by one before classes of them are looked at together


@dataclass(frozen=True, eq=False)
class FastestPlan:
    """The best plan of a shape on one configuration; no plan of the shape takes less than
    ``bound_s``.

    ``memory_bytes`` are those of its fullest stage; ``hint`` leads others to it. ``plan`` is None
    where nothing fits (``iteration_s`` infinite) or nothing beats what was known before."""

    plan: UniformPlan | None
    hint: Hint | None
    iteration_s: float
    memory_bytes: float
    bound_s: float


@dataclass(frozen=True, eq=False)
class BestPlan(FastestPlan):
    """The same with arrays of shape (plans,): what became of each, the least it can take, and what
    its best cut takes (infinite where unknown)."""

    status: NDArray[np.int8]
    plan_bounds_s: FloatArray
    plan_s: FloatArray


class ConfigurationPlans:
    """The plans of ``shared`` on configuration ``configuration`` of ``costs``.

    Seconds of a plan, wherever they are told or asked, count by its factor among ``weights``
    (plans,), None where all count alike; a plan whose factor is infinite cannot be had, as if it
    did not fit. ``least_s`` (plans,) are known to be no more than what plans take, whatever the
    factors."""

    def __init__(
        self,
        shared: ShapePlans,
        costs: LayerCosts,
        configuration: int,
        memory_bytes: float,
        weights: FloatArray | None = None,
        least_s: FloatArray | None = None,
        loads: RowLoads | None = None,
    ) -> None:
        """``loads`` of this configuration, among others, and with as much memory, if they are
        known."""
        self.shared = shared
        self.costs = costs
        self.configuration = configuration
        self.memory_bytes = memory_bytes
        self._tables = np.empty((5, shared.most_stages, shared.stages.nodes))
        self._priced: dict[tuple[DegreesKey, int], Priced] = {}
        self._devices = shared.plans.devices
        self._weights = np.ones(len(shared)) if weights is None else weights
        self._least_s = least_s
        self._interleaved_s, self._interleaved_bytes = np.full(
            (2, len(shared.interleaved_rows)), np.nan
        )
        if len(shared):
            rows = np.array([configuration])
            self._rows = loads or RowLoads.of(shared, costs, rows, memory_bytes)
            self._place = place = int(np.flatnonzero(self._rows.rows == configuration)[0])
            self.times, self.loads = self._rows.at(place)
            self._shorter_part = float(self._rows.shorter_part[place])
            self._unlimited = bool(self._rows.waits[place])  # by ``upstream_backward_s``
            self._take_longer = self._unlimited or self._rows.varied
            self._nodes, self._passes = self._rows.nodes[place], self._rows.passes[place]

    @cached_property
    def bounds_s(self) -> FloatArray:
        """Seconds that no cut of each plan is below, (plans,); infinite where none fits."""
        return self._bounded(np.inf)

    def _bounded(self, enough_s: float) -> FloatArray:
        """``bounds_s``, or some others that are more than ``enough_s``."""
        weights = self._weights
        if not len(weights):
            return np.empty(0)
        enough = np.full(len(weights), np.inf) if np.isinf(enough_s) else enough_s / weights
        bounds_s = self._bounds_s(enough, follows=not self._unlimited)
        if self._least_s is not None:
            np.maximum(bounds_s, self._least_s, out=bounds_s)
        weighted_s: FloatArray = np.where(np.isinf(weights), np.inf, bounds_s) * weights
        return weighted_s

    def fastest(self, incumbent_s: float, hint: Hint | None, most_steps: int | None) -> FastestPlan:
        """What ``best`` finds, without what became of every plan: where bounds show at once that
        none beats what ``hint`` names, nothing else is asked of them."""
        if hint is not None:
            first = self._as_hinted(hint, incumbent_s)
            bound_s = self._closed(min(incumbent_s, first.seconds))
            if bound_s is not None:
                found = first.plan, first.hint, first.seconds, first.memory_bytes
                return FastestPlan(*found, bound_s)
        return self.best(incumbent_s, hint, most_steps)

    def _closed(self, best_s: float) -> float | None:
        """Seconds that no plan is below, where bounds show at once that none beats ``best_s``;
        else None."""
        bounds_s, limit_s = self._bounded(best_s), best_s * (1.0 - ROUNDING)
        rows = np.flatnonzero(bounds_s < limit_s)
        if len(rows) > FEW_PLANS:
            return None
        chunked = rows[self.shared.interleaved[rows]]
        found_s = float(self.interleaved(chunked)[0].min(initial=np.inf))
        if found_s < limit_s:
            return None
        for row in rows[np.argsort(bounds_s[rows], kind="stable")].tolist():
            if not self.shared.interleaved[row]:
                found = self.searched(row, best_s, FIRST_STEPS)
                if found.plan is not None or not found.complete:
                    return None
        return min(best_s, found_s)

    def best(
        self, incumbent_s: float = np.inf, hint: Hint | None = None, most_steps: int | None = None
    ) -> BestPlan:
        """The best plan that beats ``incumbent_s``; what ``hint`` names is tried first.

        A plan whose cuts are not all seen after ``most_steps`` (None: as many as for a proof) keeps
        its bound."""
        best = [Found(None, None, np.inf, True)]  # the last beats all before it

        def offer(index: int, found: Found) -> None:
            best.append(found)
            incumbents_s[:] = found.seconds

        steps = MOST_STEPS if most_steps is None else most_steps
        incumbents_s = np.full(len(self.shared), incumbent_s)
        search = CutSearch(self, incumbents_s, offer, FIRST_STEPS, steps)
        status, bounds_s = search.status, search.bounds_s
        if hint is not None:
            first = self._as_hinted(hint, incumbent_s)
            if first.hint is not None:
                offer(first.hint.index, first)
                search.plan_s[first.hint.index] = first.seconds
        elif np.isfinite(bounds_s.min(initial=np.inf)):
            search.cut(int(bounds_s.argmin()), FIRST_STEPS, otherwise=0)
        self._settle_interleaved(search)
        search.run()
        found = best[-1]
        best_s = min(incumbent_s, found.seconds)
        proven_s = min(best_s, float(bounds_s[status == PlanStatus.EVALUATED].min(initial=np.inf)))
        # The first one tried, which no cut beats
        if found.hint is not None and status[found.hint.index] != PlanStatus.EVALUATED:
            status[found.hint.index], bounds_s[found.hint.index] = PlanStatus.EVALUATED, best_s
        held = found.memory_bytes
        arrays = status, bounds_s, search.plan_s
        return BestPlan(found.plan, found.hint, found.seconds, held, proven_s, *arrays)

    def first_stage_bounds_s(self) -> FloatArray:
        """``bounds_s`` with the synchronisation of the first stage alone; shape (plans,)."""
        return self._bounds_s(np.full(len(self.shared), np.inf), follows=False) * self._weights

    def _bounds_s(self, enough_s: FloatArray, *, follows: bool) -> FloatArray:
        """Bounds, or some that are more than ``enough_s`` (plans,); where synchronisation
        ``follows``, that of later stages may decide."""
        shared, bounds_s = self.shared, np.full(len(self.shared), np.inf)
        of_stages = shared.stages.stages, self.loads, self._shorter_part
        per_s = float(self._rows.parameters_per_s[self._place])
        plan_bounds_s(shared.bounds, *of_stages, per_s, not follows, enough_s, bounds_s)
        if len(shared.interleaved_rows):
            bounds_s[shared.interleaved_rows] = self._rows.interleaved_bounds_s(self._place)
        bounds_s[shared.least_bytes > self.memory_bytes * (1.0 + ROUNDING)] = np.inf
        return bounds_s

    def _stage_prices(self, index: int) -> Priced:
        shared = self.shared
        if self._follows(index):
            passes = self.loads.forward_s, self.loads.backward_s
            if self._take_longer:
                passes = shared.passes(index, self.times)
            return Priced(*passes, *shared.after_passes(index))
        key = shared.degrees_key(index), self._waiting(index)
        if key not in self._priced:
            if len(self._priced) == MOST_KEPT:
                self._priced.clear()
            self._priced[key] = shared.stage_prices(index, self.times, self._rows.fits)
        return self._priced[key]

    def _waiting(self, index: int) -> int:
        """Devices that wait for the slowest of them; 0 where all are alike."""
        alike = not self.shared.machine.variation
        return 0 if alike else int(self._devices[index])

    def _follows(self, index: int) -> bool:
        """Whether all replicas' communication follows the last pass."""
        return bool(self.shared.bounds.follows[index])

    def _problem(self, index: int) -> Problem:
        shared = self.shared
        if self._follows(index) and not self._take_longer:
            kinds = np.concatenate([self._passes, shared.columns_after(index)], axis=1)
        else:
            kinds = self._kinds(self._stage_prices(index))
        return self._problem_of(kinds, shared.terms(index))

    def _least_problem(self, rows: IntArray, priced: Priced) -> Problem:
        """No cut of the plans ``rows``, alike and with stages of no less than ``priced``, takes
        less or fits in less memory than under this one: a cut takes no less the longer its passes,
        synchronisation and steps, and what bounds assume of passes they take all the more."""
        shared = self.shared
        terms = shared.terms(int(rows[0]))._replace(
            most_one_way_s=float(shared.bounds.most_one_way_s[rows].max()),
            tied_s=float(shared.tied_s[rows].min()),
            least_step_s=float(shared.least_step_s[rows].min()),
        )
        return self._problem_of(self._kinds(priced), terms)

    def _kinds(self, priced: Priced) -> FloatArray:
        saved_bytes = self.shared.stages.sizes.saved_bytes
        return np.stack([self.loads.stage_s, *priced, saved_bytes], axis=1)

    def _problem_of(self, kinds: FloatArray, terms: CutTerms) -> Problem:
        graph, loads = self.shared.stages, self.loads
        return Problem(
            kinds,
            self._nodes,
            graph.ends,
            graph.spans,
            graph.stages.chain,
            loads.least_downstream_s,
            loads.least_upstream_s,
            terms.links.seconds,
            terms.links.kind_of,
            terms.links.least_s,
            terms.most_one_way_s,
            terms.follows and not self._unlimited,
            self._shorter_part,
            terms.pp,
            terms.micro_batches,
            terms.tied_s,
            terms.least_step_s,
            self.memory_bytes * (1.0 + ROUNDING),
        )

    def bound(self, index: int, incumbent_s: float) -> float:
        """A bound of all cuts; infinite where none fits, or none beats ``incumbent_s``."""
        if self.shared.interleaved[index]:
            return float(self.bounds_s[index])
        weight = float(self._weights[index])
        bound_s: float = bound_cut(self._problem(index), incumbent_s / weight, self._tables)
        return bound_s * weight

    def alike(self, rows: IntArray) -> AlikePlans:
        """Plans ``rows``, none interleaved, by class."""
        return self.shared.alike(rows)

    def together(self, rows: IntArray, incumbents_s: FloatArray, most_steps: int) -> Together:
        """Whether it is proven, within so many stages tried, that no cut of plans ``rows``, alike,
        beats the ``incumbents_s`` (rows,)."""
        incumbent_s = float((incumbents_s / self._weights[rows]).max())
        problem = self._least_problem(rows, self._least_prices(rows))
        bounds_s = bound_cut(problem, incumbent_s, self._tables) * self._weights[rows]
        if np.isinf(bounds_s).all():
            return Together(Proof.CLOSED, bounds_s)
        nodes = np.zeros(problem.pp + 1, np.int64)
        found = search_cuts(problem, incumbent_s, self._tables, most_steps, nodes, True)
        if np.isfinite(found.seconds):
            return Together(Proof.OPEN, bounds_s)
        if found.complete:
            return Together(Proof.CLOSED, np.full(len(rows), np.inf))
        return Together(Proof.TOO_LONG, bounds_s)

    def _least_prices(self, rows: IntArray) -> Priced:
        """What stages take and hold at least under plans ``rows``, alike."""
        shared, index = self.shared, int(rows[0])
        if not self._follows(index):
            every = [self._stage_prices(row) for row in rows.tolist()]
            return Priced(*(np.minimum.reduce(column) for column in zip(*every, strict=True)))
        keys = {shared.degrees_key(row): row for row in rows.tolist()}
        after = zip(*(shared.after_passes(row) for row in keys.values()), strict=True)
        fewest = int(rows[self._devices[rows].argmin()])  # wait for the slowest the least
        passes = self._stage_prices(fewest)[:2]
        return Priced(*passes, *(np.minimum.reduce(column) for column in after))

    def _as_hinted(self, hint: Hint, incumbent_s: float) -> Found:
        index, nodes, weight = hint.index, hint.nodes, float(self._weights[hint.index])
        if np.isinf(weight):
            return Found(None, None, np.inf, complete=False)
        if nodes is None:
            return self._equal_chunks(index, incumbent_s)
        problem = self._problem(index)
        seconds = cut_s(problem, np.array(nodes)) * weight
        if np.isinf(seconds) or seconds >= incumbent_s * (1.0 - ROUNDING):
            return Found(None, None, np.inf, complete=False)
        plan, held = self._with_stages(index, nodes), _memory_bytes(problem, nodes)
        return Found(plan, hint, seconds, complete=False, memory_bytes=held)

    def searched(self, index: int, incumbent_s: float, most_steps: int) -> Found:
        """The best cut of a plan that beats ``incumbent_s``."""
        if self.shared.interleaved[index]:
            return self._equal_chunks(index, incumbent_s)
        problem, weight = self._problem(index), float(self._weights[index])
        incumbent_s = incumbent_s / weight
        if np.isinf(bound_cut(problem, incumbent_s, self._tables)):
            return Found(None, None, np.inf, True, fits=bool(np.isfinite(incumbent_s)))
        nodes = np.zeros(problem.pp + 1, np.int64)
        found = search_cuts(problem, incumbent_s, self._tables, most_steps, nodes, False)
        if np.isinf(found.seconds):
            return Found(None, None, np.inf, found.complete)
        path, seconds = tuple(nodes.tolist()), found.seconds * weight
        plan, held = self._with_stages(index, path), _memory_bytes(problem, path)
        return Found(plan, Hint(index, path), seconds, found.complete, memory_bytes=held)

    def _equal_chunks(self, index: int, incumbent_s: float) -> Found:
        """An interleaved plan; the first asked for prices all that may beat ``incumbent_s``."""
        shared = self.shared
        place = int(np.searchsorted(shared.interleaved_rows, index))
        if np.isnan(self._interleaved_s[place]):
            wanted = self.bounds_s[shared.interleaved_rows] < incumbent_s
            wanted[place] = True
            self.interleaved(shared.interleaved_rows[wanted])
        seconds, fullest = float(self._interleaved_s[place]), float(self._interleaved_bytes[place])
        if np.isinf(seconds):
            return Found(None, None, np.inf, True, fits=False)
        if seconds >= incumbent_s * (1.0 - ROUNDING):
            return Found(None, None, np.inf, True)
        plan = shared.plans.plan(index)
        sizes = tuple(len(chunk) for chunk in chunk_layers(plan, shared.graph))
        plan = replace(plan, stage_layers=sizes)
        return Found(plan, Hint(index, None), seconds, True, memory_bytes=fullest)

    def _settle_interleaved(self, search: CutSearch) -> None:
        """Price all interleaved plans that may be the best at once, and offer the best of them."""
        rows, bounds_s = self.shared.interleaved_rows, search.bounds_s
        rows = rows[bounds_s[rows] < search.incumbents_s[rows] * (1.0 - ROUNDING)]
        if not len(rows):
            return
        seconds, _ = self.interleaved(rows)
        search.cut(int(rows[seconds.argmin()]), most_steps=0)
        fits = np.isfinite(seconds)
        search.status[rows] = np.where(fits, PlanStatus.EVALUATED, PlanStatus.INFEASIBLE)
        bounds_s[rows] = seconds
        search.settled(rows)

    def interleaved(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Seconds (infinite: no fit) and bytes of the fullest stage of the interleaved ``rows``."""
        places = np.searchsorted(self.shared.interleaved_rows, rows)
        unknown = places[np.isnan(self._interleaved_s[places])]
        if len(unknown):
            prices = self.shared.interleaved_plans.priced(self.costs, self.configuration, unknown)
            fits = prices.memory_bytes <= self.memory_bytes * (1.0 + ROUNDING)
            fits &= prices.host_bytes <= self.shared.machine.host_bytes
            weights = self._weights[self.shared.interleaved_rows[unknown]]
            self._interleaved_s[unknown] = (
                np.where(fits & np.isfinite(weights), prices.iteration_s, np.inf) * weights
            )
            self._interleaved_bytes[unknown] = prices.memory_bytes
        return self._interleaved_s[places], self._interleaved_bytes[places]

    def _with_stages(self, index: int, nodes: Sequence[int]) -> UniformPlan:
        stages = self.shared.stages.layers_of(nodes)
        order = tuple(layer for stage in stages for layer in stage)
        in_order = order == tuple(range(len(order)))
        plan = self.shared.plans.plan(index)
        return replace(
            plan,
            stage_layers=tuple(len(stage) for stage in stages),
            layer_order=None if in_order else order,
        )


def _memory_bytes(problem: Problem, path: Sequence[int]) -> float:
    """Bytes of the fullest stage of the cut along the nodes ``path``."""
    most = 0.0
    for place, (whole, part) in enumerate(itertools.pairwise(path)):
        low, high = problem.spans[whole, FIRST], problem.spans[whole + 1, FIRST]
        edge = low + np.searchsorted(problem.ends[low:high, PART], part)
        held = min(problem.pp - place, problem.micro_batches)
        of_kind = problem.kinds[problem.ends[edge, KIND]]
        most = max(most, float(of_kind[FIXED_BYTES] + held * of_kind[SAVED_BYTES]))
    return most
