"""Operators on groups of cores: exact against enumeration and the ILP, equal to today's schedules
with one core and all."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.plans.results import Status
from phaze_common.errors import InputError, SolverError
from Solver.schedule.moldable import (
    CoreGroup,
    MoldableProblem,
    MoldableSchedule,
    Placed,
    check_moldable,
    one_or_all,
    placed_as,
    useful_modes,
)
from Solver.schedule.moldable_ilp import confirm_moldable
from Solver.schedule.moldable_search import bounds_of, schedule_moldable
from Solver.schedule.native import NativeSolver
from Solver.schedule.problem import CoreType, ScheduleStructure
from Solver.schedule.structure import TYPE_BITS
from tests.builders.schedule_problems import layer_problem, problems

exact = pytest.approx


@st.composite
def moldable_problems(draw, max_operators=4, most_cores=4):
    """Small problems with one to three modes each; few distinct seconds, so that ties and like
    operators are common."""
    count = draw(st.integers(1, max_operators))
    pairs = list(itertools.combinations(range(count), 2))
    edges = (
        draw(st.lists(st.sampled_from(pairs), unique=True, max_size=len(pairs))) if pairs else []
    )
    types = draw(st.lists(st.sampled_from(list(CoreType)), min_size=count, max_size=count))
    num_tc, num_vc = draw(st.integers(1, most_cores)), draw(st.integers(1, most_cores))
    modes = []
    for core_type in types:
        bits = TYPE_BITS[core_type]
        sizes = st.tuples(
            st.integers(1, num_tc) if bits & 1 else st.just(0),
            st.integers(1, num_vc) if bits & 2 else st.just(0),
        )
        some = draw(st.lists(st.one_of(sizes, st.just((num_tc, num_vc))), min_size=1, max_size=3))
        modes.append(
            tuple(
                CoreGroup(tc, vc, float(draw(st.sampled_from([0, 1, 2, 3, 5, 8]))))
                for tc, vc in some
            )
        )
    return MoldableProblem(
        ScheduleStructure(tuple(types), tuple(edges)), tuple(modes), num_tc, num_vc
    )


def optimum_by_enumeration(problem):
    """Least makespan over all modes and all orders in which operators are placed, each as early as
    possible: one is optimal."""
    count, best = len(problem.modes), float("inf")
    for modes in itertools.product(*problem.modes):
        for order in itertools.permutations(range(count)):
            if any(
                order.index(source) > order.index(target)
                for source, target in problem.structure.edges
            ):
                continue
            start, end = {}, {}
            for i in order:
                ready = max((end[s] for s, t in problem.structure.edges if t == i), default=0.0)
                for begin in sorted({ready, *(each for each in end.values() if each > ready)}):
                    until = begin + modes[i].seconds
                    moments = [begin, *(start[j] for j in start if begin < start[j] < until)]
                    running = [[modes[j] for j in start if start[j] <= m < end[j]] for m in moments]
                    if modes[i].seconds == 0 or all(
                        sum(each.tc for each in now) + modes[i].tc <= problem.num_tc
                        and sum(each.vc for each in now) + modes[i].vc <= problem.num_vc
                        for now in running
                    ):
                        start[i], end[i] = begin, until
                        break
            best = min(best, max(end.values()))
    return best


def solved(problem):
    schedule = schedule_moldable(problem)
    assert schedule.status is Status.OPTIMAL
    check_moldable(problem, schedule)
    return schedule


@settings(max_examples=150, deadline=None)
@given(moldable_problems())
def test_equals_enumeration(problem):
    assert solved(problem).makespan_s == exact(optimum_by_enumeration(problem), rel=1e-8)


@settings(max_examples=10, deadline=None)
@given(moldable_problems(max_operators=5, most_cores=3))
def test_equals_enumeration_of_five(problem):
    assert solved(problem).makespan_s == exact(optimum_by_enumeration(problem), rel=1e-8)


@settings(max_examples=25, deadline=None)
@given(moldable_problems(max_operators=7))
def test_the_ilp_agrees(problem):
    confirmed = confirm_moldable(problem, solved(problem), node_limit=100_000)
    assert confirmed.agrees is True


@settings(max_examples=25, deadline=None)
@given(moldable_problems(max_operators=6))
def test_the_ilp_finds_what_a_longer_schedule_misses(problem):
    schedule = schedule_moldable(problem)
    alone, clock_s = [], 0.0
    from Solver.schedule.structure import closure

    for place in closure(problem.structure).topological():
        alone.append(Placed(place, problem.modes[place][0], clock_s))
        clock_s = alone[-1].end_s
    longer = MoldableSchedule(Status.OPTIMAL, clock_s, clock_s, tuple(alone), 0)
    check_moldable(problem, longer)
    if clock_s > schedule.makespan_s * (1 + 1e-5):
        assert confirm_moldable(problem, longer, node_limit=100_000).agrees is False


@settings(max_examples=60, deadline=None)
@given(problems(max_operators=7))
def test_one_core_or_all_is_as_before(problem):
    before = NativeSolver().solve(problem)
    assert solved(one_or_all(problem)).makespan_s == exact(before.makespan_s, rel=1e-8)


@pytest.mark.parametrize("cores", [(2, 2), (4, 8)])
def test_a_layer_on_one_core_or_all_is_as_before(cores):
    problem = layer_problem(*cores, operators=20)
    before = NativeSolver().solve(problem)
    assert before.status is Status.OPTIMAL
    mine = one_or_all(problem)
    assert solved(mine).makespan_s == exact(before.makespan_s, rel=1e-8)
    known = schedule_moldable(mine, placed_as(mine, before), node_limit=0)
    assert known.makespan_s <= before.makespan_s * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(moldable_problems(max_operators=6), st.data())
def test_a_mode_more_never_lengthens(problem, data):
    place = data.draw(st.integers(0, len(problem.modes) - 1))
    more = CoreGroup(
        data.draw(st.integers(1, problem.num_tc)), data.draw(st.integers(0, problem.num_vc)), 1.5
    )
    modes = list(problem.modes)
    modes[place] = (*modes[place], more)
    wider = MoldableProblem(problem.structure, tuple(modes), problem.num_tc, problem.num_vc)
    assert solved(wider).makespan_s <= solved(problem).makespan_s * (1 + 1e-8)


@settings(max_examples=60, deadline=None)
@given(moldable_problems(max_operators=6))
def test_useless_modes_make_no_difference(problem):
    fewer = MoldableProblem(
        problem.structure,
        tuple(useful_modes(each) for each in problem.modes),
        problem.num_tc,
        problem.num_vc,
    )
    assert solved(fewer).makespan_s == exact(solved(problem).makespan_s, rel=1e-8)


@settings(max_examples=60, deadline=None)
@given(moldable_problems(max_operators=7), st.integers(0, 30))
def test_what_is_stopped_says_so_and_bounds_hold(problem, node_limit):
    optimum, stopped = solved(problem), schedule_moldable(problem, node_limit=node_limit)
    check_moldable(problem, stopped)
    assert stopped.bound_s <= optimum.makespan_s * (
        1 + 1e-9
    ) and stopped.makespan_s >= optimum.makespan_s * (1 - 1e-9)
    assert all(bound <= optimum.makespan_s * (1 + 1e-9) for bound in bounds_of(problem))
    if stopped.status is Status.OPTIMAL:
        assert stopped.makespan_s == exact(optimum.makespan_s, rel=1e-8)


TWO = MoldableProblem(
    ScheduleStructure((CoreType.TC, CoreType.TC), ()),
    ((CoreGroup(1, 0, 3.0), CoreGroup(3, 0, 1.0)),) * 2,
    num_tc=3,
    num_vc=1,
)


def schedule_of(*placed, makespan_s, bound_s=0.0):
    return MoldableSchedule(Status.FEASIBLE, makespan_s, bound_s, placed, 0)


@pytest.mark.parametrize(
    ("schedule", "what"),
    [
        (
            schedule_of(
                Placed(0, TWO.modes[0][1], 0.0), Placed(1, TWO.modes[1][0], 0.0), makespan_s=3.0
            ),
            "4 tensor",
        ),
        (
            schedule_of(
                Placed(0, TWO.modes[0][1], 0.0),
                Placed(1, CoreGroup(1, 0, 1.0), 1.0),
                makespan_s=2.0,
            ),
            "no mode",
        ),
        (schedule_of(Placed(0, TWO.modes[0][1], 0.0), makespan_s=1.0), "exactly once"),
        (
            schedule_of(
                Placed(0, TWO.modes[0][1], 0.0), Placed(1, TWO.modes[1][1], 1.0), makespan_s=1.5
            ),
            "does not end",
        ),
    ],
)
def test_the_check_refuses(schedule, what):
    with pytest.raises(SolverError, match=what):
        check_moldable(TWO, schedule)


def test_modes_that_cannot_be_are_refused():
    for mode in (CoreGroup(4, 0, 1.0), CoreGroup(0, 0, 1.0), CoreGroup(1, 0, float("nan"))):
        with pytest.raises(InputError, match="allowed are up to 3 tensor"):
            MoldableProblem(TWO.structure, ((mode,), TWO.modes[1]), 3, 1)
