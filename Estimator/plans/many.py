"""Many plans of one shape priced at once: the formulas and schedules of one plan in one compiled
loop over plans."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.compiled import borrowing_inner, borrowing_outer, inlined
from Estimator.network.links import routes
from Estimator.plans.cuts import Crossing, balanced_cuts
from Estimator.plans.layer_costs import LayerCosts, LayerSizes
from Estimator.plans.many_rates import ManyRates, many_rates, rates_at
from Estimator.plans.pipeline import interleaved, one_f_one_b
from Estimator.plans.pipeline.kernels import Chunks
from Estimator.plans.pipeline.schedule import PipelineSchedule
from Estimator.plans.pipeline.simulation import held_bytes
from Estimator.plans.rates import Machine, Messages, many_tied_s, whole_bytes
from Estimator.plans.stage_price import stage_price
from Estimator.plans.stage_totals import StageSizes, StageTimes, chunk_sizes, time_columns, times_of
from Estimator.plans.uniform_plans import UniformPlans

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

AFTER, STEP, DEVICE, HOST = range(4)  # seconds and bytes of a stage, once per iteration
# groups of pp micro-batches from which on an interleaved plan's stages hold no more than with fewer
HELD_GROUPS = 3


@dataclass(frozen=True, eq=False)
class ManyPrices:
    """What an iteration of N plans costs: arrays of shape (N,).

    ``memory_bytes`` are those of the fullest stage, ``step_s`` is the optimizer's part of
    ``iteration_s``; ``feasible`` plans fit in memory, and what they keep in host memory,
    ``host_bytes`` of the fullest, there.
    """

    iteration_s: FloatArray
    memory_bytes: FloatArray
    step_s: FloatArray
    host_bytes: FloatArray
    feasible: BoolArray


class Links(NamedTuple):
    """Seconds of messages by tier and direction, (tiers, 2, chunks - 1); tiers by layout."""

    seconds: FloatArray
    tiers: NDArray[np.int8]  # (layouts, chunks - 1)
    delays: bool  # whether stages go on computing meanwhile


@dataclass(frozen=True, eq=False)
class _Group:
    """The plans of as many stages and chunks, in an order in which those whose passes cost the same
    follow one another.

    ``held_bytes`` (counts, pp) are the activations of each stage by how many micro-batches, or
    groups of them, there are, ``moved_bytes`` those in host memory.
    """

    rows: IntArray
    pp: int
    firsts: IntArray
    sizes: StageSizes
    like: IntArray
    held_bytes: FloatArray
    moved_bytes: FloatArray
    links: Links
    layout: IntArray


class PreparedPlans:
    """``plans`` of a graph with ``sizes`` on machines like ``machine``, with all that does not
    depend on the hardware's speed.

    Raises:
        InputError: a plan contradicts itself, the model or the cluster.
    """

    def __init__(
        self, plans: UniformPlans, sizes: LayerSizes, crossing: Crossing, machine: Machine
    ) -> None:
        plans.check(len(sizes.sequence), machine.cluster)
        self.plans, self.sizes, self._crossing, self._machine = plans, sizes, crossing, machine
        self._rates = many_rates(plans, machine)
        self._tied_s = many_tied_s(
            plans, sizes.all_tied, self._rates.gradient_bytes, machine.cluster
        )
        self._whole_bytes = whole_bytes(plans.shape, machine)
        self._groups = self._grouped() if len(plans) else []

    def priced(
        self, costs: LayerCosts, configuration: int, rows: IntArray | None = None
    ) -> ManyPrices:
        """Prices of all plans, or those of ``rows``, on a configuration of ``costs``."""
        seconds, step_s, memory_bytes, host_bytes = (
            np.full(len(self.plans), np.nan) for _ in range(4)
        )
        wanted = np.ones(len(self.plans), np.bool_)
        if rows is not None:
            wanted[:] = False
            wanted[rows] = True
        columns, micro_batches = time_columns(costs, configuration), self.plans.micro_batches
        for group in self._groups:
            chosen = wanted[group.rows]
            here = group.rows[chosen]
            if not len(here):
                continue
            times = times_of(np.add.reduceat(columns, group.firsts, axis=0))
            found = np.empty((4, len(here)))
            price_plans(
                self._rates.some(here),
                times,
                group.sizes,
                _alike(times, group),
                group.pp,
                self.sizes.all_tied,
                self._tied_s[here],
                group.held_bytes,
                group.moved_bytes,
                group.links,
                group.layout[chosen],
                micro_batches[here],
                self._machine.software.whole_warm_up,
                Scratch.of(len(group.firsts), group.pp),
                found,
            )
            seconds[here], step_s[here], memory_bytes[here], host_bytes[here] = found
        every = slice(None) if rows is None else rows
        fits = (memory_bytes <= self._machine.memory_bytes) & (
            host_bytes <= self._machine.host_bytes
        )
        return ManyPrices(
            seconds[every], memory_bytes[every], step_s[every], host_bytes[every], fits[every]
        )

    def _grouped(self) -> list[_Group]:
        plans = self.plans
        _, first, place = np.unique(plans.places, return_index=True, return_inverse=True)
        place = place.reshape(-1)
        distinct = plans.some(first)
        between = distinct.boundary_tiers(self._machine.cluster)
        around = distinct.end_tiers(self._machine.cluster)
        alike = plans.zero_stage, plans.overlap_gradients, place
        order = np.lexsort((*alike, plans.micro_batches, plans.interleave, plans.pp))
        starts = np.flatnonzero(
            np.diff(plans.pp[order], prepend=-1) | np.diff(plans.interleave[order], prepend=-1)
        )
        return [self._group(rows, place, between, around) for rows in np.split(order, starts[1:])]

    def _group(
        self, rows: IntArray, place: IntArray, between: NDArray[np.int8], around: NDArray[np.int8]
    ) -> _Group:
        pp, rounds = int(self.plans.pp[rows[0]]), int(self.plans.interleave[rows[0]])
        layers = len(self.sizes.sequence)
        firsts = np.array([0, *balanced_cuts(layers, pp * rounds)])
        sent = np.stack(
            [self._crossing.activation_bytes[firsts[1:]], self._crossing.gradient_bytes[firsts[1:]]]
        )
        messages = Messages(self.plans.plan(int(rows[0])), self._machine.cluster)
        tiers = np.arange(routes(self._machine.cluster), dtype=np.int8)[:, None, None]
        layouts, layout = np.unique(place[rows], return_inverse=True)
        crossed = np.concatenate([between[layouts, : pp - 1], around[layouts, None]], axis=1)
        on_device = chunk_sizes(self.sizes, slice(None), firsts, self._whole_bytes)
        sizes = on_device.offloading(self.plans.shape.offload.activations)
        whole = self._machine.software.whole_warm_up
        decisive = [sizes.counts, sizes.workspace_bytes]
        if self.plans.shape.offload:
            decisive += [sizes.largest, sizes.offloaded_bytes]
        return _Group(
            rows=rows,
            pp=pp,
            firsts=firsts,
            sizes=sizes,
            like=_first_alike(np.column_stack(decisive), pp),
            held_bytes=_held(sizes.saved_bytes, pp, rounds, whole_warm_up=whole),
            moved_bytes=_held(sizes.offloaded_bytes, pp, rounds, whole_warm_up=whole),
            links=Links(
                messages.seconds(sent, tiers),
                np.ascontiguousarray(np.tile(crossed, rounds)[:, :-1]),
                self._machine.software.overlap_pipeline and rounds > 1,
            ),
            layout=layout.reshape(-1),
        )


def evaluate_many(
    plans: UniformPlans, costs: LayerCosts, machine: Machine, configuration: int = 0
) -> ManyPrices:
    """``price_iteration``'s seconds and bytes of many plans on one configuration of ``costs``,
    those of a graph of their shape.

    Raises:
        InputError: a plan contradicts itself, the model or the cluster.
    """
    return PreparedPlans(plans, costs.sizes, costs.crossing, machine).priced(costs, configuration)


def _held(saved_bytes: FloatArray, pp: int, rounds: int, *, whole_warm_up: bool) -> FloatArray:
    """Activations of each stage by micro-batches, or groups of pp of them, (counts, pp)."""
    if rounds == 1:
        return np.minimum(np.arange(1, pp + 1)[:, None], np.arange(pp, 0, -1)) * saved_bytes
    kind, counts = PipelineSchedule.INTERLEAVED, range(1, HELD_GROUPS + 1)
    each = (held_bytes(saved_bytes, pp, kind, n * pp, whole_warm_up=whole_warm_up) for n in counts)
    return np.stack(list(each))


def _first_alike(columns: FloatArray, pp: int) -> IntArray:
    """For every stage the first with the same ``columns`` (chunks, columns), (pp,)."""
    stages = np.ascontiguousarray(
        np.moveaxis(columns.reshape(-1, pp, columns.shape[1]), 1, 0)
    ).reshape(pp, -1)
    first: dict[bytes, int] = {}
    return np.array(
        [first.setdefault(stage.tobytes(), place) for place, stage in enumerate(stages)],
        dtype=np.int64,
    )


def _alike(times: StageTimes, group: _Group) -> IntArray:
    like = group.like[np.arange(len(group.firsts)) % group.pp]
    passes = *times.forward, *times.recompute, *times.backward
    columns = [*passes, times.accumulation_s, like]
    return _first_alike(np.column_stack(columns), group.pp)


compiled_rates_at = inlined(rates_at)


class Scratch(NamedTuple):
    """Arrays that ``price_plans`` uses, which makes none: what belongs to a plan of so many chunks
    in ``pp`` stages, and the passes ``known`` from the plan before."""

    chunks_s: FloatArray  # (2, chunks)
    stages: FloatArray  # (4, pp)
    passes: Chunks
    known: Chunks
    end_s: FloatArray  # (chunks,)
    ends: FloatArray  # (one_f_one_b.SCRATCH_ROWS, pp)

    @classmethod
    def of(cls, chunks: int, pp: int) -> Scratch:
        """For plans of so many ``chunks`` in ``pp`` stages."""
        passes, known = (Chunks(*np.zeros((4, chunks))) for _ in range(2))
        known.forward_s[:] = -1.0  # none
        ends = np.empty((one_f_one_b.SCRATCH_ROWS, pp))
        return cls(np.empty((2, chunks)), np.empty((4, pp)), passes, known, np.empty(chunks), ends)


@borrowing_outer
def price_plans(
    rates: ManyRates,
    times: StageTimes,
    sizes: StageSizes,
    like: IntArray,
    pp: int,
    tied: float,
    tied_s: FloatArray,
    held_bytes: FloatArray,
    moved_bytes: FloatArray,
    links: Links,
    layout: IntArray,
    micro_batches: IntArray,
    whole_warm_up: bool,
    scratch: Scratch,
    found: FloatArray,
) -> None:
    """Fill ``found`` (4, plans): seconds of the iteration and of its step, bytes of the fullest
    stage, and those in host memory.

    All plans have ``pp`` stages and as many chunks; stage ``like[s]``, none behind s, costs what
    stage s does.
    """
    chunks_s, stages, passes, known, end_s, ends = scratch
    shared = tied if pp == 1 else 0.0
    chunks = len(sizes.layers)
    known_micro_batches = 0
    for plan in range(len(micro_batches)):
        one = compiled_rates_at(rates, plan)
        for stage in range(pp):
            same = like[stage]
            if same == stage:
                price = stage_price(one, times, sizes, stage, pp, shared, chunks_s)
                stages[AFTER, stage], stages[STEP, stage] = price.after_s, price.step_s
                device_bytes = price.state_bytes + price.workspace_bytes + one.reserved_bytes
                stages[DEVICE, stage], stages[HOST, stage] = device_bytes, price.host_state_bytes
                continue
            for row in range(4):
                stages[row, stage] = stages[row, same]
            for chunk in range(stage, chunks, pp):
                chunks_s[0, chunk] = chunks_s[0, chunk - stage + same]
                chunks_s[1, chunk] = chunks_s[1, chunk - stage + same]
        _with_messages(chunks_s, links, layout[plan], passes)
        many = micro_batches[plan]
        if chunks == pp:
            one_f_one_b.fill_last_backward_end_s(
                passes.forward_s, passes.backward_s, many, ends, end_s
            )
        elif many != known_micro_batches or not _equal(passes, known):
            # two calls with words: with a variable the whole loop runs a fifth slower
            if whole_warm_up and many == pp:
                interleaved.fill_last_backward_end_s(passes, pp, many, True, end_s)
            else:
                interleaved.fill_last_backward_end_s(passes, pp, many, False, end_s)
            known_micro_batches = many
            for chunk in range(chunks):
                known.forward_s[chunk] = passes.forward_s[chunk]
                known.backward_s[chunk] = passes.backward_s[chunk]
                known.forward_delay_s[chunk] = passes.forward_delay_s[chunk]
                known.backward_delay_s[chunk] = passes.backward_delay_s[chunk]
        count = min(many if chunks == pp else many // pp, len(held_bytes)) - 1
        finished_s, step_s, fullest_bytes, host_bytes = 0.0, 0.0, 0.0, 0.0
        for stage in range(pp):
            after_s = stages[AFTER, stage]
            if pp > 1 and (stage == 0 or stage == pp - 1):
                after_s += tied_s[plan]
            # Each stage's first chunk is its last to end; a message that it sends then is not
            # waited for.
            sent_s = passes.backward_s[stage] - chunks_s[1, stage] if not links.delays else 0.0
            finished_s = max(finished_s, end_s[stage] - sent_s + after_s)
            step_s = max(step_s, stages[STEP, stage])
            fullest_bytes = max(fullest_bytes, stages[DEVICE, stage] + held_bytes[count, stage])
            host_bytes = max(host_bytes, stages[HOST, stage] + moved_bytes[count, stage])
        found[0, plan], found[1, plan] = finished_s + step_s, step_s - rates.between_s[plan]
        found[2, plan], found[3, plan] = fullest_bytes, host_bytes


@borrowing_inner
def _with_messages(chunks_s: FloatArray, links: Links, layout: int, passes: Chunks) -> None:
    """Passes with the messages that they send, as parts of them or as delays."""
    chunks = chunks_s.shape[1]
    for chunk in range(chunks):
        ahead_s, back_s = 0.0, 0.0
        if chunk < chunks - 1:
            ahead_s = links.seconds[links.tiers[layout, chunk], 0, chunk]
        if chunk > 0:
            back_s = links.seconds[links.tiers[layout, chunk - 1], 1, chunk - 1]
        if links.delays:
            passes.forward_s[chunk] = chunks_s[0, chunk]
            passes.backward_s[chunk] = chunks_s[1, chunk]
            passes.forward_delay_s[chunk], passes.backward_delay_s[chunk] = ahead_s, back_s
        else:
            passes.forward_s[chunk] = chunks_s[0, chunk] + ahead_s
            passes.backward_s[chunk] = chunks_s[1, chunk] + back_s


@borrowing_inner
def _equal(ours: Chunks, others: Chunks) -> bool:
    for chunk in range(len(ours.forward_s)):
        if (
            ours.forward_s[chunk] != others.forward_s[chunk]
            or ours.backward_s[chunk] != others.backward_s[chunk]
        ):
            return False
        if ours.forward_delay_s[chunk] != others.forward_delay_s[chunk]:
            return False
        if ours.backward_delay_s[chunk] != others.backward_delay_s[chunk]:
            return False
    return True
