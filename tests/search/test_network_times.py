"""What streams beside products on designed chips: prices, and schedules that never use the links twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operators_by_hand import chain, collective_operator, gemm_operator, model_graph, vector_operator
from schedule_problems import optimum_by_enumeration

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.design_space import load_design_space
from Estimator.chips.energy import OperatorEnergy
from Estimator.chips.latency_table import LatencyTable, OperatorTimes, populate_estimates
from Estimator.hardware_files import load_cluster
from GraphExtractor.graph import Collective, CollectiveGroup, CollectiveKind, Gemm, Operator, OperatorGraph, Phase, Recompute
from Plans.groups import DeviceGroups, GroupLevel, LayerGroups
from Plans.streams import exposed_s
from Solver.hardware import DesignedChips
from Solver.schedule import check_schedule, solver_named
from Solver.schedule.problem import Mode, ScheduleProblem
from Solver.search.network_times import PassNetwork, schedule_structure, sharing_links
from Solver.search.schedule_times import schedule_problem
from Studies.problem import hardware_of
from Studies.resolve import resolve

CHIPS = AcceleratorSet.of([Accelerator(2, 2, 64, 64, 64, 8 << 20, 0.0), Accelerator(32, 64, 128, 128, 128, 32 << 20, 0.0)])
PANEL = Collective(CollectiveKind.BROADCAST, 4 << 20, 2, CollectiveGroup.TENSOR)
REDUCED = replace(PANEL, kind=CollectiveKind.REDUCE, group=CollectiveGroup.TENSOR2)
AROUND = Collective(CollectiveKind.PASS, 4 << 20, 4, CollectiveGroup.CONTEXT)


def network_s(collective: Collective) -> float:
    return 2e-5 + 1e-10 * collective.payload_bytes


def product(id: int, *streamed: Collective, phase: Phase = Phase.FORWARD) -> Operator:
    return replace(gemm_operator(id, Gemm(1, 512, 1024, 1024), phase=phase), streamed=streamed)


def table_of(graph: OperatorGraph) -> LatencyTable:
    model = model_graph()
    (layer,) = model.layers
    model = replace(model, layers=(replace(layer, forward=graph, backward=graph, backward_selective=graph),))
    return populate_estimates([model], CHIPS, load_design_space("phaze_icml24").platform)


@dataclass(frozen=True)
class Given:
    """A table of nothing but these times."""

    times_: OperatorTimes

    def times(self, *_: object) -> OperatorTimes:
        return self.times_


@pytest.mark.parametrize("panels", [1, 4, 16])
def test_an_operator_takes_its_time_and_what_streaming_adds_on_one_core_and_on_all(panels: int) -> None:
    graph = chain(
        [product(0, PANEL, REDUCED), vector_operator(1, "add", 512, 512), product(2, AROUND), collective_operator(3, 64, 2)]
    )
    table, network = table_of(graph), PassNetwork(network_s, panels)
    alone = table.times(graph, slice(None), network.collectives_s(graph))
    found = network.operator_times(graph, table, slice(None))
    for mode in ("single_s", "all_s"):
        for place, operator in enumerate(graph.operators):
            for row in range(len(CHIPS)):
                own_s = float(getattr(alone, mode)[row, place])
                added_s = exposed_s(operator, own_s, network_s, panels) if operator.streamed else 0.0
                assert getattr(found, mode)[row, place] == pytest.approx(own_s + added_s, rel=1e-12)
    assert (found.all_s[:, [0, 2]] > alone.all_s[:, [0, 2]]).all() and not sharing_links(graph)


def test_one_after_another_is_what_a_device_does() -> None:
    graph = chain([product(0, PANEL), product(1, PANEL, REDUCED), product(2, AROUND)])
    network, table = PassNetwork(network_s), table_of(graph)
    bare = table.times(graph, np.array([0]), np.zeros(0)).all_s[0]
    device_s = sum(s + exposed_s(each, s, network_s) for s, each in zip(bare.tolist(), graph.operators, strict=True))
    found = solver_named("native").solve(schedule_problem(graph, table, 0, network))
    assert found.makespan_s == pytest.approx(device_s, rel=1e-9)


@st.composite
def passes(draw: st.DrawFn) -> tuple[OperatorGraph, OperatorTimes, int, int]:
    """A few operators of which some communicate, some stream; their own seconds on one core and on all."""
    count = draw(st.integers(2, 4))
    made = []
    for place in range(count):
        kind = draw(st.sampled_from(["product", "panels", "ring", "vector", "collective"]))
        if kind == "vector":
            made.append(vector_operator(place, "add", 8))
        elif kind == "collective":
            made.append(collective_operator(place, 1000, 2))
        else:
            made.append(product(place, *{"product": (), "panels": (PANEL, REDUCED), "ring": (AROUND,)}[kind]))
    pairs = list(combinations(range(count), 2))
    graph = OperatorGraph(tuple(made), tuple(draw(st.lists(st.sampled_from(pairs), unique=True))))
    seconds = st.lists(st.sampled_from([1e-4, 2e-4, 3e-4, 8e-4]), min_size=count, max_size=count)
    single_s = np.array([draw(seconds)])
    all_s = single_s * draw(st.lists(st.sampled_from([0.25, 0.5, 0.9, 1.0]), min_size=count, max_size=count))
    joules = np.ones_like(single_s)
    return graph, OperatorTimes(single_s, all_s, joules, joules), draw(st.integers(1, 3)), draw(st.integers(1, 3))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(case=passes())
def test_no_schedule_is_faster_than_links_that_are_used_once_allow(case: tuple[OperatorGraph, OperatorTimes, int, int]) -> None:
    graph, own, num_tc, num_vc = case
    network = PassNetwork(network_s)
    times = network.operator_times(graph, Given(own), slice(None))  # type: ignore[arg-type]
    structure = schedule_structure(graph)
    problem = ScheduleProblem(structure, times.single_s[0], times.all_s[0], num_tc, num_vc)
    found = solver_named("native").solve(problem)
    check_schedule(problem, found)
    sends = [place for place, each in enumerate(graph.operators) if each.collective is not None or each.streamed]
    streams = [place for place in sends if graph.operators[place].streamed]
    apart = frozenset((a, b) for a in streams for b in sends if a != b)
    placed = {each.operator: each for each in found.assignments}
    for a, b in apart:
        overlap_s = min(placed[a].end_s, placed[b].end_s) - max(placed[a].start_s, placed[b].start_s)
        assert overlap_s <= 1e-9 * found.makespan_s
    for place, each in placed.items():  # everything takes what it takes by itself and what it waits for
        mode_s = (own.all_s if each.mode is Mode.ALL else own.single_s)[0]
        expected_s = mode_s[place] + network.exposed_s(graph, mode_s)[place]
        assert each.end_s - each.start_s == pytest.approx(expected_s, rel=1e-9)
    true = [each[0] + network.exposed_s(graph, each[0]) for each in (own.single_s, own.all_s)]
    least_s = optimum_by_enumeration(ScheduleProblem(structure, *true, num_tc, num_vc), apart)
    assert least_s <= found.makespan_s * (1 + 1e-8)
    assert found.makespan_s <= np.minimum(*true).sum() * (1 + 1e-9)
    if not sharing_links(graph):
        assert found.makespan_s == pytest.approx(least_s, rel=1e-8)


def test_operators_that_stream_have_the_chip_to_themselves_only_where_others_may_communicate() -> None:
    operators = (product(0, PANEL), product(1, PANEL), product(2, AROUND), product(3), vector_operator(4, "add", 8))
    assert sharing_links(OperatorGraph(operators, ((0, 2), (1, 2), (2, 4)))) == [0, 1]
    assert sharing_links(OperatorGraph(operators, ((0, 1), (1, 2), (0, 4)))) == []
    beside = (*operators[:1], collective_operator(1, 100, 2))
    assert sharing_links(OperatorGraph(beside, ())) == [0]


@pytest.mark.parametrize("streamed", [(PANEL, REDUCED), (AROUND,), (AROUND, AROUND)])
def test_what_is_streamed_costs_the_joules_of_what_it_sends(streamed: tuple[Collective, ...]) -> None:
    phase = Phase.BACKWARD if len(streamed) == 2 and streamed[1] is AROUND else Phase.FORWARD
    graph = chain([product(0, *streamed, phase=phase), product(1, phase=phase)])
    table = table_of(graph)
    times = table.times(graph, slice(None), np.zeros(0))
    technology = table.platform.technology
    pj_per_byte = technology.network_energy.value + 2 * technology.hbm_energy.value
    sent = sum(each.payload_bytes * (each.group_size - 1) / each.group_size for each in streamed)
    sent += AROUND.payload_bytes / 4 if phase is Phase.BACKWARD else 0.0  # gradients get home
    for joules in (times.single_j, times.all_j, table.price(graph).alone.joules):
        assert joules is not None
        assert joules[:, 0] - joules[:, 1] == pytest.approx(sent * pj_per_byte * 1e-12, rel=1e-9)
    parts = OperatorEnergy(CHIPS.accelerator(0), table.platform).traffic(graph.operators[0], all_cores=True)
    assert parts.energy.total_j == pytest.approx(float(times.all_j[0, 0]), rel=1e-9)
    assert parts.energy.network_j == pytest.approx(sent * technology.network_energy.value * 1e-12)


def test_a_graph_that_only_streams_is_priced_again_in_another_cluster() -> None:
    graph = chain([product(0, AROUND), product(1)])
    model = model_graph()
    (layer,) = model.layers
    key = replace(model.key, tp=1, cp=4)
    model = replace(model, key=key, layers=(replace(layer, forward=graph, backward=graph, backward_selective=graph),))
    chips = hardware_of(resolve({}, {"model": "bertbase"}))
    assert isinstance(chips, DesignedChips)
    chips = chips.only([CHIPS.accelerator(0)])
    groups = LayerGroups(context=DeviceGroups((GroupLevel(4, 1),), (0,)))
    slow = load_cluster("phaze_icml24")
    fast = replace(slow, tiers=tuple(replace(tier, bandwidth_bytes_per_s=1e12, latency_s=0.0) for tier in slow.tiers))
    found = []
    for each in (chips, chips.in_cluster(fast)):
        found.append(each.price(model, (Recompute.NONE,), groups, None).costs[Recompute.NONE].forward.arithmetic_s[0, 0])
    assert found[1] < found[0]
    again = chips.in_cluster(fast).price(model, (Recompute.NONE,), groups, None)
    assert again.costs[Recompute.NONE].forward.arithmetic_s[0, 0] == found[1]
