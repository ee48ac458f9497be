"""Which stage of a plan the traces of its ranks are of, and the mean of those of one stage."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from Estimator.plans.degrees import UniformPlan
from phaze.validation.kernel_trace import read_trace
from phaze.validation.traced_kernels import (
    KernelTime,
    ProductShape,
    ProductTime,
    TracedIteration,
    longest_of,
)
from phaze_common.errors import InputError

_RANK_IN_NAME = re.compile(r"rank[ _.=-]*(\d{1,9})|[._-](\d{1,9})\.et(?:\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True)
class TracedStage:
    """What was traced of ``stage``, counted from 0: the mean over ``traces``, by name."""

    stage: int
    traces: tuple[str, ...]
    iteration: TracedIteration


def traced_stages(
    paths: Sequence[Path], plan: UniformPlan, busiest: int, steps: int | None = None
) -> tuple[TracedStage, ...]:
    """The stages that ``paths``, traces of one rank each, are of, in order.

    A trace of torch.profiler says its rank, others by their file's name. A single one without is
    taken for ``busiest``.

    Raises: InputError: one cannot be read, is of no rank of the plan, or of which one cannot be
        known; two are of one rank.
    """
    found, seen = defaultdict[int, dict[str, TracedIteration]](dict), dict[int, str]()
    for path in paths:
        traced = read_trace(path, steps)
        rank = _rank_of(path.name, traced, plan)
        if rank in seen:
            raise InputError(
                f"{seen[rank]} and {path.name} are both of rank {rank}; give one trace of each rank"
            )
        if rank is not None:
            seen[rank] = path.name
        stage = _stage_of(path.name, rank, plan, busiest if len(paths) == 1 else None)
        found[stage][path.name] = traced
    return tuple(
        TracedStage(stage, tuple(traces), mean_of(list(traces.values())))
        for stage, traces in sorted(found.items())
    )


def mean_of(traced: Sequence[TracedIteration]) -> TracedIteration:
    """The mean of several iterations, of as many steps as the shortest of them."""
    if len(traced) == 1:
        return traced[0]
    many = len(traced)
    parts, names = defaultdict[str, float](float), defaultdict[tuple[str, str], float](float)
    counts, seconds = (defaultdict[ProductShape, float](float) for _ in range(2))
    for each in traced:
        for part, part_s in each.parts_s.items():
            parts[part] += part_s / many
        for kernel in each.longest:
            names[kernel.name, kernel.part] += kernel.seconds / many
        for product in each.products:
            counts[product.shape] += product.count / many
            seconds[product.shape] += product.seconds / many
    return TracedIteration(
        min(each.steps for each in traced),
        sum(each.iteration_s for each in traced) / many,
        dict(parts),
        sum(each.exposed_s for each in traced) / many,
        sum(each.messages_s for each in traced) / many,
        sum(each.idle_s for each in traced) / many,
        longest_of(KernelTime(name, part, kernel_s) for (name, part), kernel_s in names.items()),
        tuple(ProductTime(shape, counts[shape], seconds[shape]) for shape in sorted(seconds)),
    )


def _rank_of(name: str, traced: TracedIteration, plan: UniformPlan) -> int | None:
    """The rank that a trace or the name of its file says.

    Raises:
        InputError: the plan has no such rank.
    """
    if traced.ranks is not None and traced.ranks != plan.devices:
        raise InputError(
            f"{name} is of a run on {traced.ranks:,} devices, and the plan is one for "
            f"{plan.devices:,}; give the plan that ran"
        )
    said = _RANK_IN_NAME.search(name)
    rank = traced.rank if traced.rank is not None or said is None else int(said[1] or said[2])
    if rank is not None and rank >= plan.devices:
        raise InputError(
            f"{name} is of rank {rank:,}, and the plan is one for {plan.devices:,} devices, 0 to "
            f"{plan.devices - 1:,}; give the plan that ran"
        )
    return rank


def _stage_of(name: str, rank: int | None, plan: UniformPlan, otherwise: int | None) -> int:
    from phaze.exports.chakra.ranks import Ranks

    if plan.pp == 1:
        return 0
    if rank is not None:
        return Ranks(plan).stage_of(rank)
    if otherwise is None:
        raise InputError(
            f"nothing says of which rank {name} is; have its rank in the file's name, as in "
            "rank3.json"
        )
    return otherwise
