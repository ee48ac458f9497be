"""Exact placement of a branching layer graph: the chain's model on sets of layers instead of suffixes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from Common.errors import InputError, SolverError
from GraphExtractor.graph import LayerTensor
from Solver.placement.cases import MIXED, Cases, enumerate_cases
from Solver.placement.chain import AGREEMENT, infeasible, prefix_work, why_nothing_fits
from Solver.placement.evaluate import evaluate_plan
from Solver.placement.lattice import (
    Lattice,
    SetCosts,
    bottlenecks_of_sets,
    lattice_of,
    least_transfers_of_sets,
    stage_values_within,
)
from Solver.placement.links import Network
from Solver.placement.objective import TOLERANCE, transfer_s
from Solver.placement.problem import FloatArray, GroupOrder, LayerTimes, Placement, PlacementProblem, PlanVariant
from Solver.placement.stage_arrays import check
from Solver.results import Status


@dataclass(frozen=True)
class DagPlacement:
    """A plan whose stages are intervals of ``order``, an order of the layers in which all tensors flow forwards."""

    placement: Placement
    order: tuple[int, ...]


@dataclass(frozen=True)
class _Found:
    """A plan: its case, data-parallel degree and the sets of layers held from each stage on, first stage first."""

    seconds: float
    case: int
    dp: int
    sets: tuple[int, ...]


@dataclass(frozen=True)
class _Box:
    """Plans whose largest load and largest parameter sum lie in these intervals."""

    least_load: float
    most_load: float
    least_held: float
    most_held: float


def place_dag(problem: PlacementProblem, times: LayerTimes, tensors: Sequence[Sequence[LayerTensor]]) -> DagPlacement:
    """The fastest plan for layers joined by ``tensors`` (of each variant), proved, or status INFEASIBLE with an empty order.

    A tensor that a later stage still needs crosses every link until then. ``cut_bytes`` of the variants are not used.

    Raises:
        InputError: the variants' tensors join different layers or form a cycle, or there are too many sets of layers
            (more than ``lattice.MOST_SETS``).
        SolverError: the evaluator disagrees with the search, which is a defect.
    """
    layers = check(problem)
    seconds = np.diff(prefix_work(problem, times), axis=1)
    edges = [sorted({(tensor.source, end) for tensor in each for end in tensor.destinations}) for each in tensors]
    if len(edges) != len(problem.variants) or any(other != edges[0] for other in edges):
        raise InputError(
            f"each of {len(problem.variants)} variants needs tensors between the same layers; given {len(edges)} lists"
        )
    lattice = lattice_of(layers, edges[0])
    cases = enumerate_cases(problem, layers)
    variants = [_VariantSums.of(problem, lattice, *each) for each in zip(problem.variants, seconds, tensors, strict=True)]
    floors = [_Floors.of(problem, cases, index, lattice, sums) for index, sums in enumerate(variants)]
    bounds = [_bound_s(cases, case, variants[v], floors[v]) for case, v in enumerate(cases.variant.tolist())]
    best = _Found(np.inf, -1, 0, ())
    for case in np.argsort(bounds, kind="stable").tolist():
        if bounds[case] >= best.seconds:
            break
        variant = cases.variant[case]
        best = _close(problem, cases, case, variants[variant], floors[variant], lattice, best)
    if not best.sets:
        reason = "no plan fits" if len(cases.variant) else why_nothing_fits(problem, np.inf)
        return DagPlacement(infeasible(problem, reason), ())
    stages = [lattice.members[whole] for whole in (*best.sets, 0)]
    rank = {layer: place for place, layer in enumerate(_topological(layers, edges[0]))}
    order = [sorted(np.flatnonzero(held & ~rest).tolist(), key=rank.__getitem__) for held, rest in itertools.pairwise(stages)]
    return _evaluated(problem, times, tensors, cases, best, order)


@dataclass(frozen=True, eq=False)
class _VariantSums:
    """Sums of one variant over every set of the lattice, shape (sets,), and the transfers at the cut before it (tiers, sets)."""

    work: FloatArray
    parameters: FloatArray
    saved: FloatArray
    sizes: FloatArray
    workspace: FloatArray  # (layers,)
    entering: FloatArray
    leaving: FloatArray
    tied: float

    @staticmethod
    def of(
        problem: PlacementProblem, lattice: Lattice, plan: PlanVariant, seconds: FloatArray, tensors: Sequence[LayerTensor]
    ) -> _VariantSums:
        network = Network.of(problem.cluster)
        cuts = np.zeros((2, len(lattice.members)))
        for tensor in tensors:
            crossing = ~lattice.members[:, tensor.source] & lattice.members[:, list(tensor.destinations)].any(axis=1)
            cuts[0, crossing] += tensor.bytes
            cuts[1, crossing] += tensor.gradient_bytes
        links = list(zip(network.seconds_per_byte.tolist(), network.latency_s.tolist(), strict=True))
        return _VariantSums(
            work=lattice.members @ seconds,
            parameters=lattice.members @ plan.parameter_count,
            saved=lattice.members @ plan.saved_bytes,
            sizes=lattice.members.sum(axis=1).astype(float),
            workspace=np.asarray(plan.workspace_bytes, dtype=float),
            entering=np.array([transfer_s(cuts[0], *link) for link in links]),
            leaving=np.array([transfer_s(cuts[1], *link) for link in links]),
            tied=plan.tied_parameter_count,
        )


@dataclass(frozen=True, eq=False)
class _Floors:
    """What no cut of a variant can go below, by number of stages (index 0 unused): largest load and largest parameter sum."""

    load_s: FloatArray
    held: FloatArray

    @staticmethod
    def of(problem: PlacementProblem, cases: Cases, variant: int, lattice: Lattice, sums: _VariantSums) -> _Floors:
        """Exact for the fastest links and the smallest memory needs among the variant's cases."""
        mine = cases.variant == variant
        if not mine.any():
            return _Floors(np.empty(0), np.empty(0))
        costs = SetCosts(
            lattice.first,
            lattice.smaller,
            lattice.removed,
            sums.work,
            sums.parameters,
            sums.saved,
            sums.workspace,
            sums.entering.min(axis=0, keepdims=True),
            sums.leaving.min(axis=0, keepdims=True),
            np.zeros(0, np.int64),
            int(cases.in_flight[mine].min()),
            float(cases.resident_bytes[mine].min()),
            float(problem.hbm_bytes),
        )
        no_links = np.zeros_like(costs.entering)
        most_stages = int(cases.stages[mine].max())
        held = bottlenecks_of_sets(
            costs._replace(work=sums.parameters, entering=no_links, leaving=no_links, hbm_bytes=np.inf), most_stages
        )
        held[1] -= sums.tied
        return _Floors(bottlenecks_of_sets(costs, most_stages), held)


def _bound_s(cases: Cases, case: int, sums: _VariantSums, floors: _Floors) -> float:
    least_s, stages = _least_transfers_s(cases, case, sums), int(cases.stages[case])
    load_s = _busy_s(cases, case, sums) if stages == 1 else floors.load_s[stages]
    if np.isinf(load_s):
        return np.inf
    return _busy_s(cases, case, sums) + least_s + _line_s(cases, case, load_s, floors.held[stages])[0]


def _busy_s(cases: Cases, case: int, sums: _VariantSums) -> float:
    held = sums.parameters[-1] - (sums.tied if cases.stages[case] == 1 else 0.0)
    return float(sums.work[-1] + cases.gather_s[case] * held + cases.gather_fixed_s[case] * sums.sizes[-1])


def _least_transfers_s(cases: Cases, case: int, sums: _VariantSums) -> float:
    cheapest = (sums.entering + sums.leaving)[:, 1:-1].min(axis=1, initial=np.inf)
    return float(sum(cheapest[tier] for tier in _tiers(cases, case, len(sums.workspace))[1 : cases.stages[case]]))


def _tiers(cases: Cases, case: int, layers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Tier of the link into the stage at each position from the end."""
    tiers = cases.link_tiers[cases.links[case]] if cases.tier[case] == MIXED else np.full(layers + 1, cases.tier[case])
    return np.asarray(tiers, dtype=np.int64)


def _line_s(cases: Cases, case: int, load: float, held: float) -> tuple[float, int]:
    """Cheapest data-parallel degree of the case, as (seconds, dp)."""
    lines = slice(cases.first_line[case], cases.first_line[case + 1])
    seconds = cases.weight[lines] * load + cases.per_parameter_s[lines] * held + cases.fixed_s[lines]
    return float(seconds.min()), int(cases.dp[lines][seconds.argmin()])


def _close(
    problem: PlacementProblem, cases: Cases, case: int, sums: _VariantSums, floors: _Floors, lattice: Lattice, best: _Found
) -> _Found:
    """The best plan of a case if it beats ``best``: branch and bound over boxes of (largest load, largest parameter sum)."""
    stages, busy = int(cases.stages[case]), _busy_s(cases, case, sums)
    everything = len(lattice.members) - 1
    if stages == 1:
        held = floors.held[1]
        memory = held * cases.resident_bytes[case] + sums.saved[-1] + sums.workspace.max()
        seconds, dp = _line_s(cases, case, busy, held)
        fits = memory <= problem.hbm_bytes * (1.0 + TOLERANCE)
        return _Found(busy + seconds, case, dp, (everything,)) if fits and busy + seconds < best.seconds else best
    costs = SetCosts(
        lattice.first,
        lattice.smaller,
        lattice.removed,
        sums.work + cases.gather_s[case] * sums.parameters + cases.gather_fixed_s[case] * sums.sizes,
        sums.parameters,
        sums.saved,
        sums.workspace,
        sums.entering,
        sums.leaving,
        _tiers(cases, case, len(sums.workspace)),
        int(cases.in_flight[case]),
        float(cases.resident_bytes[case]),
        float(problem.hbm_bytes),
    )
    least_s = _least_transfers_s(cases, case, sums)
    rest = np.zeros((stages + 1, everything + 1), np.int64)
    most_load = busy + float(sums.entering.max() + sums.leaving.max())
    least_load, least_held, most_held = floors.load_s[stages], floors.held[stages], float(sums.parameters[-1])
    # Last in, first out: the least load there can be is tried first.
    boxes = [_Box(least_load, most_load, least_held, most_held), _Box(least_load, least_load, least_held, most_held)]
    while boxes:
        box = boxes.pop()
        if busy + least_s + _line_s(cases, case, box.least_load, box.least_held)[0] >= best.seconds:
            continue
        box = _Box(
            *stage_values_within(costs, True, box.least_load, box.most_load),
            *stage_values_within(costs, False, box.least_held, box.most_held),
        )
        if np.isinf(box.least_load) or np.isinf(box.least_held):
            continue
        transfers, load, held = least_transfers_of_sets(costs, stages, box.most_load, box.most_held, rest)
        if np.isinf(transfers):
            continue
        seconds, dp = _line_s(cases, case, load, held)
        if busy + transfers + seconds < best.seconds:
            best = _Found(busy + transfers + seconds, case, dp, tuple(_follow(rest, stages, everything)))
        if busy + transfers + _line_s(cases, case, box.least_load, box.least_held)[0] < best.seconds * (1.0 - TOLERANCE):
            boxes += _split(cases, case, box)
    return best


def _follow(rest: np.ndarray[tuple[int, int], np.dtype[np.int64]], stages: int, everything: int) -> Iterator[int]:
    held = everything
    for position in range(stages, 0, -1):
        yield held
        held = int(rest[position, held])


def _split(cases: Cases, case: int, box: _Box) -> list[_Box]:
    """Halve the box along what matters more, the cheaper half last; nothing where both sides are single values."""
    at_least = _line_s(cases, case, box.least_load, box.least_held)[0]
    by_load = _line_s(cases, case, box.most_load, box.least_held)[0] - at_least
    by_held = _line_s(cases, case, box.least_load, box.most_held)[0] - at_least
    if by_load >= by_held and box.most_load > box.least_load * (1.0 + 4.0 * TOLERANCE):
        middle = 0.5 * (box.least_load + box.most_load)
        return [replace(box, least_load=middle), replace(box, most_load=middle)]
    if box.most_held > box.least_held * (1.0 + 4.0 * TOLERANCE):
        middle = 0.5 * (box.least_held + box.most_held)
        return [replace(box, least_held=middle), replace(box, most_held=middle)]
    return []


def _topological(layers: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(layers))
    graph.add_edges_from(edges)
    return list(nx.lexicographical_topological_sort(graph))


def _evaluated(
    problem: PlacementProblem,
    times: LayerTimes,
    tensors: Sequence[Sequence[LayerTensor]],
    cases: Cases,
    best: _Found,
    stages: Sequence[Sequence[int]],
) -> DagPlacement:
    """Price the plan as a plan of the chain that its order makes of the layers."""
    order = [layer for stage in stages for layer in stage]
    cuts = np.cumsum([len(stage) for stage in stages])[:-1].tolist()
    variant = int(cases.variant[best.case])
    chain, chain_times = in_order(problem, times, tensors, order)
    placement = evaluate_plan(chain, chain_times, variant, best.dp, cuts, tuple(GroupOrder)[cases.order[best.case]])
    if placement.status is not Status.FEASIBLE or abs(placement.iteration_s - best.seconds) > AGREEMENT * best.seconds:
        raise SolverError(
            f"the layer graph solver found {best.seconds} s, the evaluator {placement.iteration_s} s "
            f"({placement.reason or 'feasible'}); please report this problem"
        )
    return DagPlacement(replace(placement, status=Status.OPTIMAL, bound_s=placement.iteration_s), tuple(order))


def in_order(
    problem: PlacementProblem, times: LayerTimes, tensors: Sequence[Sequence[LayerTensor]], order: Sequence[int]
) -> tuple[PlacementProblem, LayerTimes]:
    """The chain that the layers make in ``order``, in which all tensors must flow forwards."""
    place = {layer: position for position, layer in enumerate(order)}
    chosen = list(order)
    variants = []
    for plan, each in zip(problem.variants, tensors, strict=True):
        cut, gradient = np.zeros(len(order)), np.zeros(len(order))
        for tensor in each:
            crossed = slice(place[tensor.source] + 1, max(place[end] for end in tensor.destinations) + 1)
            cut[crossed] += tensor.bytes
            gradient[crossed] += tensor.gradient_bytes
        variants.append(
            replace(
                plan,
                parameter_count=plan.parameter_count[chosen],
                saved_bytes=plan.saved_bytes[chosen],
                workspace_bytes=plan.workspace_bytes[chosen],
                cut_bytes=cut,
                cut_gradient_bytes=gradient,
            )
        )
    chain_times = LayerTimes(times.forward_s[:, chosen], times.backward_s[:, chosen], times.recompute_s[:, chosen])
    return replace(problem, variants=tuple(variants)), chain_times
