"""The best plan of a shape on one configuration against every cut of every plan, priced one by
one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from Estimator.devices.files import load_software
from Estimator.network.cluster import Cluster, Tier
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts, PassCosts, layer_sizes
from Estimator.plans.rates import Machine
from Estimator.plans.results import Status
from GraphExtractor.graph import (
    LayerGraph,
    LayerTensor,
    ModelGraph,
    Recompute,
    SavedBytes,
    SparseTable,
)
from phaze_common.choices import GroupOrder
from Solver.designs import model_shapes as searched_shapes
from Solver.designs.costs import Part
from Solver.designs.model_shapes import model_shapes
from Solver.paths import lattice
from Solver.paths.cut_bounds import Problem, bound_cut
from Solver.paths.cut_search import cut_s, search_cuts
from Solver.plans import alike_plans, best_plan
from Solver.plans.alike_plans import Proof
from Solver.plans.best_plan import MOST_STEPS, ConfigurationPlans
from Solver.plans.cut_levels import PlanStatus
from Solver.plans.shape_plans import ShapePlans
from Solver.plans.space import PlanSpace
from tests.builders.random_searches import (
    NOTHING,
    Case,
    Enumerated,
    best_cut,
    capacities,
    every_plan,
    every_shape,
    random_case,
)

CLOSE = 1 + 1e-9
MEGATRON = load_software("megatron_2022")
LEAN = replace(  # reserves nothing
    MEGATRON,
    reserved_memory=replace(MEGATRON.reserved_memory, value=0.0),
    gradient_bytes=replace(MEGATRON.gradient_bytes, value=4.0),
)


@dataclass(frozen=True, eq=False)
class Tried:
    """Plans of one part of a shape on one configuration."""

    part: Part
    row: int
    machine: Machine

    @property
    def plans(self) -> ConfigurationPlans:
        return ConfigurationPlans(
            self.part.plans, self.part.costs, self.row, self.machine.memory_bytes
        )

    @property
    def enumerated(self) -> list[Enumerated]:
        """The best cut of every plan."""
        arrays = self.part.plans.plans
        return [
            best_cut(arrays.plan(index), self.part.costs, self.machine, self.row)
            for index in range(len(arrays))
        ]


def parts_of(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tried]:
    monkeypatch.setattr(
        searched_shapes,
        "load_or_extract_all",
        lambda keys, *_: {key: case.graph(key) for key in keys},
    )
    for shapes in model_shapes(case.run(), case.problem.models[0]):
        for shape in shapes.shapes:
            for part in shape.parts:
                for row in range(case.hardware.count):
                    yield Tried(
                        part, row, case.hardware.machine(row, float(case.problem.memory_bytes[0]))
                    )


@pytest.mark.some(9)
@pytest.mark.parametrize(
    ("configurations", "tables"), [(1, False), (2, False), (1, True), (2, True)]
)
@pytest.mark.parametrize("seed", range(700, 725))
def test_plans_bounds_and_statuses_are_those_of_enumeration(
    seed: int, configurations: int, tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, configurations=configurations, most_layers=4, tables=tables)
    case = case.with_base(optimizer="muon") if seed % 3 == 0 else case
    check_best(case, monkeypatch)


def test_plans_in_groups_of_shards_are_those_of_enumeration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [random_case(seed, most_layers=4) for seed in range(700, 716)]
    counts = [check_best(each.in_groups(2 + k % 2), monkeypatch) for k, each in enumerate(cases)]
    assert sum(counts) > 300, counts


def check_best(case: Case, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare with enumeration; how many plans there were."""
    count = 0
    for tried in parts_of(case, monkeypatch):
        count += len(tried.part.plans)
        plans, every = tried.plans, tried.enumerated
        found = plans.best()
        true_s = np.array([each.iteration_s for each in every])
        assert np.all(plans.bounds_s <= true_s * CLOSE)
        assert np.all(found.plan_bounds_s <= true_s * CLOSE)
        known = np.isfinite(found.plan_s)
        assert found.plan_s[known] == pytest.approx(true_s[known], rel=1e-9)
        assert np.all(np.isinf(true_s[found.status == PlanStatus.INFEASIBLE]))
        assert found.bound_s == pytest.approx(found.iteration_s, rel=1e-11)
        least = true_s.min()
        if np.isinf(least):
            assert found.plan is None and np.isinf(found.iteration_s)
            assert np.all(found.status == PlanStatus.INFEASIBLE)
            continue
        assert found.iteration_s == pytest.approx(least, rel=1e-9)
        assert found.plan is not None
        assert found.plan_s.min() == found.iteration_s
        assert found.status[int(found.plan_s.argmin())] == PlanStatus.EVALUATED
        iteration = price_iteration(found.plan, tried.part.costs, tried.machine, tried.row)
        assert iteration.status is Status.FEASIBLE
        assert iteration.iteration_s == pytest.approx(least, rel=1e-9)
        assert iteration.memory_bytes == pytest.approx(found.memory_bytes, rel=1e-12)
    return count


@pytest.mark.parametrize("weighted", [False, True])
def test_plans_are_closed_together_if_none_beats_its_incumbent(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, closed, opened = np.random.default_rng(0), 0, 0
    cases = (random_case(seed, most_layers=4) for seed in range(900, 920))
    for tried in (tried for case in cases for tried in parts_of(case, monkeypatch)):
        shared = tried.part.plans
        weights = random.uniform(0.9, 1.1, len(shared)) if weighted else np.ones(len(shared))
        held = shared, tried.part.costs, tried.row, tried.machine.memory_bytes
        plans = ConfigurationPlans(*held, weights)
        true_s = weights * np.array([each.iteration_s for each in tried.enumerated])
        alike = plans.alike(np.flatnonzero(~shared.interleaved))
        monkeypatch.setattr(alike_plans, "FEWEST", 1)
        for index in alike.most_promising(plans.bounds_s).tolist():
            rows = alike.like(index)
            fit = np.where(np.isfinite(true_s), true_s, random.uniform(0.5, 2.0, len(true_s)))[rows]
            for least in (0.97, 0.9999, 1.0001):
                incumbents_s = fit * random.uniform(least, 1.0001, len(rows))
                found = plans.together(rows, incumbents_s, MOST_STEPS)
                bounds_s = np.minimum(found.bounds_s, incumbents_s)
                assert np.all(true_s[rows] >= bounds_s / CLOSE)
                if found.proof is Proof.CLOSED:
                    assert np.all(true_s[rows] >= incumbents_s / CLOSE)
                    closed += len(rows) > 1
                else:
                    opened += 1
    assert closed > 30 and opened > 30, (closed, opened)


def test_bounds_count_what_zero_sends_in_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    higher = 0
    for seed in range(700, 712):
        for tried in parts_of(random_case(seed, most_layers=4), monkeypatch):
            shared = tried.part.plans
            sent = np.flatnonzero(shared.bounds.pass_parameter_s > 0.0)
            assert np.all(shared.plans.zero_stage[sent] >= 2)
            assert not shared.plans.overlap_gradients[sent].any()
            true_s = np.array([each.iteration_s for each in tried.enumerated])
            with_s = tried.plans.bounds_s
            assert np.all(with_s <= true_s * CLOSE)
            nothing_sent = shared.bounds._replace(pass_parameter_s=np.zeros(len(shared)))
            monkeypatch.setitem(vars(shared), "bounds", nothing_sent)
            higher += int(np.sum(with_s[sent] > tried.plans.bounds_s[sent] * CLOSE))
    assert higher


@pytest.mark.parametrize("seed", range(730, 740))
def test_an_incumbent_stops_what_cannot_beat_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for tried in parts_of(random_case(seed, most_layers=4), monkeypatch):
        free = tried.plans.best()
        if free.plan is None:
            continue
        true_s = np.array([each.iteration_s for each in tried.enumerated])
        for factor in (0.9, 1.0, 1.1):
            held = tried.plans.best(free.iteration_s * factor, hint=free.hint)
            assert (held.plan is not None) == (factor > 1.0)
            assert np.all(held.plan_bounds_s <= true_s * CLOSE)
            assert held.bound_s <= free.iteration_s * CLOSE
            if held.plan is not None:
                assert held.iteration_s == pytest.approx(free.iteration_s, rel=1e-12)


@pytest.mark.parametrize(
    ("seed", "tables"), [(seed, tables) for tables in (False, True) for seed in range(740, 752)]
)
def test_a_memory_that_holds_a_plan_exactly_holds_it(
    seed: int, tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tried in parts_of(random_case(seed, most_layers=4, tables=tables), monkeypatch):
        found = tried.plans.best()
        if found.plan is None:
            continue
        exact, less = (
            replace(tried, machine=replace(tried.machine, memory_bytes=found.memory_bytes * part))
            for part in (1, 0.99)
        )
        again = exact.plans.best()
        assert again.iteration_s == pytest.approx(found.iteration_s, rel=1e-12)
        assert again.plan is not None
        assert (
            price_iteration(again.plan, tried.part.costs, exact.machine, tried.row).status
            is Status.FEASIBLE
        )
        smaller = less.plans.best()
        assert smaller.plan is None or smaller.memory_bytes <= 0.99 * found.memory_bytes * CLOSE
        assert smaller.iteration_s >= found.iteration_s / CLOSE


def test_too_many_cuts_give_an_answer_and_an_honest_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_plan, "FIRST_STEPS", 3)
    monkeypatch.setattr(best_plan, "MOST_STEPS", 3)
    unproven = 0
    for seed in range(760, 775):
        for tried in parts_of(random_case(seed, most_layers=5), monkeypatch):
            true_s = np.array([each.iteration_s for each in tried.enumerated])
            found = tried.plans.best()
            assert found.bound_s <= true_s.min() * CLOSE
            assert np.all(found.plan_bounds_s <= true_s * CLOSE)
            assert found.iteration_s >= true_s.min() / CLOSE
            unproven += found.bound_s < found.iteration_s / CLOSE
    assert unproven, "every search was whole, so this test shows nothing"


@pytest.mark.parametrize("stages", [1, 6, 14])
def test_few_sets_of_branching_layers_give_a_plan_that_says_what_was_left_out(
    stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    omitted = 0
    monkeypatch.setattr(lattice, "MOST_STAGES", stages)
    lattice.lattice_of.cache_clear()
    for seed in range(780, 800):
        for tried in parts_of(random_case(seed, most_layers=4), monkeypatch):
            found, least = tried.plans.best(), min(each.iteration_s for each in tried.enumerated)
            left_out = tried.part.plans.stages.lattice.omitted
            omitted += bool(left_out)
            assert found.iteration_s >= least / CLOSE
            if not left_out and math.isfinite(least):
                assert found.iteration_s == pytest.approx(least, rel=1e-9)
            elif found.plan is not None:
                iteration = price_iteration(found.plan, tried.part.costs, tried.machine)
                assert iteration.iteration_s == pytest.approx(found.iteration_s, rel=1e-9)
    lattice.lattice_of.cache_clear()
    assert omitted


@pytest.mark.parametrize("seed", range(800, 840))
def test_the_space_holds_plans_of_the_definition_once(seed: int) -> None:
    case = random_case(seed)
    case = case.in_groups(2) if seed % 4 == 0 else case
    (model,) = case.problem.models
    layers, wanted = len(case.models[model.name].sequence), set(every_shape(model.space))
    for shape in model.space.shapes():
        assert shape in wanted
        arrays = model.space.plans(shape, layers, case.hardware.cluster)
        plans = [arrays.plan(index) for index in range(len(arrays))]
        assert len(plans) == len(set(plans))
        assert set(plans) <= set(every_plan(model.space, shape, layers))
        assert [plan.micro_batches for plan in plans] == arrays.micro_batches.tolist()


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("seed", "tables"), [(seed, tables) for tables in (False, True) for seed in range(760, 790)]
)
def test_what_the_space_leaves_out_is_no_faster_than_fewer_replicas(
    seed: int, tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, most_layers=4, tables=tables)
    devices = int(np.random.default_rng(seed).integers(24, 40))
    spread = replace(
        case.hardware.cluster, num_devices=max(devices, case.hardware.cluster.num_devices)
    )
    free = replace(
        case.problem.models[0].space,
        devices=devices,
        use_all_devices=False,
        dp_degrees=None,
        ep_degrees=(1,),
    )
    free = replace(free, capacities=tuple(capacities(spread, devices)))
    for tried in itertools.islice(parts_of(case, monkeypatch), 3):
        shape, layers = (
            replace(tried.part.plans.plans.shape, ep=1, global_batch_size=24),
            len(tried.part.costs.graph.sequence),
        )
        order = shape.group_order
        if isinstance(order, Assignment):
            shape = replace(shape, group_order=replace(order, ep=(1,) * len(order.tp)))
        pinned = replace(free, dp_degrees=tuple(range(1, devices + 1)))
        kept, every = (
            [each.plan(at) for at in range(len(each))]
            for each in (space.plans(shape, layers, spread) for space in (free, pinned))
        )
        assert set(kept) <= set(every) and (
            isinstance(shape.group_order, Assignment) or min(plan.dp for plan in kept) == 1
        )
        machine = replace(tried.machine, cluster=spread)
        seconds = {
            plan: price_iteration(cut, tried.part.costs, machine, tried.row).iteration_s
            for plan in every
            if (cut := even(plan, layers))
        }
        for plan in every:
            if plan not in kept and plan in seconds:
                fewer = [
                    seconds[each]
                    for each in kept
                    if but_for_replicas(each) == but_for_replicas(plan)
                    and each.micro_batches == plan.micro_batches
                ]
                assert min(fewer) <= seconds[plan] * CLOSE


def but_for_replicas(plan: UniformPlan) -> UniformPlan:
    order = plan.group_order
    return replace(
        plan, dp=1, group_order=replace(order, dp=()) if isinstance(order, Assignment) else order
    )


def even(plan: UniformPlan, layers: int) -> UniformPlan | None:
    """The plan with its layers divided evenly, where they can be; interleaved plans say themselves
    how."""
    if plan.interleave > 1:
        return plan
    return replace(
        plan, stage_layers=tuple(len(part) for part in np.array_split(range(layers), plan.pp))
    )


@pytest.mark.thorough
def test_a_cut_is_as_good_when_first_stages_are_remembered() -> None:
    """With fewer micro-batches than stages and more, on like and unlike layers: the seconds of the
    best of all cuts, proven, and fewer leaves in all."""
    random, saved = np.random.default_rng(0), 0
    for _ in range(500):
        layers, pp = int(random.integers(6, 12)), int(random.integers(3, 7))
        problem = chain_problem(random, layers, pp, micro_batches=int(random.integers(1, 2 * pp)))
        cuts = itertools.combinations(range(layers - 1, 0, -1), pp - 1)
        least_s = min(cut_s(problem, np.array([layers, *cut, 0])) for cut in cuts)
        found = []
        for short in (10**9, 1):
            tables, nodes = (
                np.empty((5, problem.pp, layers + 1)),
                np.zeros(problem.pp + 1, np.int64),
            )
            assert np.isfinite(bound_cut(problem, np.inf, tables))
            found.append(search_cuts(problem, np.inf, tables, 10**7, nodes, False, short))
            assert cut_s(problem, nodes) == pytest.approx(found[-1].seconds, rel=1e-12)
        assert all(each.complete for each in found)
        assert [each.seconds for each in found] == pytest.approx([least_s] * 2, rel=1e-12)
        saved += found[0].leaves - found[1].leaves
    assert saved > 0


def chain_problem(random: np.random.Generator, layers: int, pp: int, micro_batches: int) -> Problem:
    """A chain of random layers, many of them alike, with large synchronisations and messages."""
    kinds = np.round(random.uniform(0.0, 2.0, (3, 4)), 1)
    of_layers = kinds[random.integers(0, 3, layers)] * [
        1.0,
        random.uniform(0, 2),
        random.uniform(0, 12),
        random.uniform(0, 3),
    ]
    node, part = np.array([(node, part) for node in range(1, layers + 1) for part in range(node)]).T
    sums = np.concatenate(
        [np.zeros((1, 4)), np.cumsum(of_layers, axis=0)]
    )  # node n holds the last n layers
    forward, backward, after, step = (sums[node] - sums[part]).T
    none = np.zeros(len(node))
    first = np.concatenate([[0, 0], np.cumsum(np.arange(1, layers + 1))])
    loads, depth = forward + backward, np.arange(layers + 1)
    ends = np.where(depth > 0, first[:-1], -1)
    messages_s = random.uniform(0, random.uniform(0, 2), (2, 2, layers + 1))
    return Problem(
        kinds=np.stack([loads, forward, backward, after, step, none, none], axis=1),
        nodes=np.stack(
            [sums[:, 0] + sums[:, 1], sums[-1, 0] - sums[:, 0], sums[-1, 1] - sums[:, 1]], axis=1
        ),
        ends=np.stack([node, part, np.arange(len(node))], axis=1),
        spans=np.stack([first, np.append(ends, -1), np.append(depth, 0)], axis=1),
        chain=True,
        least_downstream_s=np.zeros((pp, layers + 1)),
        least_upstream_s=np.zeros((pp, layers + 1)),
        messages_s=messages_s,
        kind_of=random.integers(0, 2, pp),
        least_messages_s=np.zeros((pp, layers + 1)),
        most_one_way_s=float(messages_s.max()),
        follows=True,
        shorter_part=0.5,
        pp=pp,
        micro_batches=micro_batches,
        tied_s=0.3,
        least_step_s=0.0,
        memory_bytes=1.0,
    )


@pytest.mark.thorough
def test_bounds_hold_where_the_first_layers_compute_and_the_last_ones_have_parameters() -> None:
    """Gradients of later stages are then synchronised beside the cool-down of slower first ones,
    and decide the end."""
    random, tight = np.random.default_rng(0), 0
    for _ in range(150):
        layers = int(random.integers(2, 5))
        parameters = random.integers(0, 4000, layers) * (
            np.arange(layers) >= random.integers(1, layers)
        )
        forward, backward = (
            random.uniform(0, 4, (1, layers)) * 10.0 ** -random.integers(0, 3, layers)
            for _ in range(2)
        )
        shape = UniformPlan(global_batch_size=int(random.integers(2, 9)))
        parts = tuple(
            LayerGraph(
                f"layer{at}",
                NOTHING,
                NOTHING,
                NOTHING,
                int(count),
                0,
                0,
                0,
                SavedBytes(1, 1, 1),
                (),
            )
            for at, count in enumerate(parameters)
        )
        tensors = tuple(LayerTensor(at, (at + 1,), 1, 1) for at in range(layers - 1))
        graph = ModelGraph(shape.graph_key("made up", 8), parts, tuple(range(layers)), tensors, 1)
        sizes, again = layer_sizes(graph, Recompute.NONE), np.zeros((1, layers))
        passes = (PassCosts.of_total(each) for each in (forward, again, backward))
        costs = LayerCosts(graph, Recompute.NONE, sizes, *passes, again, None)
        cluster = Cluster("flat", 8, (Tier("only", 8, 300.0, 0.0),))
        machine = Machine("made up", 1e12, 1e12, 1e12, cluster, load_software("megatron_2022"))
        space = PlanSpace(
            8, False, shape, 8, (1,), (1,), (Recompute.NONE,), group_orders=(GroupOrder.DATA_INNER,)
        )
        shared = ShapePlans(graph, sizes, space.plans(shape, layers, cluster), machine)
        plans = ConfigurationPlans(shared, costs, 0, 1e12)
        seconds = np.array(
            [best_cut_s(shared.plans.plan(at), costs, machine) for at in range(len(shared))]
        )
        assert (plans.bounds_s <= seconds * CLOSE).all()
        assert plans.best().iteration_s == pytest.approx(seconds.min(), rel=1e-9)
        tight += int((plans.bounds_s > 0.98 * seconds).sum())
    assert tight > 100


@pytest.mark.thorough
def test_layers_that_differ_in_how_much_is_read_of_their_tables_are_cut_best() -> None:
    """Layers of as many parameters, whose sparse gradients differ: every plan's cut by enumeration,
    in memory that is scarce."""
    random, scarce = np.random.default_rng(1), 0
    for _ in range(80):
        layers, batch = int(random.integers(3, 6)), int(random.choice([5, 9, 13]))
        reads = random.choice([0, 1, 5, 40], (layers, 2))
        tables = [tuple(SparseTable(100, 8, int(read)) for read in each if read) for each in reads]
        parts = tuple(
            LayerGraph(
                f"layer{at}",
                NOTHING,
                NOTHING,
                NOTHING,
                2000,
                0,
                0,
                0,
                SavedBytes(1, 1, 1),
                (),
                sparse_tables=each,
            )
            for at, each in enumerate(tables)
        )
        shape = UniformPlan(global_batch_size=batch)
        tensors = tuple(LayerTensor(at, (at + 1,), 1, 1) for at in range(layers - 1))
        graph = ModelGraph(shape.graph_key("made up", 8), parts, tuple(range(layers)), tensors, 1)
        sizes, again = layer_sizes(graph, Recompute.NONE), np.zeros((1, layers))
        passes = (
            PassCosts.of_total(each) for each in (*random.uniform(0, 0.2, (2, 1, layers)), again)
        )
        costs = LayerCosts(graph, Recompute.NONE, sizes, *passes, again, None)
        cluster = Cluster("flat", 8, (Tier("only", 8, 10.0 ** random.uniform(3, 5), 0.0),))
        ample = Machine("made up", 1e12, 1e12, 1e4, cluster, LEAN)
        zero = (0, 1) if random.random() < 0.3 else (0,)
        space = PlanSpace(
            8, False, shape, 8, (1,), (1,), (Recompute.NONE,), zero_stages=zero, interleave=(1,)
        )
        shared = ShapePlans(graph, sizes, space.plans(shape, layers, cluster), ample)
        chosen = shared.plans.plan(int(random.integers(len(shared))))
        memory_bytes = best_cut(chosen, costs, ample, 0).memory_bytes  # which it fills
        machine = replace(ample, memory_bytes=memory_bytes)
        plans = ConfigurationPlans(shared, costs, 0, memory_bytes)
        every = [best_cut(shared.plans.plan(at), costs, machine, 0) for at in range(len(shared))]
        seconds, found = np.array([each.iteration_s for each in every]), plans.best()
        assert (plans.bounds_s <= seconds * CLOSE).all()
        assert np.isfinite(seconds).any() and shared.fit(memory_bytes)
        cuts = (
            each for at in range(len(shared)) for each in cuts_of(shared.plans.plan(at), layers)
        )
        leanest_bytes = min(price_iteration(each, costs, ample).memory_bytes for each in cuts)
        assert shared.leanest_bytes() == pytest.approx(leanest_bytes, rel=1e-9)
        assert shared.leanest_bytes(0.5 * leanest_bytes) == 0.5 * leanest_bytes
        assert np.isinf(seconds[found.status == PlanStatus.INFEASIBLE]).all()
        assert found.iteration_s == pytest.approx(seconds.min(), rel=1e-9)
        assert found.memory_bytes == pytest.approx(
            every[int(seconds.argmin())].memory_bytes, rel=1e-9
        )
        scarce += int(np.isinf(seconds).any())
    assert scarce > 20


def best_cut_s(plan: UniformPlan, costs: LayerCosts, machine: Machine) -> float:
    """Seconds of the best cut of a chain into stages, one after another."""
    return min(
        price_iteration(each, costs, machine).iteration_s
        for each in cuts_of(plan, len(costs.graph.sequence))
    )


def cuts_of(plan: UniformPlan, layers: int) -> list[UniformPlan]:
    """``plan`` with every cut of a chain of ``layers`` into its stages."""
    cuts = ((0, *inner, layers) for inner in itertools.combinations(range(1, layers), plan.pp - 1))
    return [replace(plan, stage_layers=tuple(np.diff(cut).tolist())) for cut in cuts]
