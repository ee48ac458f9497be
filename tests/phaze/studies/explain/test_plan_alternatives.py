"""Alternatives to the best plan on given devices, against every plan and cut of the space."""

import dataclasses
import itertools
import math

import pytest

from Estimator.plans.axes import plan_axis
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.results import Status
from GraphExtractor.storage import load_or_extract
from phaze.studies.explain.alternatives import alternative
from phaze.studies.explain.constraints import OF_A_PLAN, read_constraint
from phaze.studies.explain.repeat import repeat_search
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress


@pytest.fixture(scope="module")
def search(finished_plans):
    return repeat_search(finished_plans, SilentProgress())


def asked_of(text):
    return read_constraint(text, on_device=True)


@pytest.fixture(scope="module")
def every_plan(search):
    """Every plan of the space with the seconds of its best cut into stages, priced by itself, so
    that none prunes another."""
    (model,) = search.run.problem.models
    hardware, found = search.run.hardware, []
    for shape in model.space.shapes():
        graph = load_or_extract(model.graph_key(shape), search.run.stores.graphs)
        layers = len(graph.sequence)
        arrays = model.space.plans(shape, layers, hardware.cluster)
        groups = layer_groups(shape, hardware.cluster)
        costs = hardware.price(graph, (shape.recompute,), groups, None).costs[shape.recompute]
        machine = hardware.machine(0, float(search.run.problem.memory_bytes[0]))
        for index in range(len(arrays)):
            plan = arrays.plan(index)
            cuts = itertools.combinations(range(1, layers), plan.pp - 1)
            cutted = [
                tuple(b - a for a, b in itertools.pairwise((0, *each, layers))) for each in cuts
            ]
            priced = [
                price_iteration(dataclasses.replace(plan, stage_layers=each), costs, machine)
                for each in cutted
            ]
            least_s = min(
                (each.iteration_s for each in priced if each.status is Status.FEASIBLE),
                default=math.inf,
            )
            found.append((plan, least_s))
    assert len(found) == search.finished.result.counts.plans
    assert len({plan for plan, _ in found}) == len(found)
    return found


def has(plan, constraint):
    return all(getattr(plan, name) == value for name, value in constraint.of_the_plan.items())


@pytest.mark.parametrize(
    "asked", ["pp=2", "pp=2,zero_stage=0", "tp=2", "recompute=full,micro_batch_size=2", "dp=2"]
)
def test_an_alternative_is_the_fastest_plan_that_has_it(search, every_plan, asked):
    constraint = asked_of(asked)
    found = alternative(search, constraint)
    (plan,) = found.point.models.values()
    (best,) = search.best.point.models.values()
    assert has(plan, constraint)
    fastest_s = min(seconds for each, seconds in every_plan if has(each, constraint))
    assert plan.time_per_batch_s == pytest.approx(fastest_s, rel=1e-9)
    assert found.slower == pytest.approx(fastest_s / best.time_per_batch_s, rel=1e-9)
    assert sum(term.other_s for term in found.terms) == pytest.approx(
        plan.time_per_batch_s, rel=1e-9
    )
    assert found.sentences and found.status is Status.OPTIMAL


def test_the_best_plan_is_the_fastest_of_them_all(search, every_plan):
    (best,) = search.best.point.models.values()
    assert best.time_per_batch_s == pytest.approx(
        min(seconds for _, seconds in every_plan), rel=1e-9
    )


def test_the_fastest_plan_itself_is_no_slower_and_differs_in_nothing(search, finished_plans):
    assert search.unchanged
    (recorded,) = finished_plans.result.best.models.values()
    (best,) = search.best.point.models.values()
    assert best.time_per_batch_s == pytest.approx(recorded.time_per_batch_s, rel=1e-12)
    found = alternative(search, asked_of(f"pp={recorded.pp},dp={recorded.dp}"))
    assert found.slower == 1.0 and found.point == search.best.point
    assert all(term.best_s == term.other_s for term in found.terms)


def test_every_axis_of_a_plan_can_be_asked_for(search):
    (best,) = search.best.point.models.values()
    everything = ",".join(f"{name}={plan_axis(name).of(best)}" for name in OF_A_PLAN)
    assert asked_of(everything).of_the_plan == {
        name: plan_axis(name).of(best) for name in OF_A_PLAN
    }
    assert alternative(search, asked_of(everything)).slower == 1.0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "pp=3",
            "no plan with .* x pp 3 uses all 8 devices of .*; possible with the rest as it is: pp "
            "1, 2, 4, 8",
        ),
        ("dp=16", "uses all 8 devices of .*; possible with the rest as it is: dp 1, 2, 4, 8"),
        (
            "pp=4,dp=4",
            "uses all 8 devices of .*; possible with the rest as it is: pp 1, 2, or dp 1, 2",
        ),
        (
            "pp=8,micro_batch_size=1,interleave=2",
            "pp x interleave must divide the 6 blocks of the model, given interleave 2",
        ),
        ("tp=3", "use one of 1, 2, 4"),
        ("ep=2", "has no experts"),
        ("zero_stage=4", "zero_stage is '4', but must be a whole number from 0 to 3"),
    ],
)
def test_what_no_plan_has_is_refused(search, asked, message):
    with pytest.raises(InputError, match=message):
        alternative(search, asked_of(asked))


@pytest.mark.parametrize("asked", ["num_tc=4", "chip=tpu_v4", "hbm_size=40,pp=2", "glb_mib=4"])
def test_a_given_device_is_not_designed(asked):
    with pytest.raises(
        InputError,
        match="is about accelerators to design, but the run was given its device; ask for another "
        "plan",
    ):
        asked_of(asked)


@pytest.mark.parametrize(
    "asked",
    [
        "micro_batch_size=4",
        "sequence_parallel=yes,zero_stage=3",
        "group_order=tensor-pipeline-data",
    ],
)
def test_values_that_the_run_did_not_search_may_be_asked(search, asked):
    constraint = asked_of(asked)
    found = alternative(search, constraint)
    (plan,) = found.point.models.values()
    assert has(plan, constraint) and found.slower > 0


def test_the_table_of_plans_holds_the_seconds_of_the_best(finished_plans):
    (plan,) = finished_plans.result.best.models.values()
    evaluated = finished_plans.plans[finished_plans.plans["status"] == "evaluated"]
    fastest = evaluated.loc[evaluated["time_per_batch_s"].idxmin()]
    assert fastest["time_per_batch_s"] == pytest.approx(plan.time_per_batch_s, rel=1e-12)
    assert (fastest["tp"], fastest["pp"], fastest["dp"], fastest["zero_stage"]) == (
        plan.tp,
        plan.pp,
        plan.dp,
        plan.zero_stage,
    )
