"""A placement problem as the arrays the compiled kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from Common.errors import InputError
from Solver.placement.cases import MIXED, Cases, enumerate_cases, select
from Solver.placement.kernels import least_largest_sums
from Solver.placement.links import Network
from Solver.placement.objective import TOLERANCE, transfer_s
from Solver.placement.problem import FloatArray, PlacementProblem, PlanVariant
from Solver.placement.search_kernels import Chains, cases_that_fit, least_memory


@dataclass(frozen=True, eq=False)
class Prepared:
    """What all accelerators share; ``cases`` are those that fit in memory."""

    cases: Cases
    chains: Chains
    smallest_bytes: float  # device memory that the leanest plan needs where none fits, inf without cases at all, else 0


@lru_cache(maxsize=16)  # a search asks for the same few problems again and again
def prepare(problem: PlacementProblem) -> Prepared:
    """Prefix sums, link prices, candidate parameter sums and per-case bounds of ``problem``.

    Raises:
        InputError: the variants do not describe chains of one length, or a count is not positive.
    """
    layers = check(problem)
    network = Network.of(problem.cluster)
    parameters = np.array([prefix(variant.parameter_count) for variant in problem.variants])
    entering, leaving = (
        np.array(
            [
                [
                    np.append(transfer_s(getattr(variant, name), byte, latency), 0.0)
                    for byte, latency in zip(network.seconds_per_byte.tolist(), network.latency_s.tolist(), strict=True)
                ]
                for variant in problem.variants
            ]
        )
        for name in ("cut_bytes", "cut_gradient_bytes")
    )
    crossing = entering + leaving
    inner = crossing[:, 0, 1:-1]
    flat = len(network.group_sizes) == 1 and problem.pp is None  # a given number of stages needs every link counted
    alike = np.array([flat and np.ptp(cuts) == 0.0 if layers > 1 else False for cuts in inner])
    distinct = {row.tobytes(): row for row in parameters}  # variants of one width share their parameters
    sums = {key: stage_sums(row) for key, row in distinct.items()}
    largest = {key: least_largest_sums(row) for key, row in distinct.items()}
    caps = [sums[row.tobytes()] for row in parameters]
    tied = np.array([variant.tied_parameter_count for variant in problem.variants], dtype=float)
    least_held = np.array([largest[row.tobytes()] for row in parameters])
    least_held[:, 1] -= tied
    everything = Chains(
        parameters=parameters,
        saved=np.array([prefix(variant.saved_bytes) for variant in problem.variants]),
        kept=np.array([_kept(variant) for variant in problem.variants]),
        workspace=np.array([variant.workspace_bytes for variant in problem.variants], dtype=float),
        entering=entering,
        leaving=leaving,
        tied=tied,
        caps=np.concatenate(caps),
        first_cap=np.cumsum([0, *map(len, caps)]),
        least_held=np.empty(0),
        least_transfers_s=np.empty(0),
        same_transfers=np.empty(0, np.int64),
        hbm_bytes=float(problem.hbm_bytes),
    )
    all_cases = enumerate_cases(problem, layers)
    cases = select(all_cases, cases_that_fit(all_cases, everything).astype(bool))
    chains = everything._replace(
        least_held=least_held[cases.variant, cases.stages],
        least_transfers_s=_least_transfers_s(cases, crossing),
        same_transfers=alike.astype(np.int64)[cases.variant],
    )
    return Prepared(cases, chains, 0.0 if len(cases.variant) else float(least_memory(all_cases, everything)))


def check(problem: PlacementProblem) -> int:
    """Number of layers of ``problem``.

    Raises:
        InputError: see ``prepare``.
    """
    lengths = {
        len(array)
        for variant in problem.variants
        for array in (
            variant.parameter_count,
            variant.saved_bytes,
            variant.workspace_bytes,
            variant.cut_bytes,
            variant.cut_gradient_bytes,
        )
    }
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(f"the variants of a placement describe {sorted(lengths)} layers; all need the same number, at least 1")
    if problem.micro_batches < 1 or problem.cluster.num_devices < 1 or not problem.hbm_bytes > 0:
        raise InputError(
            f"a placement needs at least one micro-batch, one device and some memory; given {problem.micro_batches} "
            f"micro-batches, {problem.cluster.num_devices} devices and {problem.hbm_bytes} bytes"
        )
    return lengths.pop()


def prefix(values: FloatArray) -> FloatArray:
    """Prefix sums with a leading 0."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _kept(variant: PlanVariant) -> FloatArray:
    """Prefix sums of what is saved, less what a stage that starts there saves of tensors made before it."""
    kept = prefix(variant.saved_bytes)
    if variant.copied_bytes is not None:
        kept[:-1] -= variant.copied_bytes
    return kept


def stage_sums(prefixed: FloatArray) -> FloatArray:
    """Sorted distinct parameter sums that stages can have, from prefix sums."""
    first, last = np.triu_indices(len(prefixed), 1)
    sums = np.unique(prefixed[last] - prefixed[first])
    distinct = np.concatenate([[True], np.diff(sums) > TOLERANCE * sums[-1]])
    # the largest of each run of nearly equal sums, so that it covers them all
    largest: FloatArray = sums[np.append(np.flatnonzero(distinct)[1:], len(sums)) - 1]
    return largest


def _least_transfers_s(cases: Cases, crossing: FloatArray) -> FloatArray:
    """Lower bound on the transfer sum of every case: the cheapest distinct cuts, or the cheapest cut for each link if mixed."""
    variants, tiers = crossing.shape[:2]
    cheapest = np.concatenate([np.zeros((variants, tiers, 1)), np.cumsum(np.sort(crossing[:, :, 1:-1]), axis=2)], axis=2)
    least: FloatArray = cheapest[cases.variant, np.maximum(cases.tier, 0), cases.stages - 1]
    for case in np.flatnonzero(cases.tier == MIXED):
        variant, stages = cases.variant[case], cases.stages[case]
        per_link = cases.link_tiers[cases.links[case]][1:stages]
        least[case] = crossing[variant, :, 1:-1].min(axis=1)[per_link].sum()
    return least
