"""A placement problem whose layers branch as the arrays the compiled kernels take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from Solver.placement.cases import MIXED, Cases, enumerate_cases, select
from Solver.placement.lattice import Lattice, lattice_of
from Solver.placement.layer_graph import Edge
from Solver.placement.links import Network
from Solver.placement.objective import TOLERANCE, transfer_s
from Solver.placement.problem import FloatArray, IntArray, PlacementProblem, PlanVariant
from Solver.placement.relaxation import Relaxation, fluid_stages_needed, least_largest_loads
from Solver.placement.set_kernels import SetCosts, bottlenecks, cheapest_chains, largest_workspaces
from Solver.placement.set_memory import cases_of_sets_that_fit, least_memory_of_sets
from Solver.placement.set_search import LayerSets, Prices
from Solver.placement.stage_arrays import check

ALIKE = 1.1  # ratio within which weight gathers are bounded together


@dataclass(frozen=True, eq=False)
class PreparedSets:
    """What all accelerators share; ``cases`` are those that fit in memory."""

    lattice: Lattice
    cases: Cases
    sets: LayerSets
    smallest_bytes: float  # device memory that the leanest plan needs where none fits, inf without cases at all, else 0


@dataclass(frozen=True, eq=False)
class PreparedRelaxation:
    """What the lower bounds of all accelerators share; ``cases`` are those that no fluid would overfill."""

    cases: Cases
    relaxation: Relaxation


@lru_cache(maxsize=16)  # a search asks for the same few problems again and again
def prepare_sets(problem: PlacementProblem, edges: tuple[Edge, ...]) -> PreparedSets:
    """Sums, link prices and per-case bounds of ``problem``, whose layers are joined by ``edges``.

    Raises:
        InputError: the variants do not describe the same number of layers, or a count is not positive.
    """
    layers = check(problem)
    lattice = lattice_of(layers, edges)
    every_case = enumerate_cases(problem, layers)
    most = int(every_case.stages.max(initial=1))
    sizes = lattice.members.sum(axis=1)
    crossing = [_crossing_s(problem, lattice, plan) for plan in problem.variants]  # (entering, leaving), each (tiers, sets)
    sums = LayerSets(
        first=lattice.first,
        part=lattice.part,
        sizes=sizes,
        space=np.array(
            [
                largest_workspaces(lattice.members, lattice.first, lattice.part, np.asarray(plan.workspace_bytes, dtype=float))
                for plan in problem.variants
            ]
        ),
        parameters=np.array([lattice.members @ plan.parameter_count for plan in problem.variants]),
        saved=np.array([lattice.members @ plan.saved_bytes for plan in problem.variants]),
        saved_from=np.array([lattice.members @ plan.saved_bytes + _copied(lattice, plan) for plan in problem.variants]),
        entering=np.array([entering for entering, _ in crossing]),
        leaving=np.array([leaving for _, leaving in crossing]),
        tied=np.array([plan.tied_parameter_count for plan in problem.variants], dtype=float),
        least_held=np.empty(0),
        least_transfers_s=np.empty(0),
        family=np.empty(0, np.int64),
        kin=np.empty(0, np.int64),
        most_lenient=_prices_of_kins(every_case, np.empty(0, np.int64), np.min),
        most_severe=_prices_of_kins(every_case, np.empty(0, np.int64), np.max),
        hbm_bytes=float(problem.hbm_bytes),
    )
    cases = select(every_case, cases_of_sets_that_fit(every_case, sums).astype(bool))
    least_held = np.array([_least_held(sums, variant, most) for variant in range(len(problem.variants))])
    cheapest = np.array(
        [
            [cheapest_chains(lattice.first, lattice.part, sizes, tier, most) for tier in entering + leaving]
            for entering, leaving in crossing
        ]
    )
    links = [_cheapest_links(entering + leaving) for entering, leaving in crossing]
    kin = _kins(cases)
    sets = sums._replace(
        least_held=least_held[cases.variant, cases.stages],
        least_transfers_s=_least_transfers_s(cases, cheapest, np.array(links)),
        family=_families(cases),
        kin=kin,
        most_lenient=_prices_of_kins(cases, kin, np.min),
        most_severe=_prices_of_kins(cases, kin, np.max),
    )
    return PreparedSets(lattice, cases, sets, 0.0 if len(cases.variant) else float(least_memory_of_sets(every_case, sums)))


def prepare_relaxation(problem: PlacementProblem, edges: tuple[Edge, ...]) -> PreparedRelaxation:
    """What no plan of ``problem`` can go below, case by case.

    Raises:
        InputError: as ``prepare_sets``.
    """
    layers = check(problem)
    every_case = enumerate_cases(problem, layers)
    most = int(every_case.stages.max(initial=1))
    parameters = [np.asarray(plan.parameter_count, dtype=float) for plan in problem.variants]
    tied = np.array([plan.tied_parameter_count for plan in problem.variants], dtype=float)
    cases = select(every_case, _fluid_fits(problem, every_case, layers))
    least_held = np.array([least_largest_loads(each, most) for each in parameters])
    least_held[:, 1] -= tied
    links = np.array([_cheapest_tensors(problem, layers, edges, plan) for plan in problem.variants])
    return PreparedRelaxation(
        cases,
        Relaxation(
            np.array([each.sum() for each in parameters]),
            tied,
            least_held[cases.variant, cases.stages],
            np.array([links[cases.variant[case], _tiers(cases, case)].sum() for case in range(len(cases.variant))]),
        ),
    )


def repeats_of(lattice: Lattice, sequence: Sequence[int], distinct: int) -> FloatArray:
    """How often each distinct layer is in each set, shape (sets, distinct), where layer i is ``sequence[i]``."""
    kinds = np.zeros((len(sequence), distinct))
    kinds[np.arange(len(sequence)), list(sequence)] = 1.0
    repeats: FloatArray = lattice.members @ kinds
    return repeats


def _crossing_s(problem: PlacementProblem, lattice: Lattice, plan: PlanVariant) -> tuple[FloatArray, FloatArray]:
    """Seconds of the activations into each set and of the gradients out of it, each of shape (tiers, sets)."""
    cuts = np.zeros((2, len(lattice.members)))
    for tensor in plan.tensors or ():
        crossing = ~lattice.members[:, tensor.source] & lattice.members[:, list(tensor.destinations)].any(axis=1)
        cuts[:, crossing] += [[tensor.bytes], [tensor.gradient_bytes]]
    network = Network.of(problem.cluster)
    links = list(zip(network.seconds_per_byte.tolist(), network.latency_s.tolist(), strict=True))
    entering, leaving = (np.array([transfer_s(each, *link) for link in links]) for each in cuts)
    return entering, leaving


def _copied(lattice: Lattice, plan: PlanVariant) -> FloatArray:
    """Bytes, shape (sets,), that a stage starting with each set copies of tensors that several layers read."""
    copied = np.zeros(len(lattice.members))
    for tensor in plan.tensors or ():
        if len(tensor.destinations) > 1:
            copied[~lattice.members[:, tensor.source] & lattice.members[:, list(tensor.destinations)].any(axis=1)] += tensor.bytes
    return copied


def _least_held(sets: LayerSets, variant: int, most: int) -> FloatArray:
    """Least possible largest parameter sum for every number of stages up to ``most`` (index 0 unused)."""
    no_links = np.zeros((len(sets.sizes), most + 1))
    nothing = np.zeros_like(sets.parameters[variant])
    costs = SetCosts(
        sets.first,
        sets.part,
        np.zeros_like(sets.space[variant]),
        sets.sizes,
        work=sets.parameters[variant],
        parameters=nothing,
        saved=nothing,
        saved_from=nothing,
        entering=no_links,
        leaving=no_links,
        in_flight=most,
        resident_bytes=0.0,
        hbm_bytes=np.inf,
    )
    least: FloatArray = bottlenecks(costs, most)
    least[1] -= sets.tied[variant]
    return least


def _least_transfers_s(cases: Cases, cheapest: FloatArray, links: FloatArray) -> FloatArray:
    """Lower bound on the transfer sum of every case: of all plans on links of one tier, else the cheapest cut for each link.

    ``cheapest`` (variants, tiers, stages + 1) are least sums, ``links`` (variants, tiers) the cheapest cuts.
    """
    least: FloatArray = cheapest[cases.variant, np.maximum(cases.tier, 0), cases.stages]
    for case in np.flatnonzero(cases.tier == MIXED):
        least[case] = links[cases.variant[case], _tiers(cases, int(case))].sum()
    return least


def _tiers(cases: Cases, case: int) -> IntArray:
    """Tiers of the links of a case."""
    links = int(cases.stages[case]) - 1
    mixed = cases.tier[case] == MIXED
    tiers: IntArray = cases.link_tiers[cases.links[case], 1 : links + 1] if mixed else np.full(links, cases.tier[case])
    return tiers


def _families(cases: Cases) -> IntArray:
    """A number for all cases that differ in their number of stages, their lines and nothing else that costs time or memory."""
    mixed = cases.tier == MIXED
    unlimited = cases.in_flight >= cases.stages
    parts = (
        cases.variant,
        cases.tier,
        np.where(mixed, cases.links, -1),
        np.where(unlimited, -1, cases.in_flight),
        cases.resident_bytes,
        cases.gather_s,
        cases.gather_fixed_s,
    )
    families: IntArray = np.unique(np.column_stack(parts), axis=0, return_inverse=True)[1].reshape(-1)
    return families


def _kins(cases: Cases) -> IntArray:
    """A number for all cases of one variant and one limit on what is in flight whose weight gathers are much alike."""
    unlimited = cases.in_flight >= cases.stages
    steps = np.floor(np.log(np.maximum(cases.gather_s, np.finfo(float).tiny)) / np.log(ALIKE))
    parts = (cases.variant, np.where(unlimited, -1, cases.in_flight), steps)
    kins: IntArray = np.unique(np.column_stack(parts), axis=0, return_inverse=True)[1].reshape(-1)
    return kins


def _prices_of_kins(cases: Cases, kin: IntArray, extreme: Callable[[NDArray[Any]], Any]) -> Prices:
    """The ``extreme`` (least or most) prices of the cases in each kin; a case of mixed links counts with each of its tiers."""
    members = [np.flatnonzero(kin == each) for each in range(int(kin.max(initial=-1)) + 1)]
    tiers = [
        extreme(np.concatenate([[*_tiers(cases, int(case)), max(cases.tier[case], 0)] for case in mine])) for mine in members
    ]
    prices = [
        np.array([extreme(values[mine]) for mine in members], dtype=float)
        for values in (cases.resident_bytes, cases.gather_s, cases.gather_fixed_s)
    ]
    return Prices(np.array(tiers, dtype=np.int64), np.zeros(len(members), np.int64), *prices)


def _fluid_fits(problem: PlacementProblem, cases: Cases, layers: int) -> NDArray[np.bool_]:
    needed: dict[tuple[int, int, float], int] = {}
    fits = np.zeros(len(cases.variant), dtype=bool)
    for case, (variant, stages, in_flight, resident) in enumerate(
        zip(*(each.tolist() for each in (cases.variant, cases.stages, cases.in_flight, cases.resident_bytes)), strict=True)
    ):
        plan = problem.variants[variant]
        if stages == 1:
            held = float(plan.parameter_count.sum()) - plan.tied_parameter_count
            memory = held * resident + float(plan.saved_bytes.sum()) + float(plan.workspace_bytes.max())
            fits[case] = memory <= problem.hbm_bytes * (1.0 + TOLERANCE)
            continue
        key = variant, in_flight if in_flight < stages else layers, resident
        if key not in needed:
            arrays = (np.asarray(each, dtype=float) for each in (plan.parameter_count, plan.saved_bytes, plan.workspace_bytes))
            needed[key] = fluid_stages_needed(*arrays, key[1], resident, float(problem.hbm_bytes))
        fits[case] = needed[key] <= stages
    return fits


def _cheapest_links(crossing: FloatArray) -> FloatArray:
    """The cheapest cut on each tier, shape (tiers,), from that of every set (tiers, sets)."""
    cheapest: FloatArray = crossing[:, 1:-1].min(axis=1, initial=np.inf)
    return cheapest


def _cheapest_tensors(problem: PlacementProblem, layers: int, edges: tuple[Edge, ...], plan: PlanVariant) -> FloatArray:
    """What a cut costs at least on each tier, shape (tiers,): its cheapest tensor, or nothing where a cut may cross none."""
    network = Network.of(problem.cluster)
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(layers))
    graph.add_edges_from(edges)
    if not nx.is_connected(graph):
        return np.zeros(len(network.latency_s))
    activations = np.array([tensor.bytes for tensor in plan.tensors or ()], dtype=float)
    gradients = np.array([tensor.gradient_bytes for tensor in plan.tensors or ()], dtype=float)
    return np.array(
        [
            (transfer_s(activations, byte, latency) + transfer_s(gradients, byte, latency)).min()
            for byte, latency in zip(network.seconds_per_byte.tolist(), network.latency_s.tolist(), strict=True)
        ]
    )
