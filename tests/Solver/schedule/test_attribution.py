"""The makespan of a layer pass by cause, along a critical path of its schedule."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.latency_table import LatencyTable, populate_estimates
from Estimator.pass_parts import OperatorParts, PassParts, operator_parts
from Estimator.plans.results import Status
from GraphExtractor.graph import CollectiveGroup, GraphKey, ModelGraph, OperatorGraph
from phaze_common.errors import PhazeError, SolverError
from Solver.designs.network_times import PassNetwork
from Solver.designs.schedule_times import schedule_problem
from Solver.schedule import SOLVERS, check_schedule, solver_named
from Solver.schedule.attribution import attributed
from Solver.schedule.problem import Assignment, CoreType, Mode, Schedule, ScheduleProblem
from tests.builders.operators_by_hand import transformer_layer
from tests.builders.schedule_problems import layer_problem, problem_of, problems

TC, VC, FUSED = CoreType.TC, CoreType.VC, CoreType.TC_AND_VC
NAMES = [field.name for field in fields(PassParts)]


def parts_of(**seconds: list[float]) -> OperatorParts:
    count = len(next(iter(seconds.values())))
    return OperatorParts(**{name: np.array(seconds.get(name, [0.0] * count)) for name in NAMES})


def latencies_s(problem: ScheduleProblem, schedule: Schedule) -> np.ndarray:
    modes = [
        one.mode is Mode.ALL for one in sorted(schedule.assignments, key=lambda one: one.operator)
    ]
    return np.where(modes, problem.all_latency_s, problem.single_latency_s)


def by_hand(problem: ScheduleProblem, *starts_s: float) -> Schedule:
    """A schedule on single cores with these starts, whose cores and utilisations do not matter."""
    ends_s = [
        start_s + latency_s
        for start_s, latency_s in zip(starts_s, problem.single_latency_s, strict=True)
    ]
    placed = tuple(
        Assignment(operator, Mode.SINGLE, None, None, *times)
        for operator, times in enumerate(zip(starts_s, ends_s, strict=True))
    )
    return Schedule(Status.FEASIBLE, "by hand", max(ends_s), 0.0, placed, 0.0, 0.0)


def single(types, edges, seconds, num_tc=1, num_vc=1) -> ScheduleProblem:
    return problem_of(types, edges, seconds, seconds, num_tc, num_vc)


def chain_sums(schedule: Schedule, seconds: np.ndarray) -> list[float]:
    """Sums of ``seconds`` over all chains of operators that fill the time from the start to the
    makespan without a gap."""
    slack_s = 1e-9 * schedule.makespan_s
    placed = [one for one in schedule.assignments if one.end_s - one.start_s > 0]

    def sums(until_s: float) -> list[float]:
        if until_s <= slack_s:
            return [0.0]
        ending = [one for one in placed if abs(one.end_s - until_s) <= slack_s]
        return [seconds[one.operator] + rest for one in ending for rest in sums(one.start_s)]

    return sums(schedule.makespan_s)


@st.composite
def solved(draw, solvers=tuple(SOLVERS)):
    problem = draw(problems(max_operators=8))
    solver = solver_named(draw(st.sampled_from(solvers)))
    assume(solver.is_available() and solver.license_status().ok)
    schedule = solver.solve(problem)
    shares = np.array(
        [
            draw(st.lists(st.integers(0, 3), min_size=len(NAMES), max_size=len(NAMES)))
            for _ in problem.structure.core_types
        ],
        float,
    )
    shares[:, 0] += shares.sum(axis=1) == 0
    columns = (
        latencies_s(problem, schedule)[:, None] * shares / shares.sum(axis=1, keepdims=True)
    ).T
    return problem, schedule, OperatorParts(*columns)


@settings(max_examples=150)
@given(solved())
def test_parts_add_up_to_the_makespan(case):
    problem, schedule, parts = case
    found = attributed(problem, schedule, parts)
    assert min(vars(found).values()) >= 0.0
    assert found.total_s == pytest.approx(schedule.makespan_s, rel=1e-12, abs=1e-300)
    assert (
        attributed(problem, replace(schedule, assignments=schedule.assignments[::-1]), parts)
        == found
    )


@settings(max_examples=150)
@given(solved(solvers=("native",)), st.sampled_from(NAMES))
def test_parts_are_those_of_operators_that_follow_each_other_without_a_gap(case, name):
    problem, schedule, parts = case
    found = getattr(attributed(problem, schedule, parts), name)
    assert any(
        found == pytest.approx(each, rel=1e-9, abs=1e-9)
        for each in chain_sums(schedule, getattr(parts, name))
    )


@settings(max_examples=50)
@given(solved(), st.floats(1e-9, 1e3))
def test_the_unit_of_time_does_not_matter(case, unit):
    problem, schedule, parts = case
    scaled = replace(
        problem,
        single_latency_s=problem.single_latency_s * unit,
        all_latency_s=problem.all_latency_s * unit,
    )
    times = [
        replace(one, start_s=one.start_s * unit, end_s=one.end_s * unit)
        for one in schedule.assignments
    ]
    other = replace(schedule, makespan_s=schedule.makespan_s * unit, assignments=tuple(times))
    found = attributed(
        scaled, other, OperatorParts(*(array * unit for array in vars(parts).values()))
    )
    for name, seconds in vars(attributed(problem, schedule, parts)).items():
        assert getattr(found, name) == pytest.approx(seconds * unit, rel=1e-9, abs=1e-12 * unit)


def test_operators_one_after_another_are_added_up():
    problem = layer_problem(1, 1, operators=9)
    starts_s = np.concatenate([[0.0], np.cumsum(problem.single_latency_s)[:-1]])
    random = (
        np.random.default_rng(1).dirichlet(np.ones(len(NAMES)), size=9)
        * problem.single_latency_s[:, None]
    )
    parts = OperatorParts(*random.T)
    found = attributed(problem, by_hand(problem, *starts_s), parts)
    for name in NAMES:
        assert getattr(found, name) == pytest.approx(getattr(parts, name).sum(), rel=1e-12)


def test_a_collective_beside_longer_products_costs_nothing():
    types, edges = [TC, TC, VC, TC], [(0, 3), (1, 3), (0, 2)]
    problem = single(types, edges, [4.0, 6.0, 5.0, 2.0])
    schedule = solver_named("native").solve(problem)
    check_schedule(problem, schedule)
    assert schedule.makespan_s == 12.0
    found = attributed(
        problem,
        schedule,
        parts_of(arithmetic_s=[4.0, 6.0, 0.0, 2.0], tensor_s=[0.0, 0.0, 5.0, 0.0]),
    )
    assert found == PassParts(12.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_collective_that_products_wait_for_is_told_by_its_group():
    problem = single([TC, VC, VC, TC], [(0, 1), (1, 2), (2, 3)], [4.0, 3.0, 2.0, 1.0])
    parts = parts_of(
        arithmetic_s=[3.0, 0, 0, 1.0],
        memory_s=[0.75, 0, 0, 0],
        launch_s=[0.25, 0, 0, 0],
        context_s=[0, 3.0, 0, 0],
        expert_s=[0, 0, 2.0, 0],
    )
    assert attributed(problem, solver_named("native").solve(problem), parts) == PassParts(
        4.0, 0.75, 0.25, 0.0, 0.0, 3.0, 2.0
    )


def test_of_equally_long_paths_the_one_with_the_least_communication_is_taken():
    """Both collectives could vanish without the pass getting shorter: 0 and 1 run beside 2 and 3,
    ended at the same times."""
    problem = single([VC, VC, TC, TC], [(0, 1), (2, 3)], [2.0, 3.0, 2.0, 3.0])
    schedule = by_hand(problem, 0.0, 2.0, 0.0, 2.0)
    found = attributed(
        problem, schedule, parts_of(tensor_s=[2.0, 3.0, 0, 0], memory_s=[0, 0, 2.0, 3.0])
    )
    assert found == PassParts(0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    found = attributed(
        problem, schedule, parts_of(tensor_s=[2.0, 0, 0, 1.0], memory_s=[0, 3.0, 2.0, 2.0])
    )
    assert found == PassParts(0.0, 4.0, 0.0, 1.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("edges", "num_vc", "waited_s"), [([(0, 2)], 3, 2.0), ([(0, 2)], 2, 0.0), ([], 2, 0.0)]
)
def test_an_operator_waits_for_cores_only_where_all_were_taken(edges, num_vc, waited_s):
    """Operators 0 and 1 end together; 2 waits for 0, its predecessor, and for 1 where no third core
    was free."""
    problem = single([VC, VC, VC], edges, [2.0, 2.0, 3.0], num_vc=num_vc)
    found = attributed(
        problem,
        by_hand(problem, 0.0, 0.0, 2.0),
        parts_of(tensor_s=[2.0, 0, 0], memory_s=[0, 2.0, 3.0]),
    )
    assert (found.tensor_s, found.memory_s) == (waited_s, 5.0 - waited_s)


def test_cores_of_the_other_type_are_not_waited_for():
    problem = single([TC, TC, VC], [], [2.0, 3.0, 2.0])
    found = attributed(
        problem,
        by_hand(problem, 0.0, 2.0, 0.0),
        parts_of(tensor_s=[2.0, 0, 0], memory_s=[0, 3.0, 2.0]),
    )
    assert (found.tensor_s, found.memory_s) == (2.0, 3.0)


def test_an_operator_on_all_cores_waits_for_everything_and_everything_for_it():
    problem = problem_of([VC, TC, VC], [], [2.0, 9.0, 4.0], [2.0, 3.0, 4.0], 4, 4)
    modes = Mode.SINGLE, Mode.ALL, Mode.SINGLE
    placed = tuple(
        Assignment(operator, mode, None, None, *times)
        for operator, (mode, times) in enumerate(
            zip(modes, ((0.0, 2.0), (2.0, 5.0), (5.0, 9.0)), strict=True)
        )
    )
    schedule = Schedule(Status.OPTIMAL, "by hand", 9.0, 9.0, placed, 0.0, 0.0)
    found = attributed(
        problem,
        schedule,
        parts_of(tensor_s=[2.0, 0, 0], arithmetic_s=[0, 3.0, 0], memory_s=[0, 0, 4.0]),
    )
    assert found == PassParts(3.0, 4.0, 0.0, 2.0, 0.0, 0.0, 0.0)


def test_a_gap_counts_with_the_operator_waited_for():
    problem = single([TC, VC, TC], [(0, 2)], [2.0, 1.0, 3.0])
    parts = parts_of(arithmetic_s=[1.0, 0, 3.0], launch_s=[1.0, 0, 0], tensor_s=[0, 1.0, 0])
    found = attributed(problem, by_hand(problem, 0.0, 2.5, 3.0), parts)
    assert found == PassParts(1.5 + 3.0, 0.0, 1.5, 0.0, 0.0, 0.0, 0.0)


def test_a_gap_counts_with_the_last_to_end_of_those_waited_for():
    problem = single([TC, VC, FUSED], [], [2.0, 1.0, 3.0])
    parts = parts_of(tensor_s=[2.0, 0, 0], memory_s=[0, 1.0, 3.0])
    assert attributed(problem, by_hand(problem, 0.0, 0.0, 4.0), parts) == PassParts(
        0.0, 3.0, 0.0, 4.0, 0.0, 0.0, 0.0
    )


def test_a_schedule_that_starts_late_counts_with_what_starts():
    problem = single([TC], [], [2.0])
    assert attributed(problem, by_hand(problem, 6.0), parts_of(memory_s=[2.0])) == PassParts(
        0.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0
    )


def test_operators_without_time_pass_the_waiting_on():
    problem = single([VC, TC, TC], [(0, 1), (1, 2)], [2.0, 0.0, 3.0])
    schedule = solver_named("native").solve(problem)
    found = attributed(problem, schedule, parts_of(tensor_s=[2.0, 0, 0], arithmetic_s=[0, 0, 3.0]))
    assert found == PassParts(3.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0)
    nothing = single([VC], [], [0.0])
    assert (
        attributed(nothing, solver_named("native").solve(nothing), parts_of(tensor_s=[0.0])).total_s
        == 0.0
    )


def test_parts_of_other_prices_are_refused():
    problem = single([TC], [], [2.0])
    with pytest.raises(
        SolverError, match=r"operator 0 takes 2\.0 s in its schedule, its parts are 1\.0 s"
    ):
        attributed(problem, by_hand(problem, 0.0), parts_of(memory_s=[1.0]))


def test_an_infeasible_problem_has_nothing_to_attribute():
    problem = single([TC], [], [2.0], num_tc=0)
    with pytest.raises(SolverError, match="scheduled 0 of 1 operators"):
        attributed(problem, solver_named("native").solve(problem), parts_of(memory_s=[2.0]))


class TestChip:
    """Layers of a transformer on designed chips, with collectives of every group."""

    CHIPS = AcceleratorSet.of(
        [
            Accelerator(2, 2, 64, 64, 64, 8 << 20, 0.0),
            Accelerator(32, 64, 128, 128, 128, 32 << 20, 0.0),
        ]
    )

    def layer(self, group: CollectiveGroup) -> OperatorGraph:
        forward = transformer_layer(1, 512, 1024, 16, tp=4).forward
        moved = [
            each
            if each.collective is None
            else replace(each, collective=replace(each.collective, group=group))
            for each in forward.operators
        ]
        return OperatorGraph(tuple(moved), forward.edges)

    def table(self, graph: OperatorGraph) -> LatencyTable:
        layer = replace(transformer_layer(1, 512, 1024, 16, tp=4), forward=graph)
        model = ModelGraph(GraphKey("by_hand", 1, 512, 4), (layer,), (0,), (), 1)
        return populate_estimates([model], self.CHIPS, load_design_space("phaze_icml24").platform)

    @pytest.mark.parametrize("group", CollectiveGroup)
    @pytest.mark.parametrize("row", [0, 1])
    def test_parts_of_a_layer(self, group: CollectiveGroup, row: int) -> None:
        graph, collective_s = self.layer(group), np.array([3e-4])
        table = self.table(graph)
        problem = schedule_problem(graph, table, row, PassNetwork(lambda _: 3e-4))
        schedule = solver_named("native").solve(problem)
        alone = np.array([one.mode is Mode.ALL for one in schedule.assignments])
        parts = operator_parts(graph, table.price(graph), row, alone, collective_s)
        assert parts.total_s == pytest.approx(latencies_s(problem, schedule), rel=1e-12)
        found = attributed(problem, schedule, parts)
        assert found.total_s == pytest.approx(schedule.makespan_s, rel=1e-12)
        part = "tensor" if group is CollectiveGroup.TENSOR2 else group.value
        assert getattr(found, f"{part}_s") == found.communication_s == pytest.approx(3e-4)
        assert min(found.arithmetic_s, found.memory_s, found.launch_s) > 0

    def test_every_collective_needs_its_seconds(self) -> None:
        graph = self.layer(CollectiveGroup.TENSOR)
        priced = self.table(graph).price(graph)
        with pytest.raises(PhazeError, match="given seconds of shape"):
            operator_parts(graph, priced, 0, np.ones(len(graph.operators), bool), np.zeros(2))
