"""Compiled bounds of all plans whose stages differ, by dynamic programming over layers, devices and
stages behind.

Let stage s with k stages behind it have the load L(s), forward and backward pass of a micro-batch
with the messages that it sends. Of B micro-batches, with B > k, a 1F1B pipeline takes at least

    sum of L over the stages before s  +  (B - k) L(s)  +  2 sum of L over the k stages behind s

(``Estimator.plans.pipeline.one_f_one_b`` with e and x at the last stage), with fewer micro-batches
at least the first sum and B L(s); what follows the first stage's last backward pass, and the
largest optimizer step, come on top. That holds for every stage s; of plans whose largest load lies
between two limits it is taken for the stage that has it, and so is close to the truth where the
limits are.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_outer, inlined
from phaze_common.array_types import BoolArray, FloatArray, IntArray

ROUNDING = 1e-12  # relative: bounds this close to a value cannot beat it
# tables: of stages behind the one with the largest load, and of those with it
DOWNSTREAM_OF_LARGEST, WITH_LARGEST = range(2)


class StageSpace(NamedTuple):
    """The stages there can be, on a cluster and in a model. ``sizes`` (sizes,) are numbers of
    devices that a stage can have.

    ``first`` (nodes + 1,), ``part``, ``class_of`` (edges,) and ``depth`` (nodes,) are those of the
    lattice of layers. ``lies[size, device]`` says whether a stage may begin at a device. ``load_s``
    (sizes, classes, most stages) is the least load of an option without messages, ``once_s`` what
    the first stage adds to it at least: what follows its last backward pass, and the step.
    ``forward_s`` and ``back_s`` (tiers, sizes, nodes) are the least messages into a node and back.
    ``tier_at`` (devices + 1,) is the innermost tier over which the device before each reaches it.
    """

    first: IntArray
    part: IntArray
    class_of: IntArray
    depth: IntArray
    sizes: IntArray
    lies: BoolArray
    load_s: FloatArray
    once_s: FloatArray
    forward_s: FloatArray
    back_s: FloatArray
    tier_at: IntArray
    devices: int
    all_devices: bool
    micro_batches: int
    stage_counts: BoolArray  # (most stages + 1,): how many stages a plan may have


@inlined
def messages_s(
    space: StageSpace,
    size: int,
    whole: int,
    part: int,
    device: int,
    downstream: int,
    everything: int,
) -> float:
    """The least seconds of what a stage from ``device`` on sends: forward into ``part``, and back
    to the stage before."""
    seconds = 0.0
    if downstream > 0:
        seconds += space.forward_s[space.tier_at[device + space.sizes[size]], size, part]
    if whole != everything:
        seconds += space.back_s[space.tier_at[device], size, whole]
    return seconds


@inlined
def weights(downstream: int, micro_batches: int) -> tuple[float, float]:
    """How often the load of the stage with the largest one counts, and those behind it (of which
    the tables have twice)."""
    if micro_batches > downstream:
        return float(micro_batches - downstream), 1.0
    return float(micro_batches), 0.0


@borrowing_outer
def bound_loads(space: StageSpace, least_s: float, most_s: float, tables: FloatArray) -> float:
    """Seconds that no plan beats whose largest load lies from ``least_s`` to ``most_s``; infinite
    where there is none.

    Fills ``tables`` (2, most stages, nodes, devices + 1) with the least seconds of the stages that
    share a node from a device on.
    """
    everything = len(space.first) - 2
    most_stages = tables.shape[1]
    best_s = np.inf
    for downstream in range(most_stages):
        times, twice = weights(downstream, space.micro_batches)
        for node in range(1, everything + 1):
            root = node == everything
            for device in range(space.devices):
                tables[DOWNSTREAM_OF_LARGEST, downstream, node, device] = np.inf
                tables[WITH_LARGEST, downstream, node, device] = np.inf
                if root != (device == 0) or space.depth[node] <= downstream:
                    continue
                lesser_s, largest_s = np.inf, np.inf
                for edge in range(space.first[node], space.first[node + 1]):
                    part = space.part[edge]
                    if (part == 0) != (downstream == 0) or (
                        downstream > 0 and space.depth[part] < downstream
                    ):
                        continue
                    number = space.class_of[edge]
                    for size in range(len(space.sizes)):
                        end = device + space.sizes[size]
                        if end > space.devices or not space.lies[size, device]:
                            continue
                        if downstream == 0 and space.all_devices and end != space.devices:
                            continue
                        if downstream > 0 and end == space.devices:
                            continue
                        load_s = space.load_s[size, number, downstream]
                        if load_s == np.inf:
                            continue
                        load_s += messages_s(
                            space, size, node, part, device, downstream, everything
                        )
                        if load_s > most_s:
                            continue
                        whole_s = load_s
                        if root:
                            whole_s += space.once_s[size, number, downstream]
                        downstream_s = 0.0
                        if downstream > 0:
                            downstream_s = tables[DOWNSTREAM_OF_LARGEST, downstream - 1, part, end]
                            with_s = tables[WITH_LARGEST, downstream - 1, part, end]
                            largest_s = min(largest_s, whole_s + with_s)
                        if downstream_s < np.inf:
                            lesser_s = min(lesser_s, 2.0 * load_s + downstream_s)
                            # of an option that may not be the one with the least of ``once_s``
                            slowest_s = max(load_s, least_s)
                            here_s = (times - 1.0) * slowest_s + max(whole_s, slowest_s)
                            largest_s = min(largest_s, here_s + twice * downstream_s)
                tables[DOWNSTREAM_OF_LARGEST, downstream, node, device] = lesser_s
                tables[WITH_LARGEST, downstream, node, device] = largest_s
        if space.stage_counts[downstream + 1]:
            best_s = min(best_s, tables[WITH_LARGEST, downstream, everything, 0])
    return best_s
