"""What stages take on configurations of hardware, computed for many at once, and what no plan of a
shape is below on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.devices.operator_cost import PassStarts
from Estimator.plans.cuts import balanced_cuts
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.rates import straggler_excess
from Estimator.plans.stage_totals import StageTimes, time_columns, times_at
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.paths.cut_bounds import ROUNDING
from Solver.paths.stage_tables import Loads, empty_loads, fill_loads, loads_at
from Solver.plans.bounds import least_bounds_s
from Solver.plans.shape_plans import ShapePlans

MOST_HELD = 2**24  # numbers of many configurations: some hundred megabytes


@dataclass(frozen=True, eq=False)
class RowLoads:
    """What stages of the plans ``shared`` take on the configurations ``rows``, each the first axis
    of all arrays.

    ``times`` (rows, 19, kinds) are the columns of ``StageTimes``, ``fits`` (kinds,) are the stages
    that the memory holds under some plan. Stages have ``parameters_per_s`` (rows,) at least for
    every second of their load, and their shorter pass takes at most ``shorter_part`` of it.
    ``passes`` (rows, kinds, 3) are the first columns of ``Problem.kinds`` where degrees cost passes
    nothing, ``nodes`` (rows, nodes, 3) those of ``Problem.nodes``. Where
    passes ``wait`` (rows,), they take longer than ``loads`` say and more than
    ``upstream_backward_s``; where plans have devices that are ``varied``, or other parts of their
    passes beside another micro-batch's, the former alone."""

    shared: ShapePlans
    rows: IntArray
    times: FloatArray
    loads: Loads
    fits: BoolArray
    passes: FloatArray
    nodes: FloatArray
    parameters_per_s: FloatArray
    shorter_part: FloatArray
    waits: BoolArray
    varied: bool

    @classmethod
    def of(
        cls, shared: ShapePlans, costs: LayerCosts, rows: IntArray, memory_bytes: float
    ) -> RowLoads:
        """Those of one plan or more with so much memory."""
        graph, machine, devices = shared.stages, shared.machine, shared.plans.devices
        kinds, layers = len(graph.examples), time_columns(costs, rows)
        times, fits = graph.times(layers), shared.stages_fit(memory_bytes)
        of_layers = np.ascontiguousarray(layers.swapaxes(1, 2))
        paired, several = shared.paired, len(shared) > 1
        pairing = several and bool(paired.min() < paired.max())
        varied = bool(machine.variation) and several and devices.min() < devices.max()

        def filled(count: int, part: float) -> Loads:
            """As long as the slowest of ``count`` devices takes where ``part`` of the passes have
            another micro-batch beside them."""
            excess = float(straggler_excess(machine, count))
            rates, members = (
                shared.rates(0)._replace(straggler_excess=excess, paired=part),
                graph.lattice.members,
            )
            every = empty_loads(len(rows), kinds, graph.nodes, shared.most_stages)
            alone_s = np.empty(members.shape[1])
            of_stages = graph.stages, times, graph.sizes, of_layers, members, fits
            fill_loads(rates, *of_stages, alone_s, every)
            return every

        loads = filled(devices.min(), float(paired.max()))
        if varied or pairing:
            # no cut takes longer on the slowest of the most devices, with the fewest passes beside
            # another's
            most = filled(devices.max(), float(paired.min()))
            loads = loads._replace(upstream_backward_s=most.upstream_backward_s)
        counts, stage_s = loads.stage_s > 0.0, loads.stage_s
        shorter_s, least = np.minimum(loads.forward_s, loads.backward_s), np.zeros_like(stage_s)
        shorter_part = np.divide(shorter_s, stage_s, out=least, where=counts).max(axis=1)
        if pairing:  # which hides more of one of both passes under one plan than under another
            shorter_part = np.full_like(shorter_part, 0.5)
        counts &= np.isfinite(loads.fitting_s)
        per_s = np.full_like(stage_s, np.inf)
        np.divide(shared.bounds.parameters, stage_s, out=per_s, where=counts)
        per_s = np.where(counts.any(axis=1), per_s.min(axis=1), 0.0)
        starts = machine.pass_starts != PassStarts()
        waits = np.logical_or(costs.accumulation_s[rows].any(axis=1), starts)
        passes = np.stack([stage_s, loads.forward_s, loads.backward_s], axis=-1)
        upstream_s = loads.upstream_forward_s, loads.upstream_backward_s
        nodes = np.stack([loads.downstream_s, *upstream_s], axis=-1)
        of_rows = shared, rows, times, loads, fits, passes, nodes
        return cls(*of_rows, per_s, shorter_part, waits, varied or pairing)

    @classmethod
    def in_parts(
        cls, shared: ShapePlans, costs: LayerCosts, rows: IntArray, memory_bytes: float
    ) -> Iterator[RowLoads]:
        """Those of many configurations, some after others."""
        for part in parts_of(len(rows), [shared]):
            yield cls.of(shared, costs, rows[part], memory_bytes)

    def least_s(self, weights: FloatArray, memory_bytes: float) -> FloatArray:
        """Seconds, by ``weights`` (rows or 1, plans), that no plan is below on each configuration;
        (rows,), infinite where none fits."""
        shared, least_s = self.shared, np.full(len(self.rows), np.inf)
        held = shared.least_bytes <= memory_bytes * (1.0 + ROUNDING)
        weights, at = np.where(held, weights, np.inf), shared.interleaved_rows
        if len(at):
            for place in range(len(self.rows)):
                mine = weights[min(place, len(weights) - 1), at]
                bounds_s = np.where(np.isinf(mine), np.inf, self.interleaved_bounds_s(place)) * mine
                least_s[place] = bounds_s.min()
        of_stages = shared.stages.stages, self.loads, self.shorter_part, self.parameters_per_s
        least_bounds_s(shared.bounds, *of_stages, self.waits, weights, least_s)
        return least_s

    def at(self, place: int) -> tuple[StageTimes, Loads]:
        """Times and loads of one configuration."""
        return times_at.py_func(self.times, place), loads_at.py_func(self.loads, place)

    def interleaved_bounds_s(self, place: int) -> FloatArray:
        """Seconds that interleaved plans are not below on one configuration."""
        shared, whole_s = self.shared, self.loads.downstream_s[place, -1]
        at = shared.interleaved_rows
        slower = 1.0 + shared.bounds.pass_parameter_s[at] * self.parameters_per_s[place]
        fullest_s = self._interleaved_loads_s(place)
        busy_s = slower * np.maximum(shared.plans.micro_batches[at] * fullest_s, whole_s)
        return np.asarray(busy_s + shared.least_step_s[at])

    def _interleaved_loads_s(self, place: int) -> FloatArray:
        """Load of the fullest stage of plans with equal chunks; where layers branch, the mean."""
        shared, graph = self.shared, self.shared.stages
        pp, chunks = (
            each[shared.interleaved_rows] for each in (shared.plans.pp, shared.plans.interleave)
        )
        if not graph.stages.chain:
            return np.asarray(self.loads.downstream_s[place, -1] / pp)
        layers = graph.nodes - 1
        kinds, kind_of = np.unique(np.stack([pp, chunks], axis=1), axis=0, return_inverse=True)
        loads_s = np.empty(len(kinds))
        for kind, (stages, rounds) in enumerate(kinds.tolist()):
            left = layers - np.array([0, *balanced_cuts(layers, stages * rounds), layers])
            edges = graph.stages.first[left[:-1]] + left[1:]
            of_chunks = self.loads.stage_s[place, graph.stages.kind[edges]]
            loads_s[kind] = of_chunks.reshape(rounds, stages).sum(axis=0).max()
        return loads_s[kind_of.reshape(-1)]


def parts_of(rows: int, plans: Sequence[ShapePlans]) -> Iterator[slice]:
    """Slices of so many configurations, of each of which there is room for the loads of all
    ``plans``."""
    numbers = 0
    for shared in plans:
        graph = shared.stages
        numbers += 27 * len(graph.examples) + (16 + 2 * shared.most_stages) * graph.nodes
    at_once = max(MOST_HELD // max(numbers, 1), 1)
    for first in range(0, rows, at_once):
        yield slice(first, min(first + at_once, rows))
