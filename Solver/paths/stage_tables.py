"""What bounds and searches of cuts need of every stage there can be, filled by compiled loops:
loads, messages, prices, each once for stages of one kind."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_inner, borrowing_outer, inlined, outer
from Estimator.plans.stage_price import (
    PassRates,
    PlanRates,
    SyncPrice,
    chunk_price,
    hidden_exchanges,
    pass_of,
    pass_rates,
    stage_price,
)
from Estimator.plans.stage_totals import StageSizes, StageTimes, times_at
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.paths.stage_graph import Stages


class Loads(NamedTuple):
    """What stages take on one configuration without messages and data-parallel communication,
    seconds; on several, each array has one more axis, the first."""

    forward_s: FloatArray  # (kinds,)
    backward_s: FloatArray  # (kinds,), with what is recomputed
    stage_s: FloatArray  # (kinds,): both
    # (kinds,): the same, infinite where a stage is too large for the memory under any plan
    fitting_s: FloatArray
    downstream_s: FloatArray  # (nodes,): both passes of the node's layers as one stage
    upstream_forward_s: FloatArray  # (nodes,): forward of all other layers as one stage
    # (nodes,): backward of all other layers, each a stage of its own: no cut takes longer
    upstream_backward_s: FloatArray
    # (most stages, nodes): the largest of j + 1 fitting stages that share the node takes this
    least_downstream_s: FloatArray
    # (most stages, nodes): the largest of j + 1 fitting stages that share all other layers
    least_upstream_s: FloatArray


def empty_loads(rows: int, kinds: int, nodes: int, most_stages: int) -> Loads:
    """Loads of so many configurations, to be filled."""
    shapes = [(rows, kinds)] * 4 + [(rows, nodes)] * 3 + [(rows, most_stages, nodes)] * 2
    return Loads(*map(np.empty, shapes))


@inlined
def loads_at(loads: Loads, row: int) -> Loads:
    """Those of one configuration."""
    return Loads(
        loads.forward_s[row],
        loads.backward_s[row],
        loads.stage_s[row],
        loads.fitting_s[row],
        loads.downstream_s[row],
        loads.upstream_forward_s[row],
        loads.upstream_backward_s[row],
        loads.least_downstream_s[row],
        loads.least_upstream_s[row],
    )


class Links(NamedTuple):
    """Messages of a plan: ``seconds[kind, 0]`` forward and ``[kind, 1]`` back over the boundary
    into each node.

    ``kind_of[j]`` is the kind of the boundary before the stage with j stages behind it.
    ``least_s[j, node]`` are the least messages, both ways, over the boundaries between j + 1 stages
    that share a node.
    """

    seconds: FloatArray  # (kinds, 2, nodes)
    kind_of: IntArray  # (pp,)
    least_s: FloatArray  # (pp, nodes)


class Priced(NamedTuple):
    """Stages priced for a plan's degrees: arrays of shape (kinds,)."""

    forward_s: FloatArray
    backward_s: FloatArray
    after_s: FloatArray
    step_s: FloatArray
    fixed_bytes: FloatArray


@borrowing_outer
def fill_loads(
    rates: PlanRates,
    stages: Stages,
    times: FloatArray,
    sizes: StageSizes,
    layers: FloatArray,
    members: BoolArray,
    fits: BoolArray,
    alone_s: FloatArray,
    every: Loads,
) -> None:
    """Fill the loads of ``every`` configuration: as one stage and without data-parallel
    communication layers take no longer than in several.

    ``times`` (rows, 19, kinds) are those of the stages, ``layers`` (rows, 19, layers) of the single
    layers, ``members`` (nodes, layers) those of every node, ``fits`` (kinds,) the stages that fit
    in memory under some plan; ``alone_s`` is room for what single layers take, (layers,).
    """
    of_passes = pass_rates(rates)
    for row in range(len(times)):
        loads = loads_at(every, row)
        one, alone = times_at(times, row), times_at(layers, row)
        fill_row(of_passes, stages, one, sizes, alone, members, fits, alone_s, loads)


@borrowing_inner
def fill_row(
    of_passes: PassRates,
    stages: Stages,
    times: StageTimes,
    sizes: StageSizes,
    layers: StageTimes,
    members: BoolArray,
    fits: BoolArray,
    alone_s: FloatArray,
    loads: Loads,
) -> None:
    """Fill ``loads`` of one configuration."""
    for layer in range(len(alone_s)):
        _, back_s = hidden_exchanges(of_passes, layers, layer)
        recompute_s = pass_of(of_passes, layers.recompute, layer, 0.0, 0.0, 1.0).total_s
        backward_s = pass_of(of_passes, layers.backward, layer, -back_s, 0.0, 1.0).total_s
        alone_s[layer] = recompute_s + backward_s
    for kind in range(len(loads.stage_s)):
        count = sizes.layers[kind]
        ahead_s, back_s = hidden_exchanges(of_passes, times, kind)
        forward_s = pass_of(of_passes, times.forward, kind, -ahead_s, 0.0, count).total_s
        recompute_s = pass_of(of_passes, times.recompute, kind, 0.0, 0.0, count).total_s
        backward_s = pass_of(of_passes, times.backward, kind, -back_s, 0.0, count).total_s
        loads.forward_s[kind] = forward_s
        loads.backward_s[kind] = recompute_s + backward_s
        loads.stage_s[kind] = loads.forward_s[kind] + loads.backward_s[kind]
        loads.fitting_s[kind] = loads.stage_s[kind] if fits[kind] else np.inf
    for node in range(len(loads.downstream_s)):
        edge = stages.to_end[node]
        loads.downstream_s[node] = loads.stage_s[stages.kind[edge]] if edge >= 0 else 0.0
        edge = stages.from_start[node]
        loads.upstream_forward_s[node] = loads.forward_s[stages.kind[edge]] if edge >= 0 else 0.0
        upstream_s = 0.0
        for layer in range(len(alone_s)):
            if not members[node, layer]:
                upstream_s += alone_s[layer]
        loads.upstream_backward_s[node] = upstream_s
    least_largest(stages, loads.fitting_s, loads.least_downstream_s)
    least_largest_upstream(stages, loads.fitting_s, loads.least_upstream_s)


@borrowing_outer
def least_largest(stages: Stages, values: FloatArray, least: FloatArray) -> None:
    """Fill ``least`` (most stages, nodes): the least that the largest of j + 1 stages sharing a
    node can have of ``values`` (kinds,)."""
    for downstream in range(len(least)):
        for node in range(len(stages.first) - 1):
            least[downstream, node] = np.inf
            if downstream == 0:
                if stages.to_end[node] >= 0:
                    least[downstream, node] = values[stages.kind[stages.to_end[node]]]
                continue
            for edge in range(stages.first[node + 1] - 1, stages.first[node] - 1, -1):
                value = values[stages.kind[edge]]
                if value >= least[downstream, node]:
                    if stages.chain:
                        break
                    continue
                largest = max(value, least[downstream - 1, stages.part[edge]])
                least[downstream, node] = min(least[downstream, node], largest)


@borrowing_inner
def least_largest_upstream(stages: Stages, values: FloatArray, least: FloatArray) -> None:
    """Fill ``least`` (most stages, nodes) as ``least_largest`` does, of j + 1 stages that share all
    that a node lacks."""
    least[:] = np.inf
    everything = len(stages.first) - 2
    for upstream in range(len(least)):
        if stages.chain:
            for part in range(everything):
                least_s = np.inf
                for node in range(part + 1 if upstream > 0 else everything, everything + 1):
                    value = values[stages.kind[stages.first[node] + part]]
                    if value >= least_s:
                        break  # larger stages take longer
                    so_far = -np.inf if upstream == 0 else least[upstream - 1, node]
                    least_s = min(least_s, max(value, so_far))
                least[upstream, part] = least_s
            continue
        for node in range(everything, 0, -1):
            so_far = -np.inf if upstream == 0 else least[upstream - 1, node]
            if so_far == np.inf or (upstream == 0 and node != everything):
                continue
            for edge in range(stages.first[node], stages.first[node + 1]):
                part = stages.part[edge]
                value = values[stages.kind[edge]]
                least[upstream, part] = min(least[upstream, part], max(value, so_far))


@borrowing_outer
def fill_least_messages(
    stages: Stages, messages_s: FloatArray, kind_of: IntArray, least_s: FloatArray
) -> None:
    """Fill ``least_s`` (pp, nodes), see ``Links``; infinite where a node has fewer layers than
    there would be stages."""
    for downstream in range(len(least_s)):
        for node in range(len(stages.first) - 1):
            least_s[downstream, node] = np.inf if downstream > 0 or node == 0 else 0.0
            if downstream == 0 or stages.depth[node] <= downstream:
                continue
            first = stages.first[node]
            if stages.chain:  # all but the largest part are those of the node before
                least_s[downstream, node] = least_s[downstream, node - 1]
                first = stages.first[node + 1] - 1
            for edge in range(first, stages.first[node + 1]):
                part = stages.part[edge]
                if stages.depth[part] >= downstream:
                    kind = kind_of[downstream - 1]
                    both_s = messages_s[kind, 0, part] + messages_s[kind, 1, part]
                    here_s = both_s + least_s[downstream - 1, part]
                    least_s[downstream, node] = min(least_s[downstream, node], here_s)


@borrowing_outer
def fill_passes(
    rates: PlanRates,
    times: StageTimes,
    sizes: StageSizes,
    forward_s: FloatArray,
    backward_s: FloatArray,
) -> None:
    """Fill seconds (kinds,) of the passes of stages without data-parallel communication, host
    memory apart."""
    of_passes, nothing = pass_rates(rates), SyncPrice(0.0, 0.0, 0.0, 0.0, 0.0)
    for kind in range(len(forward_s)):
        price = chunk_price(of_passes, times, nothing, kind, sizes.layers[kind], 1.0)
        forward_s[kind], backward_s[kind] = price.forward_s, price.backward_s


@borrowing_outer
def fill_prices(
    rates: PlanRates,
    times: StageTimes,
    sizes: StageSizes,
    shared: float,
    wanted: BoolArray,
    no_chunks: FloatArray,
    priced: Priced,
) -> None:
    """Price the ``wanted`` (kinds,) stages in full, the others as ones that no memory holds;
    ``shared`` parameters count once on a single stage. ``no_chunks`` is empty, (2, 0)."""
    every = len(sizes.layers)
    for kind in range(every):
        if not wanted[kind]:
            priced.forward_s[kind], priced.backward_s[kind] = 0.0, 0.0
            priced.after_s[kind], priced.step_s[kind] = 0.0, 0.0
            priced.fixed_bytes[kind] = np.inf
            continue
        price = stage_price(rates, times, sizes, kind, every, shared, no_chunks)
        priced.forward_s[kind], priced.backward_s[kind] = price.forward_s, price.backward_s
        priced.after_s[kind], priced.step_s[kind] = price.after_s, price.step_s
        priced.fixed_bytes[kind] = price.fixed_bytes


@outer
def least_fullest_bytes(
    stages: Stages, fixed_bytes: FloatArray, saved_bytes: FloatArray, pp: int, micro_batches: int
) -> float:
    """Bytes of the fullest of ``pp`` stages in the cut where they are fewest; infinite where there
    is no such cut.

    A stage holds ``fixed_bytes`` (kinds,) and, of as many micro-batches as are in flight there,
    ``saved_bytes`` (kinds,) each.
    """
    everything = len(stages.first) - 2
    least = np.full((pp, everything + 1), np.inf)
    for downstream in range(pp):
        held = min(downstream + 1, micro_batches)
        for node in range(everything + 1):
            if (node == everything) != (downstream == pp - 1) or stages.depth[node] <= downstream:
                continue
            if downstream == 0:
                edge = stages.to_end[node]
                if edge >= 0:
                    kind = stages.kind[edge]
                    least[0, node] = fixed_bytes[kind] + held * saved_bytes[kind]
                continue
            for edge in range(stages.first[node + 1] - 1, stages.first[node] - 1, -1):
                kind = stages.kind[edge]
                here = fixed_bytes[kind] + held * saved_bytes[kind]
                fullest = max(here, least[downstream - 1, stages.part[edge]])
                least[downstream, node] = min(least[downstream, node], fullest)
    return least[pp - 1, everything]
