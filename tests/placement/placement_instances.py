"""Random placement problems and the brute force that answers them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from Solver.placement.evaluate import evaluate_plan
from Solver.placement.problem import BatchTimes, LayerTimes, Placement, PlacementProblem, PlanVariant, TrainingPolicy

from Estimator.network.cluster import Cluster, Tier
from GraphExtractor.graph import Recompute
from Plans.results import Status


def adam(zero_stage: int = 0) -> TrainingPolicy:
    return TrainingPolicy("adam", 2.0, 2.0, 12.0, 28.0, zero_stage)


def flat_cluster(devices: int, bandwidth: float, latency_s: float = 0.0) -> Cluster:
    return Cluster("flat", devices, (Tier("all", devices, bandwidth, latency_s),))


def random_cluster(random: np.random.Generator, tiers: int) -> Cluster:
    devices = int(random.integers(1, 17))
    bandwidth = 10.0 ** random.uniform(-0.5, 1.5)
    latency = float(random.choice([0.0, 0.02]))
    if tiers == 1:
        return flat_cluster(devices, bandwidth, latency)
    sizes = [[2, 16], [4, 16], [3, 16], [2, 4, 16]][int(random.integers(0, 4))]
    return Cluster(
        "tiered",
        devices,
        tuple(
            Tier(str(k), size, bandwidth / float(random.uniform(1, 6)) ** k, latency * (k + 1)) for k, size in enumerate(sizes)
        ),
    )


def random_case(
    seed: int, *, tiers: int = 1, zero_stage: int | None = None, most_layers: int = 6
) -> tuple[PlacementProblem, LayerTimes]:
    """Variants share layers in structure: embedding, alike or unlike blocks, head; numbers of order 1 everywhere."""
    random = np.random.default_rng(seed)
    layers = int(random.integers(1, most_layers + 1))
    alike = random.random() < 0.6
    policy = adam(int(random.integers(0, 4)) if zero_stage is None else zero_stage)

    def draw(low: float, high: float) -> np.ndarray:
        values = np.full(layers, random.uniform(low, high)) if alike else random.uniform(low, high, layers)
        values[0], values[-1] = random.uniform(low, high, 2)
        return np.round(values, 3)

    parameters = draw(0.5, 3.0)
    tied = float(np.round(random.choice([0.0, 0.5]) * min(parameters[0], parameters[-1]), 3)) if layers > 1 else 0.0
    same_cuts = random.random() < 0.5
    variants, forward, backward, again = [], [], [], []
    for tp, recompute in itertools.product([1, 2] if random.random() < 0.5 else [1], [Recompute.NONE, Recompute.FULL]):
        cut = np.full(layers, random.uniform(0.0, 2.0)) if same_cuts else random.uniform(0.0, 2.0, layers)
        gradient = cut.copy() if same_cuts else random.uniform(0.0, 2.0, layers) * (random.random(layers) < 0.8)
        cut[0] = gradient[0] = 0.0
        saved = draw(2.0, 6.0) if recompute is Recompute.NONE else draw(0.2, 0.6)
        copied = random_copies(np.random.default_rng([seed, len(variants)]), saved)
        variants.append(
            PlanVariant(tp, recompute, parameters / tp, saved, draw(0.0, 4.0), cut, gradient, tied / tp, None, copied)
        )
        forward.append(draw(0.02, 1.0) / tp)
        backward.append(draw(0.05, 2.0) / tp)
        again.append(forward[-1] if recompute is Recompute.FULL else np.zeros(layers))
    problem = PlacementProblem(
        variants=tuple(variants),
        cluster=random_cluster(random, tiers),
        hbm_bytes=float(10.0 ** random.uniform(1.3, 2.6)),
        hbm_bandwidth_bytes_per_s=float(10.0 ** random.uniform(1.0, 4.0)),
        micro_batches=int(random.choice([1, 2, 3, 8, 17])),
        policy=policy,
    )
    return problem, LayerTimes(np.array(forward), np.array(backward), np.array(again))


def random_copies(random: np.random.Generator, saved: np.ndarray) -> np.ndarray:
    """Bytes crossing each cut that several layers read: made, and so saved, by one layer, read up to another one."""
    copied = np.zeros(len(saved))
    if random.random() < 0.5:
        source, last = sorted(random.integers(0, len(saved), 2).tolist())
        copied[source + 1 : last + 1] = saved[source] * random.random()
    return copied


def all_plans(problem: PlacementProblem, times: LayerTimes) -> Iterator[Placement]:
    """Every feasible plan, evaluated."""
    for index, variant in enumerate(problem.variants):
        layers = len(variant.parameter_count)
        for pp in range(1, layers + 1):
            for dp in range(1, min(problem.micro_batches, problem.cluster.num_devices // (variant.tp * pp)) + 1):
                for cuts in itertools.combinations(range(1, layers), pp - 1):
                    plan = evaluate_plan(problem, times, index, dp, cuts)
                    if plan.status is Status.FEASIBLE:
                        yield plan


def brute_force_s(problem: PlacementProblem, times: LayerTimes) -> float:
    """Least iteration time over every plan; inf where none fits."""
    return min((plan.iteration_s for plan in all_plans(problem, times)), default=np.inf)


def batch_of(times: LayerTimes) -> BatchTimes:
    """One accelerator whose layers are all distinct."""
    return BatchTimes(
        times.forward_s[None], times.backward_s[None], times.recompute_s[None], tuple(range(times.forward_s.shape[1]))
    )
