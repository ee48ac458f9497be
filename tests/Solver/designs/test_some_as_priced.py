"""Some chips of many that were priced together cost what they cost by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from Estimator.plans.groups import DeviceGroups, GroupLevel, LayerGroups
from GraphExtractor.graph import Gemm, ModelGraph, Recompute
from phaze.settings.problem import hardware_of
from phaze.settings.resolve import resolve
from Solver.designs.costs import PricedShapes, pass_seconds
from Solver.hardware import DesignedChips, PricedGraph
from Solver.schedule.solver import NodeLimit
from tests.builders.operators_by_hand import (
    chain,
    collective_operator,
    gemm_operator,
    model_graph,
    vector_operator,
)
from tests.builders.random_searches import random_case

GROUPS = LayerGroups(tensor=DeviceGroups((GroupLevel(2, 1),), (0,)))
MODES = (Recompute.NONE,)


def graph() -> ModelGraph:
    model = model_graph()
    (layer,) = model.layers
    operators = chain(
        [
            gemm_operator(0, Gemm(1, 512, 1024, 1024)),
            vector_operator(1, "gelu", 1024, 1024),
            collective_operator(2, 64 << 20, 2),
        ]
    )
    layer = replace(layer, forward=operators, backward=operators, backward_selective=operators)
    return replace(model, key=replace(model.key, tp=2), layers=(layer,))


@pytest.mark.parametrize("space", ["phaze_icml24", "network_5nm"])  # links alike, and as an axis
def test_some_chips_cost_what_they_cost_by_themselves(space: str) -> None:
    every = hardware_of(resolve({}, {"model": "bertbase", "design_space": space}))
    assert isinstance(every, DesignedChips)
    chips = every.some(np.linspace(0, every.configurations - 1, 40).astype(np.int64))
    priced, rows = graph(), np.array([31, 4, 17, 39])
    whole = chips.price(priced, MODES, GROUPS, None).costs[Recompute.NONE]
    some, alone = chips.some_as_priced(rows), chips.some(rows)
    found, wanted = (each.price(priced, MODES, GROUPS, None) for each in (some, alone))
    for each in (found, wanted):
        assert np.array_equal(pass_seconds(each.costs[Recompute.NONE]), pass_seconds(whole, rows))
    assert len(np.unique(pass_seconds(whole, rows)[:, 0])) == len(rows)  # all of them differ
    every_row, limit = np.arange(len(rows)), NodeLimit.THOROUGH
    proven, known = (
        each.refined(MODES, priced, GROUPS, every_row, limit).least[Recompute.NONE]
        for each in (some, alone)
    )
    assert np.array_equal(pass_seconds(proven), pass_seconds(known))
    # a place of its own in the schedule, with the operators of each chip's own cores
    for row in every_row.tolist():
        problems = [
            each.scheduled(priced, GROUPS).problem(priced.layers[0].forward, row)
            for each in (some, alone)
        ]
        assert np.array_equal(problems[0].single_latency_s, problems[1].single_latency_s)
        assert np.array_equal(problems[0].all_latency_s, problems[1].all_latency_s)
    # and what is refined of some of them is not of all
    assert np.array_equal(
        pass_seconds(chips.price(priced, MODES, GROUPS, None).costs[Recompute.NONE]),
        pass_seconds(whole),
    )


def test_schedules_that_stay_are_not_compared_again() -> None:
    every = hardware_of(resolve({}, {"model": "bertbase"}))
    assert isinstance(every, DesignedChips)
    chips, priced, (mode,) = every.some(np.array([0, 100])), graph(), MODES
    known = chips.price(priced, MODES, GROUPS, None)
    again = chips.refined(MODES, priced, GROUPS, np.arange(2), NodeLimit.FIRST)
    assert again.costs[mode] is known.costs[mode] and again.least[mode] is known.least[mode]


def test_a_shape_of_the_same_costs_keeps_what_was_found_of_it() -> None:
    case = random_case(500, configurations=4, most_layers=4)
    model = case.problem.models[0]
    plan = next(model.space.shapes())
    key = model.graph_key(plan)
    shape = PricedShapes(case.run(), model, {key: case.graph(key)}, [plan]).shape(0)
    assert shape is not None
    same, other = (
        {
            (key, part.groups): PricedGraph({plan.recompute: costs}, {plan.recompute: part.least})
            for part in shape.parts
            for costs in (part.costs if stays else replace(part.costs),)
        }
        for stays in (True, False)
    )
    assert shape.with_costs(same) is shape and shape.with_costs({}) is shape
    assert shape.with_costs(other) is not shape
