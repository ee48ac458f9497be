"""Alternatives to the fastest plan on given devices, against every plan of the space."""

import dataclasses

import pytest

from Common.errors import InputError
from Common.progress import SilentProgress
from Solver.results import Status
from Studies.explain.plan_alternatives import ask_plans_again, fixed_plan, plan_alternative
from Studies.explain.wishes import read_plan_wish


@pytest.fixture(scope="module")
def asker(finished_plans):
    return ask_plans_again(finished_plans, SilentProgress())


@pytest.fixture(scope="module")
def every_plan(finished_plans):
    """Every plan of the space by its values, to be priced by itself, so that none prunes another."""
    found = []
    for row in finished_plans.designs.itertuples():
        wish = read_plan_wish(
            f"tp={row.tp},pp={row.pp},dp={row.dp},micro_batch_size={row.micro_batch_size},recompute={row.recompute},"
            f"sequence_parallel={row.sequence_parallel},zero_stage={row.zero_stage},interleave={row.interleave},"
            f"group_order={row.group_order}"
        )
        found.append(wish)
    assert len(set(found)) == len(found) == finished_plans.answer.counts.space
    return found


@pytest.mark.parametrize("asked", ["pp=2", "pp=2,zero_stage=0", "tp=2", "recompute=full,micro_batch_size=2", "dp=2"])
def test_an_alternative_is_the_fastest_plan_that_has_it(asker, every_plan, asked):
    wish = read_plan_wish(asked)
    found = plan_alternative(asker, wish)
    assert all(getattr(found.plan, name) == value for name, value in wish.values.items())
    having = [one for one in every_plan if all(getattr(one, name) == value for name, value in wish.values.items())]
    fastest = min((one for each in having if (one := fixed(asker, each)) is not None), key=lambda plan: plan.time_per_batch_s)
    assert found.plan.time_per_batch_s == pytest.approx(fastest.time_per_batch_s, rel=1e-9)
    assert found.slower == pytest.approx(fastest.time_per_batch_s / asker.best.time_per_batch_s, rel=1e-9)
    assert sum(term.other_s for term in found.terms) == pytest.approx(found.plan.time_per_batch_s, rel=1e-9)
    assert found.sentences and found.status is Status.OPTIMAL


def fixed(asker, wish):
    plan = dataclasses.replace(asker.best, **wish.values)
    return fixed_plan(asker.finished.settings, asker.finished, plan, SilentProgress())


def test_the_fastest_plan_itself_is_no_slower_and_differs_in_nothing(asker, finished_plans):
    assert asker.unchanged
    (recorded,) = finished_plans.answer.models.values()
    assert asker.best.time_per_batch_s == pytest.approx(recorded.time_per_batch_s, rel=1e-12)
    found = plan_alternative(asker, read_plan_wish(f"pp={recorded.pp},dp={recorded.dp}"))
    assert found.slower == 1.0 and found.plan == asker.best
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
def test_what_no_plan_has_is_refused(asker, asked, message):
    with pytest.raises(InputError, match=message):
        plan_alternative(asker, read_plan_wish(asked))


def test_values_that_the_run_did_not_search_may_be_asked(asker):
    found = plan_alternative(asker, read_plan_wish("micro_batch_size=4"))
    assert found.plan.micro_batch_size == 4 and found.slower > 0
