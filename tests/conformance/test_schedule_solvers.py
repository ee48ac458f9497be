"""What every schedule solver must do, and that all of them agree."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings

from Estimator.plans.results import Status
from phaze_common.errors import InputError
from Solver.schedule import SOLVERS, check_schedule, confirm_with_ilp, solver_named
from Solver.schedule.gurobi import BUNDLED_LIMIT
from Solver.schedule.milp import ComponentModel
from Solver.schedule.problem import CoreType, Mode
from Solver.schedule.structure import series_components
from tests.builders.schedule_problems import layer_problem, problem_of, problems, shared_problems

AGREEMENT = 1e-6


@pytest.fixture(params=SOLVERS)
def solver(request):
    found = solver_named(request.param)
    if not (found.is_available() and found.license_status().ok):
        pytest.skip(f"{request.param}: {found.license_status().message}")
    return found


@pytest.mark.parametrize("name", ["schedule_bertlarge_layers.json", "schedule_random.json"])
def test_shared_cases(solver, shared_data, name):
    cases = list(shared_problems(shared_data, name))
    assert len(cases) >= 15
    for problem, optimum in cases:
        schedule = solver.solve(problem)
        assert (schedule.status, schedule.solver) == (Status.OPTIMAL, solver.name)
        assert schedule.makespan_s == pytest.approx(optimum, rel=AGREEMENT)
        assert schedule.bound_s == pytest.approx(optimum, rel=AGREEMENT)
        check_schedule(problem, schedule)


def lost_in_presolve():
    """Operators without an order that HiGHS's presolve fails on."""
    types = [CoreType.TC, CoreType.VC, CoreType.VC, CoreType.TC, CoreType.TC, CoreType.VC]
    single, over_all = [1.0, 2.0, 2.0, 5.0, 0.0, 1.0], [0.5, 1.0, 1.8, 1.25, 0.0, 0.9]
    return problem_of(types, [], single, over_all, 1, 1)


@settings(max_examples=40, deadline=None)
@given(problems(max_operators=9))
@example(lost_in_presolve())
def test_solvers_agree(problem):
    schedules = [
        solver.solve(problem)
        for solver in SOLVERS.values()
        if solver.is_available() and solver.license_status().ok
    ]
    assert len(schedules) > 1
    for schedule in schedules:
        check_schedule(problem, schedule)
        assert schedule.status is Status.OPTIMAL
        assert schedule.makespan_s == pytest.approx(schedules[0].makespan_s, rel=AGREEMENT)


def test_missing_core_type_is_infeasible(solver):
    schedule = solver.solve(problem_of([CoreType.TC, CoreType.VC], [], [1, 1], [1, 1], 2, 0))
    assert schedule.status is Status.INFEASIBLE
    assert schedule.assignments == ()


def test_unused_core_type_may_be_missing(solver):
    assert solver.solve(
        problem_of([CoreType.VC, CoreType.VC], [], [1, 1], [1, 1], 0, 2)
    ).makespan_s == pytest.approx(1.0)


def test_operators_without_latency_take_no_core(solver):
    types = [CoreType.TC, CoreType.TC, CoreType.VC, CoreType.TC]
    schedule = solver.solve(problem_of(types, [(0, 1), (1, 2)], [2, 0, 3, 5], [2, 0, 3, 5], 1, 1))
    assert schedule.makespan_s == pytest.approx(7.0)
    assert schedule.assignments[1].tc is None


def test_batch(solver):
    problem = layer_problem(2, 2, operators=9)
    single, over_all = (
        np.stack([problem.single_latency_s] * 2),
        np.stack([problem.all_latency_s] * 2),
    )
    batch = solver.solve_batch(
        problem.structure, single, over_all, np.array([2, 4]), np.array([2, 4])
    )
    schedule = SOLVERS["native"].solve(problem)
    assert batch.makespan_s[0] == pytest.approx(schedule.makespan_s, rel=AGREEMENT)
    assert batch.makespan_s[1] <= batch.makespan_s[0]
    assert batch.all_mode.shape == single.shape
    assert (batch.bound_s <= batch.makespan_s).all()


def test_out_of_time_is_said_so(solver):
    problem = layer_problem(2, 1, 0.4)
    schedule = solver.solve(problem, time_limit_s=0.0)
    assert schedule.status in (Status.FEASIBLE, Status.TIMED_OUT)
    if schedule.status is Status.FEASIBLE:
        check_schedule(problem, schedule)
        assert schedule.gap > 0


def test_silent(solver, capfd):
    solver.solve(layer_problem(2, 2, operators=16))
    assert capfd.readouterr().out == ""


def test_unknown_name():
    with pytest.raises(InputError, match="native, gurobi, highs"):
        solver_named("cplex")


@pytest.mark.parametrize("cores", [(1, 1), (2, 2), (8, 2), (4, 64), (128, 128)])
def test_a_layer_fits_the_bundled_licence_and_is_confirmed(cores):
    problem = layer_problem(*cores)
    assert len(problem.structure.core_types) == 9 + 25
    for component in series_components(problem.structure, (1 << 34) - 1):
        operators = list(component.operators)
        latencies = problem.single_latency_s[operators], problem.all_latency_s[operators]
        milp = ComponentModel(component, *latencies, *cores, float(latencies[0].sum())).milp
        assert max(len(milp.lower), len(milp.rows)) <= BUNDLED_LIMIT
    native = SOLVERS["native"].solve(problem)
    confirmed = confirm_with_ilp(problem, native)
    assert (native.status, confirmed.status) == (Status.OPTIMAL, Status.OPTIMAL)
    assert confirmed.makespan_s == pytest.approx(native.makespan_s, rel=AGREEMENT)


def test_confirmation_finds_what_a_bad_schedule_missed():
    problem = problem_of([CoreType.TC] * 3, [], [2.0, 2.0, 4.0], [2.0, 2.0, 4.0], 2, 1)
    best = SOLVERS["native"].solve(problem)
    serial = [
        dataclasses.replace(one, start_s=start, end_s=end, mode=Mode.SINGLE)
        for one, start, end in zip(best.assignments, (0.0, 2.0, 4.0), (2.0, 4.0, 8.0), strict=True)
    ]
    bad = dataclasses.replace(best, assignments=tuple(serial), makespan_s=8.0, bound_s=8.0)
    assert confirm_with_ilp(problem, bad).makespan_s == pytest.approx(4.0, rel=AGREEMENT)
