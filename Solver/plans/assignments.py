"""The ways in which the axes of plans share out the tiers of a network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.crossings import parts_of
from Estimator.plans.assignment import Assignment, fitting, splits
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.uniform_plans import UniformPlans
from phaze_common.array_types import BoolArray, IntArray
from phaze_common.choices import GroupOrder

NEVER = np.iinfo(np.int64).max  # no prime divides 1


def of_groups(shape: UniformPlan, capacities: tuple[int, ...]) -> Iterator[Assignment]:
    """Where tensor- and context-parallel groups and those of experts of a shape can lie."""
    ones = (1,) * len(capacities)
    for tp, tp2, cp in fitting((shape.tp, shape.tp2, shape.cp), capacities):
        for ep in splits(shape.ep, len(capacities)):
            needed = (t * r * math.lcm(c, e) for t, r, c, e in zip(tp, tp2, cp, ep, strict=True))
            if all(devices <= holds for devices, holds in zip(needed, capacities, strict=True)):
                yield Assignment(tp, cp, ep, ones, ones, tp2)


def placed_beside(
    groups: Assignment, capacities: tuple[int, ...], pp: int, allowed: IntArray
) -> tuple[IntArray, IntArray]:
    """Where ``pp`` stages and as many replicas as are ``allowed`` can lie beside ``groups``.

    Gives dp (N,) and replicas and stages by tier (N, 2, tiers) of each. No tier has room for a part
    of what lies in one further out: that would only be further away."""
    holds, tiers = np.array(capacities), len(capacities)
    tp, tp2, cp, ep = (np.array(parts) for parts in (groups.tp, groups.tp2, groups.cp, groups.ep))
    wanted = np.zeros(int(allowed.max(initial=0)) + 1, np.bool_)
    wanted[allowed] = True
    found, placed = [np.empty(0, np.int64)], [np.empty((0, 2, tiers), np.int64)]
    for stages in splits(pp, tiers) if len(allowed) else ():
        beside = tp * tp2 * cp * np.array(stages)
        if (beside > holds).any():
            continue
        dp, parts = _split_table(len(wanted) - 1, tuple((holds // beside)[:-1].tolist()), tiers)
        allowed = (
            wanted[dp] & (parts <= holds // beside).all(axis=1) & (parts * cp % ep == 0).all(axis=1)
        )
        allowed = allowed & _filled(beside * parts, holds, [tp, tp2, cp, np.array(stages)], parts)
        found.append(dp[allowed])
        placed.append(
            np.stack([parts[allowed], np.broadcast_to(stages, parts[allowed].shape)], axis=1)
        )
    return np.concatenate(found), np.concatenate(placed)


def _filled(
    occupied: IntArray, holds: IntArray, fixed: Sequence[IntArray], parts: IntArray
) -> BoolArray:
    """Whether no tier has room for a prime factor of an axis further out; shapes (N, tiers)."""
    every = np.stack([np.broadcast_to(axis, parts.shape) for axis in (*fixed, parts)])
    least = _primes_up_to(int(every.max(initial=1)))[every].min(axis=0)
    outside = np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return np.asarray((holds[:-1] // occupied[:, :-1] < outside).all(axis=1))


@lru_cache(maxsize=64)
def _primes_up_to(most: int) -> IntArray:
    """The least prime that divides every number from 0 to ``most``."""
    table = np.full(most + 1, NEVER)
    for number in range(most, 1, -1):
        table[number::number] = number
    return table


@lru_cache(maxsize=256)
def _split_table(most: int, inside: tuple[int, ...], tiers: int) -> tuple[IntArray, IntArray]:
    """All ways to write numbers up to ``most`` as products over ``tiers``, at most ``inside`` on
    the inner ones.

    The numbers (N,) in ascending order and their factors (N, tiers)."""
    rows = np.ones((1, 0), np.int64)
    for room in inside:
        factors = range(1, min(room, most) + 1)
        rows = np.concatenate(
            [np.column_stack([rows, np.full(len(rows), part)]) for part in factors]
        )
        rows = rows[rows.prod(axis=1) <= most]
    products = rows.prod(axis=1)
    counts = most // products
    rows = np.repeat(rows, counts, axis=0)
    last = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    parts = np.column_stack([rows, last])
    numbers = parts.prod(axis=1)
    order = np.argsort(numbers, kind="stable")
    return numbers[order], parts[order]


def ordered(plans: UniformPlans, orders: Sequence[GroupOrder], cluster: Cluster) -> BoolArray:
    """Whether one of the ``orders`` of groups puts assigned plans where they are, shape (N,)."""
    shape = plans.shape
    same = np.zeros(len(plans), np.bool_)
    if not isinstance(shape.group_order, Assignment) or shape.ep > 1:
        return same  # orders choose their own groups of experts
    inner, order_of = shape.inner_devices, shape.group_order
    devices, ones = plans.devices, np.ones(len(plans), np.int64)

    def parts(degrees: IntArray, strides: IntArray) -> IntArray:
        """By tier, shape (N, tiers)."""
        found: IntArray = parts_of(degrees, strides, devices, cluster.block_sizes).T
        return found

    strides = ones, shape.tp * ones, shape.tp * shape.tp2 * ones
    degrees = shape.tp * ones, shape.tp2 * ones, shape.cp * ones
    groups = np.stack(
        [parts(degree, stride) for degree, stride in zip(degrees, strides, strict=True)], axis=1
    )
    inside = (groups == np.array([order_of.tp, order_of.tp2, order_of.cp])).all(axis=(1, 2))
    for order in orders:
        near = inner * (plans.pp if order is GroupOrder.PIPELINE_INNER else plans.dp)
        replicas, stages = (
            (near, inner * ones) if order is GroupOrder.PIPELINE_INNER else (inner * ones, near)
        )
        outside = np.stack([parts(plans.dp, replicas), parts(plans.pp, stages)], axis=1)
        same |= inside & (plans.assigned == outside).all(axis=(1, 2))
    return same
