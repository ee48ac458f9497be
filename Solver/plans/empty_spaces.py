"""The rule that leaves no plan in a space, in words: rules are added one after another, and the
first that leaves none is it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from Estimator.network.cluster import Cluster
from phaze_common.choices import GroupOrder
from Solver.plans.space import PlanSpace

INTERLEAVED = 2  # stages that a plan needs at least to be interleaved
LARGEST_BATCH = 10**12  # sequences; what is counted in arrays of 64 bits is far from their end


@dataclass(frozen=True)
class _Rule:
    """A space with this rule and those before it, and what is said where it has no plan."""

    space: PlanSpace
    layers: int
    words: Callable[[], str]


def why_empty(space: PlanSpace, layers: int, cluster: Cluster) -> str:
    """The rule that leaves no plan for ``layers`` layers, in words; empty where there are plans."""
    if space.has_plans(layers, cluster):
        return ""
    rules = _rules(space, layers, cluster)
    # The last is ``space``
    return next(rule.words() for rule in rules if not rule.space.has_plans(rule.layers, cluster))


def _rules(space: PlanSpace, layers: int, cluster: Cluster) -> Iterator[_Rule]:
    """The rules from those of all hardware to those of the batch, each with all before it."""
    unlimited = max(layers, space.devices, *(space.pp_degrees or ()))
    loosest = replace(
        space,
        base=replace(space.base, global_batch_size=_any_batch(space, layers)),
        micro_batch_sizes=(1,),
        whole_micro_batches=False,
        ep_degrees=(1,),
        interleave=(1,),
        sequence_parallel=(False,),
        group_orders=space.nested or (GroupOrder.DATA_INNER,),
    )
    yield _Rule(loosest, unlimited, lambda: _device_rule(space))
    yield _Rule(loosest, layers, lambda: _layer_rule(loosest, space, layers, cluster))
    sharing = replace(loosest, ep_degrees=space.ep_degrees)
    yield _Rule(sharing, layers, lambda: "ep must divide dp x cp")
    split = replace(sharing, sequence_parallel=space.sequence_parallel)
    sequence = f"the sequence length of {space.sequence_length:,}"
    yield _Rule(split, layers, lambda: f"tp must divide {sequence} to share out sequences")
    placed = replace(split, group_orders=space.group_orders)
    other = "the assignment to tiers is of other degrees; give those that it assigns"
    yield _Rule(placed, layers, lambda: other)
    chunked = replace(placed, interleave=space.interleave)
    yield _Rule(chunked, layers, lambda: _chunk_rule(space, layers))
    depths = _interleaved_depths(space, layers)
    filled = replace(
        placed, pp_degrees=depths, base=space.base, micro_batch_sizes=space.micro_batch_sizes
    )
    deep = replace(placed, pp_degrees=depths)
    yield _Rule(filled, layers, lambda: _batch_rule(deep, space, layers, cluster))
    counted = replace(filled, whole_micro_batches=space.whole_micro_batches)
    yield _Rule(counted, layers, lambda: _whole_rule(space))
    yield _Rule(space, layers, lambda: _round_rule(space))


def _any_batch(space: PlanSpace, layers: int) -> int:
    """A batch of whole rounds of micro-batches for any replicas and any interleaved depth."""
    degrees = [dp for dp in space.dp_degrees or (space.devices,) if dp <= space.devices] or [1]
    # An interleaved depth divides the blocks
    blocks, replicas = (max(layers - 2, 1), math.lcm(*degrees))
    return blocks * (replicas if replicas < LARGEST_BATCH else max(degrees))


def _interleaved_depths(space: PlanSpace, layers: int) -> tuple[int, ...] | None:
    """Degrees of pp that hold the chunks; those of the space where plans need no interleaving."""
    given, blocks = space.interleave, layers - 2
    if given is None or 1 in given:
        return space.pp_degrees
    degrees = space.pp_degrees or range(INTERLEAVED, layers)
    several = (pp for pp in degrees if pp >= INTERLEAVED)
    return tuple(pp for pp in several if any(blocks % (pp * chunks) == 0 for chunks in given))


def _device_rule(space: PlanSpace) -> str:
    count = "exactly" if space.use_all_devices else "at most"
    return f"tp x cp x pp x dp must be {count} {space.devices:,} devices"


def _layer_rule(before: PlanSpace, space: PlanSpace, layers: int, cluster: Cluster) -> str:
    rule = f"pp must be at most the {layers} layers of the model"
    if space.pp_degrees is not None and min(space.pp_degrees) > layers:
        return rule
    every = [
        before.plans(shape, max(layers, space.devices), cluster).pp for shape in before.shapes()
    ]
    least = min(int(pp.min()) for pp in every if len(pp))
    return (
        f"{rule}, and {space.devices:,} devices would need pp {least:,} at least; give a "
        "larger --tp or --dp, or fewer --devices"
    )


def _batch_rule(before: PlanSpace, space: PlanSpace, layers: int, cluster: Cluster) -> str:
    found = [before.plans(shape, layers, cluster).dp for shape in before.shapes()]
    replicas, size = min(int(dp.min()) for dp in found if len(dp)), min(space.micro_batch_sizes)
    return (
        f"every replica needs a micro-batch, and dp {replicas:,}, the fewest replicas there can "
        f"be, of micro-batch size {size:,} need a global batch of at least {replicas * size:,}, "
        f"given {space.base.global_batch_size:,}; give a larger --global-batch-size, fewer "
        "--devices, or more devices to each replica (--tp, --pp or --cp)"
    )


def _whole_rule(space: PlanSpace) -> str:
    return (
        f"the global batch of {space.base.global_batch_size:,} must be a multiple of micro-batch "
        "size x dp, so that every replica has whole micro-batches; give another "
        "--global-batch-size, --dp or --micro-batch-size, or --whole-micro-batches false for plans "
        "whose last micro-batches are counted as whole ones"
    )


def _chunk_rule(space: PlanSpace, layers: int) -> str:
    given, blocks = ", ".join(map(str, space.interleave or ())), layers - 2
    degrees = [pp for pp in space.pp_degrees or range(INTERLEAVED, layers) if pp >= INTERLEAVED]
    if not degrees:
        return f"interleave {given} needs pp of at least 2; give a larger --pp, or --interleave 1"
    every = ((pp, chunks) for pp in degrees for chunks in range(1, blocks // pp + 1))
    would = {1, *(chunks for pp, chunks in every if blocks % (pp * chunks) == 0)}
    allowed = ", ".join(map(str, sorted(would)))
    return (
        f"pp x interleave must divide the {blocks} blocks of the model, given interleave "
        f"{given}; possible are {allowed}"
    )


def _round_rule(space: PlanSpace) -> str:
    given = ", ".join(map(str, space.interleave or ()))
    return (
        f"interleave {given} needs micro-batches in multiples of pp; give a --global-batch-size "
        "that is a multiple of micro-batch size x dp x pp, or --interleave 1"
    )
