"""The discrete choices of a placement other than its cuts, grouped so that each group is one cutting problem.

A *case* fixes variant, group order, stage count, links and memory prices; its *lines* are the data-parallel degrees that share
them. Cutting the chain in a case into stages with largest load V, largest parameter sum P and transfer sum X costs

    busy seconds + X + min over lines (weight · V + per_parameter · P + fixed)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from Solver.placement.links import Network
from Solver.placement.objective import (
    Price,
    gradient_sync,
    micro_batches_per_pipeline,
    optimizer_s_per_parameter,
    resident_bytes_per_parameter,
    tied_sync_s,
    weight_gather,
)
from Solver.placement.problem import FloatArray, GroupOrder, IntArray, PlacementProblem

MIXED = -1  # in ``Cases.tier``: the links of the case are not all of one tier


class Cases(NamedTuple):
    """Arrays of shape (cases,); a tuple, not a dataclass, because the compiled kernels take it whole."""

    variant: IntArray
    order: IntArray  # index into ``tuple(GroupOrder)``
    stages: IntArray
    in_flight: IntArray  # most micro-batches a stage keeps activations of
    tier: IntArray  # of all links, or MIXED
    links: IntArray  # row of ``link_tiers`` where MIXED
    resident_bytes: FloatArray  # per parameter
    gather_s: FloatArray  # per parameter and micro-batch
    gather_fixed_s: FloatArray  # per layer and micro-batch
    first_line: IntArray  # (cases + 1,)
    dp: IntArray  # (lines,)
    weight: FloatArray  # (lines,) micro-batches per pipeline less one
    per_parameter_s: FloatArray  # (lines,)
    fixed_s: FloatArray  # (lines,)
    link_tiers: IntArray  # (patterns, layers + 1): tier of the link into the stage at each position from the end


@dataclass(frozen=True, eq=False)
class _Degrees:
    """The cases of one width, group order and stage count; arrays of shape (cases,) but for the lines, joined case after case."""

    order: int
    stages: int
    in_flight: IntArray
    boundaries: IntArray  # (cases, stages - 1): tiers, first boundary first
    resident_bytes: FloatArray
    gather_s: FloatArray
    gather_fixed_s: FloatArray
    lines: IntArray  # how many each case has
    dp: IntArray
    weight: FloatArray
    per_parameter_s: FloatArray
    fixed_s: FloatArray

    @property
    def mixed(self) -> NDArray[np.bool_]:
        """Cases whose links are not all of one tier."""
        mixed: NDArray[np.bool_] = (self.boundaries != self.boundaries[:, :1]).any(axis=1)
        return mixed


def enumerate_cases(problem: PlacementProblem, layers: int) -> Cases:
    """All cases of ``problem`` for ``layers`` layers; none where no variant's width fits the cluster."""
    network = Network.of(problem.cluster)
    tabulated: dict[tuple[int, float, float], list[_Degrees]] = {}
    parts: list[tuple[int, _Degrees]] = []
    for index, variant in enumerate(problem.variants):
        key = (variant.tp, float(variant.parameter_count.sum()), variant.tied_parameter_count)
        if key not in tabulated:
            tabulated[key] = list(_degrees(problem, network, layers, *key))
        parts += [(index, part) for part in tabulated[key]]
    counts = [len(part.in_flight) for _, part in parts]
    each: Callable[[list[int]], IntArray] = lambda values: np.repeat(np.array(values, dtype=np.int64), counts)  # noqa: E731
    integers: Callable[[str], IntArray] = lambda name: _joined(parts, name, np.int64)  # noqa: E731
    floats: Callable[[str], FloatArray] = lambda name: _joined(parts, name, np.float64)  # noqa: E731
    # A chain may be cut into fewer stages than its case unless the case counts every link: so it must where pp is given.
    tier, links, link_tiers = _link_tiers(parts, layers, every=problem.pp is not None)
    return Cases(
        variant=each([index for index, _ in parts]),
        order=each([part.order for _, part in parts]),
        stages=each([part.stages for _, part in parts]),
        in_flight=integers("in_flight"),
        tier=tier,
        links=links,
        resident_bytes=floats("resident_bytes"),
        gather_s=floats("gather_s"),
        gather_fixed_s=floats("gather_fixed_s"),
        first_line=np.concatenate([[0], np.cumsum(integers("lines"))]).astype(np.int64),
        dp=integers("dp"),
        weight=floats("weight"),
        per_parameter_s=floats("per_parameter_s"),
        fixed_s=floats("fixed_s"),
        link_tiers=link_tiers,
    )


def select(cases: Cases, keep: NDArray[np.bool_]) -> Cases:
    """Only the cases where ``keep``."""
    chosen = np.flatnonzero(keep)
    lines = np.diff(cases.first_line)
    kept_lines = np.repeat(keep, lines)
    return cases._replace(
        variant=cases.variant[chosen],
        order=cases.order[chosen],
        stages=cases.stages[chosen],
        in_flight=cases.in_flight[chosen],
        tier=cases.tier[chosen],
        links=cases.links[chosen],
        resident_bytes=cases.resident_bytes[chosen],
        gather_s=cases.gather_s[chosen],
        gather_fixed_s=cases.gather_fixed_s[chosen],
        first_line=np.concatenate([[0], np.cumsum(lines[chosen])]).astype(np.int64),
        dp=cases.dp[kept_lines],
        weight=cases.weight[kept_lines],
        per_parameter_s=cases.per_parameter_s[kept_lines],
        fixed_s=cases.fixed_s[kept_lines],
    )


def _joined(parts: list[tuple[int, _Degrees]], name: str, dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *(getattr(part, name) for _, part in parts)])


def _link_tiers(parts: list[tuple[int, _Degrees]], layers: int, *, every: bool) -> tuple[IntArray, IntArray, IntArray]:
    """``tier``, ``links`` and ``link_tiers`` of the cases; ``every`` case with a link counts as MIXED."""
    tiers, links = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    patterns: dict[bytes, int] = {}
    rows: list[IntArray] = []
    for _, part in parts:
        tier, link = np.zeros_like(part.in_flight), np.zeros_like(part.in_flight)
        if every and part.stages > 1:
            tier[:] = MIXED
        elif part.boundaries.any():
            tier = np.where(part.mixed, MIXED, part.boundaries[:, 0])
        for case in np.flatnonzero(tier == MIXED):
            pattern = part.boundaries[case]
            link[case] = patterns.setdefault(pattern.tobytes(), len(rows))
            if link[case] == len(rows):
                row = np.zeros(layers + 1, np.int64)
                row[1 : part.stages] = pattern[::-1]
                rows.append(row)
        tiers.append(tier)
        links.append(link)
    return np.concatenate(tiers), np.concatenate(links), np.array(rows, dtype=np.int64).reshape(len(rows), layers + 1)


def _degrees(
    problem: PlacementProblem, network: Network, layers: int, tp: int, parameters: float, tied: float
) -> Iterator[_Degrees]:
    policy = problem.policy
    flat = len(network.group_sizes) == 1
    for order in network.orders:
        most = min(layers, problem.cluster.num_devices // tp)
        for stages in range(1, most + 1) if problem.pp is None else (problem.pp,) if 1 <= problem.pp <= most else ():
            largest = min(problem.micro_batches, problem.cluster.num_devices // (tp * stages))
            dp = _least_degrees(problem.micro_batches, largest) if flat and policy.zero_stage == 0 else np.arange(1, largest + 1)
            if problem.dp is not None:
                dp = np.array([problem.dp]) if 1 <= problem.dp <= largest else np.empty(0, np.int64)
            if not len(dp):
                continue
            micro_batches = micro_batches_per_pipeline(problem.micro_batches, dp)
            in_flight = np.minimum(micro_batches, stages)
            resident = resident_bytes_per_parameter(policy, dp)
            boundaries = network.boundary_tiers(order, tp, stages, dp)
            collectives = network.data_collectives(order, tp, stages, dp)
            gather = weight_gather(policy, collectives, parameters, layers)
            label = _alike(dp, in_flight, boundaries, flat, policy.zero_stage)
            algorithms = [gradient_sync(policy, half, micro_batches) for half in collectives]
            degree, sync = _useful(algorithms, (parameters - tied) / stages, parameters)
            per_parameter = (
                sync.per_parameter_s + optimizer_s_per_parameter(policy, dp, problem.hbm_bandwidth_bytes_per_s)[degree]
            )
            fixed_s = sync.fixed_s
            if stages > 1:
                ends = network.end_tiers(order, tp, stages, dp)
                fixed_s = fixed_s + tied_sync_s(policy, tied, network.seconds_per_byte[ends], network.latency_s[ends])[degree]
            lines = np.argsort(label[degree], kind="stable")
            first = np.flatnonzero(np.diff(label[degree][lines], prepend=-1))
            one = degree[lines][first]
            yield _Degrees(
                order=tuple(GroupOrder).index(order),
                stages=stages,
                in_flight=in_flight[one],
                boundaries=boundaries[one],
                resident_bytes=resident[one],
                gather_s=gather.per_parameter_s[one],
                gather_fixed_s=gather.fixed_s[one],
                lines=np.diff(first, append=len(lines)),
                dp=dp[degree][lines],
                weight=(micro_batches[degree][lines] - 1).astype(float),
                per_parameter_s=per_parameter[lines],
                fixed_s=fixed_s[lines],
            )


def _useful(algorithms: list[Price], least_held: float, most_held: float) -> tuple[IntArray, Price]:
    """Algorithms that are the fastest for some parameter sum between the given ones: (index of the degree, its price) pairs."""
    ends = np.array([[price.per_parameter_s * held + price.fixed_s for held in (least_held, most_held)] for price in algorithms])
    keep = np.full((len(algorithms), ends.shape[2]), True)
    for one in range(len(algorithms)):
        for other in range(len(algorithms)):
            if other != one:  # beaten at both ends, or equal at both and later
                tie = (ends[other] == ends[one]).all(axis=0) & (other > one)
                keep[one] &= ~((ends[other] <= ends[one]).all(axis=0) & ~tie & keep[other])
    degree = np.concatenate([np.flatnonzero(kept) for kept in keep])
    per_parameter_s = np.concatenate([price.per_parameter_s[kept] for price, kept in zip(algorithms, keep, strict=True)])
    fixed_s = np.concatenate([price.fixed_s[kept] for price, kept in zip(algorithms, keep, strict=True)])
    return degree, Price(per_parameter_s, fixed_s)


def _least_degrees(micro_batches: int, largest: int) -> IntArray:
    """The smallest degree for every number of micro-batches per pipeline, fewer than 2·sqrt(``micro_batches``).

    Larger ones with the same number only synchronise more, as long as memory and links do not depend on the degree.
    """
    degrees = np.arange(1, largest + 1)
    per_pipeline = micro_batches_per_pipeline(micro_batches, degrees)
    least: IntArray = degrees[np.diff(per_pipeline, prepend=-1) != 0]
    return least


def _alike(dp: IntArray, in_flight: IntArray, boundaries: IntArray, flat: bool, zero_stage: int) -> IntArray:
    """A label for every degree, equal where memory and links are."""
    if zero_stage:
        return dp
    if flat:
        return in_flight
    labels: IntArray = np.unique(np.column_stack([in_flight, boundaries]), axis=0, return_inverse=True)[1].reshape(-1)
    return labels
