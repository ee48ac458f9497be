"""Plans of stages that differ, priced where they do not: every number is that of the uniform
plan."""

from dataclasses import replace

import numpy as np
import pytest

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import as_at_the_start, layer_groups
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import PlacedStage
from Estimator.plans.heterogeneous.pricing import PricedStages
from Estimator.plans.iteration import iteration_of, price_iteration
from GraphExtractor.graph import Recompute
from phaze_common.choices import GroupOrder
from Solver.paths.layer_graph import edges_between
from tests.builders.random_searches import Case, every_cut, every_plan, every_shape, random_case


def stages_of(plan: UniformPlan, layers: int) -> tuple[PlacedStage, ...]:
    """The stages of ``plan`` one by one."""
    order = plan.layer_order or tuple(range(layers))
    ends = np.cumsum([0, *(plan.stage_layers or ())])
    one = replace(plan, pp=1, stage_layers=None, layer_order=None)
    return tuple(
        PlacedStage(one, stage * one.devices, tuple(order[ends[stage] : ends[stage + 1]]))
        for stage in range(plan.pp)
    )


def layers_of(case: Case, plan: UniformPlan, first: int = 0) -> RecomputableLayers:
    """What the layers of ``plan``'s graph cost."""
    name = case.problem.models[0].name
    graph = case.graph(plan.graph_key(name, case.problem.models[0].space.sequence_length))
    groups = layer_groups(plan, case.hardware.cluster, first)
    return RecomputableLayers(
        *(case.hardware.costs(graph, mode, groups) for mode in (Recompute.NONE, plan.recompute))
    )


def same_blocks(plan: UniformPlan, case: Case) -> bool:
    """Whether all stages of ``plan`` lie on blocks alike."""
    one = replace(plan, pp=1)
    every = [
        layer_groups(one, case.hardware.cluster, stage * one.devices) for stage in range(plan.pp)
    ]
    starts = all(
        as_at_the_start(stage * one.devices, one.devices, case.hardware.cluster)
        for stage in range(plan.pp)
    )
    return starts and all(groups == layer_groups(plan, case.hardware.cluster) for groups in every)


@pytest.mark.some(20)
@pytest.mark.parametrize("seed", range(40))
def test_stages_alike_cost_what_the_uniform_plan_does(seed: int) -> None:
    case = random_case(seed, configurations=1, most_layers=4, tables=seed % 2 == 0)
    case = case.with_base(optimizer="muon") if seed % 3 == 0 else case
    model = case.problem.models[0]
    random, compared = np.random.default_rng(seed), 0
    for shape in every_shape(model.space):
        if shape.group_order is not GroupOrder.DATA_INNER:
            continue
        layers = layers_of(case, shape)
        count = layers.layers
        machine = case.hardware.machine(0, float(case.problem.memory_bytes[0]))
        plans = [plan for plan in every_plan(model.space, shape, count) if plan.interleave == 1]
        for place in random.permutation(len(plans))[:4]:
            plan = plans[place]
            if plan.group_order is not GroupOrder.DATA_INNER or not same_blocks(plan, case):
                continue
            cuts = list(every_cut(plan, count, edges_between(layers.stored.graph.tensors)))
            for number in random.permutation(len(cuts))[:3]:
                cut, stages = cuts[number], stages_of(cuts[number], count)
                ours = iteration_of(PricedStages(stages, [layers] * cut.pp, machine))
                theirs = price_iteration(cut, layers.recomputing, machine)
                assert ours.iteration_s == pytest.approx(theirs.iteration_s, rel=1e-12)
                assert vars(ours.breakdown) == pytest.approx(
                    vars(theirs.breakdown), rel=1e-9, abs=1e-12
                )
                for mine, other in zip(ours.stages, theirs.stages, strict=True):
                    assert mine.layers == other.layers
                    numbers = {
                        name: value
                        for name, value in vars(other).items()
                        if isinstance(value, float)
                    }
                    assert {name: vars(mine)[name] for name in numbers} == pytest.approx(
                        numbers, rel=1e-12
                    )
                for name in (
                    "model_flops_utilization",
                    "hardware_flops_utilization",
                    "samples_per_s",
                    "devices",
                ):
                    assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12)
                assert ours.status is theirs.status
                compared += 1
    assert compared or seed
