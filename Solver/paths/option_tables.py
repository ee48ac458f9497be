"""Every class of stages under every option of what a stage can be, priced: seconds, and how many
layers must be recomputed."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from Estimator.compiled import outer
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.layer_costs import LayerSizes
from Estimator.plans.many_rates import plan_rates
from Estimator.plans.rates import Machine, start_s, whole_bytes
from Estimator.plans.stage_price import PlanRates, stage_price
from Estimator.plans.stage_totals import StageSizes, StageTimes, times_of, with_neighbours
from phaze_common.array_types import FloatArray, IntArray
from Solver.paths.stage_classes import StageClasses
from Solver.paths.stage_options import StageOption

FORWARD, BACKWARD, AFTER, STEP = range(4)  # columns of ``OptionTables.priced``


@dataclass(frozen=True, eq=False)
class OptionTables:
    """``priced`` (options, classes, stages behind, 4) are seconds, infinite where a stage does not
    fit in memory.

    ``recomputed`` (options, classes, stages behind) is how many of its first layers a stage
    recomputes: the fewest that fit, since each takes longer for it.
    """

    priced: FloatArray
    recomputed: IntArray


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Stages of each class with 0, 1, ... of their layers recomputed, one row each: those of class
    c from ``first[c]`` on."""

    first: IntArray  # (classes + 1,)
    times: StageTimes
    sizes: StageSizes


def class_rows(layers: RecomputableLayers, classes: StageClasses, whole: FloatArray) -> ClassRows:
    """Rows of ``classes`` of stages made of ``layers``; ``whole`` (K, 2) as in ``stage_sizes``."""
    stored, recomputing = layers.stored.sizes, layers.recomputing.sizes
    working = stored.working_bytes(whole), recomputing.working_bytes(whole)
    saved = stored.saved_bytes[stored.distinct], recomputing.saved_bytes[recomputing.distinct]
    rows = [len(own) + 1 for own in classes.layers]
    times, bytes_saved, workspace, largest = [], [], [], []
    for own in map(list, classes.layers):
        more = _running_sums(layers.recomputing_columns[own] - layers.stored_columns[own])
        times.append(layers.stored_columns[own].sum(axis=0) + more)
        bytes_saved.append(_saved_bytes(stored, recomputing, own, saved))
        following = np.diff(own) == 1
        alone = [with_neighbours(one[own], two[own], following) for one, two in working]
        workspace.append(_largest(*alone))
        largest.append(_largest(stored.of_layers[own], recomputing.of_layers[own]))
    repeated = np.repeat(np.arange(len(rows)), rows)

    def summed_over(of_layers: FloatArray) -> FloatArray:
        return np.array([of_layers[list(own)].sum(axis=0) for own in classes.layers])[repeated]

    summed, tables = summed_over(stored.summed), summed_over(stored.tables_of_layers)
    sizes = StageSizes(
        layers=np.array([len(own) for own in classes.layers], np.float64)[repeated],
        parameters=np.ascontiguousarray(summed[:, 0]),
        expert_parameters=np.ascontiguousarray(summed[:, 1]),
        wide_parameters=np.ascontiguousarray(summed[:, 2]),
        matrices_s=np.ascontiguousarray(summed[:, 3:]),
        saved_bytes=np.concatenate(bytes_saved),
        workspace_bytes=np.concatenate(workspace),
        tables=np.ascontiguousarray(tables),
        table_sizes=stored.table_sizes,
        largest=np.concatenate(largest),
        offloaded_bytes=np.zeros(sum(rows)),
        spare=stored.spare,
    )
    return ClassRows(np.cumsum([0, *rows]), times_of(np.maximum(np.concatenate(times), 0.0)), sizes)


def _saved_bytes(
    stored: LayerSizes,
    recomputing: LayerSizes,
    own: list[int],
    saved: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Saved bytes of a stage of the layers ``own`` with its first 0, 1, ... recomputed; what
    several save counts once."""
    alone = saved[0][own].sum() + _running_sums(saved[1][own] - saved[0][own])
    ours = stored.shared_by[own].astype(np.float64)
    theirs = recomputing.shared_by[own].astype(np.float64)
    often = ours.sum(axis=0) + _running_sums(theirs - ours)
    repeated: FloatArray = np.maximum(often - 1.0, 0.0) @ stored.shared_bytes
    return alone - repeated


def _running_sums(more: FloatArray) -> FloatArray:
    """Sums of the first 0, 1, ... rows."""
    return np.concatenate([np.zeros((1, *more.shape[1:])), np.cumsum(more, axis=0)])


def _largest(stored: FloatArray, recomputing: FloatArray) -> FloatArray:
    """The largest workspace with the first 0, 1, ... layers recomputed, shape (layers + 1, 4)."""
    none = np.zeros((1, stored.shape[1]))
    upstream = np.concatenate([none, np.maximum.accumulate(recomputing, axis=0)])
    downstream = np.concatenate([np.maximum.accumulate(stored[::-1], axis=0)[::-1], none])
    return np.maximum(upstream, downstream)


def option_tables(
    options: Sequence[StageOption],
    layers: Sequence[RecomputableLayers],
    classes: StageClasses,
    machine: Machine,
    devices: int,
    micro_batches: int,
    most_stages: int,
) -> OptionTables:
    """Price every class of stages under ``options``, whose graphs' ``layers`` stand in the same
    order, by stages behind.

    ``devices`` are those of a whole plan.
    """
    shape = len(options), len(classes), most_stages
    priced, recomputed = np.full((*shape, 4), np.inf), np.zeros(shape, np.int64)
    everything = max(range(len(classes)), key=lambda number: len(classes.layers[number]))
    rows: dict[tuple[int, float], ClassRows] = {}
    for number, (option, its) in enumerate(zip(options, layers, strict=True)):
        offloaded = option.degrees.offload.activations
        if (id(its), offloaded) not in rows:
            made = class_rows(its, classes, whole_bytes(option.degrees, machine))
            rows[id(its), offloaded] = replace(made, sizes=made.sizes.offloading(offloaded))
        of_classes = rows[id(its), offloaded]
        alone = plan_rates(option.degrees, machine, devices=devices)
        _fill_option(
            alone._replace(start_s=start_s(machine, True), paired=0.0),
            alone,
            of_classes.first,
            of_classes.times,
            of_classes.sizes,
            option.partly,
            everything,
            its.stored.sizes.all_tied,
            machine.memory_bytes,
            micro_batches,
            priced[number],
            recomputed[number],
        )
    return OptionTables(priced, recomputed)


@outer
def _fill_option(
    of_several: PlanRates,
    alone: PlanRates,
    first: IntArray,
    times: StageTimes,
    sizes: StageSizes,
    partly: bool,
    everything: int,
    tied: float,
    memory_bytes: float,
    micro_batches: int,
    priced: FloatArray,
    recomputed: IntArray,
) -> None:
    """Fill the tables (classes, stages behind) of one option; ``tied`` parameters count once in the
    class of all layers."""
    every, no_chunks = len(sizes.layers), np.empty((2, 0))
    for number in range(len(first) - 1):
        begin, end = first[number], first[number + 1]
        row = begin if partly else end - 1
        shared = tied if number == everything else 0.0
        rates = alone if number == everything else of_several
        price = stage_price(rates, times, sizes, row, every, shared, no_chunks)
        for downstream in range(recomputed.shape[1]):
            held = min(downstream + 1, micro_batches)
            while row < end and (
                price.fixed_bytes + held * sizes.saved_bytes[row] > memory_bytes
                or price.host_state_bytes + held * sizes.offloaded_bytes[row]
                > rates.host.room_bytes
            ):
                row += 1
                if row < end:
                    price = stage_price(rates, times, sizes, row, every, shared, no_chunks)
            if row == end:
                break
            here = priced[number, downstream]
            here[FORWARD], here[BACKWARD] = price.forward_s, price.backward_s
            here[AFTER], here[STEP] = price.after_s, price.step_s
            recomputed[number, downstream] = row - begin
