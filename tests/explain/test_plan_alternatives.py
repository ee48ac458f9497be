"""Alternatives to the fastest plan on given devices, against every plan of the space."""

import dataclasses

import pytest

from Common.errors import InputError
from Common.progress import SilentProgress
from Plans.results import Status
from Studies.explain.constraints import read_plan_constraint
from Studies.explain.plan_alternatives import fixed_plan, plan_alternative, repeat_plan_search


@pytest.fixture(scope="module")
def search(finished_plans):
    return repeat_plan_search(finished_plans, SilentProgress())


@pytest.fixture(scope="module")
def every_plan(finished_plans):
    """Every plan of the space by its values, to be priced by itself, so that none prunes another."""
    found = []
    for row in finished_plans.designs.itertuples():
        constraint = read_plan_constraint(
            f"tp={row.tp},pp={row.pp},dp={row.dp},micro_batch_size={row.micro_batch_size},recompute={row.recompute},"
            f"sequence_parallel={row.sequence_parallel},zero_stage={row.zero_stage},interleave={row.interleave},"
            f"group_order={row.group_order}"
        )
        found.append(constraint)
    assert len(set(found)) == len(found) == finished_plans.answer.counts.space
    return found


@pytest.mark.parametrize("asked", ["pp=2", "pp=2,zero_stage=0", "tp=2", "recompute=full,micro_batch_size=2", "dp=2"])
def test_an_alternative_is_the_fastest_plan_that_has_it(search, every_plan, asked):
    constraint = read_plan_constraint(asked)
    found = plan_alternative(search, constraint)
    assert all(getattr(found.plan, name) == value for name, value in constraint.values.items())
    having = [one for one in every_plan if all(getattr(one, name) == value for name, value in constraint.values.items())]
    fastest = min((one for each in having if (one := fixed(search, each)) is not None), key=lambda plan: plan.time_per_batch_s)
    assert found.plan.time_per_batch_s == pytest.approx(fastest.time_per_batch_s, rel=1e-9)
    assert found.slower == pytest.approx(fastest.time_per_batch_s / search.best.time_per_batch_s, rel=1e-9)
    assert sum(term.other_s for term in found.terms) == pytest.approx(found.plan.time_per_batch_s, rel=1e-9)
    assert found.sentences and found.status is Status.OPTIMAL


def fixed(search, constraint):
    plan = dataclasses.replace(search.best, **constraint.values)
    return fixed_plan(search.finished.settings, search.finished, plan, SilentProgress())


def test_the_fastest_plan_itself_is_no_slower_and_differs_in_nothing(search, finished_plans):
    assert search.unchanged
    (recorded,) = finished_plans.answer.models.values()
    assert search.best.time_per_batch_s == pytest.approx(recorded.time_per_batch_s, rel=1e-12)
    found = plan_alternative(search, read_plan_constraint(f"pp={recorded.pp},dp={recorded.dp}"))
    assert found.slower == 1.0 and found.plan == search.best
    assert all(term.best_s == term.other_s for term in found.terms)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("pp=3", "no plan of the run has pp 3; they have 1, 2, 4"),
        ("dp=16", "no plan of the run has dp 16; they have 1, 2, 4, 8"),
        ("pp=4,dp=4", "no plan of 8 devices has that"),
        ("tp=3", "use one of 1, 2, 4"),
        ("zero_stage=4", "zero_stage is '4', but must be a whole number from 0 to 3"),
        ("num_tc=4", "unknown key 'num_tc'"),
    ],
)
def test_what_no_plan_has_is_refused(search, asked, message):
    with pytest.raises(InputError, match=message):
        plan_alternative(search, read_plan_constraint(asked))


def test_values_that_the_run_did_not_search_may_be_asked(search):
    found = plan_alternative(search, read_plan_constraint("micro_batch_size=4"))
    assert found.plan.micro_batch_size == 4 and found.slower > 0
