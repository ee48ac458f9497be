"""The native scheduler: exact against enumeration, physically monotone, honest about what it could
not prove."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.plans.results import Status
from phaze_common.errors import InputError, SolverError
from Solver.schedule import check_schedule
from Solver.schedule.batch import schedule_many
from Solver.schedule.native import NativeSolver
from Solver.schedule.problem import CoreType, Mode, ScheduleStructure
from Solver.schedule.solver import NodeLimit
from Solver.schedule.structure import closure, series_components
from tests.builders.schedule_problems import (
    layer_problem,
    optimum_by_enumeration,
    problem_of,
    problems,
)

native = NativeSolver()
exact = pytest.approx


def makespan(problem):
    schedule = native.solve(problem)
    assert schedule.status is Status.OPTIMAL
    check_schedule(problem, schedule)
    return schedule.makespan_s


def with_(problem, **changes):
    return dataclasses.replace(problem, **changes)


@settings(max_examples=120, deadline=None)
@given(problems(max_operators=5))
def test_equals_enumeration(problem):
    assert makespan(problem) == exact(optimum_by_enumeration(problem), rel=1e-8)


@settings(max_examples=12, deadline=None)
@given(problems(max_operators=6, min_latency=1, faster_over_all=True))
def test_equals_enumeration_of_six(problem):
    assert makespan(problem) == exact(optimum_by_enumeration(problem), rel=1e-8)


@settings(max_examples=40, deadline=None)
@given(problems(max_operators=5))
def test_bounds_enclose_the_optimum(problem):
    cores = np.array([problem.num_tc]), np.array([problem.num_vc])
    bounds = schedule_many(
        problem.structure,
        problem.single_latency_s[None],
        problem.all_latency_s[None],
        *cores,
        node_limit=0,
    )
    optimum = optimum_by_enumeration(problem)
    assert bounds.lower[0] <= optimum * (1 + 1e-9)
    assert bounds.makespan[0] >= optimum * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(problems(max_operators=9), st.randoms())
def test_an_edge_never_shortens(problem, random):
    count = len(problem.structure.core_types)
    edge = tuple(sorted(random.sample(range(count), 2))) if count > 1 else None
    edges = problem.structure.edges + ((edge,) if edge else ())
    constrained = with_(problem, structure=ScheduleStructure(problem.structure.core_types, edges))
    assert makespan(constrained) >= makespan(problem) * (1 - 1e-8)


@settings(max_examples=60, deadline=None)
@given(problems(max_operators=9))
def test_a_core_never_lengthens(problem):
    base = makespan(problem) * (1 + 1e-8)
    assert makespan(with_(problem, num_tc=problem.num_tc + 1)) <= base
    assert makespan(with_(problem, num_vc=problem.num_vc + 1)) <= base


@settings(max_examples=60, deadline=None)
@given(problems(max_operators=8), st.sampled_from([1e-12, 3e-7, 1e9]))
def test_the_unit_of_time_does_not_matter(problem, scale):
    scaled = with_(
        problem,
        single_latency_s=problem.single_latency_s * scale,
        all_latency_s=problem.all_latency_s * scale,
    )
    assert makespan(scaled) == exact(makespan(problem) * scale, rel=1e-8)


@settings(max_examples=50, deadline=None)
@given(problems(max_operators=6), problems(max_operators=6))
def test_in_series_makespans_add(first, second):
    offset = len(first.structure.core_types)
    count = offset + len(second.structure.core_types)
    edges = [*first.structure.edges, *((offset + i, offset + j) for i, j in second.structure.edges)]
    edges += [(i, j) for i in range(offset) for j in range(offset, count)]
    joined = problem_of(
        first.structure.core_types + second.structure.core_types,
        edges,
        [*first.single_latency_s, *second.single_latency_s],
        [*first.all_latency_s, *second.all_latency_s],
        first.num_tc,
        first.num_vc,
    )
    alike = with_(second, num_tc=first.num_tc, num_vc=first.num_vc)
    assert makespan(joined) == exact(makespan(first) + makespan(alike), rel=1e-8)
    assert max(
        len(part.operators) for part in series_components(joined.structure, (1 << count) - 1)
    ) <= max(offset, count - offset)


def test_batch_equals_single_solves():
    problems_ = [
        layer_problem(tc, vc, efficiency)
        for tc in (1, 2, 8)
        for vc in (1, 4)
        for efficiency in (0.3, 0.7, 1.0)
    ]
    batch = native.solve_batch(
        problems_[0].structure,
        np.stack([p.single_latency_s for p in problems_]),
        np.stack([p.all_latency_s for p in problems_]),
        np.array([p.num_tc for p in problems_]),
        np.array([p.num_vc for p in problems_]),
    )
    for row, problem in enumerate(problems_):
        schedule = native.solve(problem)
        assert batch.makespan_s[row] == exact(schedule.makespan_s, rel=1e-8)
        assert batch.bound_s[row] == exact(batch.makespan_s[row], rel=1e-8)
        assert [one.mode is Mode.ALL for one in schedule.assignments] == batch.all_mode[
            row
        ].tolist()


def test_many_rows_in_threads_equal_few():
    base = layer_problem(2, 4, 0.5)
    factors = np.linspace(0.5, 2.0, 700)[:, None] ** np.arange(len(base.single_latency_s)) ** 0.2
    single, over_all = base.single_latency_s * factors, base.all_latency_s * factors
    tc, vc = np.full(700, 2), np.full(700, 4)
    whole = native.solve_batch(base.structure, single, over_all, tc, vc)
    some = slice(300, 310)
    few = native.solve_batch(base.structure, single[some], over_all[some], tc[some], vc[some])
    assert whole.makespan_s[some] == exact(few.makespan_s)


def test_perfect_speed_up_is_serial_and_needs_no_search():
    problem = layer_problem(64, 64, 1.0)
    schedule = native.solve(problem, time_limit_s=0.0)
    assert schedule.status is Status.OPTIMAL
    assert schedule.makespan_s == exact(problem.all_latency_s.sum(), rel=1e-9)


def test_one_tensor_core_hides_vector_work_behind_a_gemm():
    types = [CoreType.TC, CoreType.VC]
    schedule = native.solve(problem_of(types, [], [4.0, 3.0], [4.0, 3.0], 1, 1))
    assert schedule.makespan_s == exact(4.0)
    assert (schedule.tc_utilization, schedule.vc_utilization) == exact((1.0, 0.75))
    assert [(one.tc, one.vc) for one in schedule.assignments] == [(0, None), (None, 0)]


def mixture_of_experts(experts):
    """Router, ``experts`` branches of five operators, combination: far more downsets than could be
    listed."""
    types, edges, single = [CoreType.TC], [], [1.0]
    for expert in range(experts):
        first = len(types)
        types += [CoreType.TC, CoreType.TC, CoreType.VC, CoreType.VC, CoreType.TC]
        single += [
            9.0 + 0.37 * expert,
            9.0 - 0.21 * expert,
            2.0,
            1.0 + 0.11 * expert,
            8.0 + 0.53 * expert,
        ]
        edges += [
            (0, first),
            (0, first + 1),
            (first, first + 2),
            (first + 1, first + 3),
            (first + 2, first + 3),
            (first + 3, first + 4),
        ]
        edges.append((first + 4, 5 * experts + 1))
    return problem_of(
        [*types, CoreType.VC], edges, [*single, 1.0], np.array([*single, 1.0]) / 2, 3, 2
    )


@pytest.mark.parametrize(
    "experts", [8, 16]
)  # beyond 62 parallel operators there is no search at all
def test_too_large_for_a_proof_gives_a_schedule_and_a_gap(experts):
    problem = mixture_of_experts(experts)
    schedule = native.solve(problem, time_limit_s=0.05)
    check_schedule(problem, schedule)
    assert schedule.status is Status.FEASIBLE
    assert 0 < schedule.gap < 0.5


def test_stopped_search_keeps_a_true_bound():
    problem = layer_problem(2, 1, 0.4)
    stopped, full = native.solve(problem, time_limit_s=0.0), native.solve(problem)
    assert stopped.status is Status.FEASIBLE
    assert stopped.bound_s <= full.makespan_s < stopped.makespan_s


def test_malformed_problems_are_refused():
    types = [CoreType.TC, CoreType.VC]
    with pytest.raises(InputError, match="cycle"):
        native.solve(problem_of(types, [(0, 1), (1, 0)], [1, 1], [1, 1], 1, 1))
    with pytest.raises(InputError, match="does not exist"):
        closure(ScheduleStructure(tuple(types), ((0, 2),)))
    with pytest.raises(InputError, match="finite"):
        native.solve(problem_of(types, [], [1, np.inf], [1, 1], 1, 1))
    with pytest.raises(InputError, match="shapes"):
        native.solve(problem_of(types, [], [1, 1, 1], [1, 1, 1], 1, 1))
    with pytest.raises(InputError, match="no core of a type"):
        one = np.ones((1, 2))
        native.solve_batch(
            ScheduleStructure(tuple(types), ()), one, one, np.array([0]), np.array([1])
        )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"start_s": 0.0, "end_s": 3.0}, "starts before"),
        ({"end_s": 99.0}, "not for"),
        ({"tc": 5}, "has TC 5"),
        ({"mode": Mode.ALL, "tc": None}, "overlap"),
    ],
)
def test_check_finds_what_is_wrong(change, complaint):
    types = [CoreType.VC, CoreType.TC, CoreType.TC]
    problem = problem_of(types, [(0, 1)], [1.0, 3.0, 4.0], [2.0, 3.0, 5.0], 2, 1)
    schedule = native.solve(problem)
    check_schedule(problem, schedule)
    wrong = [
        dataclasses.replace(one, **change) if one.operator == 1 else one
        for one in schedule.assignments
    ]
    with pytest.raises(SolverError, match=complaint):
        check_schedule(problem, dataclasses.replace(schedule, assignments=tuple(wrong)))


def test_check_finds_shared_cores_and_false_makespans():
    problem = problem_of([CoreType.TC, CoreType.TC], [], [3.0, 3.0], [3.0, 3.0], 2, 1)
    schedule = native.solve(problem)
    crowded = tuple(dataclasses.replace(one, tc=0) for one in schedule.assignments)
    with pytest.raises(SolverError, match="share TC 0"):
        check_schedule(problem, dataclasses.replace(schedule, assignments=crowded))
    with pytest.raises(SolverError, match="last operator ends"):
        check_schedule(problem, dataclasses.replace(schedule, makespan_s=2.0, bound_s=2.0))
    with pytest.raises(SolverError, match="utilisation"):
        check_schedule(problem, dataclasses.replace(schedule, tc_utilization=0.5))


@settings(max_examples=40, deadline=None)
@given(problems(max_operators=6), st.integers(1, 3), st.booleans())
def test_what_was_solved_before_changes_no_schedule(problem, scale, more_cores):
    """A solver that knows the components of another problem answers as one that knows nothing."""
    informed = NativeSolver()

    def solved(solver, times, cores, node_limit):
        single_s, all_s = problem.single_latency_s[None] * times, problem.all_latency_s[None]
        return solver.solve_batch(
            problem.structure,
            single_s,
            all_s * times,
            *(np.array([each]) for each in cores),
            node_limit,
        )

    cores = problem.num_tc, problem.num_vc
    other = tuple(each + more_cores for each in cores)
    for known in (NodeLimit.FIRST, NodeLimit.THOROUGH):
        solved(informed, 1, cores, known)
        for limit in (NodeLimit.FIRST, NodeLimit.THOROUGH):
            found, alone = (
                solved(each, scale, other, limit) for each in (informed, NativeSolver())
            )
            assert all(map(np.array_equal, vars(found).values(), vars(alone).values()))
