"""What streams beside products on designed chips: prices, and schedules that never use the links
twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.energy import OperatorEnergy
from Estimator.chips.latency_table import LatencyTable, OperatorTimes, populate_estimates
from Estimator.cost_model import PieceTimes
from Estimator.hardware_files import load_cluster
from Estimator.plans.groups import DeviceGroups, GroupLevel, LayerGroups
from Estimator.plans.streams import exposed_s
from GraphExtractor.graph import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Gemm,
    Operand,
    OperandRole,
    Operator,
    OperatorGraph,
    Phase,
    Recompute,
    VectorWork,
)
from phaze.settings.problem import hardware_of
from phaze.settings.resolve import resolve
from Solver.designs.network_times import PassNetwork, schedule_structure, sharing_links
from Solver.designs.schedule_times import schedule_problem
from Solver.hardware import DesignedChips
from Solver.schedule import check_schedule, solver_named
from Solver.schedule.problem import Mode, ScheduleProblem
from tests.builders.operators_by_hand import (
    chain,
    collective_operator,
    gemm_operator,
    model_graph,
    ring_operator,
    vector_operator,
)
from tests.builders.schedule_problems import optimum_by_enumeration

CHIPS = AcceleratorSet.of(
    [Accelerator(2, 2, 64, 64, 64, 8 << 20, 0.0), Accelerator(32, 64, 128, 128, 128, 32 << 20, 0.0)]
)
PANEL = Collective(CollectiveKind.BROADCAST, 4 << 20, 2, CollectiveGroup.TENSOR)
REDUCED = replace(PANEL, kind=CollectiveKind.REDUCE, group=CollectiveGroup.TENSOR2)
AROUND = Collective(CollectiveKind.PASS, 4 << 20, 4, CollectiveGroup.CONTEXT)


def network_s(collective: Collective) -> float:
    return 2e-5 + 1e-10 * collective.payload_bytes


def product(id: int, *streamed: Collective, phase: Phase = Phase.FORWARD) -> Operator:
    return replace(gemm_operator(id, Gemm(1, 512, 1024, 1024), phase=phase), streamed=streamed)


def around(id: int, *, backward: bool = False) -> Operator:
    return ring_operator(id, ring=4, rows=128, backward=backward)


def table_of(graph: OperatorGraph) -> LatencyTable:
    model = model_graph()
    (layer,) = model.layers
    model = replace(
        model, layers=(replace(layer, forward=graph, backward=graph, backward_selective=graph),)
    )
    return populate_estimates([model], CHIPS, load_design_space("phaze_icml24").platform)


@dataclass(frozen=True)
class Given:
    """A table of nothing but these times, every piece of which takes an n-th."""

    times_: OperatorTimes

    def times(self, *_: object) -> OperatorTimes:
        return self.times_

    def piece_times(self, graph: OperatorGraph, *_: object) -> tuple[PieceTimes[np.ndarray], ...]:
        rings = np.array([each.ring for each in graph.operators])
        return tuple(
            PieceTimes(each / rings, each / rings)
            for each in (self.times_.single_s, self.times_.all_s)
        )


@pytest.mark.parametrize("panels", [1, 4, 16])
def test_an_operator_takes_its_time_and_what_streaming_adds_on_one_core_and_on_all(
    panels: int,
) -> None:
    graph = chain(
        [
            product(0, PANEL, REDUCED),
            vector_operator(1, "add", 512, 512),
            around(2),
            collective_operator(3, 64, 2),
        ]
    )
    table, network = table_of(graph), PassNetwork(network_s, panels)
    alone = table.times(graph, slice(None), network.collectives_s(graph), panels)
    pieces = dict(
        zip(("single_s", "all_s"), table.piece_times(graph, slice(None), panels), strict=True)
    )
    found = network.operator_times(graph, table, slice(None))
    for mode in ("single_s", "all_s"):
        for place, operator in enumerate(graph.operators):
            for row in range(len(CHIPS)):
                own_s = float(getattr(alone, mode)[row, place])
                each = PieceTimes(
                    float(pieces[mode].first_s[row, place]), float(pieces[mode].other_s[row, place])
                )
                if place == 0:  # panels are all of a product without a tail
                    assert each.first_s == each.other_s == pytest.approx(own_s / panels)
                if place == 2:  # and pieces with their merging all of attention
                    assert 4 * each.first_s + 3 * (each.other_s - each.first_s) == pytest.approx(
                        own_s
                    )
                added_s = exposed_s(operator, each, network_s, panels) if operator.streamed else 0.0
                assert getattr(found, mode)[row, place] == pytest.approx(own_s + added_s, rel=1e-12)
    assert (found.all_s[:, [0, 2]] > alone.all_s[:, [0, 2]]).all() and not sharing_links(graph)


def test_one_after_another_is_what_a_device_does() -> None:
    graph = chain([product(0, PANEL), product(1, PANEL, REDUCED), around(2)])
    network, table = PassNetwork(network_s), table_of(graph)
    bare = table.times(graph, np.array([0]), np.zeros(0)).all_s[0]
    _, pieces = table.piece_times(graph, np.array([0]), 1)
    times = (
        PieceTimes(*pair)
        for pair in zip(pieces.first_s[0].tolist(), pieces.other_s[0].tolist(), strict=True)
    )
    waiting_s = [
        exposed_s(each, of, network_s) for each, of in zip(graph.operators, times, strict=True)
    ]
    device_s = bare.sum() + sum(waiting_s)
    found = solver_named("native").solve(schedule_problem(graph, table, 0, network))
    assert found.makespan_s == pytest.approx(device_s, rel=1e-9)


@st.composite
def passes(draw: st.DrawFn) -> tuple[OperatorGraph, OperatorTimes, int, int]:
    """A few operators of which some communicate, some stream; their own seconds on one core and on
    all."""
    count = draw(st.integers(2, 4))
    made = []
    for place in range(count):
        kind = draw(st.sampled_from(["product", "panels", "ring", "vector", "collective"]))
        if kind == "vector":
            made.append(vector_operator(place, "add", 8))
        elif kind == "collective":
            made.append(collective_operator(place, 1000, 2))
        else:
            made.append(
                product(
                    place, *{"product": (), "panels": (PANEL, REDUCED), "ring": (AROUND,)}[kind]
                )
            )
    pairs = list(combinations(range(count), 2))
    graph = OperatorGraph(tuple(made), tuple(draw(st.lists(st.sampled_from(pairs), unique=True))))
    seconds = st.lists(st.sampled_from([1e-4, 2e-4, 3e-4, 8e-4]), min_size=count, max_size=count)
    single_s = np.array([draw(seconds)])
    all_s = single_s * draw(
        st.lists(st.sampled_from([0.25, 0.5, 0.9, 1.0]), min_size=count, max_size=count)
    )
    joules = np.ones_like(single_s)
    return (
        graph,
        OperatorTimes(single_s, all_s, joules, joules),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(case=passes())
def test_no_schedule_is_faster_than_links_that_are_used_once_allow(
    case: tuple[OperatorGraph, OperatorTimes, int, int],
) -> None:
    graph, own, num_tc, num_vc = case
    network = PassNetwork(network_s)
    table = Given(own)
    times = network.operator_times(graph, table, slice(None))  # type: ignore[arg-type]
    waits = [network.exposed_s(graph, each)[0] for each in table.piece_times(graph)]
    structure = schedule_structure(graph)
    problem = ScheduleProblem(structure, times.single_s[0], times.all_s[0], num_tc, num_vc)
    found = solver_named("native").solve(problem)
    check_schedule(problem, found)
    sends = [
        place
        for place, each in enumerate(graph.operators)
        if each.collective is not None or each.streamed
    ]
    streams = [place for place in sends if graph.operators[place].streamed]
    apart = frozenset((a, b) for a in streams for b in sends if a != b)
    placed = {each.operator: each for each in found.assignments}
    for a, b in apart:
        overlap_s = min(placed[a].end_s, placed[b].end_s) - max(
            placed[a].start_s, placed[b].start_s
        )
        assert overlap_s <= 1e-9 * found.makespan_s
    for (
        place,
        each,
    ) in placed.items():  # everything takes what it takes by itself and what it waits for
        everywhere = each.mode is Mode.ALL
        expected_s = (own.all_s if everywhere else own.single_s)[0, place] + waits[everywhere][
            place
        ]
        assert each.end_s - each.start_s == pytest.approx(expected_s, rel=1e-9)
    true = [
        each[0] + waiting_s
        for each, waiting_s in zip((own.single_s, own.all_s), waits, strict=True)
    ]
    least_s = optimum_by_enumeration(ScheduleProblem(structure, *true, num_tc, num_vc), apart)
    assert least_s <= found.makespan_s * (1 + 1e-8)
    assert found.makespan_s <= np.minimum(*true).sum() * (1 + 1e-9)
    if not sharing_links(graph):
        assert found.makespan_s == pytest.approx(least_s, rel=1e-8)


def test_operators_that_stream_have_the_chip_to_themselves_only_where_others_may_communicate() -> (
    None
):
    operators = (
        product(0, PANEL),
        product(1, PANEL),
        product(2, AROUND),
        product(3),
        vector_operator(4, "add", 8),
    )
    assert sharing_links(OperatorGraph(operators, ((0, 2), (1, 2), (2, 4)))) == [0, 1]
    assert sharing_links(OperatorGraph(operators, ((0, 1), (1, 2), (0, 4)))) == []
    beside = (*operators[:1], collective_operator(1, 100, 2))
    assert sharing_links(OperatorGraph(beside, ())) == [0]


@pytest.mark.parametrize(
    "operator", [product(0, PANEL, REDUCED), around(0), around(0, backward=True)]
)
def test_what_is_streamed_costs_the_joules_of_what_it_sends(operator: Operator) -> None:
    graph = OperatorGraph(
        (operator, *((replace(operator, id=1, streamed=()),) if operator.ring == 1 else ())), ()
    )
    table = table_of(graph)
    times = table.times(graph, slice(None), np.zeros(0))
    technology = table.platform.technology
    pj_per_byte = technology.network_energy.value + 2 * technology.hbm_energy.value
    sent = sum(
        each.payload_bytes * (each.group_size - 1) / each.group_size for each in operator.streamed
    )
    if operator.phase is Phase.BACKWARD:  # gradients get home
        sent += operator.streamed[1].payload_bytes / 4
    alone_j = table.price(graph).alone.joules
    assert alone_j is not None and (alone_j == times.all_j).all()
    if operator.ring == 1:
        for joules in (times.single_j, times.all_j):
            assert joules[:, 0] - joules[:, 1] == pytest.approx(
                sent * pj_per_byte * 1e-12, rel=1e-9
            )
    for row in range(len(CHIPS)):
        for joules, all_cores in ((times.single_j, False), (times.all_j, True)):
            parts = OperatorEnergy(CHIPS.accelerator(row), table.platform).traffic(
                operator, all_cores=all_cores
            )
            assert parts.energy.total_j == pytest.approx(float(joules[row, 0]), rel=1e-9)
            assert parts.energy.network_j == pytest.approx(
                sent * technology.network_energy.value * 1e-12
            )


@pytest.mark.parametrize("panels", [1, 2, 4, 16])
@pytest.mark.parametrize("function", ["add", "tanh"])
def test_a_tail_runs_beside_the_last_panel_alone_and_hides_no_other(
    panels: int, function: str
) -> None:
    """Where links decide, the last panel and the tail, whose memory and vector cores work
    meanwhile, are left when it came."""
    bare, elements = product(0, PANEL), 512 * 1024
    tailed = replace(bare, id=1, vector=(VectorWork(function, elements),), writes=bare.writes * 2)
    graph = OperatorGraph((bare, tailed), ())
    table, slow = table_of(graph), PassNetwork(lambda _: 1.0, panels)
    one, found = (
        table.times(graph, slice(None), np.zeros(0)).all_s,
        slow.operator_times(graph, table, slice(None)).all_s,
    )
    platform = table.platform
    memory_bytes_per_s = (
        platform.hbm_bandwidth_bytes_per_s,
        platform.glb_bandwidth_bytes_per_cycle * platform.frequency_hz,
    )
    moved_s = bare.writes[0].bytes / min(memory_bytes_per_s)
    cycles = (
        np.ceil(elements / (CHIPS.num_vc * CHIPS.width_vc))
        * platform.vector_functions.cycles_per_element[function]
    )
    vector_s, panel_s = cycles / platform.frequency_hz, one[:, 0] / panels
    came_s = found[:, 0] - panel_s
    left_s = found[:, 1] - came_s
    close = 1e-7  # of a second and more, of which they are differences
    assert came_s == pytest.approx(PANEL.messages(panels), rel=1e-9)
    assert (left_s >= np.maximum(vector_s, np.maximum(panel_s, moved_s)) - close).all()
    assert (left_s <= np.maximum(vector_s, panel_s + moved_s) + close).all()
    if panels == 1:
        assert left_s == pytest.approx(one[:, 1], abs=close)


def test_pieces_around_a_ring_start_and_are_merged_one_by_one() -> None:
    """Against pieces priced as operators: attention of the device's own keys, and the vector work
    of one merging."""
    rows, head, heads, devices = 1024, 64, 8, 4
    elements, statistics = heads * rows * head, heads * rows
    ring = ring_operator(0, devices, rows, head, heads)
    own = ring_operator(1, 1, rows, head, heads)
    piece = replace(own, reads=ring.reads[:3], writes=ring.writes, streamed=())
    merge = (
        VectorWork("exp", 2 * statistics),
        VectorWork("log", statistics),
        VectorWork("mul", 2 * elements),
    )
    moved = elements * (2 + 4 + 4) + 3 * 4 * statistics
    merging = replace(
        vector_operator(2, "add", 1),
        vector=(*merge, VectorWork("add", elements)),
        reads=(Operand((moved // 2,), "bfloat16", OperandRole.ACTIVATION),),
        writes=(),
    )
    graph = OperatorGraph((ring, piece, merging), ())
    table = table_of(graph)
    times, startup_s = table.times(graph, slice(None), np.zeros(0)), table.platform.startup_s
    for seconds, pieces in zip(
        (times.single_s, times.all_s), table.piece_times(graph, slice(None), 1), strict=True
    ):
        products_s, merge_s = seconds[:, 1], seconds[:, 2]
        assert (pieces.first_s[:, 0] >= products_s * (1 - 1e-9)).all()
        assert (
            pieces.first_s[:, 0] <= products_s + startup_s * (1 + 1e-9)
        ).all()  # where vector work is slower, it starts too
        assert pieces.other_s[:, 0] - pieces.first_s[:, 0] == pytest.approx(merge_s, rel=1e-9)
        assert seconds[:, 0] == pytest.approx(
            devices * pieces.first_s[:, 0] + (devices - 1) * merge_s, rel=1e-9
        )
    for joules in (times.single_j, times.all_j):
        assert (
            joules[:, 0] > devices * joules[:, 1] + (devices - 1) * joules[:, 2]
        ).all()  # and what it sends
    starts_s = table.price(graph).alone.launch_s
    assert starts_s[:, 0] == pytest.approx((2 * devices - 1) * startup_s)


def test_a_graph_that_only_streams_is_priced_again_in_another_cluster() -> None:
    graph = chain([around(0), product(1)])
    model = model_graph()
    (layer,) = model.layers
    key = replace(model.key, tp=1, cp=4)
    model = replace(
        model,
        key=key,
        layers=(replace(layer, forward=graph, backward=graph, backward_selective=graph),),
    )
    chips = hardware_of(resolve({}, {"model": "bertbase"}))
    assert isinstance(chips, DesignedChips)
    chips = chips.only([CHIPS.accelerator(0)])
    groups = LayerGroups(context=DeviceGroups((GroupLevel(4, 1),), (0,)))
    slow = load_cluster("phaze_icml24")
    fast = replace(
        slow,
        tiers=tuple(
            replace(tier, bandwidth_bytes_per_s=1e12, latency_s=0.0) for tier in slow.tiers
        ),
    )
    found = []
    for each in (chips, chips.in_cluster(fast)):
        found.append(
            each.price(model, (Recompute.NONE,), groups, None)
            .costs[Recompute.NONE]
            .forward.arithmetic_s[0, 0]
        )
    assert found[1] < found[0]
    again = chips.in_cluster(fast).price(model, (Recompute.NONE,), groups, None)
    assert again.costs[Recompute.NONE].forward.arithmetic_s[0, 0] == found[1]
