"""Seconds and joules of every layer of a graph on every accelerator, as plans need them: from
schedules of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from Estimator.pass_parts import PassParts, operator_parts
from Estimator.plans.layer_costs import LayerCosts, PassCosts, layer_sizes, moded_layers
from GraphExtractor.graph import OperatorGraph, Recompute
from phaze_common.array_types import FloatArray
from phaze_common.recompute_modules import Recomputation
from Solver.designs.schedule_times import BACKWARD, BACKWARD_SELECTIVE, FORWARD, ScheduledGraph
from Solver.schedule.attribution import attributed
from Solver.schedule.problem import Mode

ATTRIBUTION_TIME_LIMIT_S = 60.0


def chip_layer_costs(
    scheduled: ScheduledGraph, recompute: Recomputation, *, least: bool = False
) -> LayerCosts:
    """Layer costs under one recomputation mode, makespans whole; selective recomputation is part of
    the backward schedule.

    With ``least`` they are what no schedule goes below. Of the same times they are the same."""
    known = scheduled.known_costs
    if (recompute, least) not in known:
        known[recompute, least] = _layer_costs(scheduled, recompute, least=least)
    return known[recompute, least]


def _layer_costs(scheduled: ScheduledGraph, recompute: Recomputation, *, least: bool) -> LayerCosts:
    graph, times = scheduled.graph, scheduled.times
    distinct, _ = moded_layers(graph, recompute)
    seconds, joules = (
        (times.least_s, times.least_joules) if least else (times.seconds, times.joules)
    )
    index = [each.index for each in distinct]
    passes = [
        BACKWARD_SELECTIVE if each.mode is Recompute.SELECTIVE else BACKWARD for each in distinct
    ]
    again = np.array([1.0 if each.mode is Recompute.FULL else 0.0 for each in distinct])
    forward_s, backward_s = seconds[FORWARD][:, index], seconds[passes, :, index].T
    nothing = np.broadcast_to(0.0, forward_s.shape)
    return LayerCosts(
        graph=graph,
        mode=recompute,
        sizes=layer_sizes(graph, recompute, scheduled.network.panels),
        forward=PassCosts.of_total(forward_s),
        recompute=PassCosts.of_total(forward_s * again if again.any() else nothing),
        backward=PassCosts.of_total(backward_s),
        accumulation_s=nothing,
        joules=joules[passes, :, index].T + joules[FORWARD][:, index] * (1.0 + again),
    )


def attributed_layer_costs(
    scheduled: ScheduledGraph, recompute: Recomputation, row: int
) -> LayerCosts:
    """Layer costs on ``row`` alone, each pass attributed along its schedule's critical path."""
    whole = chip_layer_costs(scheduled, recompute).rows(np.array([row]))
    distinct, _ = moded_layers(scheduled.graph, recompute)
    layers = [(scheduled.graph.layers[each.index], each.mode) for each in distinct]
    forward = [_pass_parts(scheduled, layer.forward, row) for layer, _ in layers]
    backward = [_pass_parts(scheduled, layer.backward_graph(mode), row) for layer, mode in layers]
    again = [
        parts if mode is Recompute.FULL else NO_PARTS
        for parts, (_, mode) in zip(forward, layers, strict=True)
    ]
    return replace(
        whole,
        forward=_costs_of(forward, whole.forward.arithmetic_s),
        recompute=_costs_of(again, whole.recompute.arithmetic_s),
        backward=_costs_of(backward, whole.backward.arithmetic_s),
    )


NO_PARTS = PassParts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _pass_parts(scheduled: ScheduledGraph, operators: OperatorGraph, row: int) -> PassParts:
    if not operators.operators:
        return NO_PARTS
    problem = scheduled.problem(operators, row)
    schedule = scheduled.solver.solve(problem, time_limit_s=ATTRIBUTION_TIME_LIMIT_S)
    alone = np.zeros(len(operators.operators), dtype=np.bool_)
    for each in schedule.assignments:
        alone[each.operator] = each.mode is Mode.ALL
    network, rows = scheduled.network, np.array([row])
    priced = scheduled.table.price(operators, rows, network.panels)
    collective_s = network.collectives_s(operators, rows)
    exposed_s = scheduled.exposed_s(operators, row, schedule)
    parts = operator_parts(operators, priced, 0, alone, collective_s.reshape(-1), exposed_s)
    return attributed(problem, schedule, parts)


def _costs_of(parts: Sequence[PassParts], total_s: FloatArray) -> PassCosts:
    """Parts of layers as costs of one configuration; ``total_s`` (1, layers): the search's."""
    nothing = np.zeros((1, len(parts)))
    columns = {
        field.name: np.array([[getattr(each, field.name) for each in parts]])
        for field in fields(PassParts)
    }
    known_s = np.array([[each.total_s for each in parts]])
    # 1 but for rounding
    scale = np.divide(total_s, known_s, out=np.ones_like(total_s), where=known_s > 0.0)
    scaled = {name: column * scale for name, column in columns.items()}
    return PassCosts(host_s=nothing, products_s=nothing, **scaled)
